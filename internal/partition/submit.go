package partition

import (
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// Submit takes calls on their way, in the order of the design: resolution,
// recorded allow, id in flight, denied from memory, queue. Each call's Done runs
// exactly once, perhaps before Submit returns.
func (g *Group) Submit(calls ...*Call) {
	if g.closing.Load() {
		g.finishEach(calls, Stopping)
		return
	}
	doubted, lead := g.doubted.Load(), g.lead.Load() // in this order: once the doubt is over, lead's clock is another one
	if lead == nil {
		g.finishEach(calls, NotLeader)
		return
	}
	if !lead.ready {
		g.finishEach(calls, NoQuorum)
		return
	}
	if doubted {
		g.finishEach(calls, Clock)
		return
	}
	s := submission{group: g, lead: lead, now: g.stamp(lead), landed: g.landed.Load()}
	if !g.machine.Read(func(m *fsm.Machine) { s.consider(m, calls) }) {
		g.finishEach(calls, Stopping)
		return
	}
	s.conclude()
}

func (g *Group) finishEach(calls []*Call, why Result) {
	for _, c := range calls {
		g.finishAll(c, g.failed(why))
	}
}

// submission is one Submit under way.
type submission struct {
	group  *Group
	lead   *leadership
	now    int64
	landed uint64 // flights landed before the state was looked at
	base   base
	open   []*Call // not answered from the state
	ready  []reply
	queued bool
}

// reply is a call whose Outcome is set and not yet told.
type reply struct {
	call *Call
	// memory: the answer is one that only a leader with a lease may give.
	memory bool
}

func (s *submission) answer(c *Call, o Outcome, memory bool) {
	c.Outcome = o
	s.ready = append(s.ready, reply{c, memory})
}

// consider answers what the applied state can answer.
func (s *submission) consider(m *fsm.Machine, calls []*Call) {
	s.base = baseOf(m, s.now)
	set, _ := m.Set()
	_, formed := m.Settings()
	if set == nil || !formed {
		for _, c := range calls {
			s.answer(c, s.base.fail(Pending), false)
		}
		return
	}
	r := resolverOf(m)
	for _, c := range calls {
		if c.Unfenced {
			c.Fence = m.Now()
		}
		if o, done := r.resolve(c); done {
			s.answer(c, s.base.with(o), o.Result != Invalid)
			continue
		}
		if a, ok := m.Recall(&c.check); ok {
			s.answer(c, s.looked(c, s.base.of(a)), true)
			continue
		}
		a, refused := m.Refuse(&c.check, s.base.time)
		switch c.refused = refused; {
		case c.Peek && !refused:
			s.answer(c, s.base.fail(WouldAllow), true)
			continue
		case refused:
			c.Outcome = s.base.of(a)
		}
		if c.Peek {
			s.answer(c, c.Outcome, true)
			continue
		}
		s.open = append(s.open, c)
	}
}

// looked is an outcome as whoever only looks is told: an allow that is recorded would be given again.
func (s *submission) looked(c *Call, o Outcome) Outcome {
	if c.Peek && o.Result == Allowed {
		return s.base.fail(WouldAllow)
	}
	return o
}

// conclude does what the state didn't answer, and tells what is answered.
func (s *submission) conclude() {
	s.enqueue()
	s.reply()
	if s.queued {
		s.group.wake()
	}
}

// enqueue joins the rest to calls in flight, denies it, or queues it.
func (s *submission) enqueue() {
	if len(s.open) == 0 {
		return
	}
	g, came := s.group, s.group.source.Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range s.open {
		if first := g.inFlight[c.key()]; first != nil {
			s.join(first, c)
			continue
		}
		if c.refused && !s.overtaken(c) {
			s.answer(c, c.Outcome, true)
			continue
		}
		c.came = came
		s.queue(c)
	}
}

// join lets c wait for the answer of the call with the same id. Those who wait so
// have a bound too, or repeating oneself would be a way around the queue's.
func (s *submission) join(first, c *Call) {
	if first.check.Digest != c.check.Digest {
		s.answer(c, s.base.fail(Conflict), true)
		return
	}
	if s.group.joined >= s.group.cfg.Queue {
		s.answer(c, s.base.fail(Overloaded), false)
		return
	}
	s.group.joined++
	first.copies++
	c.joined, first.joined = first.joined, c
	if first.Deadline != 0 && (c.Deadline == 0 || c.Deadline > first.Deadline) {
		first.Deadline = c.Deadline // the check is worth deciding as long as one of them waits
	}
}

// overtaken reports whether an allow for c's id may have been recorded since the
// state was looked at: then the denial is of a question that has its answer, and
// the log decides.
func (s *submission) overtaken(c *Call) bool {
	if s.group.landed.Load() == s.landed {
		return false
	}
	recorded := false
	s.group.machine.Read(func(m *fsm.Machine) { _, recorded = m.Recall(&c.check) })
	return recorded
}

func (s *submission) queue(c *Call) {
	g := s.group
	switch {
	case g.doubted.Load(): // since the others in the queue were dismissed
		s.answer(c, s.base.fail(Clock), false)
		return
	case g.lead.Load() != s.lead:
		s.answer(c, s.base.fail(NotLeader), false)
		return
	}
	if c.Deadline != 0 && c.came+int64(g.expectedWait()) > c.Deadline {
		s.answer(c, s.base.fail(Overloaded), false)
		return
	}
	g.inFlight[c.key()] = c
	displaced := g.queue.push(c)
	s.queued = s.queued || displaced != c
	if displaced != nil {
		g.forget(displaced)
		s.answer(displaced, s.base.fail(Overloaded), false)
	}
}

// expectedWait estimates how long a call that is queued now takes to be decided.
func (g *Group) expectedWait() time.Duration {
	ahead := g.queue.total/fsm.MaxChecks + g.batches
	rounds := (ahead + g.cfg.InFlight - 1) / g.cfg.InFlight // few checks go out only when all that is ahead has landed
	return time.Duration(rounds) * g.latency.mean()
}

// reply finishes what was answered. The lease is looked at in the moment of
// answering: without it what memory says may be another leader's past.
func (s *submission) reply() {
	leased := s.group.leased()
	for _, r := range s.ready {
		if r.memory && !leased {
			r.call.Outcome = s.base.fail(NoQuorum)
		}
		s.group.finishAll(r.call, r.call.Outcome)
	}
}

// base is what every outcome says of the state that it was made from.
type base struct {
	set       *policy.Compiled
	time      int64
	partition uint16
	epoch     uint64
	version   uint64
}

func baseOf(m *fsm.Machine, now int64) base {
	set, version := m.Set()
	settings, _ := m.Settings()
	return base{
		set: set, time: max(now, m.Now()), partition: settings.Partition,
		epoch: settings.Epoch, version: version.Number,
	}
}

// base of the applied state.
func (g *Group) base() (b base) {
	g.machine.Read(func(m *fsm.Machine) { b = baseOf(m, 0) })
	return b
}

func (b base) with(o Outcome) Outcome {
	o.Time, o.Partition, o.Epoch, o.Version = b.time, b.partition, b.epoch, b.version
	o.Answer.Time = b.time
	return o
}

func (b base) fail(why Result) Outcome { return b.with(Outcome{Result: why}) }

// of turns the state machine's answer into an outcome.
func (b base) of(a fsm.Answer) Outcome {
	o := Outcome{Answer: a, Time: a.Time, Partition: b.partition, Epoch: b.epoch, Version: b.version}
	switch a.Verdict {
	case fsm.VerdictAllow:
		o.Result = Allowed
	case fsm.VerdictDeny:
		o.Result = Denied
		if a.Exceeds {
			o.Result = Exceeded
		}
	case fsm.VerdictConflict:
		o.Result = Conflict
	case fsm.VerdictStaleTime:
		o.Result = StaleTime
	case fsm.VerdictMemory:
		o.Result = Memory
	default:
		o.Result = NotLeader
	}
	if o.Result <= Exceeded && a.Policy >= 0 { // a replayed allow may speak of a limit that is gone
		o.Policy = b.set.Policy(a.Policy)
	}
	return o
}

// failed is an outcome that no state is needed for.
func (g *Group) failed(why Result) Outcome {
	o := g.base().fail(why)
	if why == NotLeader {
		o.Leader = g.leaderID()
		if o.Leader == "" || o.Leader == g.cfg.ID { // nobody, or one that can't propose, to ask
			o.Result, o.Leader = NoQuorum, ""
		}
	}
	return o
}

// mean is a running mean of batch latencies, by which deadlines are judged.
type mean struct{ ns atomic.Int64 }

func (m *mean) observe(d time.Duration) {
	old := m.ns.Load()
	m.ns.Store(old + (int64(d)-old)/8)
}

func (m *mean) mean() time.Duration { return time.Duration(m.ns.Load()) }

// Inspection is what a descriptor's key has used.
type Inspection struct {
	Outcome
	Uses []fsm.Use
}

// Inspect says what a descriptor's key has used of each limit. It consumes
// nothing and needs a lease like any answer from memory.
func (g *Group) Inspect(domain string, d keyspace.Descriptor) Inspection {
	doubted, lead := g.doubted.Load(), g.lead.Load() // in this order, as in Submit
	if lead == nil || !lead.ready {
		return Inspection{Outcome: g.failed(NotLeader)}
	}
	if doubted {
		return Inspection{Outcome: g.failed(Clock)}
	}
	now, in := g.stamp(lead), Inspection{}
	if !g.machine.Read(func(m *fsm.Machine) { in = inspect(m, now, domain, d) }) {
		return Inspection{Outcome: g.failed(Stopping)}
	}
	if !g.leased() {
		return Inspection{Outcome: g.failed(NoQuorum)}
	}
	return in
}

func inspect(m *fsm.Machine, now int64, domain string, d keyspace.Descriptor) Inspection {
	b := baseOf(m, now)
	if b.set == nil {
		return Inspection{Outcome: b.fail(Pending)}
	}
	c := &Call{Request: Request{Domain: domain, Descriptors: []keyspace.Descriptor{d}, Cost: 1, To: AnyPartition}}
	r := resolverOf(m)
	if o, done := r.resolve(c); done {
		return Inspection{Outcome: b.with(o)}
	}
	ch := &c.check.Charges[0]
	o := b.fail(Allowed)
	o.Policy = b.set.Policy(ch.Policy)
	return Inspection{Outcome: o, Uses: m.Inspect(nil, ch, b.time)}
}
