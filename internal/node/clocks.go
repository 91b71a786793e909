package node

import (
	"context"
	"sync"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/clock"
)

const (
	compareEvery  = time.Second
	compareWithin = time.Second
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
		p.slower, p.compared = false, false
		return
	}
	p.comparison.Add(clock.Sample{
		Asked: asked, Heard: n.clock.Read(), Theirs: clock.Reading{Elapsed: m.GetElapsedNs(), Gaps: m.GetGaps()},
	})
	p.slower, p.compared = p.comparison.Faster()
}

// judgeClock tells every replica what the comparison says of this node's clock: all of them before any handover,
// each of which takes its time.
func (n *Node) judgeClock(h *hosting) {
	for _, r := range h.replicas {
		heard, slower := n.comparedWith(r)
		if heard > 0 { // where nobody is heard, what was known stands
			r.doubted.Store(slower == heard)
		}
		if g := r.running(); g != nil {
			g.DoubtClock(r.doubted.Load())
		}
	}
}

// comparedWith counts the replica's peers whose clocks are heard, and those among them that are slower.
func (n *Node) comparedWith(r *replica) (heard, slower int) {
	for _, p := range n.peers {
		for _, id := range r.members {
			if nameOf(id) == p.name && p.compared {
				heard++
				if p.slower {
					slower++
				}
			}
		}
	}
	return heard, slower
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
