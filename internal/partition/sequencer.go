package partition

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
)

// maxBatchBytes seals a batch before it has fsm.MaxChecks, where keys are long:
// an entry stays far below what a frame between replicas may hold.
const maxBatchBytes = 1 << 20

// flight is an entry that was proposed and not yet settled.
type flight struct {
	term  uint64
	calls []*Call // of a batch, in order
	done  func(fsm.Applied, error)
	since int64 // monotonic

	oldest int64 // monotonic; when the first of the calls came
}

func (g *Group) nextSeq() uint64 {
	g.seq++
	return g.seq
}

// sequence seals batches while there is anything to seal and a place in flight.
// Whatever has gathered while entries were in flight, or the log had a rest, makes
// the next one. No timer delays who asks alone: a rest follows only an entry of
// several checks.
func (g *Group) sequence() {
	for {
		lead := g.lead.Load()
		if lead == nil || !lead.ready || g.transferring.Load() || g.doubted.Load() {
			return
		}
		s := g.take(lead)
		g.submitAnew(s.outdated)
		if len(s.checks) == 0 {
			return
		}
		h := fsm.Header{Time: g.stampAt(lead, s.reading), Term: lead.term, Seq: s.seq}
		g.metrics.batchSize.Observe(float64(len(s.checks)))
		g.apply(fsm.BatchEntry(h, s.version, s.checks), s.seq)
	}
}

// sealed is what goes into one entry.
type sealed struct {
	checks   []*fsm.Check
	version  fsm.Version // of the set that they were resolved under
	seq      uint64
	reading  clock.Reading // that stamps it: not from before any of them came
	outdated []*Call       // left out: resolved under another
}

// mayStamp reports whether a time that was read from lead's clock before may go into an entry: it may be that
// leadership has passed since, or that the clock is doubted, or was. The mutex is held.
func (g *Group) mayStamp(lead *leadership) bool { return g.lead.Load() == lead && !g.doubted.Load() }

// place tells whether a batch may go out now. The mutex is held.
func (g *Group) place() bool {
	if g.queue.total < g.cfg.Gather {
		return g.batches == 0 && !g.resting
	}
	return g.batches < g.cfg.InFlight
}

// rest has few checks wait a moment, if the batch that has landed says so.
func (g *Group) rest(f *flight, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.pace.rest(now, time.Duration(now-f.since), len(f.calls)); d > 0 {
		g.resting = true
		g.rested.Reset(d)
	}
}

// goOn ends a rest.
func (g *Group) goOn() {
	g.mu.Lock()
	g.resting = false
	g.mu.Unlock()
	g.wake()
}

// take moves calls from the queue into a flight. An entry names the set that its checks
// were resolved under, so those that waited while sets changed are left out.
func (g *Group) take(lead *leadership) (s sealed) {
	g.machine.Read(func(m *fsm.Machine) { _, s.version = m.Set() })
	now := g.source.Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mayStamp(lead) || !g.place() {
		return s
	}
	f := &flight{term: lead.term, since: now, oldest: now}
	for bytes := 0; g.queue.total > 0 && len(f.calls) < fsm.MaxChecks && bytes < maxBatchBytes; {
		c := g.queue.pop()
		switch {
		case c.version != s.version:
			g.forget(c)
			s.outdated = append(s.outdated, c)
			continue
		case c.Deadline != 0 && c.Deadline <= now:
			g.forget(c)
			g.late = append(g.late, c)
			continue
		}
		bytes += c.size
		f.oldest = min(f.oldest, c.came)
		f.calls = append(f.calls, c)
		s.checks = append(s.checks, &c.check)
	}
	if len(s.checks) > 0 {
		s.seq = g.nextSeq()
		g.flights[s.seq] = f
		g.batches++
		// Now, not before they were taken: nobody is charged at a time from before it asked, or whoever asks again when
		// that has left its window would be let in early.
		s.reading = g.clock.Read()
	}
	return s
}

// proposeBare proposes an entry that nobody waits for.
func (g *Group) proposeBare(build func(fsm.Header) []byte) {
	g.propose(build, nil)
}

// propose stamps and proposes a single entry; done, if any, hears what became of
// it, once.
func (g *Group) propose(build func(fsm.Header) []byte, done func(fsm.Applied, error)) {
	h, may := g.header(done)
	if may {
		g.apply(build(h), h.Seq)
	} else if done != nil {
		done(fsm.Applied{}, raft.ErrNotLeader)
	}
}

// header stamps a single entry, for whose end done waits, unless this replica may not.
func (g *Group) header(done func(fsm.Applied, error)) (h fsm.Header, may bool) {
	lead := g.lead.Load()
	if lead == nil || !lead.ready {
		return h, false
	}
	now := g.stamp(lead)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mayStamp(lead) {
		return h, false
	}
	seq := g.nextSeq()
	if done != nil {
		g.flights[seq] = &flight{term: lead.term, done: done, since: g.source.Monotonic()}
	}
	return fsm.Header{Time: now, Term: lead.term, Seq: seq}, true
}

// apply hands an entry to Raft. Who waits is woken by the state machine; the
// future is heard only for what never gets there.
func (g *Group) apply(entry []byte, seq uint64) {
	g.proposed.Store(g.source.Monotonic())
	future := g.raft.Apply(entry, g.cfg.EnqueueTimeout)
	g.futures.begin()
	go func() {
		defer g.futures.end()
		if err := future.Error(); err != nil {
			g.settle(seq, err)
		}
	}()
}

// neverProposed lists the errors that prove that an entry got into no log.
// raft.ErrRaftShutdown isn't one: an entry in flight at a shutdown ends with it
// too.
func neverProposed(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrEnqueueTimeout) ||
		errors.Is(err, raft.ErrLeadershipTransferInProgress)
}

// settle ends a flight that Raft gave up.
func (g *Group) settle(seq uint64, err error) {
	f := g.land(seq, anyTerm)
	if f == nil {
		return
	}
	g.log.Debug("entry not applied", "term", f.term, "error", err)
	g.refused(err)
	if f.done != nil {
		f.done(fsm.Applied{}, err)
	}
	why := Unknown
	if neverProposed(err) {
		why = NotLeader
	}
	for _, c := range f.calls {
		g.finishAll(c, g.failed(why))
	}
	g.wake()
}

const anyTerm = 0 // Raft's begin at 1

// land takes a flight out, and its calls out of those in flight. Several may try
// (an apply, a future, the end of the wait): who gets the flight ends its calls.
// The term is asked for because an entry of an earlier process may bear the same
// number.
func (g *Group) land(seq, term uint64) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.flights[seq]
	if f == nil || term != anyTerm && term != f.term {
		return nil
	}
	delete(g.flights, seq)
	if f.calls != nil {
		g.batches--
	}
	for _, c := range f.calls {
		g.forget(c)
	}
	g.landed.Add(1)
	return f
}

// forget takes a call, and with it those who joined it, out of those in flight:
// it is about to be finished. The mutex is held.
func (g *Group) forget(c *Call) {
	delete(g.inFlight, c.key())
	g.joined -= c.copies
	c.copies = 0
}

// applied is called by the state machine after each entry.
func (g *Group) applied(a fsm.Applied) {
	g.metrics.admitted(a.Answers)
	if lead := g.lead.Load(); lead != nil && lead.term == a.Header.Term {
		g.refusedSince.Store(0) // it takes entries: all is well
	}
	if a.Header.Kind == fsm.KindFirst && a.Refusal == fsm.Accepted {
		g.firstApplied(a.Header)
		g.wake()
		return
	}
	f := g.land(a.Header.Seq, a.Header.Term)
	if f == nil {
		return
	}
	now := g.source.Monotonic()
	if f.done == nil {
		g.rest(f, now)
	}
	g.wake()
	if f.done != nil {
		f.done(a, nil)
		return
	}
	g.latency.observe(time.Duration(now - f.since))
	g.metrics.applied(f.oldest, f.since, g.began.Load(), now)
	g.deliver(f, a)
}

// deliver wakes the callers of a batch with its answers.
func (g *Group) deliver(f *flight, a fsm.Applied) {
	switch a.Refusal {
	case fsm.Accepted:
	case fsm.RefusedVersion:
		g.submitAnew(f.calls)
		return
	default:
		for _, c := range f.calls {
			g.finishAll(c, g.failed(NotLeader))
		}
		return
	}
	base := g.base()
	for i, c := range f.calls {
		g.finishAll(c, base.of(a.Answers[i]))
	}
}

// mostAnew is how often a call is resolved anew, because sets changed while it waited, before its
// asker is told to resolve it.
const mostAnew = 3

// submitAnew submits calls that were provably not decided, as the set changed after they were
// resolved: with them all that joined them, each for itself.
func (g *Group) submitAnew(calls []*Call) {
	var again []*Call
	for _, first := range calls {
		for c := first; c != nil; {
			next := c.joined
			c.joined = nil
			if c.anew++; c.anew > mostAnew {
				g.finishAll(c, g.failed(StalePolicy))
			} else {
				again = append(again, c)
			}
			c = next
		}
	}
	if len(again) > 0 {
		g.Submit(again...)
	}
}

// finishAll finishes a call and all that joined it, alike.
func (g *Group) finishAll(c *Call, o Outcome) {
	for c != nil {
		next := c.joined
		c.joined = nil
		g.metrics.decided(o)
		c.finish(o)
		c = next
	}
}

// expire finishes what no future can be relied on to end: calls that missed
// their deadline in the queue, and flights whose fate stayed unknown for too long.
func (g *Group) expire() {
	now := g.source.Monotonic()
	var lost []uint64
	g.mu.Lock()
	late := g.late
	g.late = nil
	for seq, f := range g.flights {
		if now-f.since > int64(g.cfg.GiveUp) {
			lost = append(lost, seq)
		}
	}
	g.mu.Unlock()
	for _, c := range late {
		g.finishAll(c, g.failed(Late))
	}
	for _, seq := range lost {
		g.settle(seq, errGaveUp)
	}
}

var errGaveUp = errors.New("entry neither applied nor refused in time")
