package partition

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
)

var (
	// ErrTransferring says that leadership is being handed over already.
	ErrTransferring = errors.New("leadership is being handed over")
	// ErrWedged says that the library went on refusing entries long after a handover had ended
	// (hashicorp/raft #696).
	ErrWedged = errors.New("entries are refused as if leadership were being handed over")
)

// wedgedAfter is how many election timeouts of refusals no handover can explain.
const wedgedAfter = 10

// Transfer hands leadership to the replica with that server id, or, if it is empty, to one that has most of
// the log. Meanwhile nothing is proposed: checks wait in the queue, for an election timeout at most. It
// returns nil once this replica has ceased to lead, and raft.ErrNotLeader, wrapped, if it doesn't lead.
//
// A follower that is told to take over is voted for although the others hear a leader, on which every lease
// relies: from then on this leader has none. Where the handover fails, the word may still be on its way. Once
// this leader has logged its time again, whoever gets it that late has less of the log than the others, and
// no vote.
func (g *Group) Transfer(ctx context.Context, to string) error {
	if !g.Leads() {
		return fmt.Errorf("hand over leadership: %w", raft.ErrNotLeader)
	}
	if g.transferring.Swap(true) {
		return ErrTransferring
	}
	g.unleased.Store(&unleased{term: g.raft.CurrentTerm(), until: math.MaxInt64})
	done := make(chan error, 1)
	g.futures.begin()
	go func() {
		defer g.futures.end()
		defer g.wake()
		err := g.transfer(to)
		if err != nil {
			u := *g.unleased.Load()
			u.until = g.source.Monotonic() + int64(g.cfg.TickEvery+3*g.cfg.Election)
			g.unleased.Store(&u)
		}
		g.transferring.Store(false)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("hand over leadership: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hand over leadership: %w", ctx.Err())
	}
}

// DoubtClock says whether this process's clock runs faster than those of the others. While it does, whatever this
// replica leads, it admits nothing and logs nothing: windows would be shorter than they should. It should hand
// over. It has one caller at a time.
func (g *Group) DoubtClock(doubted bool) {
	if g.doubted.Load() == doubted {
		return
	}
	if !doubted {
		g.rebase() // first: nobody may stamp with what the clock counted meanwhile
	}
	g.doubted.Store(doubted)
	if doubted {
		g.dismiss(Clock)
	} else {
		g.refusedSince.Store(0) // what would have been taken meanwhile wasn't proposed
	}
	g.log.Warn("the clock runs faster than others'", "doubted", doubted)
}

// rebase has time go on from what is logged, as of now: what the clock counted while it was doubted counts for
// nothing, neither for this leader nor for the first entry of a later term.
func (g *Group) rebase() {
	now := g.clock.Read().Elapsed
	g.stores.log.rebase(now)
	var logged int64
	g.machine.Read(func(m *fsm.Machine) { logged = m.Now() })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rebased = now
	if lead := g.lead.Load(); lead != nil && lead.ready {
		again := *lead
		again.clock = clock.TermClock{Time: logged, At: now}
		g.lead.Store(&again)
	}
}

// unleased is a term whose leader has no lease until then.
type unleased struct {
	term  uint64
	until int64 // monotonic
}

func (g *Group) transfer(to string) error {
	if to == "" {
		return g.raft.LeadershipTransfer().Error()
	}
	return g.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(to)).Error()
}

// refused hears why an entry got into no log. One refusal is what a handover is; refusals without an end are
// a replica that leads and can't: the end of its process lets the others elect.
func (g *Group) refused(err error) {
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		return
	}
	now := g.source.Monotonic()
	if g.refusedSince.CompareAndSwap(0, now) {
		return
	}
	if now-g.refusedSince.Load() > int64(wedgedAfter*g.cfg.Election) {
		g.cfg.Fatal(ErrWedged)
	}
}
