package partition_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// faulty is a disk that fails or hangs on demand and counts what it is asked.
type faulty struct {
	partition.Disk
	calls  atomic.Int64
	before func(call string, low, high uint64) error // nil: nothing
}

func (f *faulty) meet(call string, low, high uint64) error {
	f.calls.Add(1)
	if f.before == nil {
		return nil
	}
	return f.before(call, low, high)
}

func (f *faulty) FirstIndex() (uint64, error) {
	if err := f.meet("FirstIndex", 0, 0); err != nil {
		return 0, err
	}
	return f.Disk.FirstIndex()
}

func (f *faulty) StoreLogs(logs []*raft.Log) error {
	if err := f.meet("StoreLogs", logs[0].Index, logs[len(logs)-1].Index); err != nil {
		return err
	}
	return f.Disk.StoreLogs(logs)
}

func (f *faulty) DeleteRange(low, high uint64) error {
	if err := f.meet("DeleteRange", low, high); err != nil {
		return err
	}
	return f.Disk.DeleteRange(low, high)
}

func (f *faulty) GetLog(index uint64, l *raft.Log) error {
	if err := f.meet("GetLog", index, index); err != nil {
		return err
	}
	return f.Disk.GetLog(index, l)
}

func (f *faulty) Set(key, value []byte) error {
	if err := f.meet("Set", 0, 0); err != nil {
		return err
	}
	return f.Disk.Set(key, value)
}

func faultyBench(t *testing.T) (*bench, *faulty) {
	t.Helper()
	f := &faulty{}
	b := newBench(t, func(d partition.Disk) partition.Disk { f.Disk = d; return f })
	return b, f
}

// A disk that failed once may call the next write a success and lose it all the same.
func TestTheFirstErrorIsReportedOnceAndEndsAllStores(t *testing.T) {
	noSpace := errors.New("no space left on device")
	for _, tc := range []struct {
		call string
		do   func(b *bench) error
	}{
		{"StoreLogs", func(b *bench) error { return b.Log.StoreLog(entry(2, 1, 2)) }},
		{"Set", func(b *bench) error { return b.Stable.SetUint64([]byte("term"), 2) }},
		{"GetLog", func(b *bench) error { b.reopen(); return b.Log.GetLog(1, new(raft.Log)) }},
		{"DeleteRange", func(b *bench) error { return b.Log.DeleteRange(1, 1) }},
	} {
		t.Run(tc.call, func(t *testing.T) {
			b, f := faultyBench(t)
			b.must(b.Log.StoreLogs([]*raft.Log{entry(1, 1, 1), {Index: 2, Term: 1, Type: raft.LogNoop}, entry(3, 1, 1)}))
			failures, reads := 0, 0
			f.before = func(call string, low, _ uint64) error {
				if call == "GetLog" && low == 1 {
					reads++
				}
				if call == tc.call && (call != "GetLog" || low == 1 && reads > 1) { // the start reads all once
					failures++
					return noSpace
				}
				return nil
			}
			if err := tc.do(b); err == nil || !strings.Contains(err.Error(), noSpace.Error()) {
				t.Fatalf("got %v", err)
			}
			f.before = nil // the disk is well again, and nobody asks it
			asked := f.calls.Load()
			for name, err := range b.tryAll() {
				if err == nil || !strings.Contains(err.Error(), noSpace.Error()) {
					t.Errorf("%s afterwards: %v", name, err)
				}
			}
			if f.calls.Load() != asked || failures != 1 {
				t.Errorf("the disk was asked again after it failed")
			}
			if got := b.fatals(); len(got) != 1 || !errors.Is(got[0], noSpace) || !strings.Contains(got[0].Error(), b.folder) {
				t.Errorf("fatal heard %v", got)
			}
		})
	}
}

// tryAll calls every store once.
func (b *bench) tryAll() map[string]error {
	_, first := b.Log.FirstIndex()
	_, last := b.Log.LastIndex()
	_, get := b.Stable.Get([]byte("x"))
	_, get64 := b.Stable.GetUint64([]byte("x"))
	_, list := b.Snapshots.List()
	_, _, open := b.Snapshots.Open("1-1-1")
	_, create := b.create(9, 9)
	return map[string]error{
		"FirstIndex": first, "LastIndex": last, "Get": get, "GetUint64": get64, "List": list, "Open": open, "Create": create,
		"GetLog":      b.Log.GetLog(77, new(raft.Log)),
		"StoreLog":    b.Log.StoreLog(entry(4, 1, 4)),
		"DeleteRange": b.Log.DeleteRange(1, 1),
		"Set":         b.Stable.Set([]byte("x"), nil),
		"SetUint64":   b.Stable.SetUint64([]byte("x"), 1),
	}
}

func TestAPanicOfTheStoreEndsIt(t *testing.T) {
	b, f := faultyBench(t)
	f.before = func(string, uint64, uint64) error { panic("page 7: invalid page type") }
	err := b.Log.StoreLog(entry(1, 1, 1))
	if got := b.fatals(); err == nil || len(got) != 1 || !errors.Is(got[0], partition.ErrDamaged) {
		t.Errorf("got %v, fatal heard %v", err, got)
	}
}

// hang lets one append block until released, in a bubble; elapsed follows the bubble's time, or not.
func hang(t *testing.T, elapses bool, f func(b *bench, release func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, disk := faultyBench(t)
		stop, released := make(chan struct{}), make(chan struct{})
		var others sync.WaitGroup
		if elapses {
			others.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						b.now.Add(int64(100 * time.Millisecond))
					}
				}
			})
		}
		disk.before = func(string, uint64, uint64) error { <-released; return nil }
		var result error
		others.Go(func() { result = b.Log.StoreLog(entry(1, 1, 1)) })
		f(b, func() { close(released) })
		close(stop)
		others.Wait()
		if failed := b.fatals() != nil; failed != (result != nil) {
			t.Errorf("fatal heard %v, the append that hung returned %v", b.fatals(), result)
		}
	})
}

func TestADiskThatHangsEndsTheProcess(t *testing.T) {
	hang(t, true, func(b *bench, release func()) {
		time.Sleep(20 * time.Second) // of the bubble
		if b.fatals() != nil {
			b.t.Errorf("too early: %v", b.fatals())
		}
		time.Sleep(3 * time.Second)
		if got := b.fatals(); len(got) != 1 || !errors.Is(got[0], partition.ErrStuckDisk) {
			b.t.Errorf("fatal heard %v", got)
		}
		// The others don't wait for the disk either.
		if _, err := b.Log.LastIndex(); !errors.Is(err, partition.ErrStuckDisk) {
			b.t.Errorf("got %v", err)
		}
		release()
	})
}

func TestASlowDiskIsNoStuckDisk(t *testing.T) {
	hang(t, true, func(b *bench, release func()) {
		time.Sleep(19 * time.Second)
		release()
		time.Sleep(60 * time.Second)
	})
}

// A process that was stopped amid a write comes back to a write that seems hours old. The elapsed
// time, which counts no gaps, knows better.
func TestAFrozenProcessIsNoStuckDisk(t *testing.T) {
	hang(t, false, func(b *bench, release func()) {
		time.Sleep(time.Hour)
		release()
	})
}

// The library compacts in one transaction, for which appends wait.
func TestCompactionGoesInSmallStepsFromBelow(t *testing.T) {
	b, f := faultyBench(t)
	for i := uint64(1); i <= 5000; i += 1000 {
		b.must(b.Log.StoreLogs(entries(i, i+999, 1)))
	}
	var steps [][2]uint64
	f.before = func(call string, low, high uint64) error {
		if call == "DeleteRange" {
			steps = append(steps, [2]uint64{low, high})
			// Whatever a step leaves must be a whole log: power may fail after it.
			first, err := b.Log.FirstIndex()
			if err != nil || first != low {
				t.Errorf("before deleting %d to %d the log began at %d (%v)", low, high, first, err)
			}
		}
		return nil
	}
	b.must(b.Log.DeleteRange(1, 2500))
	if want := [][2]uint64{{1, 1024}, {1025, 2048}, {2049, 2500}}; !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
	// An installed snapshot leaves a gap, which must not be walked through.
	f.before = nil
	b.must(b.Log.StoreLog(entry(1<<40, 2, 9)))
	f.calls.Store(0)
	b.must(b.Log.DeleteRange(2501, 1<<40-1))
	if first, err := b.Log.FirstIndex(); err != nil || first != 1<<40 || f.calls.Load() > 10 {
		t.Errorf("first index %d, %v after %d calls", first, err, f.calls.Load())
	}
}

func TestAppendsGetInBetweenTheStepsOfACompaction(t *testing.T) {
	b, f := faultyBench(t)
	b.must(b.Log.StoreLogs(entries(1, 3000, 1)))
	next := uint64(3001)
	f.before = func(call string, _, _ uint64) error {
		if call == "DeleteRange" { // no transaction is open between two steps, or this would block
			b.must(b.Log.StoreLog(entry(next, 1, int64(next))))
			next++
		}
		return nil
	}
	b.must(b.Log.DeleteRange(1, 2999))
	if next != 3004 || b.Held().Time != 3003 {
		t.Errorf("%d appends, held %+v", next-3001, b.Held())
	}
}

func TestATruncationIsOneStepAndNoHoleIsLeft(t *testing.T) {
	b, f := faultyBench(t)
	b.must(b.Log.StoreLogs(entries(1, 3000, 1)))
	f.calls.Store(0)
	f.before = func(call string, low, high uint64) error {
		if call == "DeleteRange" && (low != 101 || high != 3000) {
			t.Errorf("a step from %d to %d", low, high)
		}
		return nil
	}
	b.must(b.Log.DeleteRange(101, 3000))
	b.must(b.Log.DeleteRange(101, 3000)) // nothing is there
	if last, err := b.Log.LastIndex(); err != nil || last != 100 {
		t.Errorf("last index %d, %v", last, err)
	}
	if err := b.Log.DeleteRange(50, 60); err == nil || len(b.fatals()) != 1 {
		t.Errorf("a hole: %v", err)
	}
}

// A follower whose whole log behind its snapshot is a deposed leader's truncates all of it. Power may
// fail after a step: what begins behind a hole, the next start refuses.
func TestATruncationOfTheWholeLogIsOneStep(t *testing.T) {
	b, f := faultyBench(t)
	b.snapshot(100, 1, 100)
	b.must(b.Log.StoreLogs(entries(101, 3100, 2)))
	steps := 0
	f.before = func(call string, _, _ uint64) error {
		if call == "DeleteRange" {
			if steps++; steps > 1 {
				return errors.New("power failed")
			}
		}
		return nil
	}
	err := b.Log.DeleteRange(101, 3100)
	f.before = nil
	if err != nil || steps != 1 {
		t.Errorf("%d steps, %v", steps, err)
	}
	b.must(b.Close())
	if err := b.tryOpen(); err != nil {
		t.Fatalf("the next start: %v", err)
	}
	if last, err := b.Log.LastIndex(); err != nil || last != 0 {
		t.Errorf("last index %d, %v", last, err)
	}
}
