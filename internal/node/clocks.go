package node

import (
	"context"
	"slices"
	"sync"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/clock"
)

const (
	compareEvery  = time.Second
	compareWithin = time.Second
	// verdictLasts is for how many times the least time of a comparison a verdict stands while answers take too long
	// for another one.
	verdictLasts = 3
)

// Elapsed reads this node's measure of elapsed time.
func (n *Node) Elapsed() *quotav1.ElapsedResponse {
	r := n.clock.Read()
	return &quotav1.ElapsedResponse{ElapsedNs: r.Elapsed, Gaps: r.Gaps}
}

// compareClocks compares this node's clock with the others', until ctx ends. Where it runs faster than that of
// every other replica that is heard, the node admits nothing and hands over: to be slow costs callers a little
// time, to be fast breaks the promise.
func (n *Node) compareClocks(ctx context.Context) {
	every := compareEvery
	if over := n.cfg.Timing.Compare; over > 0 {
		every = min(every, over/5)
	}
	for pause(ctx, every) {
		var all sync.WaitGroup
		for _, p := range n.peers {
			all.Go(func() { n.compareWith(ctx, p) })
		}
		all.Wait()
		h := n.hosting.Load()
		if h == nil {
			continue
		}
		n.judgeClock(h)
		n.handOverDoubted(ctx, h)
	}
}

// compareWith takes a sample of a peer's clock. One that isn't heard says nothing about ours.
func (n *Node) compareWith(ctx context.Context, p *peer) {
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	p.comparison.Over = n.cfg.Timing.Compare
	asked := n.clock.Read()
	m, err := p.rpc.Elapsed(ctx, &quotav1.ElapsedRequest{})
	if err != nil {
		p.verdict = clock.Unknown
		return
	}
	p.comparison.Add(clock.Sample{
		Asked: asked, Heard: n.clock.Read(), Theirs: clock.Reading{Elapsed: m.GetElapsedNs(), Gaps: m.GetGaps()},
	})
	now := n.Monotonic()
	if v := p.comparison.Verdict(); v != clock.Unknown || now-p.judged > verdictLasts*int64(p.comparison.Over) {
		p.verdict, p.judged = v, now
	}
}

// judgeClock tells every replica what the comparison says of this node's clock: all of them before any handover,
// each of which takes its time.
func (n *Node) judgeClock(h *hosting) {
	for _, r := range h.replicas {
		switch n.verdictFor(r) {
		case clock.Faster:
			r.doubted.Store(true)
		case clock.NoFaster:
			r.doubted.Store(false)
		}
		if g := r.running(); g != nil {
			g.DoubtClock(r.doubted.Load())
		}
	}
}

// verdictFor is what the clocks of the replica's peers say of this node's: it is too fast if it runs faster than all
// of which something is known, and isn't if one of them knows better. As long as nothing is known, what was known
// stands: a doubt doesn't end because answers take their time.
func (n *Node) verdictFor(r *replica) clock.Verdict {
	verdict := clock.Unknown
	for _, p := range n.peers {
		if !slices.ContainsFunc(r.members, func(id string) bool { return nameOf(id) == p.name }) {
			continue
		}
		switch p.verdict {
		case clock.NoFaster:
			return clock.NoFaster
		case clock.Faster:
			verdict = clock.Faster
		}
	}
	return verdict
}

// handOverDoubted hands over, all at once, what this node leads with a clock that is doubted.
func (n *Node) handOverDoubted(ctx context.Context, h *hosting) {
	ctx, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	var all sync.WaitGroup
	for _, r := range h.replicas {
		g := r.running()
		if g == nil || !r.doubted.Load() || !g.Leads() {
			continue
		}
		all.Go(func() {
			if err := g.Transfer(ctx, ""); err != nil {
				n.log.Error("hand over because of a fast clock", "partition", r.partition, "error", err)
			}
		})
	}
	all.Wait()
}
