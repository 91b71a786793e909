package node

import (
	"context"
	"encoding/binary"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
)

func (n *Node) routeOf(s partition.Standing) route {
	if !s.Leading || !s.Formed {
		return route{now: -1}
	}
	r := route{leader: n.cfg.Name, term: s.Term, epoch: s.Epoch, now: s.Now}
	if s.HasSet {
		r.version = s.Version
	}
	return r
}

const (
	// timesEvery is how often watchers hear decision times: a fence may be as old as that, and half the retry
	// horizon less. Where there is nothing to tell they hear that, as long as the node would know: one who hears nothing
	// watches another node.
	timesEvery = time.Second
	// maxPart bounds a part of a policy set in one message.
	maxPart = 1<<20 - 64<<10
)

// watcher is one watch of the routes.
type watcher struct {
	node *Node
	own  bool
	send func(*quotav1.WatchResponse) error

	began bool
	sent  map[int]route
	set   fsm.Version // the last one sent
}

// Watch calls send with what a gateway, or with ownOnly another node, needs to route, and then with whatever
// changes, until ctx ends or send fails.
func (n *Node) Watch(ctx context.Context, ownOnly bool, send func(*quotav1.WatchResponse) error) error {
	w := &watcher{node: n, own: ownOnly, send: send, sent: map[int]route{}}
	times := time.NewTicker(timesEvery)
	defer times.Stop()
	due := true
	for {
		changed := n.routes.changed()
		sets := n.sets.changed()
		if err := w.tell(due); err != nil {
			return err
		}
		due = false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-sets:
		case <-times.C:
			due = true
		}
	}
}

// tell sends what is new; times, and what a node tells of itself, only when they are due.
func (w *watcher) tell(due bool) error {
	h := w.node.hosting.Load()
	m := &quotav1.WatchResponse{}
	if w.own && due {
		m.Self = w.node.ownStatus()
	}
	if h != nil {
		m.Partitions = w.news(h, due)
		if m.Self != nil {
			m.Replicas = w.node.ownReplicas(h)
		}
		if !w.began && !w.own {
			m.Cluster = clusterOf(h.genesis)
		}
	}
	if h != nil && (!w.began || due && w.node.inTouch()) || len(m.Partitions) > 0 || m.Self != nil {
		if err := w.send(m); err != nil {
			return err
		}
		w.began = w.began || h != nil
	}
	switch {
	case w.own:
		return nil
	case h == nil:
		return w.node.elsewhereToWatch()
	}
	return w.tellSet(h)
}

// inTouch tells whether the node hears most nodes, itself among them. One that doesn't can't say that there is no news.
func (n *Node) inTouch() bool {
	heard, now := 1, n.Monotonic()
	for _, p := range n.peers {
		if at := p.heard.Load(); at != 0 && now-at < int64(2*timesEvery) {
			heard++
		}
	}
	return 2*heard > len(n.peers)+1
}

// elsewhereToWatch sends a gateway on to another node, where this one has nothing to tell and never will.
func (n *Node) elsewhereToWatch() error {
	if out := n.staysOut(); out != "" {
		return status.Error(codes.Unavailable, out)
	}
	return nil
}

// staysOut says why this node takes no part and never will by itself, empty if that isn't so.
func (n *Node) staysOut() string {
	if p := n.phase.Load(); p.state == awaiting {
		return "this node stays out until its disk is replaced; ask another one: " + p.detail
	}
	return ""
}

func (w *watcher) news(h *hosting, due bool) (news []*quotav1.PartitionRoute) {
	for p := range h.genesis.Groups {
		r := w.node.routes.of(p)
		if w.own {
			if h.of(p) == nil {
				continue
			}
			if r.leader != w.node.cfg.Name {
				r = route{now: -1}
			}
		}
		was, known := w.sent[p]
		same := was
		if !due {
			same.now = r.now
		}
		if known && r == same {
			continue
		}
		w.sent[p] = r
		news = append(news, w.node.routes.wire(p, r))
	}
	return news
}

func clusterOf(g Genesis) *quotav1.Cluster {
	table := keyspace.EvenTable(len(g.Groups))
	m := &quotav1.Cluster{Id: g.Cluster[:], Seed: g.Seed[:], Partitions: uint32(len(g.Groups)), Slots: make([]byte, 0, 2*keyspace.Slots)}
	for _, p := range table {
		m.Slots = binary.BigEndian.AppendUint16(m.Slots, p)
	}
	return m
}

// tellSet sends the newest set that every partition with a leader enforces, if it isn't the last one sent.
func (w *watcher) tellSet(h *hosting) error {
	set := w.node.enforcedEverywhere(h)
	if set == nil || !w.set.Before(set.version) {
		return nil
	}
	for _, part := range partsOf(set) {
		if err := w.send(&quotav1.WatchResponse{Policies: part}); err != nil {
			return err
		}
	}
	w.set = set.version
	return nil
}

func partsOf(set *policySet) (parts []*quotav1.PolicySetPart) {
	for rest := set.canonical; len(rest) > 0; {
		n := min(len(rest), maxPart)
		parts = append(parts, &quotav1.PolicySetPart{
			Version: wireVersion(set.version), Json: rest[:n], Size: uint64(len(set.canonical)), Last: n == len(rest),
		})
		rest = rest[n:]
	}
	return parts
}
