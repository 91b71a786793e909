package partition

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
)

// leadership is one term that this replica leads. It begins when Raft says so and
// becomes ready when the term's first entry has been applied here: before that
// its time means nothing and nothing is answered.
type leadership struct {
	term  uint64
	ready bool
	clock clock.TermClock // once ready
	// firsts has the elapsed reading that stamped each first entry proposed, by
	// its number: a second one is tried if the fate of one stays unknown.
	firsts map[uint64]int64
}

// observe compares what this replica believes with what Raft says. Raft's own
// channel drops values, and a leader can lose and regain its place between two
// looks: the term tells.
func (g *Group) observe() {
	state, term := g.raft.State(), g.raft.CurrentTerm()
	lead := g.lead.Load()
	switch {
	case lead != nil && (state != raft.Leader || lead.term != term):
		g.stepDown(NotLeader)
		g.observe()
	case lead == nil && state == raft.Leader:
		g.takeOver(term)
	}
}

func (g *Group) takeOver(term uint64) {
	g.log.Info("leading", "term", term)
	g.metrics.leaderChanges.Inc()
	g.firstDue, g.formationDue, g.raiseDue = 0, 0, 0
	g.refusedSince.Store(0)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gaps.Store(g.clock.Read().Gaps)
	g.lease.Reset(term)
	g.lead.Store(&leadership{term: term, firsts: map[uint64]int64{}})
}

// stepDown ends this replica's leadership: what waits was never proposed.
// Entries in flight keep waiting for their fate.
func (g *Group) stepDown(why Result) {
	g.mu.Lock()
	g.lease.Reset(0)
	g.lead.Store(nil)
	g.mu.Unlock()
	g.dismiss(why)
}

// dismiss ends what waits in the queue, which was never proposed.
func (g *Group) dismiss(why Result) {
	g.mu.Lock()
	waiting := g.queue.drain()
	for _, c := range waiting {
		g.forget(c)
	}
	g.mu.Unlock()
	for _, c := range waiting {
		g.finishAll(c, g.failed(why))
	}
}

// tend does what a leader owes besides answering: its first entry, the
// partition's settings, the level that all have, its time every few seconds,
// checkpoints.
func (g *Group) tend() {
	lead := g.lead.Load()
	if lead == nil || g.doubted.Load() { // a stamp would make the partition's time as fast as the clock
		return
	}
	now := g.source.Monotonic()
	switch {
	case !lead.ready:
		if now >= g.firstDue {
			g.firstDue = now + int64(g.cfg.FirstRetry)
			g.proposeFirst(lead)
		}
	case !g.formed() && g.cfg.Settings != nil:
		if now >= g.formationDue {
			g.formationDue = now + int64(g.cfg.FirstRetry)
			g.proposeBare(func(h fsm.Header) []byte { return fsm.SettingsEntry(h, *g.cfg.Settings) })
		}
	case now >= g.raiseDue && g.raisable():
		g.raiseDue = now + int64(g.cfg.FirstRetry)
		g.raise(lead)
	case now-g.checkpointed.Load() >= int64(g.cfg.CheckpointEvery):
		g.checkpointed.Store(now)
		last := g.lastCheckpoint()
		g.proposeBare(func(h fsm.Header) []byte { return fsm.CheckpointEntry(h, last) })
	case now-g.proposed.Load() >= int64(g.tickAfter()):
		g.proposeBare(fsm.Tick)
	}
}

// tickAfter is how long a leader may log nothing: briefly while state waits to
// be reclaimed, which only an entry can do.
func (g *Group) tickAfter() time.Duration {
	due := false
	g.machine.Read(func(m *fsm.Machine) { due = m.Due() })
	if due {
		return g.cfg.ReclaimEvery
	}
	return g.cfg.TickEvery
}

func (g *Group) formed() (formed bool) {
	g.machine.Read(func(m *fsm.Machine) { _, formed = m.Settings() })
	return formed
}

func (g *Group) lastCheckpoint() (c fsm.Checkpoint) {
	g.machine.Read(func(m *fsm.Machine) { c = m.LastCheckpoint() })
	return c
}

// proposeFirst logs the first entry of the term, with the time of the newest
// entry held here and what has elapsed since it was stored.
func (g *Group) proposeFirst(lead *leadership) {
	reading := g.clock.Read()
	held := g.stores.Held()
	g.mu.Lock()
	seq := g.nextSeq()
	lead.firsts[seq] = reading.Elapsed
	g.mu.Unlock()
	h := fsm.Header{Time: held.FirstEntry(reading.Elapsed), Term: lead.term, Seq: seq}
	g.apply(fsm.First(h), seq)
}

// firstApplied makes the leadership ready whose first entry this is.
func (g *Group) firstApplied(h fsm.Header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lead := g.lead.Load()
	if lead == nil || lead.term != h.Term || lead.ready {
		return
	}
	at, ours := lead.firsts[h.Seq]
	if !ours {
		return
	}
	ready := *lead
	ready.ready, ready.clock = true, clock.TermClock{Time: h.Time, At: max(at, g.rebased)}
	g.lead.Store(&ready)
	g.log.Info("ready", "term", h.Term, "time", h.Time)
}

// stamp returns the leader's present decision time.
func (g *Group) stamp(lead *leadership) int64 { return g.stampAt(lead, g.clock.Read()) }

// stampAt returns the leader's decision time at a reading.
func (g *Group) stampAt(lead *leadership, reading clock.Reading) int64 {
	if reading.Gaps != g.gaps.Load() {
		g.distrust(reading.Gaps)
	}
	return lead.clock.Stamp(reading.Elapsed)
}

// distrust takes the lease away after a gap in the process's time (a freeze, a
// suspended machine): a majority must answer again before anything is answered
// from here. It does so before others can take the gap for seen, and in the term
// that is on now: who saw the gap may have learned of an earlier one.
func (g *Group) distrust(gaps uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lead := g.lead.Load()
	if gaps <= g.gaps.Load() || lead == nil {
		return
	}
	g.log.Warn("time gap: waiting for a majority before answering", "term", lead.term)
	g.metrics.clockGaps.Inc()
	g.lease.Reset(lead.term)
	g.gaps.Store(gaps)
}

// leased reports whether this leader may answer from memory at this moment.
func (g *Group) leased() bool {
	now := g.source.Monotonic()
	if u := g.unleased.Load(); u != nil && now < u.until {
		if lead := g.lead.Load(); lead == nil || lead.term <= u.term {
			return false
		}
	}
	return g.lease.Valid(now)
}
