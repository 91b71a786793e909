package partition

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// ErrStalled says that a leader got nothing applied for so long that another replica should lead.
var ErrStalled = errors.New("this leader gets nothing applied")

// stallLook is how often a leader looks whether its entries get applied.
const stallLook = 100 * time.Millisecond

// watchProgress looks after a leader that goes on hearing from its followers while none of its entries gets applied:
// a link on which heartbeats find their way and entries don't, an apply that hangs, a main loop that is stuck.
// Raft has such a leader lead for ever. It hands over, and where that doesn't help it ends its process, so that the
// others elect: but only if one of them has all that is committed, for else nothing would be gained.
//
// What takes the followers' answers away as well is Raft's to see, and a store that hangs diskGuard's. It runs beside
// run, which may itself wait for an apply that hangs.
func (g *Group) watchProgress() {
	ticker := time.NewTicker(stallLook)
	defer ticker.Stop()
	var s stall
	for {
		select {
		case <-g.quit:
			return
		case <-ticker.C:
			switch s.look(g, int64(g.cfg.StalledAfter)) {
			case stalledOnce:
				g.giveAway()
			case stalledTwice:
				g.giveUp()
			}
		}
	}
}

// stall is how long a leader has got nothing applied.
type stall struct {
	since   int64 // elapsed, so that a frozen process doesn't take itself for stalled; 0: it isn't
	term    uint64
	applied int64
	acted   stalled // what was done about it
}

type stalled uint8

const (
	notStalled stalled = iota
	stalledOnce
	stalledTwice
)

// look says what is due now, once each.
func (s *stall) look(g *Group, bound int64) stalled {
	term, applied, elapsed := g.raft.CurrentTerm(), g.ended.Load(), g.clock.Elapsed()
	waits := g.proposed.Load() > applied || g.began.Load() > applied
	if g.raft.State() != raft.Leader || !waits || s.since == 0 || s.term != term || s.applied != applied {
		*s = stall{since: elapsed, term: term, applied: applied}
		return notStalled
	}
	due := notStalled
	switch took := elapsed - s.since; {
	case took > 2*bound:
		due = stalledTwice
	case took > bound:
		due = stalledOnce
	}
	if due == s.acted {
		return notStalled
	}
	s.acted = due
	return due
}

// giveAway hands over, to anyone.
func (g *Group) giveAway() {
	g.metrics.stalls.Inc()
	g.log.Error("nothing gets applied: handing over", "term", g.raft.CurrentTerm())
	ctx, cancel := context.WithTimeout(context.Background(), 2*g.cfg.Election)
	defer cancel()
	if err := g.Transfer(ctx, ""); err != nil {
		g.log.Warn("hand over because nothing gets applied", "error", err)
	}
}

// giveUp ends the process if another can lead then.
func (g *Group) giveUp() {
	if g.followers.have(g.raft.CommitIndex()) {
		g.cfg.Fatal(ErrStalled)
		return
	}
	g.log.Error("nothing gets applied, and no other replica has all that is committed", "term", g.raft.CurrentTerm())
}
