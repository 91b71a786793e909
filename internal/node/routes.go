package node

import (
	"context"
	"sync"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
)

// route is what is known of the way to a partition.
type route struct {
	leader  string // node; empty: none is known
	term    uint64
	epoch   uint64
	now     int64 // newest logged decision time; -1: none is known
	version fsm.Version
}

// routes are who leads what, as each node says of itself. Of two that claim a partition the later term counts.
// A claim stands until its node takes it back or another one is newer: a broken stream proves nothing.
type routes struct {
	address func(node string) string

	mu      sync.Mutex
	claims  map[int]map[string]route // by partition and node
	news    chan struct{}            // closed at every change, and replaced
	serials map[int]uint64           // of each partition's last change but of time
	serial  uint64
}

func newRoutes(address func(string) string) *routes {
	return &routes{address: address, claims: map[int]map[string]route{}, news: make(chan struct{}), serials: map[int]uint64{}}
}

// hear takes in what a node says of what it leads itself.
func (t *routes) hear(node string, partitions []*quotav1.PartitionRoute) {
	for _, m := range partitions {
		r := route{
			leader: m.GetLeader(), term: m.GetTerm(), epoch: m.GetEpoch(), now: -1,
			version: fsm.Version{Epoch: m.GetVersion().GetEpoch(), Number: m.GetVersion().GetNumber()},
		}
		if m.DecisionTimeNs != nil {
			r.now = m.GetDecisionTimeNs()
		}
		if m.GetPartition() < maxGroups && (r.leader == "" || r.leader == node) {
			t.claim(int(m.GetPartition()), node, r)
		}
	}
}

// claim notes what a node leads; a route without a leader takes its claim back.
func (t *routes) claim(p int, node string, r route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.best(p)
	if t.claims[p] == nil {
		t.claims[p] = map[string]route{}
	}
	if r.leader == "" {
		delete(t.claims[p], node)
	} else {
		t.claims[p][node] = r
	}
	after := t.best(p)
	before.now, after.now = 0, 0
	if before != after {
		t.serial++
		t.serials[p] = t.serial
		close(t.news)
		t.news = make(chan struct{})
	}
}

// renew forgets what a node claimed and doesn't speak of when it tells all anew.
func (t *routes) renew(node string, told []*quotav1.PartitionRoute) {
	t.mu.Lock()
	gone := map[int]bool{}
	for p, claims := range t.claims {
		if _, claimed := claims[node]; claimed {
			gone[p] = true
		}
	}
	t.mu.Unlock()
	for _, m := range told {
		delete(gone, int(m.GetPartition()))
	}
	for p := range gone { // any order: each is taken back by itself
		t.claim(p, node, route{now: -1})
	}
}

// best is the claim that counts. The mutex is held.
func (t *routes) best(p int) (best route) {
	best.now = -1
	for _, r := range t.claims[p] { // at most one of a term
		if r.term > best.term {
			best = r
		}
	}
	return best
}

// of returns what is known of a partition.
func (t *routes) of(p int) route {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.best(p)
}

// changed is closed at the next change of anything but time.
func (t *routes) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.news
}

func (t *routes) wire(p int, r route) *quotav1.PartitionRoute {
	m := &quotav1.PartitionRoute{Partition: uint32(p), Leader: r.leader, Term: r.term, Epoch: r.epoch}
	if r.leader != "" {
		m.Address = t.address(r.leader)
	}
	if r.now >= 0 {
		now := r.now
		m.DecisionTimeNs = &now
	}
	if r.version != (fsm.Version{}) {
		m.Version = wireVersion(r.version)
	}
	return m
}

func wireVersion(v fsm.Version) *quotav1.SetVersion {
	return &quotav1.SetVersion{Epoch: v.Epoch, Number: v.Number}
}

// lookEvery is how often a node looks at what its own replicas lead.
const lookEvery = 20 * time.Millisecond

// watchOwn notes what this node leads, and which sets its replicas enforce, until ctx ends.
func (n *Node) watchOwn(ctx context.Context) {
	for pause(ctx, lookEvery) {
		h := n.hosting.Load()
		if h == nil {
			continue
		}
		for _, r := range h.replicas {
			if g := r.running(); g != nil {
				s := g.Standing()
				n.routes.claim(r.partition, n.cfg.Name, n.routeOf(s))
				if s.HasSet && !n.sets.has(s.Version) {
					n.sets.add(g.Enforced())
				}
			}
		}
	}
}
