package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// confirmEvery is how often Confirm looks whether enough answers have come. Requests go out ten times in each election
// timeout, if only as heartbeats.
const confirmEvery = 5 * time.Millisecond

// Confirm returns how this replica stands after a majority has confirmed that it leads: each of them, in the term
// that Standing names, has answered a request that was sent after the call began. So nobody had been elected
// in a later term when the call began, and all that was committed until then is applied here. It fails with a
// [*NotLeaderError], wrapped, on a replica that doesn't lead, or ceases to, and with ctx's error where no majority
// answers in time.
//
// The library's own VerifyLeader would not do: it counts any answer that comes after the call, also one that has been on
// its way for as long as the process was frozen. A lease would not do either: it speaks of a moment before the call.
func (g *Group) Confirm(ctx context.Context) (Standing, error) {
	began := g.source.Monotonic()
	look := time.NewTicker(confirmEvery)
	defer look.Stop()
	for {
		lead := g.lead.Load()
		if lead == nil {
			return Standing{}, fmt.Errorf("confirm leadership: %w: %w", raft.ErrNotLeader, &NotLeaderError{Leader: g.leaderID()})
		}
		if lead.ready && g.heardSince(began) {
			// The lease counts answers of one term, which is lead's if that is on before and after.
			if s := g.Standing(); s.Leading && s.Formed && s.Term == lead.term {
				return s, nil
			}
		}
		select {
		case <-ctx.Done():
			return Standing{}, fmt.Errorf("confirm leadership: %w", ctx.Err())
		case <-look.C:
		}
	}
}

// heardSince reports whether a majority has answered requests that were sent after a reading of the monotonic clock: the
// lease lasts for its length from the sending of the last one that it takes.
func (g *Group) heardSince(began int64) bool { return g.lease.Valid(began + int64(g.cfg.Lease)) }
