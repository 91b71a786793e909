package node

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/partition"
)

func TestAnIdentityIsDrawnOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	first := identify(t, dir, "a")
	if again := identify(t, dir, "a"); again != first {
		t.Errorf("got %s, want %s", again, first)
	}
	if len(first) != len("a-0123456789abcdef") || nameOf(first) != "a" {
		t.Errorf("server id %q", first)
	}
}

// An identity dies with its disk.
func TestAnEmptyDiskGetsAnotherIdentity(t *testing.T) {
	if first, second := identify(t, t.TempDir(), "a"), identify(t, t.TempDir(), "a"); first == second {
		t.Error("two disks have one identity")
	}
}

func TestAnIdentityIsNotMadeUpForDataThatIsThere(t *testing.T) {
	for _, left := range []string{"genesis.json", "founded.json", "starts.json", "p0/raft.db", "raft.db"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, left), "")
		if _, err := openDisk(dir, "a"); !errors.Is(err, ErrIdentityLost) {
			t.Errorf("beside %s: %v", left, err)
		}
	}
}

// A disk whose replicas are there and whose genesis isn't has lost it.
func TestAGenesisIsNotMadeUpForDataThatIsThere(t *testing.T) {
	for _, left := range []string{"founded.json", "p0/raft.db"} {
		dir := t.TempDir()
		identify(t, dir, "a")
		write(t, filepath.Join(dir, left), "{}")
		if _, err := openDisk(dir, "a"); !errors.Is(err, ErrGenesisLost) {
			t.Errorf("beside %s: %v", left, err)
		}
	}
}

func TestADamagedIdentityIsRefused(t *testing.T) {
	for _, document := range []string{
		``, `{`, `null`, `{"name": "a"}`,
		`{"name": "b", "incarnation": "0123456789abcdef"}`,
		`{"name": "a", "incarnation": "0123456789abcde"}`,
		`{"name": "a", "incarnation": "0123456789abcdeg"}`,
		`{"name": "a", "incarnation": "0123456789abcdef", "more": 1}`,
		`{"name": "a", "incarnation": "0123456789abcdef"} {}`,
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, identityFile), document)
		if d, err := openDisk(dir, "a"); err == nil {
			t.Errorf("%q was taken for %+v", document, d.identity)
		}
		if after, err := os.ReadFile(filepath.Join(dir, identityFile)); err != nil || string(after) != document {
			t.Errorf("%q was replaced by %q", document, after)
		}
	}
}

func TestNodeNamesAreLabels(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../a", "A", "a_b", "-a", "a-", "a\n", strings.Repeat("a", 64)} {
		if _, err := openDisk(t.TempDir(), name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	for _, name := range []string{"a", "node-0", "0", strings.Repeat("a", 63)} {
		if id := identify(t, t.TempDir(), name); nameOf(id) != name {
			t.Errorf("%q is taken for a disk of %q", id, nameOf(id))
		}
	}
	for _, id := range []string{"", "a", "-0123456789abcdef", "a-0123456789abcdeg", "A-0123456789abcdef"} {
		if name := nameOf(id); name != "" {
			t.Errorf("%q is taken for a disk of %q", id, name)
		}
	}
}

// Two processes never run on one folder.
func TestAFolderHasOneProcess(t *testing.T) {
	dir := t.TempDir()
	d, err := openDisk(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDisk(dir, "a"); !errors.Is(err, partition.ErrLocked) {
		t.Errorf("a second one: %v", err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	identify(t, dir, "a")
}

func someGenesis() Genesis {
	return newGenesis([]Member{{ID: "b-0000000000000002", Zone: "z"}, {ID: "a-0000000000000001"}, {ID: "c-0000000000000003"}}, 2, 3, 1<<30)
}

// The document is on disks, so its form is fixed.
func TestGenesisDocumentGolden(t *testing.T) {
	g := someGenesis()
	for i := range g.Cluster {
		g.Cluster[i], g.Seed[i] = byte(i), byte(0xf0+i)
	}
	dir := t.TempDir()
	if err := writeGenesis(dir, g); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/genesis.json")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, genesisFile)); err != nil || string(got) != string(want) {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := readGenesis(dir); err != nil || !got.equal(g) {
		t.Errorf("read back %+v, %v", got, err)
	}
}

func TestGenesisIsWrittenOnce(t *testing.T) {
	dir, g := t.TempDir(), someGenesis()
	if got, err := readGenesis(dir); err != nil || got != nil {
		t.Errorf("before: %+v, %v", got, err)
	}
	for range 2 { // the same one again is no change
		if err := writeGenesis(dir, g); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeGenesis(dir, someGenesis()); !errors.Is(err, ErrGenesisDiffers) {
		t.Errorf("another one: %v", err)
	}
	if got, err := readGenesis(dir); err != nil || !got.equal(g) {
		t.Errorf("now there is %+v, %v", got, err)
	}
}

func TestGenesisDocumentsDifferInAnything(t *testing.T) {
	for name, change := range map[string]func(*Genesis){
		"cluster":    func(g *Genesis) { g.Cluster[15]++ },
		"seed":       func(g *Genesis) { g.Seed[0]++ },
		"memory":     func(g *Genesis) { g.Memory++ },
		"partitions": func(g *Genesis) { g.Groups = g.Groups[:1] },
		"order":      func(g *Genesis) { g.Groups[0][0], g.Groups[0][1] = g.Groups[0][1], g.Groups[0][0] },
		"nodes":      func(g *Genesis) { g.Nodes[0].ID = "a-0000000000000009" },
		"zones":      func(g *Genesis) { g.Nodes[0].Zone = "elsewhere" },
		"system":     func(g *Genesis) { g.System = g.System[:1] },
	} {
		g := someGenesis()
		o, err := parseGenesis(g.encode())
		if err != nil || !o.equal(g) {
			t.Fatalf("not equal to itself: %v", err)
		}
		if change(&o); o.equal(g) {
			t.Errorf("%s makes no difference", name)
		}
	}
}

func FuzzGenesisDocument(f *testing.F) {
	valid := someGenesis().encode()
	f.Add(valid)
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"cluster":"00","seed":"","nodes":[],"groups":[]}`))
	f.Add(append(valid, '1'))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := parseGenesis(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(g.document())
		if err != nil {
			t.Fatal(err)
		}
		if h, err := parseGenesis(again); err != nil || !h.equal(g) {
			t.Errorf("%q was read as %+v, written as %s, then read as %+v, %v", b, g, again, h, err)
		}
	})
}

// identify opens and closes a disk and returns its server id.
func identify(t *testing.T, dir, name string) string {
	t.Helper()
	d, err := openDisk(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	return d.identity.ServerID()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
