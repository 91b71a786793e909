package partition

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// compactAgain is how long a compaction that gained too little waits before the next: entries that aren't
// applied yet can't go.
const compactAgain = 10 * time.Second

// compact takes a snapshot once the log weighs more than it should, and keeps half of that for followers
// that are behind: shipping them entries costs less than shipping the state. The library counts entries
// instead, which may be a kilobyte or a gigabyte.
func (g *Group) compact() {
	if g.stores.LogBytes() <= g.cfg.LogBytes || g.compactDue.Load() > g.source.Monotonic() || g.compacting.Swap(true) {
		return
	}
	g.futures.begin()
	go func() {
		defer g.futures.end()
		defer g.compacting.Store(false)
		err := g.snapshot(g.stores.weights.within(g.cfg.LogBytes / 2))
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && !errors.Is(err, raft.ErrRaftShutdown) {
			g.log.Warn("compact the log", "error", err)
		}
		if g.stores.LogBytes() > g.cfg.LogBytes {
			g.compactDue.Store(g.source.Monotonic() + int64(compactAgain))
		}
	}()
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
