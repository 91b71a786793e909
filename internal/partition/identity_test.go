package partition_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/partition"
)

func TestAnIdentityIsDrawnOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	first, existed, err := partition.OpenIdentity(dir, "a")
	if err != nil || existed {
		t.Fatalf("existed %v, %v", existed, err)
	}
	again, existed, err := partition.OpenIdentity(dir, "a")
	if err != nil || !existed || again != first {
		t.Errorf("got %+v, existed %v, %v; want %+v", again, existed, err, first)
	}
	if id := first.ServerID(); len(id) != len("a-0123456789abcdef") || !strings.HasPrefix(id, "a-") {
		t.Errorf("server id %q", id)
	}
}

// An identity dies with its disk.
func TestAnEmptyDiskGetsAnotherIdentity(t *testing.T) {
	dir := t.TempDir()
	first := identify(t, dir, "a")
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if again := identify(t, dir, "a"); again == first {
		t.Errorf("the new disk got the old id %s", again)
	}
}

func TestAnIdentityIsNotMadeUpForDataThatIsThere(t *testing.T) {
	for _, left := range []string{"genesis.json", "raft.db", "snapshots"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a", left), "")
		if _, _, err := partition.OpenIdentity(dir, "a"); !errors.Is(err, partition.ErrIdentityLost) {
			t.Errorf("OpenIdentity beside %s: %v", left, err)
		}
		if _, err := partition.Inspect(dir, "a"); !errors.Is(err, partition.ErrIdentityLost) {
			t.Errorf("Inspect beside %s: %v", left, err)
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
		write(t, filepath.Join(dir, "a", "identity.json"), document)
		if got, _, err := partition.OpenIdentity(dir, "a"); err == nil {
			t.Errorf("%q was taken for %+v", document, got)
		}
		if after, err := os.ReadFile(filepath.Join(dir, "a", "identity.json")); err != nil || string(after) != document {
			t.Errorf("%q was replaced by %q", document, after)
		}
	}
}

func TestReplicaNamesAreLabels(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../a", "A", "a_b", "-a", "a-", "a\n", strings.Repeat("a", 64)} {
		if _, _, err := partition.OpenIdentity(t.TempDir(), name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	for _, name := range []string{"a", "node-0", "0", strings.Repeat("a", 63)} {
		identify(t, t.TempDir(), name)
	}
}

// Two processes started on one folder must not run under two identities.
func TestConcurrentStartsAgreeOnOneIdentity(t *testing.T) {
	dir := t.TempDir()
	got := make([]partition.Identity, 8)
	var starts sync.WaitGroup
	for i := range got {
		starts.Go(func() {
			var err error
			if got[i], _, err = partition.OpenIdentity(dir, "a"); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	for _, i := range got {
		if i != got[0] {
			t.Fatalf("two identities: %+v and %+v", got[0], i)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "a", "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The document is on disks, so its form is fixed.
func TestGenesisDocumentGolden(t *testing.T) {
	dir := t.TempDir()
	identify(t, dir, "a")
	g := partition.Genesis{Partitions: 3, Replicas: []string{"a-01", "b-02"}}
	for i := range g.Cluster {
		g.Cluster[i], g.Seed[i] = byte(i), byte(0xf0+i)
	}
	if err := partition.WriteGenesis(dir, "a", g); err != nil {
		t.Fatal(err)
	}
	const want = `{
  "version": 1,
  "cluster": "000102030405060708090a0b0c0d0e0f",
  "seed": "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
  "partitions": 3,
  "replicas": [
    "a-01",
    "b-02"
  ]
}
`
	if got, err := os.ReadFile(filepath.Join(dir, "a", "genesis.json")); err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := partition.ReadGenesis(dir, "a"); err != nil || !got.Equal(g) {
		t.Errorf("read back %+v, %v", got, err)
	}
}

func TestGenesisIsWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	identify(t, dir, "a")
	if _, err := partition.ReadGenesis(dir, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	g := partition.NewGenesis(1, []string{"b-02", "a-01"})
	for range 2 { // the same one again is no change
		if err := partition.WriteGenesis(dir, "a", g); err != nil {
			t.Fatal(err)
		}
	}
	if err := partition.WriteGenesis(dir, "a", partition.NewGenesis(1, g.Replicas)); !errors.Is(err, partition.ErrGenesisDiffers) {
		t.Errorf("another one: %v", err)
	}
	if got, err := partition.ReadGenesis(dir, "a"); err != nil || !got.Equal(g) {
		t.Errorf("now there is %+v, %v", got, err)
	}
}

func TestGenesisDocumentsDifferInAnything(t *testing.T) {
	g := partition.NewGenesis(2, []string{"a-01", "b-02"})
	for name, change := range map[string]func(*partition.Genesis){
		"cluster":    func(g *partition.Genesis) { g.Cluster[15]++ },
		"seed":       func(g *partition.Genesis) { g.Seed[0]++ },
		"partitions": func(g *partition.Genesis) { g.Partitions++ },
		"replicas":   func(g *partition.Genesis) { g.Replicas = []string{"a-01", "b-03"} },
		"one less":   func(g *partition.Genesis) { g.Replicas = g.Replicas[:1] },
	} {
		if o := g; !o.Equal(g) {
			t.Fatal("not equal to itself")
		} else if change(&o); o.Equal(g) {
			t.Errorf("%s makes no difference", name)
		}
	}
}

func FuzzGenesisDocument(f *testing.F) {
	valid, err := json.Marshal(partition.NewGenesis(3, []string{"a-01", "b-02", "c-03"}).Document())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"cluster":"00","seed":"","partitions":0,"replicas":[]}`))
	f.Add(append(valid, '1'))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := partition.ParseGenesis(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(g.Document())
		if err != nil {
			t.Fatal(err)
		}
		if h, err := partition.ParseGenesis(again); err != nil || !h.Equal(g) {
			t.Errorf("%q was read as %+v, written as %s, then read as %+v, %v", b, g, again, h, err)
		}
	})
}

// identify makes sure that dir/name has an identity and returns its server id.
func identify(t *testing.T, dir, name string) string {
	t.Helper()
	i, _, err := partition.OpenIdentity(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return i.ServerID()
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

func TestFoldersAreMadeWithAllThatIsMissingAboveThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c")
	for range 2 { // the second time it is there
		if err := partition.MakeFolders(path); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := partition.MakeFolders(filepath.Join(file, "below")); err == nil {
		t.Error("a folder below a file")
	}
}

// What a folder knows of its peers never becomes less.
func TestNotesOfPeersNeverGoBack(t *testing.T) {
	dir := t.TempDir()
	identify(t, dir, "a")
	for _, seen := range []map[string]partition.Start{
		{"a-01": {Number: 3, Term: 2, Index: 9}, "b-02": {Number: 1, Term: 1, Index: 5}},
		{"a-01": {Number: 2, Term: 2, Index: 10}},
		{"a-01": {Number: 1, Term: 1, Index: 99}},
	} {
		if err := partition.NotePeers(dir, "a", seen); err != nil {
			t.Fatal(err)
		}
	}
	state, err := partition.Inspect(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]partition.Start{"a-01": {Number: 3, Term: 2, Index: 10}, "b-02": {Number: 1, Term: 1, Index: 5}}
	if !maps.Equal(state.Peers, want) {
		t.Errorf("got %v, want %v", state.Peers, want)
	}
	left, err := filepath.Glob(filepath.Join(dir, "a", "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Every start has a number of its own, and Inspect sees what the stores saw.
func TestEveryStartHasAHigherNumber(t *testing.T) {
	dir := t.TempDir()
	identify(t, dir, "a")
	for n := range uint64(3) {
		b := &bench{t: t, folder: filepath.Join(dir, "a")}
		b.open()
		b.must(b.Log.StoreLogs(entries(2*n+1, 2*n+2, 1)))
		begun, err := b.BeginStart()
		b.must(err)
		if want := (partition.Start{Number: n + 1, Term: 1, Index: 2*n + 2}); begun != want {
			t.Errorf("begun as %+v, want %+v", begun, want)
		}
		b.must(b.Close())
		state, err := partition.Inspect(dir, "a")
		if err != nil || state.Start != begun {
			t.Errorf("inspected as %+v, %v; begun as %+v", state.Start, err, begun)
		}
	}
}
