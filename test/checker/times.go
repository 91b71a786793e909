package checker

import (
	"cmp"
	"fmt"
	"slices"
)

// judgeTimes holds the times that answers claim against the moments at which they were given.
//
// Rule "pace": between two entries of a partition's log decision time advances at most as much as real time. Of two
// events of one clock with times d1 < d2 the second was decided later: no earlier than the first was sent,
// no later than the second was answered. So d2-d1 is at most that much.
//
// Rule "forward": entries have times that never fall. An event whose id was first sent after another event had been answered
// was decided after it, and has no lower time.
//
// What a leader answers from memory (usage, live denials) has the time that its clock shows, which no entry
// bears: the next leader's first entry may have a lower one. So nothing is concluded from such a time for what comes
// later, only for what had been answered before: the leader that answers holds all that was acknowledged, and its clock ran
// from there on no faster than real time.
func (c *Checker) judgeTimes() {
	memory := c.fromMemory()
	for key, k := range c.clocks {
		c.judgePace(k)
		c.judgeForward(k, memory[key])
	}
}

// fastest is what the fastest clock of the run shows at a moment.
func (c *Checker) fastest(t int64) int64 {
	return t + t/1e6*c.opt.Fast + t%1e6*c.opt.Fast/1e6
}

func (c *Checker) judgePace(k *clock) {
	var slowest, best *event // of those with lower times, the one with the largest from-time
	for lo := 0; lo < len(k.events); {
		hi, t := lo, k.times[lo]
		for ; hi < len(k.events) && k.times[hi] == t; hi++ {
			e := &c.events[k.events[hi]]
			if slowest != nil {
				c.count("pairs of times")
				if ran, real := e.time-slowest.time, c.fastest(e.to)-c.fastest(slowest.from); ran > real {
					c.violated(RulePace, c.shownEvents(slowest, e), "partition %d: decision time went on by %d ns, from %d to %d, within at most %d ns of real time, from %d to %d",
						e.part, ran, slowest.time, e.time, real, slowest.from, e.to)
				}
			}
			if best == nil || c.fastest(e.from)-e.time > c.fastest(best.from)-best.time {
				best = e
			}
		}
		slowest, lo = best, hi
	}
}

// recollection is what a leader said from memory.
type recollection struct {
	sent, answered, time int64
	line                 func() Shown
}

// fromMemory gathers it, by clock.
func (c *Checker) fromMemory() map[clockKey][]recollection {
	by := map[clockKey][]recollection{}
	for i := range c.usages {
		u := &c.usages[i]
		key := clockKey{int32(u.said.Partition), u.said.Epoch}
		by[key] = append(by[key], recollection{u.said.Sent, u.said.Answered, u.said.Time, func() Shown { return show(u.line, u.said) }})
	}
	if !c.opt.Live {
		return by
	}
	for i := range int32(c.kept.count) {
		if k := c.kept.at(i); k.answer == isDeny && k.partition != none {
			key := clockKey{k.partition, k.epoch}
			by[key] = append(by[key], recollection{k.sent, k.answered, k.time, func() Shown { return c.shown(k)[0] }})
		}
	}
	return by
}

// judgeForward goes through what was sent, in that order, beside what was answered.
func (c *Checker) judgeForward(k *clock, memory []recollection) {
	sent, answered := slices.Clone(k.events), slices.Clone(k.events)
	slices.SortFunc(sent, func(i, j int32) int { return cmp.Compare(c.events[i].from, c.events[j].from) })
	slices.SortFunc(answered, func(i, j int32) int { return cmp.Compare(c.events[i].to, c.events[j].to) })
	slices.SortFunc(memory, func(a, b recollection) int { return cmp.Compare(a.sent, b.sent) })
	p := past{c: c, answered: answered}
	for _, i := range sent {
		e := &c.events[i]
		p.advance(e.from)
		p.judge(e.time, e.from, func() Shown { return c.shownEvents(e)[0] })
	}
	p = past{c: c, answered: answered}
	for i := range memory {
		m := &memory[i]
		p.advance(m.sent)
		p.judge(m.time, m.sent, m.line)
		if s := p.slowest; s != nil && m.time-s.time > c.fastest(m.answered)-c.fastest(s.from) {
			c.violated(RulePace, append(c.shownEvents(s), m.line()), "decision time went on by %d ns, from %d to %d, within at most %d ns of real time, from %d to %d",
				m.time-s.time, s.time, m.time, m.answered-s.from, s.from, m.answered)
		}
	}
}

// past is what had been answered at a moment that moves on.
type past struct {
	c        *Checker
	answered []int32
	newest   *event // with the highest time
	slowest  *event // with the largest from-time
}

func (p *past) advance(to int64) {
	for len(p.answered) > 0 {
		e := &p.c.events[p.answered[0]]
		if e.to >= to {
			return
		}
		if p.newest == nil || e.time > p.newest.time {
			p.newest = e
		}
		if p.slowest == nil || p.c.fastest(e.from)-e.time > p.c.fastest(p.slowest.from)-p.slowest.time {
			p.slowest = e
		}
		p.answered = p.answered[1:]
	}
}

func (p *past) judge(t, sent int64, line func() Shown) {
	if p.newest == nil {
		return
	}
	p.c.count("times after times")
	if t < p.newest.time {
		p.c.violated(RuleForward, append(p.c.shownEvents(p.newest), line()),
			"decision time went back by %d ns: %d was answered at %d, and %d came of what was sent at %d",
			p.newest.time-t, p.newest.time, p.newest.to, t, sent)
	}
}

// usage is what the cluster said of a key.
type usage struct {
	line    int
	subject int32
	said    *Usage
}

// judgeUsages is rule "usage": what the cluster says of a key's usage is no more than what may have been
// charged, and no less than what was acknowledged.
//
// At most: events of a time in (t-W, t] that were sent before the answer, of any epoch, because a
// rewound state keeps the times of what it holds; and every call that may have been charged. At least: events
// of that time that had been answered when the cluster was asked. The leader that answers holds all of them, but
// what a lower amount can't need may have been dropped: so no more than the lowest amount that may have been in force
// within the window is demanded. A limit that was added or lengthened meanwhile begins with what was kept: not judged.
func (c *Checker) judgeUsages() {
	for i := range c.usages {
		u := &c.usages[i]
		v := c.setsOf(u.subject, clockKey{int32(u.said.Partition), u.said.Epoch}, u.said.Time, u.said.Answered)
		if v.excuse != "" {
			c.count("usages not judged: " + v.excuse)
			continue
		}
		for _, l := range u.said.Limits {
			window, most := c.limitAt(u, l.Name)
			if window == 0 {
				c.count("usages not judged: a limit that no set holds")
				continue
			}
			for _, b := range v.bounds {
				if b.window == window {
					most = min(most, b.max)
				}
			}
			c.judgeUsage(u, l, window, most)
		}
	}
}

// limitAt finds a limit's window, by its name, in the sets that may be in force at the end; 0: no set has it.
func (c *Checker) limitAt(u *usage, name string) (window int64, most uint64) {
	quota := c.kept.subjects[u.subject].quota
	c.sets.between(quota, u.said.Sent, u.said.Answered)
	for _, a := range c.sets.possible {
		for _, l := range a.quotas[quota].rolling {
			if l.name == name {
				return l.window, l.max
			}
		}
	}
	return 0, 0
}

func (c *Checker) judgeUsage(u *usage, l Used, window int64, lowest uint64) {
	c.count(CountUsages)
	acked, possible := uint64(0), c.mayHave(u.subject, u.said.Answered, clockKey{int32(u.said.Partition), u.said.Epoch}, u.said.Time-window)
	var events []*event
	for _, s := range c.streamsOf(u.subject) {
		if s.part != int32(u.said.Partition) || s.epoch > u.said.Epoch {
			continue
		}
		for i := c.find(s, u.said.Time-window); i < c.find(s, u.said.Time); i++ {
			e := &c.events[i]
			if e.from > u.said.Answered {
				continue
			}
			possible += e.cost
			events = append(events, e)
			if s.epoch == u.said.Epoch && e.to < u.said.Sent {
				acked += e.cost
			}
		}
	}
	lines := append(c.shownEvents(events...), show(u.line, u.said))
	within := fmt.Sprintf("%s, limit %s, in (%d, %d]", c.who(u.subject), l.Name, u.said.Time-window, u.said.Time)
	if l.Used > possible {
		c.violated(RuleUsage, lines, "%s: %d units are counted, and only %d can have been charged", within, l.Used, possible)
	}
	if least := min(acked, lowest); l.Used < least {
		c.violated(RuleUsage, lines, "%s: %d units are counted, and %d were acknowledged", within, l.Used, acked)
	}
}

// mayHave is what the calls cost that were sent by a moment and may, for all that the history says, have been charged
// at a decision time after the given one. What carried its time along can't be, if half a horizon lies between that time
// and the one given: it was sent when decision time was surely no later.
func (c *Checker) mayHave(n int32, by int64, key clockKey, after int64) uint64 {
	list := c.maybes[n]
	if len(list) == 0 {
		return 0
	}
	sum := sumTo(list, by)
	if c.opt.Fenced {
		sum -= sumTo(list, min(by, c.clocks[key].surely(after-int64(c.opt.RetryHorizon)/2)))
	}
	return sum
}

// sumTo is what those cost that were sent by a moment.
func sumTo(list []maybe, by int64) uint64 {
	at, _ := slices.BinarySearchFunc(list, by, func(m maybe, by int64) int {
		if m.sent <= by {
			return -1
		}
		return 1
	})
	if at == 0 {
		return 0
	}
	return list[at-1].sum
}

// state is a replica's.
type state struct {
	line int
	said *State
}

// judgeStates is rule "state": replicas that have applied the same entries have the same state.
func (c *Checker) judgeStates() {
	type place struct {
		partition int
		index     uint64
	}
	first := map[place]state{}
	for _, s := range c.states {
		at := place{s.said.Partition, s.said.Index}
		f, ok := first[at]
		switch {
		case !ok:
			first[at] = s
		case f.said.Hash != s.said.Hash:
			c.violated(RuleState, []Shown{show(f.line, f.said), show(s.line, s.said)},
				"partition %d at index %d: %s has %s, %s has %s", at.partition, at.index, f.said.Node, f.said.Hash, s.said.Node, s.said.Hash)
		case f.said.Node != s.said.Node:
			c.count(CountStates)
		}
	}
}
