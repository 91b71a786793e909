package partition

import (
	"errors"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// compactAgain is how long a compaction that gained too little waits before the next: entries that aren't
// applied yet can't go.
const compactAgain = 10 * time.Second

const (
	// mostKept is how many times the bound a leader's log may weigh for followers that are catching up. Beyond it
	// they need another snapshot.
	mostKept = 4
	// silentAfter is how many election timeouts a follower may not answer and is still waited for: more than its
	// disk takes for one request, much less than a machine takes to be replaced.
	silentAfter = 10
)

// compact takes a snapshot once the log weighs more than it should, and keeps half of that for followers
// that are behind: shipping them entries costs less than shipping the state. What a follower that is catching
// up still needs is kept besides, up to mostKept. The library counts entries instead, which may be a kilobyte
// or a gigabyte.
func (g *Group) compact() {
	half := g.cfg.LogBytes / 2
	if g.stores.LogBytes() <= g.cfg.LogBytes || g.compactDue.Load() > g.source.Monotonic() {
		return
	}
	keep := max(half, g.stores.weights.from(g.keepFrom()))
	if g.stores.LogBytes() <= keep+half || g.compacting.Swap(true) {
		return
	}
	g.futures.begin()
	go func() {
		defer g.futures.end()
		defer g.compacting.Store(false)
		err := g.snapshot(g.stores.weights.within(keep))
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && !errors.Is(err, raft.ErrRaftShutdown) {
			g.log.Warn("compact the log", "error", err)
		}
		if g.stores.LogBytes() > keep+half {
			g.compactDue.Store(g.source.Monotonic() + int64(compactAgain))
		}
	}()
}

// keepFrom is the first entry that is kept for a follower; none: the largest number.
func (g *Group) keepFrom() uint64 {
	if g.stores.LogBytes() > mostKept*g.cfg.LogBytes {
		return math.MaxUint64
	}
	return g.followers.keepFrom(g.stores.weights.first())
}

// snapshot takes a snapshot and deletes the entries in it, but for so many of the newest.
func (g *Group) snapshot(trailing uint64) error {
	settings := g.raft.ReloadableConfig()
	settings.TrailingLogs = trailing
	if err := g.raft.ReloadConfig(settings); err != nil {
		return err
	}
	return g.raft.Snapshot().Error()
}
