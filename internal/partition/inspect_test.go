package partition_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

func TestInspectTellsWhatAFolderHolds(t *testing.T) {
	config := func(b *bench, g partition.Genesis) { b.must(b.Bootstrap(g)) }
	for _, tc := range []struct {
		name      string
		genesis   bool
		log       func(b *bench, g partition.Genesis) // nil: the stores were never opened
		want      partition.Condition
		lastIndex uint64
	}{
		{"an identity only", false, nil, partition.Blank, 0},
		{"opened, and nothing more", false, func(*bench, partition.Genesis) {}, partition.Blank, 0},
		{"the document", true, nil, partition.Fresh, 0},
		{"the document, opened", true, func(*bench, partition.Genesis) {}, partition.Fresh, 0},
		{"the founding entry", true, config, partition.Fresh, 1},
		{"died between the founding term and the founding entry", true, func(b *bench, _ partition.Genesis) {
			b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 1))
		}, partition.Fresh, 0},
		{"voted, but decided nothing", true, func(b *bench, g partition.Genesis) {
			config(b, g)
			b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 9))
		}, partition.Fresh, 1},
		{"one entry more", true, func(b *bench, g partition.Genesis) {
			config(b, g)
			b.must(b.Log.StoreLog(&raft.Log{Index: 2, Term: 2, Type: raft.LogNoop}))
		}, partition.Formed, 2},
		{"a first entry that founds nothing", true, func(b *bench, _ partition.Genesis) {
			b.must(b.Log.StoreLog(entry(1, 1, 1)))
		}, partition.Formed, 1},
		{"a founding entry without the document", false, config, partition.Formed, 1},
		{"a snapshot that emptied the log", true, func(b *bench, _ partition.Genesis) {
			b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 2))
			b.snapshot(9, 2, 1)
		}, partition.Formed, 0},
		{"a snapshot, and a log that doesn't know its term", true, func(b *bench, _ partition.Genesis) {
			b.snapshot(9, 2, 1)
		}, partition.Damaged, 0},
		{"a later term, and no log", true, func(b *bench, _ partition.Genesis) {
			b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 2))
		}, partition.Formed, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			id := identify(t, dir, "a")
			g := partition.NewGenesis(1, []string{id})
			if tc.genesis {
				if err := partition.WriteGenesis(dir, "a", g); err != nil {
					t.Fatal(err)
				}
			}
			if tc.log != nil {
				b := &bench{t: t, folder: filepath.Join(dir, "a")}
				b.open()
				tc.log(b, g)
				b.must(b.Close())
			}
			got, err := partition.Inspect(dir, "a")
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != "a" || got.ServerID != id || got.Condition != tc.want || got.LastIndex != tc.lastIndex || (got.Genesis != nil) != tc.genesis {
				t.Errorf("got %+v, want %v, last index %d", got, tc.want, tc.lastIndex)
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
		dir := t.TempDir()
		id := identify(t, dir, "a")
		if err := partition.WriteGenesis(dir, "a", partition.NewGenesis(1, []string{id})); err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, folder: filepath.Join(dir, "a")}
		b.open()
		b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 3))
		b.must(b.Log.StoreLogs(entries(1, 9, 3)))
		b.snapshot(5, 3, 1)
		b.must(b.Close())
		fresh := &bench{t: t, folder: t.TempDir()}
		fresh.open()
		b.must(fresh.Close())
		b.must(os.Rename(filepath.Join(fresh.folder, "raft.db"), filepath.Join(dir, "a", "other.db")))
		b.must(lose(filepath.Join(dir, "a", "raft.db")))
		state, err := partition.Inspect(dir, "a")
		if err != nil || state.Condition != partition.Damaged || !errors.Is(state.Damage, partition.ErrLogLost) {
			t.Errorf("%s: %v, %v, %v", name, state.Condition, state.Damage, err)
		}
	}
}

func TestInspectOfNothing(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // looking creates nothing
		got, err := partition.Inspect(dir, "a")
		if err != nil || !reflect.DeepEqual(got, partition.State{Name: "a"}) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	identify(t, dir, "a")
	write(t, filepath.Join(dir, "a", "raft.db"), "") // died while creating it
	if got, err := partition.Inspect(dir, "a"); err != nil || got.Condition != partition.Blank {
		t.Errorf("an empty log: %+v, %v", got, err)
	}
}

// A folder that can't be read has no condition: it might hold anything.
func TestInspectRefusesWhatItCannotRead(t *testing.T) {
	for name, content := range map[string]string{"raft.db": "not a log at all", "genesis.json": "{"} {
		dir := t.TempDir()
		identify(t, dir, "a")
		write(t, filepath.Join(dir, "a", name), content)
		if got, err := partition.Inspect(dir, "a"); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestInspectRefusesAFolderThatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the lock's two seconds are the bubble's
		dir := t.TempDir()
		identify(t, dir, "a")
		b := &bench{t: t, folder: filepath.Join(dir, "a")}
		b.open()
		if _, err := partition.Inspect(dir, "a"); !errors.Is(err, partition.ErrLocked) {
			t.Errorf("got %v", err)
		}
		b.must(b.Close())
	})
}

// A process dies after each step of a genesis in turn; the next start must go on from there and end
// in the same group.
func TestAGenesisThatWasInterruptedGoesOn(t *testing.T) {
	for steps := range 7 {
		dir := t.TempDir()
		first := foundUntil(t, dir, steps)
		g := foundUntil(t, dir, 99)
		if steps > 0 && !g.Equal(first) { // with one document written, that one stands
			t.Errorf("after %d steps another genesis was drawn", steps)
		}
		plan := planOf(t, dir)
		if !plan.Bootstrap || len(plan.Start) != 3 || len(plan.Awaiting) != 0 || !plan.Genesis.Equal(g) {
			t.Errorf("after %d steps and another start: %+v", steps, plan)
		}
		// From the first entry on it is over, even if two disks are lost then.
		b := &bench{t: t, folder: filepath.Join(dir, "a")}
		b.open()
		b.must(b.Log.StoreLog(&raft.Log{Index: 2, Term: 2, Type: raft.LogNoop}))
		b.must(b.Close())
		for _, name := range []string{"b", "c"} {
			b.must(os.RemoveAll(filepath.Join(dir, name)))
		}
		if plan := planOf(t, dir); plan.Bootstrap || len(plan.Start) != 1 || len(plan.Awaiting) != 2 {
			t.Errorf("with a formed replica left: %+v", plan)
		}
	}
}

// Bootstrap may be called at every start: a log that was founded is left alone.
func TestBootstrapOfAFoundedLogChangesNothing(t *testing.T) {
	b := newBench(t, nil)
	g := partition.NewGenesis(1, []string{"a-01", "b-02"})
	b.must(b.Bootstrap(g))
	var founding raft.Log
	b.must(b.Log.GetLog(1, &founding))
	if c := raft.DecodeConfiguration(founding.Data); founding.Type != raft.LogConfiguration || founding.Term != 1 || len(c.Servers) != 2 ||
		c.Servers[1] != (raft.Server{Suffrage: raft.Voter, ID: "b-02", Address: "b-02"}) {
		t.Errorf("founded %+v with %+v", founding, c)
	}
	b.must(b.Stable.SetUint64([]byte("CurrentTerm"), 7))
	b.must(b.Log.StoreLog(entry(2, 7, 1)))
	b.must(b.Bootstrap(partition.NewGenesis(1, []string{"c-03"})))
	term, err := b.Stable.GetUint64([]byte("CurrentTerm"))
	last, lerr := b.Log.LastIndex()
	if err != nil || lerr != nil || term != 7 || last != 2 {
		t.Errorf("term %d, last index %d, %v, %v", term, last, err, lerr)
	}
}

func planOf(t *testing.T, dir string) partition.StartPlan {
	t.Helper()
	var states []partition.State
	for _, name := range []string{"a", "b", "c"} {
		s, err := partition.Inspect(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, s)
	}
	plan, err := partition.PlanStart(states)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// foundUntil does what a node does to found a group, and dies after so many steps.
func foundUntil(t *testing.T, dir string, steps int) partition.Genesis {
	t.Helper()
	plan := planOf(t, dir)
	names := []string{"a", "b", "c"}
	var ids []string
	for _, name := range names {
		ids = append(ids, identify(t, dir, name))
	}
	g := partition.NewGenesis(1, ids)
	if plan.Genesis != nil {
		g = *plan.Genesis
	}
	for i := range names {
		if steps--; steps < 0 {
			return g
		}
		if err := partition.WriteGenesis(dir, names[i], g); err != nil {
			t.Fatal(err)
		}
	}
	for i := range names {
		if steps--; steps < 0 {
			return g
		}
		b := &bench{t: t, folder: filepath.Join(dir, names[i])}
		b.open()
		b.must(b.Bootstrap(g))
		b.must(b.Close())
	}
	return g
}
