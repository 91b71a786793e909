package client

import (
	"sync"
	"sync/atomic"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// table is what is known of the cluster: what genesis fixed, the policies, and each partition's route.
type table struct {
	view atomic.Pointer[view]

	mu   sync.Mutex
	news chan struct{} // closed and made anew with whatever a check may wait for
}

// view is a consistent look at the table. It never changes, but for what the routes hold.
type view struct {
	cluster *cluster   // nil: nothing was heard yet
	set     *policySet // nil: none
	routes  []*route   // by partition
}

func newTable() *table {
	t := &table{news: make(chan struct{})}
	t.view.Store(&view{})
	return t
}

// look returns the view, and what is closed when there is another one, or another leader or first time.
func (t *table) look() (*view, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view.Load(), t.news
}

// tell wakes those who wait for news.
func (t *table) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.news)
	t.news = make(chan struct{})
}

// found takes in what genesis fixed. The watch alone calls it, and adopt.
func (t *table) found(c *cluster) {
	v := &view{cluster: c, routes: make([]*route, c.partitions)}
	for i := range v.routes {
		v.routes[i] = newRoute()
	}
	t.view.Store(v)
	t.tell()
}

// adopt takes in a newer policy set.
func (t *table) adopt(s *policySet) {
	v := *t.view.Load()
	v.set = s
	t.view.Store(&v)
	t.tell()
}

// ready says that every partition has a route and a time, and that there are policies.
func (v *view) ready() bool {
	if v.cluster == nil || v.set == nil {
		return false
	}
	for _, r := range v.routes {
		if !r.usable() {
			return false
		}
	}
	return true
}

// route is where one partition is asked, and since when it is known to have been.
type route struct {
	mu    sync.Mutex
	epoch uint64
	// time is the newest logged decision time that is known, -1 for none.
	time int64

	// term is that of the newest news; watched is the leader by it, empty if none was named.
	term    uint64
	watched string
	// corrected is the leader by the word of a node that was asked. It counts until a newer term is heard of.
	corrected string
	// moved is closed when another address becomes the one to ask.
	moved chan struct{}
}

func newRoute() *route { return &route{time: -1, moved: make(chan struct{})} }

// leader returns the address to ask, empty if none is known, and what is closed when it is another one.
func (r *route) leader() (address string, moved <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.address(), r.moved
}

func (r *route) address() string {
	if r.corrected != "" {
		return r.corrected
	}
	return r.watched
}

func (r *route) usable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.time >= 0 && r.address() != ""
}

// fence returns the newest logged decision time that is known, false if none is.
func (r *route) fence() (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.time, r.time >= 0
}

// change runs f and reports whether another address is to be asked since.
func (r *route) change(f func()) bool {
	before := r.address()
	f()
	if r.address() == before {
		return false
	}
	close(r.moved)
	r.moved = make(chan struct{})
	return true
}

// hear takes in news and reports whether somebody may have waited for them. News of an older epoch or term
// are those of a node that lags.
func (r *route) hear(m *quotav1.PartitionRoute) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	timeless := r.time < 0
	switch {
	case m.GetEpoch() < r.epoch:
		return false
	case m.GetEpoch() > r.epoch: // its history was rewound: times of before mean nothing
		r.epoch, r.time = m.GetEpoch(), -1
	}
	if m.DecisionTimeNs != nil {
		r.time = max(r.time, m.GetDecisionTimeNs())
	}
	moved := r.change(func() { r.follow(m) })
	return moved || timeless && r.time >= 0
}

// follow takes a leader of this term or a newer one. That a newer term has none yet is no reason to forget
// who was named by a node that was asked.
func (r *route) follow(m *quotav1.PartitionRoute) {
	switch leader := m.GetAddress(); {
	case m.GetTerm() > r.term && leader == "":
		r.watched = ""
	case m.GetTerm() > r.term:
		r.term, r.watched, r.corrected = m.GetTerm(), leader, ""
	case m.GetTerm() == r.term && r.watched == "":
		r.watched = leader
	}
}

// correct takes in what a node said that doesn't lead: who does, if it knows. Whoever has said so has left
// the term in which it led, for good, so news of that term can't bring it back.
func (r *route) correct(asked, leader string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.address()
	if current != "" && current != asked {
		return // the route has moved since
	}
	r.change(func() {
		if leader != asked {
			r.corrected = leader
		} else {
			r.corrected = ""
		}
		if r.corrected == "" && r.watched == asked {
			r.watched = ""
			r.term++ // what is still to come of this term names the same leader
		}
	})
}

// unreachable takes back a correction that led nowhere.
func (r *route) unreachable(asked string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.corrected == asked && r.watched != asked && r.watched != "" {
		r.change(func() { r.corrected = "" })
	}
}

// learn takes in the epoch of an answer and, where it was logged, its decision time. It reports false where
// the epoch is one that was left: what decided is not the partition that others ask.
func (r *route) learn(epoch uint64, time int64, logged bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case epoch < r.epoch:
		return false
	case epoch > r.epoch:
		r.epoch, r.time = epoch, -1
	}
	if logged {
		r.time = max(r.time, time)
	}
	return true
}

// advance takes in a logged decision time without an epoch.
func (r *route) advance(time int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.time >= 0 {
		r.time = max(r.time, time)
	}
}
