package node

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

const (
	// balanceEvery is how often a node looks whether it leads what another one should.
	balanceEvery = 500 * time.Millisecond
	// balanceAgain is how long after a handover that failed the next one is tried.
	balanceAgain = 30 * time.Second
)

// spreadLeaders hands what this node leads to the replica that leads where it can, one partition at a time,
// until ctx ends. By genesis those are spread evenly.
func (n *Node) spreadLeaders(ctx context.Context) {
	fit := map[int]int64{} // since when, by partition; monotonic
	for pause(ctx, balanceEvery) {
		h := n.hosting.Load()
		if h == nil {
			continue
		}
		now := n.Monotonic()
		for _, r := range h.replicas {
			if !n.shouldHandOver(r) {
				delete(fit, r.partition)
				continue
			}
			if since, known := fit[r.partition]; !known {
				fit[r.partition] = now
			} else if now-since >= int64(n.cfg.Timing.Balance) {
				n.handTo(ctx, r, fit)
			}
		}
	}
}

func (n *Node) handTo(ctx context.Context, r *replica, fit map[int]int64) {
	ctx, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	if err := r.running().Transfer(ctx, r.members[0]); err != nil && ctx.Err() == nil {
		n.log.Info("hand over leadership", "partition", r.partition, "error", err)
		fit[r.partition] = n.Monotonic() + int64(balanceAgain-n.cfg.Timing.Balance)
		return
	}
	delete(fit, r.partition)
}

// shouldHandOver tells whether this node leads a partition that another node should, which is up and has
// caught up.
func (n *Node) shouldHandOver(r *replica) bool {
	g := r.running()
	first := r.members[0]
	if g == nil || first == n.disk.identity.ServerID() || !g.Leading() {
		return false
	}
	for _, p := range n.peers {
		if p.name != nameOf(first) {
			continue
		}
		heard := p.heard.Load()
		if heard == 0 || n.Monotonic()-heard > int64(2*timesEvery) {
			return false
		}
		applied := g.Status().Applied
		for _, s := range p.told() {
			if int(s.GetPartition()) == r.partition && s.GetId() == first {
				return s.GetState() == stateFollower && !s.GetClockDoubted() && s.GetApplied()+caughtUp >= applied
			}
		}
	}
	return false
}

// HandOver hands over all that this node leads, before it stops: others then lead in a moment, not after an
// election timeout. From now on the node isn't ready. Close does it too.
func (n *Node) HandOver() {
	n.leaving.Store(true)
	h := n.hosting.Load()
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverWithin)
	defer cancel()
	var all sync.WaitGroup
	for _, r := range h.replicas {
		if g := r.running(); g != nil && g.Leading() && n.anybodyElse(r) {
			all.Go(func() { n.handAway(ctx, r, g) })
		}
	}
	all.Wait()
}

func (n *Node) handAway(ctx context.Context, r *replica, g *partition.Group) {
	if err := g.Transfer(ctx, ""); err != nil {
		n.log.Info("hand over leadership before the stop", "partition", r.partition, "error", err)
	}
}

// anybodyElse tells whether another node with a replica of the partition was heard lately.
func (n *Node) anybodyElse(r *replica) bool {
	for _, id := range r.members {
		for _, p := range n.peers {
			if heard := p.heard.Load(); p.name == nameOf(id) && heard != 0 && n.Monotonic()-heard < int64(2*timesEvery) {
				return true
			}
		}
	}
	return false
}
