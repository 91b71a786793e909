package partition

import (
	"sync/atomic"
	"time"
)

// futures counts the goroutines that wait for Raft's futures. A wait group would
// do, if it could be waited on with a bound: whoever waits on one can't be called
// off, and would stay behind where the bound passes.
//
// The goroutines themselves can't be called off either, as a future knows only a
// blocking Error. Each ends when Raft answers: when the entry is applied, or
// leadership is lost, or a disk that hangs comes back. Entries that Raft had
// committed and not applied when it was shut down it never answers; only the end
// of the process, which is what a shutdown with such a disk leads to, ends theirs.
type futures struct {
	n     atomic.Int64
	ended chan struct{} // of capacity 1: look at n again
}

func newFutures() futures { return futures{ended: make(chan struct{}, 1)} }

func (f *futures) begin() { f.n.Add(1) }

func (f *futures) end() {
	f.n.Add(-1)
	select {
	case f.ended <- struct{}{}:
	default:
	}
}

// await waits until Raft has said what became of each entry, at most for bound.
// There must be one who waits, and nobody who begins.
func (f *futures) await(bound time.Duration) {
	passed := time.NewTimer(bound)
	defer passed.Stop()
	for f.n.Load() > 0 {
		select {
		case <-f.ended:
		case <-passed.C:
			return
		}
	}
}
