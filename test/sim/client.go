package sim

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/test/checker"
)

// clients are who asks.
type clients struct {
	mu  sync.Mutex
	all []*question
}

const (
	people = 7
	// patience is how long a client waits for an answer.
	patience = 500 * time.Millisecond
)

// question is a decision id with what it stands for.
type question struct {
	request partition.Request
	domain  string
	key     string
	mu      sync.Mutex
	unknown bool
	allowed bool
	at      int64 // decision time of its allow
}

// client asks, waits, asks again.
type client struct {
	w      *world
	name   string
	number uint64
	asked  uint64
	own    []*question
	known  int64 // the newest logged decision time heard of
	// refused: the last question found nobody who could answer.
	refused atomic.Bool
}

func (w *world) people() (all []*client) {
	for i := range people {
		all = append(all, &client{w: w, name: fmt.Sprintf("client%d", i), number: uint64(i)})
	}
	return all
}

func (c *client) live() {
	for {
		c.asked++
		s := c.w.draw("client", c.number, c.asked)
		pause := s.span(time.Millisecond, c.w.manners.think)
		if c.refused.Swap(false) {
			pause += s.span(20*time.Millisecond, 150*time.Millisecond)
		}
		if !sleep(pause, c.w.ending) {
			return
		}
		q := c.choose(s)
		var sends sync.WaitGroup
		copies := 1
		if s.below(12) == 0 {
			copies = 2 // to two at once
		}
		for range copies {
			m, deadline := c.whom(s, q), time.Duration(0)
			if s.below(5) == 0 {
				deadline = s.span(time.Millisecond, 300*time.Millisecond)
			}
			sends.Go(func() { c.send(q, m, deadline) })
		}
		sends.Wait()
	}
}

// choose is a new question, or one of the last ones again.
func (c *client) choose(s *stream) *question {
	if n := len(c.own); n > 0 && s.below(5) < 2 {
		last := min(n, 12)
		if s.below(10) == 0 {
			last = n // also one of long ago
		}
		return c.renew(c.own[n-1-s.below(last)])
	}
	domain, key := "cold", fmt.Sprintf("k%d", s.below(300))
	if s.below(4) > 0 {
		domain, key = []string{"hot", "pair", "edited"}[s.below(3)], fmt.Sprintf("k%d", s.below(2))
	}
	q := &question{domain: domain, key: key}
	var id fsm.ID
	binary.BigEndian.PutUint64(id[:], c.number+1)
	binary.BigEndian.PutUint64(id[8:], c.asked)
	c.look()
	q.request = partition.Request{
		Domain: domain, Descriptors: []keyspace.Descriptor{descriptor(key)}, Cost: uint64(1 + s.below(8)/7), ID: id,
		Fence: c.known, To: partition.AnyPartition,
	}
	c.own = append(c.own, q)
	c.w.clients.mu.Lock()
	c.w.clients.all = append(c.w.clients.all, q)
	c.w.clients.mu.Unlock()
	return q
}

// look asks for the newest logged time, as nodes tell it.
func (c *client) look() {
	if m := c.w.leader(); m != nil {
		if g := m.group(); g != nil {
			c.known = max(c.known, g.Standing().Now)
		}
	}
}

// renew is the question as it is asked again: unchanged, unless the client breaks.
func (c *client) renew(q *question) *question {
	if c.w.o.Breaks.FreshFence {
		c.look()
		q.request.Fence = c.known
	}
	return q
}

func descriptor(key string) keyspace.Descriptor {
	d, err := keyspace.NewDescriptor([]keyspace.Entry{{Name: "principal", Value: key}})
	if err != nil {
		panic(err)
	}
	return d
}

// whom is mostly who leads. Whoever has been told of an allow looks whether others know of it.
func (c *client) whom(s *stream, q *question) *machine {
	m, lead := c.w.any(s), c.w.leader()
	q.mu.Lock()
	allowed := q.allowed
	q.mu.Unlock()
	if lead != nil && s.below(5) > 0 && !allowed {
		return lead
	}
	return m
}

// send sends a question and hears the answer, or none.
func (c *client) send(q *question, m *machine, deadline time.Duration) {
	w := c.w
	sent := w.now()
	answers := make(chan partition.Outcome, 2)
	w.net.carryOnce(way{c.name, m.id}, "check", func() {
		m.take(q.request, deadline, func(o partition.Outcome) {
			w.net.carryOnce(way{m.id, c.name}, "outcome", func() {
				select {
				case answers <- o:
				default:
				}
			})
		})
	})
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case o := <-answers:
		if w.hear(c.name, q, m.id, sent, &o) == checker.Unavailable {
			c.refused.Store(true)
		}
	case <-wait.C:
		w.hear(c.name, q, m.id, sent, nil)
	}
}

// take gives a question to the replica that runs here. Who is dead doesn't answer.
func (m *machine) take(r partition.Request, deadline time.Duration, answer func(partition.Outcome)) {
	p := m.process()
	if p == nil || p.died() || p.group.Load() == nil {
		answer(partition.Outcome{Result: partition.NoQuorum}) // the connection is refused
		return
	}
	if deadline > 0 {
		r.Deadline = max(1, m.source.Monotonic()+int64(deadline))
	}
	p.awaited.Add(1)
	p.group.Load().Submit(&partition.Call{Request: r, Done: func(call *partition.Call) {
		p.awaited.Add(-1)
		if call.Result == partition.Denied {
			m.w.deposed(m)
		}
		if !p.died() {
			answer(call.Outcome)
		}
	}})
}

// deposed counts denials of a leader that another one has replaced.
func (w *world) deposed(m *machine) {
	if lead := w.leader(); lead != nil && lead != m {
		w.count("denials beside another leader")
	}
}
