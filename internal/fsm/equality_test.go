package fsm_test

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
)

// TestReplicasOfOneLogAreEqual: two machines that are fed the same log have the same
// state hash and give the same answers at every index.
func TestReplicasOfOneLogAreEqual(t *testing.T) {
	eachSeed(t, 10, func(t *testing.T, seed uint64) {
		log := randomLog(t, seed)
		a, b := empty(), empty()
		for _, e := range log {
			follow(t, e, a, b)
		}
	})
}

// TestRestoredEqualsReplayed cuts a log anywhere: a machine that starts from the snapshot
// taken there has the same hash and gives the same answers at every later index. It
// also counts everything anew, so the kept sum is right at every cut.
func TestRestoredEqualsReplayed(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		log := randomLog(t, seed)
		original := empty()
		var restored []*fsm.Machine
		for i, e := range log {
			follow(t, e, append(restored, original)...)
			if i%7 == 0 {
				restored = append(restored, clone(t, original))
			}
		}
	})
}

// TestGenerationsOfSnapshots: a machine that lives on through snapshot after snapshot is
// the one that never stopped, and writes the same snapshots.
func TestGenerationsOfSnapshots(t *testing.T) {
	eachSeed(t, 10, func(t *testing.T, seed uint64) {
		original, heir := empty(), empty()
		for i, e := range randomLog(t, seed) {
			follow(t, e, original, heir)
			if i%5 == 0 {
				heir = clone(t, heir)
				if !bytes.Equal(written(t, original.Snapshot()), written(t, heir.Snapshot())) {
					t.Fatalf("after entry %d: the snapshots differ", e.index)
				}
			}
		}
	})
}

// TestSnapshotHoldsStill: what a snapshot writes while applies go on is the state in the
// moment when it was taken. The race detector watches.
func TestSnapshotHoldsStill(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		log := randomLog(t, seed)
		busy, quiet := empty(), empty()
		type taken struct {
			quiet []byte
			busy  chan []byte
		}
		var snapshots []taken
		for i, e := range log {
			follow(t, e, busy, quiet)
			if i%6 != 0 {
				continue
			}
			s := taken{written(t, quiet.Snapshot()), make(chan []byte, 1)}
			frozen := busy.Snapshot()
			if frozen.StateHash() != busy.StateHash() || frozen.Now() != busy.Now() {
				t.Fatalf("the snapshot at %d isn't of the state there", e.index)
			}
			go func() { s.busy <- written(t, frozen) }()
			snapshots = append(snapshots, s)
		}
		for i, s := range snapshots {
			if !bytes.Equal(<-s.busy, s.quiet) {
				t.Errorf("snapshot %d is not of its moment", i)
			}
		}
	})
}

// TestCheckpointsFindReplicasThatDiffer: a replica whose state is another says so at
// the next checkpoint but one, and only then.
func TestCheckpointsFindReplicasThatDiffer(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	other := clone(t, r.m)
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	missed := r.log[len(r.log)-1]
	// The other replica applies something else in the place of that entry.
	apply(t, other, entry{missed.index, missed.term, fsm.Tick(r.header())})
	for i, want := range []bool{false, true, true} {
		a := r.apply(fsm.CheckpointEntry(r.header(), r.m.LastCheckpoint()))
		b := apply(t, other, r.log[len(r.log)-1])
		if a.Diverged || b.Diverged != want {
			t.Errorf("checkpoint %d: diverged %t, the replica that differs %t, want %t", i, a.Diverged, b.Diverged, want)
		}
	}
}

func randomLog(tb testing.TB, seed uint64) []entry {
	h := newHistory(tb, seeded(seed))
	for range 90 {
		h.step()
	}
	return h.log
}

// follow applies an entry to machines that should be equal, and compares them.
func follow(tb testing.TB, e entry, machines ...*fsm.Machine) {
	tb.Helper()
	var first fsm.Applied
	for i, m := range machines {
		a := apply(tb, m, e)
		if i == 0 {
			first = a
		}
		if a.Header != first.Header || a.Refusal != first.Refusal || !slices.Equal(a.Answers, first.Answers) {
			tb.Fatalf("entry %d: machine %d answers\n%+v, the first\n%+v", e.index, i, a, first)
		}
		if m.StateHash() != machines[0].StateHash() {
			tb.Fatalf("entry %d: the state hash of machine %d differs", e.index, i)
		}
	}
}

func apply(tb testing.TB, m *fsm.Machine, e entry) fsm.Applied {
	tb.Helper()
	a, err := m.Apply(e.index, e.term, e.data)
	if err != nil {
		tb.Fatalf("entry %d: %v", e.index, err)
	}
	a.Answers = slices.Clone(a.Answers)
	return a
}

// clone is the machine that starts from a snapshot of m.
func clone(tb testing.TB, m *fsm.Machine) *fsm.Machine {
	tb.Helper()
	restored, err := fsm.Restore(bytes.NewReader(written(tb, m.Snapshot())), fsm.UpTo(newest))
	if err != nil {
		tb.Fatalf("after entry %d: %v", m.Index(), err)
	}
	return restored
}

func written(tb testing.TB, s io.WriterTo) []byte {
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		tb.Errorf("wrote %d bytes and said %d: %v", b.Len(), n, err)
	}
	return b.Bytes()
}
