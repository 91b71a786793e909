package partition_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/partition"
)

// holds compares Held.
func (b *bench) holds(when string, at, since int64) {
	b.t.Helper()
	if got, want := b.Held(), (clock.Held{Time: at, At: since}); got != want {
		b.t.Errorf("%s: held %+v, want %+v", when, got, want)
	}
}

func TestHeldIsTheNewestEntryInLogOrderSinceItWasStored(t *testing.T) {
	b := newBench(t, nil)
	b.holds("empty", 0, 0)
	b.now.Store(10)
	b.must(b.Log.StoreLogs([]*raft.Log{entry(1, 1, 100), entry(2, 1, 300)}))
	b.holds("of two entries the later", 300, 10)
	b.now.Store(20)
	b.must(b.Log.StoreLogs([]*raft.Log{{Index: 3, Term: 2, Type: raft.LogNoop}}))
	b.holds("raft's own entries carry no time", 300, 10)
	b.must(b.Log.StoreLogs([]*raft.Log{entry(4, 2, 200), {Index: 5, Term: 2, Type: raft.LogBarrier}}))
	b.holds("newest by its place, not by its time", 200, 20)
}

// Apply refuses an entry in another term than it was stamped in: the partition's time never was what
// it says.
func TestAnEntryStampedInAnotherTermCarriesNoTime(t *testing.T) {
	b := newBench(t, nil)
	b.now.Store(10)
	b.must(b.Log.StoreLogs([]*raft.Log{entry(1, 1, 100), late(2, 1, 2, 9000)}))
	b.holds("stored together", 100, 10)
	b.now.Store(20)
	b.must(b.Log.StoreLog(late(3, 1, 2, 9100)))
	b.holds("stored alone", 100, 10)
	b.now.Store(30)
	b.reopen()
	b.holds("read back", 100, 30)
	b.must(b.Log.StoreLog(entry(4, 2, 130)))
	b.must(b.Log.DeleteRange(4, 4))
	b.holds("truncated back to it", 100, 30)
}

func TestAfterAStartHeldCountsFromTheReadingBack(t *testing.T) {
	b := newBench(t, nil)
	b.now.Store(500)
	b.must(b.Log.StoreLogs([]*raft.Log{entry(1, 1, 100), {Index: 2, Term: 2, Type: raft.LogNoop}}))
	b.now.Store(7) // another process, another accumulator
	b.reopen()
	b.holds("read back", 100, 7)
}

func TestATruncatedEntrysTimeNeverHappened(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs([]*raft.Log{entry(1, 1, 100), entry(2, 1, 9000), entry(3, 1, 9100)}))
	b.now.Store(50)
	b.must(b.Log.DeleteRange(2, 3))
	b.holds("the remaining entry, from now on", 100, 50)
	b.must(b.Log.DeleteRange(1, 1))
	b.holds("nothing remains", 0, 50)
}

func TestCompactionLeavesHeldAlone(t *testing.T) {
	b := newBench(t, nil)
	b.now.Store(3)
	b.must(b.Log.StoreLogs(entries(1, 9, 1)))
	b.now.Store(50)
	b.snapshot(8, 1, 8)
	b.must(b.Log.DeleteRange(1, 8))
	b.holds("after a snapshot and a compaction of its own", 9, 3)
}

func TestHeldComesFromTheSnapshotWhereTheLogHasNone(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 9, 1)))
	b.snapshot(9, 1, 77)
	b.must(b.Log.DeleteRange(1, 9))
	b.now.Store(5)
	b.reopen()
	b.holds("compacted whole", 77, 5)
	b.must(b.Log.StoreLogs([]*raft.Log{{Index: 10, Term: 2, Type: raft.LogNoop}}))
	b.reopen()
	b.holds("nothing above it carries a time", 77, 5)
}

// The others' time stood still while this replica was cut off. Its own older entry would count that.
func TestAnInstalledSnapshotIsTheNewestThingHeld(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 9, 1)))
	b.now.Store(3600e9)
	b.snapshot(500, 3, 40)
	b.holds("beyond the log", 40, 3600e9)
	b.must(b.Log.DeleteRange(1, 9)) // as raft does next
	b.holds("and the old log compacted", 40, 3600e9)
	b.must(b.Log.StoreLog(entry(501, 3, 41)))
	b.holds("the log goes on from it", 41, 3600e9)
	b.now.Store(3700e9)
	b.must(b.Log.DeleteRange(501, 501))
	b.holds("truncated back to it", 40, 3700e9)
	b.reopen()
	b.holds("and after a start", 40, 3700e9)
	if b.fatals() != nil {
		t.Error(b.fatals())
	}
}

// A deposed leader's tail lies beyond a snapshot that others took of what was agreed on. The library
// keeps the tail, and could elect this replica with it.
func TestALogThatContradictsAnInstalledSnapshotIsDiscarded(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 20, 1)))
	sink, err := b.create(15, 4)
	b.must(err)
	_, err = sink.Write([]byte{0, 0, 0, 0, 0, 0, 0, 9})
	b.must(err)
	if err := sink.Close(); err == nil || len(b.fatals()) != 1 {
		t.Fatalf("got %v, fatal heard %v", err, b.fatals())
	}
	b.reopen()
	if last, err := b.Log.LastIndex(); err != nil || last != 0 {
		t.Errorf("the log still ends at %d, %v", last, err)
	}
	b.holds("what was agreed on", 9, 0)
	if list, err := b.Snapshots.List(); err != nil || len(list) != 1 || list[0].Index != 15 {
		t.Errorf("snapshots %v, %v", list, err)
	}
}

// A snapshot of our own may be finished after a leader has installed a newer one. The log begins
// behind that, and what it holds was acknowledged.
func TestASnapshotThatANewerOneOvertookIsIgnored(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 9, 1)))
	var own [2]raft.SnapshotSink
	for i := range own {
		var err error
		own[i], err = b.create(uint64(7+i), 1)
		b.must(err)
		_, err = own[i].Write(make([]byte, 8))
		b.must(err)
	}
	b.snapshot(500, 3, 40)
	if err := own[0].Close(); err == nil {
		t.Error("Raft isn't told that it is not its newest snapshot")
	}
	b.holds("the log is empty", 40, 0)
	b.now.Store(7)
	b.must(b.Log.StoreLog(entry(501, 3, 41)))
	if err := own[1].Close(); err == nil {
		t.Error("Raft isn't told that it is not its newest snapshot")
	}
	b.holds("the log has gone on", 41, 7)
	if last, err := b.Log.LastIndex(); err != nil || last != 501 || b.fatals() != nil {
		t.Errorf("last index %d, %v, %v", last, err, b.fatals())
	}
}

// Raft appends while its other goroutine finishes a snapshot. What it appended after log and snapshot
// were compared is none of the comparison's business.
func TestWhatIsAppendedWhileASnapshotIsFinishedStays(t *testing.T) {
	b, f := faultyBench(t)
	b.must(b.Log.StoreLogs(entries(1, 9, 1)))
	b.snapshot(9, 1, 9)
	b.must(b.Log.DeleteRange(1, 9))
	b.now.Store(7)
	appended := false
	f.before = func(call string, _, _ uint64) error {
		if call == "FirstIndex" && !appended { // the comparison has asked for the last index
			appended = true
			return b.Log.StoreLog(entry(10, 1, 10))
		}
		return nil
	}
	b.snapshot(9, 1, 9)
	if !appended {
		t.Fatal("no first index was asked for: nothing was tried")
	}
	f.before = nil
	var l raft.Log
	if err := b.Log.GetLog(10, &l); err != nil || b.fatals() != nil {
		t.Errorf("entry 10: %v, %v", err, b.fatals())
	}
	b.holds("the entry appended", 10, 7)
}

func TestASnapshotOfTheSameLogAgainIsNoContradiction(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 9, 1)))
	b.snapshot(8, 1, 8)
	b.must(b.Log.DeleteRange(1, 8))
	b.snapshot(8, 1, 8)
	b.reopen()
	if last, err := b.Log.LastIndex(); err != nil || last != 9 || b.fatals() != nil {
		t.Errorf("last index %d, %v, %v", last, err, b.fatals())
	}
}

func TestALogThatDoesNotReachItsSnapshotIsRefused(t *testing.T) {
	b := newBench(t, nil)
	b.must(b.Log.StoreLogs(entries(1, 9, 1)))
	b.snapshot(3, 1, 3)
	b.must(b.Log.DeleteRange(1, 5)) // raft never would
	b.must(b.Close())
	if err := b.tryOpen(); !errors.Is(err, partition.ErrDamaged) {
		t.Errorf("got %v", err)
	}
	c := newBench(t, nil)
	c.must(c.Log.StoreLogs(entries(2, 3, 1)))
	c.must(c.Close())
	if err := c.tryOpen(); !errors.Is(err, partition.ErrDamaged) {
		t.Errorf("without a snapshot: %v", err)
	}
}

// TestHeldEqualsTheEntriesLeft plays random histories of a log beside the obvious list of what it
// holds, each with when it got there.
func TestHeldEqualsTheEntriesLeft(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("QUORATE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("QUORATE_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t, nil)
	var left []*raft.Log // from index 1; compaction doesn't touch what is newest
	want, compacted := clock.Held{}, 0
	for range 300 {
		b.now.Add(rng.Int64N(100))
		switch what := rng.IntN(10); {
		case what < 6:
			var batch []*raft.Log
			for range 1 + rng.IntN(4) {
				l := entry(uint64(len(left)+1), 1, rng.Int64N(1000))
				if rng.IntN(3) == 0 {
					l.Type, l.Data = raft.LogNoop, nil
				} else {
					want = clock.Held{Time: mustTime(l), At: b.now.Load()}
				}
				left, batch = append(left, l), append(batch, l)
			}
			b.must(b.Log.StoreLogs(batch))
		case what == 6 && len(left) > compacted+1:
			from := compacted + 1 + rng.IntN(len(left)-compacted-1)
			b.must(b.Log.DeleteRange(uint64(from+1), uint64(len(left))))
			left = left[:from]
			want = clock.Held{Time: newestTime(left), At: b.now.Load()}
		case what == 7 && len(left) > compacted+1:
			compacted += rng.IntN(len(left) - compacted)
			if compacted > 0 {
				b.snapshot(uint64(compacted), 1, newestTime(left[:compacted]))
				b.must(b.Log.DeleteRange(1, uint64(compacted)))
			}
		case what == 8:
			b.reopen()
			want = clock.Held{Time: newestTime(left), At: b.now.Load()}
		}
		if got := b.Held(); got != want {
			t.Fatalf("after %d entries, %d compacted: held %+v, want %+v", len(left), compacted, got, want)
		}
	}
	if b.fatals() != nil {
		t.Error(b.fatals())
	}
}

func newestTime(logs []*raft.Log) int64 {
	for i := len(logs) - 1; i >= 0; i-- {
		if logs[i].Type == raft.LogCommand {
			return mustTime(logs[i])
		}
	}
	return 0
}

func mustTime(l *raft.Log) int64 {
	at, ok := timeOf(l.Data, l.Term)
	if !ok {
		panic("not an entry")
	}
	return at
}
