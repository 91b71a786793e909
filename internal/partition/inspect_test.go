package partition_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

func TestInspectTellsWhatAFolderHolds(t *testing.T) {
	founded := func(b *bench) { b.must(b.Bootstrap([]string{"a-01"})) }
	term := func(b *bench, n uint64) { b.must(b.Stable.SetUint64([]byte("CurrentTerm"), n)) }
	for _, tc := range []struct {
		name      string
		log       func(b *bench) // nil: the stores were never opened
		formed    bool
		lastIndex uint64
	}{
		{"nothing", nil, false, 0},
		{"opened, and nothing more", func(*bench) {}, false, 0},
		{"the founding entry", founded, false, 1},
		{"died between the founding term and the founding entry", func(b *bench) { term(b, 1) }, false, 0},
		{"voted, but decided nothing", func(b *bench) { founded(b); term(b, 9) }, false, 1},
		{"one entry more", func(b *bench) {
			founded(b)
			b.must(b.Log.StoreLog(&raft.Log{Index: 2, Term: 2, Type: raft.LogNoop}))
		}, true, 2},
		{"a first entry that founds nothing", func(b *bench) { b.must(b.Log.StoreLog(entry(1, 1, 1))) }, true, 1},
		{"a snapshot that emptied the log", func(b *bench) { term(b, 2); b.snapshot(9, 2, 1) }, true, 0},
		{"a later term, and no log", func(b *bench) { term(b, 2) }, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder := t.TempDir()
			if tc.log != nil {
				b := &bench{t: t, folder: folder}
				b.open()
				tc.log(b)
				b.must(b.Close())
			}
			got, err := partition.Inspect(folder)
			if err != nil || got.Formed != tc.formed || got.LastIndex != tc.lastIndex {
				t.Errorf("got %+v, %v; want formed %v, last index %d", got, err, tc.formed, tc.lastIndex)
			}
		})
	}
}

// A replica whose raft.db is gone beside its snapshots has forgotten its votes and what it
// acknowledged since: with one of its peers it would be a majority that knows nothing of it.
func TestALogLostBesideASnapshotIsNotStarted(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"removed":  os.Remove,
		"emptied":  func(path string) error { return os.Truncate(path, 0) },
		"replaced": func(path string) error { return os.Rename(filepath.Join(filepath.Dir(path), "other.db"), path) },
	} {
		b := &bench{t: t, folder: t.TempDir()}
		b.open()
		b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 3))
		b.must(b.Log.StoreLogs(entries(1, 9, 3)))
		b.snapshot(5, 3, 1)
		b.must(b.Close())
		fresh := &bench{t: t, folder: t.TempDir()}
		fresh.open()
		b.must(fresh.Close())
		b.must(os.Rename(filepath.Join(fresh.folder, "raft.db"), filepath.Join(b.folder, "other.db")))
		b.must(lose(filepath.Join(b.folder, "raft.db")))
		if got, err := partition.Inspect(b.folder); !errors.Is(err, partition.ErrLogLost) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestInspectOfNothing(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "p0")
	for range 2 { // looking creates nothing
		if got, err := partition.Inspect(folder); err != nil || got != (partition.Holdings{}) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	write(t, filepath.Join(folder, "raft.db"), "") // died while creating it
	if got, err := partition.Inspect(folder); err != nil || got != (partition.Holdings{}) {
		t.Errorf("an empty log: %+v, %v", got, err)
	}
}

// A folder that can't be read might hold anything.
func TestInspectRefusesWhatItCannotRead(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "raft.db"), "not a log at all")
	if got, err := partition.Inspect(folder); err == nil {
		t.Errorf("got %+v", got)
	}
}

func TestInspectRefusesAFolderThatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the lock's two seconds are the bubble's
		b := &bench{t: t, folder: t.TempDir()}
		b.open()
		if _, err := partition.Inspect(b.folder); !errors.Is(err, partition.ErrLocked) {
			t.Errorf("got %v", err)
		}
		b.must(b.Close())
	})
}

// Bootstrap may be called at every start: a log that was founded is left alone.
func TestBootstrapOfAFoundedLogChangesNothing(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Bootstrap([]string{"a-01", "b-02"}))
	var founding raft.Log
	b.must(b.Log.GetLog(1, &founding))
	if c := raft.DecodeConfiguration(founding.Data); founding.Type != raft.LogConfiguration || founding.Term != 1 || len(c.Servers) != 2 ||
		c.Servers[1] != (raft.Server{Suffrage: raft.Voter, ID: "b-02", Address: "b-02"}) {
		t.Errorf("founded %+v with %+v", founding, c)
	}
	b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 7))
	b.must(b.Log.StoreLog(entry(2, 7, 1)))
	b.must(b.Bootstrap([]string{"c-03"}))
	term, err := b.Stable.GetUint64([]byte("CurrentTerm"))
	last, lerr := b.Log.LastIndex()
	if err != nil || lerr != nil || term != 7 || last != 2 {
		t.Errorf("term %d, last index %d, %v, %v", term, last, err, lerr)
	}
}

// Every start has a number of its own, and Inspect sees what the stores saw.
func TestEveryStartHasAHigherNumber(t *testing.T) {
	folder := t.TempDir()
	for n := range uint64(3) {
		b := &bench{t: t, folder: folder}
		b.open()
		b.must(b.Log.StoreLogs(entries(2*n+1, 2*n+2, 1)))
		begun, err := b.BeginStart()
		b.must(err)
		if want := (partition.Start{Number: n + 1, Term: 1, Index: 2*n + 2}); begun != want {
			t.Errorf("begun as %+v, want %+v", begun, want)
		}
		b.must(b.Close())
		if got, err := partition.Inspect(folder); err != nil || got.Start != begun {
			t.Errorf("inspected as %+v, %v; begun as %+v", got.Start, err, begun)
		}
	}
}

// Of two sights of a replica the later one counts, in each of what they say.
func TestASightOfAReplicaNeverGoesBack(t *testing.T) {
	seen := partition.Start{}
	for _, s := range []partition.Start{{Number: 3, Term: 2, Index: 9}, {Number: 2, Term: 2, Index: 10}, {Number: 1, Term: 1, Index: 99}} {
		seen = seen.Later(s)
	}
	if want := (partition.Start{Number: 3, Term: 2, Index: 10}); seen != want {
		t.Errorf("got %+v, want %+v", seen, want)
	}
	for _, s := range []partition.Start{{Number: 2, Term: 9, Index: 99}, {Number: 3, Term: 2, Index: 9}, {Number: 4, Term: 1, Index: 99}} {
		if !s.Behind(seen) {
			t.Errorf("%+v passes for what became of %+v", s, seen)
		}
	}
	if seen.Behind(seen) {
		t.Error("behind itself")
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
	write(t, file, "")
	if err := partition.MakeFolders(filepath.Join(file, "below")); err == nil {
		t.Error("a folder below a file")
	}
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
