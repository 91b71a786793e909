package checker

import (
	"bytes"
	"cmp"
	"math"
	"slices"
)

// An event is one allow that was charged, however often it was told. Calls of one id that were allowed with the
// same partition, epoch and decision time are one event. It was decided after the first of the id's calls was sent,
// and before the first of those that were allowed was answered. (Not: after the call that isn't marked as
// replayed was sent. A call that comes while another one of its id is in flight is told what that one is told, though
// its decision may have its time already.)

// event is one.
type event struct {
	call     int32 // the one that was answered first
	subject  int32
	part     int32
	caps     int32 // what it may have been held to: sets.allowed
	epoch    uint64
	time     int64
	from, to int64  // when it was decided, at the earliest and at the latest
	cost     uint64 // the least that its calls say
	sum      uint64 // costs of its stream up to it, itself included
}

// maybe is a call whose answer doesn't say whether it was charged. It may have been, at any time after it was sent.
type maybe struct {
	sent int64
	cost uint64
	call int32
	sum  uint64 // costs of the subject's up to it
}

// most is the largest cost that is added up; maxima beyond it mean nothing here.
const most = 1 << 40

// gather finds the events, and what the calls of one id say of each other.
func (c *Checker) gather() {
	c.maybes = map[int32][]maybe{}
	order := make([]int32, 0, c.kept.count)
	for i := range int32(c.kept.count) {
		if c.kept.at(i).subject != none {
			order = append(order, i)
		} else {
			c.count("calls without a policy, not judged")
		}
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := c.kept.at(i), c.kept.at(j)
		return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.sent, b.sent), cmp.Compare(i, j))
	})
	for len(order) > 0 {
		n := 1
		for n < len(order) && c.kept.at(order[n]).id == c.kept.at(order[0]).id {
			n++
		}
		first := len(c.events)
		c.allowsOf(order[:n])
		events := c.events[first:]
		if n > 1 {
			c.judgeMarks(order[:n], events)
			c.judgeRepetitions(order[:n], events)
		}
		c.unknownsOf(order[:n], events)
		order = order[n:]
	}
	c.report.Counts[CountAllows] = len(c.events)
}

// allowsOf turns the allows of an id into events.
//
// Rule "once": an id that is remembered, for the retry horizon, is never charged again, and its check is always
// of the same key and so of the same partition. Two decision times that are less than the horizon apart are two
// charges. Further apart, or in another epoch, which has rewound what was remembered, they are two events in good order.
func (c *Checker) allowsOf(run []int32) {
	first, sent := len(c.events), c.kept.at(run[0]).sent
	for _, i := range run {
		if k := c.kept.at(i); k.answer == isAllow {
			if e := c.same(k, first); e != nil {
				if k.answered < e.to {
					e.to, e.call = k.answered, i
				}
				e.cost = min(e.cost, k.cost)
				continue
			}
			c.compare(k, first)
			c.events = append(c.events, event{
				call: i, subject: k.subject, part: k.partition, epoch: k.epoch, time: k.time, from: sent, to: k.answered, cost: k.cost,
			})
		}
	}
}

// same finds the event, among those from the first on, that an allow tells of.
func (c *Checker) same(k *call, first int) *event {
	for i := first; i < len(c.events); i++ {
		if e := &c.events[i]; e.subject == k.subject && e.part == k.partition && e.epoch == k.epoch && e.time == k.time {
			return e
		}
	}
	return nil
}

// compare holds another event of an id against those that it has.
func (c *Checker) compare(k *call, first int) {
	for i := first; i < len(c.events); i++ {
		e := &c.events[i]
		lines := append(c.shownEvents(e), c.shown(k)...)
		switch apart := max(e.time, k.time) - min(e.time, k.time); {
		case e.subject != k.subject:
			c.violated(RuleOnce, lines, "one id was allowed for two: %s, and %s", c.who(e.subject), c.who(k.subject))
		case e.part != k.partition:
			c.violated(RuleOnce, lines, "one id was charged in partition %d and in partition %d", e.part, k.partition)
		case e.epoch == k.epoch && apart < int64(c.opt.RetryHorizon):
			c.violated(RuleOnce, lines, "one id was charged twice, at %d and at %d of partition %d: %d ns apart, and ids are remembered for %d",
				e.time, k.time, e.part, apart, int64(c.opt.RetryHorizon))
		}
	}
}

// judgeMarks is a part of rule "repeat": an allow that was sent after another call of its id had been answered
// with the same allow is marked as replayed: the id was recorded by then.
func (c *Checker) judgeMarks(run []int32, events []event) {
	for _, i := range run {
		k := c.kept.at(i)
		for j := range events {
			e := &events[j]
			if k.answer == isAllow && !k.replayed && k.sent > e.to && k.time == e.time && k.epoch == e.epoch {
				c.violated(RuleRepeat, append(c.shownEvents(e), c.shown(k)...),
					"sent at %d, after the same allow had been answered at %d, and not marked as replayed", k.sent, e.to)
			}
		}
	}
}

// judgeRepetitions is rule "repeat": a call of an id whose allow had been answered, and that was itself
// answered within the retry horizon, isn't denied.
//
// Decision time is at most as fast as real time. So if no more real time than the horizon lies between the first
// moment at which the allow can have been decided and the denial's answer, the id was remembered when it was denied. Or
// else the denial's own time says so; a client denies by what it remembers only under an id that it has never sent.
// Excused: another epoch, and a set that may have been in force without the quota, which denies before it looks.
func (c *Checker) judgeRepetitions(run []int32, events []event) {
	horizon := int64(c.opt.RetryHorizon)
	for _, i := range run {
		k := c.kept.at(i)
		if k.answer != isDeny {
			continue
		}
		for j := range events {
			e := &events[j]
			near := k.answered-e.from < horizon || k.time >= e.time && k.time-e.time < horizon
			if k.sent <= e.to || k.subject != e.subject || k.partition != e.part || k.epoch != e.epoch || !near {
				continue
			}
			if c.sometimesGone(k.subject, e.from, k.answered) {
				continue
			}
			c.violated(RuleRepeat, append(c.shownEvents(e), c.shown(k)...),
				"denied at %d, though the allow of its id had been answered at %d, and is remembered for %d ns after it was decided, not before %d",
				k.answered, e.to, horizon, e.from)
		}
	}
}

// sometimesGone says that a set without the subject's quota may have been in force within [from, to].
func (c *Checker) sometimesGone(n int32, from, to int64) bool {
	quota := c.kept.subjects[n].quota
	c.sets.between(quota, from, to)
	return slices.ContainsFunc(c.sets.possible, func(a *attempt) bool {
		_, ok := a.quotas[quota]
		return !ok
	})
}

// unknownsOf finds what of an id may have been charged beside its events.
//
// A call carries the decision time that was known when it was sent, and isn't charged when that is more than half the
// horizon ago. So calls that are sent within half a horizon are all decided within a horizon: at most one
// of them is charged, the others find it.
func (c *Checker) unknownsOf(run []int32, events []event) {
	half, covered := int64(c.opt.RetryHorizon)/2, int64(math.MinInt64)
	for j := range events {
		covered = max(covered, events[j].from+half)
	}
	for _, i := range run {
		k := c.kept.at(i)
		if k.answer != isUnknown && (k.answer == isAllow || !k.resent) || k.sent < covered {
			continue
		}
		covered = k.sent + half
		c.maybes[k.subject] = append(c.maybes[k.subject], maybe{sent: k.sent, cost: min(k.cost, most), call: i})
		c.count("calls that may have been charged")
	}
}

// streamKey is one key's events that compare in decision time.
type streamKey struct {
	subject, part int32
	epoch         uint64
}

// stream is where they are in Checker.events.
type stream struct {
	streamKey
	lo, hi int32
}

// clockKey is whose decision time.
type clockKey struct {
	part  int32
	epoch uint64
}

// clock is what the events of one clock say of its course, in the order of their times.
type clock struct {
	times []int64
	// reached[i] is a real moment at which decision time was at most times[i]: the latest that is known.
	reached []int64
	events  []int32
}

// index orders the events, adds up their costs and finds their policies.
func (c *Checker) index() {
	slices.SortFunc(c.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.subject, b.subject), cmp.Compare(a.part, b.part), cmp.Compare(a.epoch, b.epoch),
			cmp.Compare(a.time, b.time), cmp.Compare(a.from, b.from))
	})
	c.first = make([]int32, len(c.kept.subjects)+1)
	for i := range c.events {
		e := &c.events[i]
		key := streamKey{e.subject, e.part, e.epoch}
		if n := len(c.streams); n == 0 || c.streams[n-1].streamKey != key {
			c.streams = append(c.streams, stream{key, int32(i), int32(i)})
			c.first[e.subject+1]++
		}
		s := &c.streams[len(c.streams)-1]
		if e.sum = e.cost; s.hi > s.lo {
			e.sum += c.events[i-1].sum
		}
		s.hi++
		c.judgePolicy(e)
	}
	for n := range c.kept.subjects {
		c.first[n+1] += c.first[n]
	}
	for n := range c.maybes {
		sum, list := uint64(0), c.maybes[n]
		slices.SortFunc(list, func(a, b maybe) int { return cmp.Compare(a.sent, b.sent) })
		for i := range list {
			sum += list[i].cost
			list[i].sum = sum
		}
	}
	c.indexClocks()
	c.report.Counts["keys with allows"] = len(c.streams)
}

// judgePolicy finds what an event may have been held to. Rule "policy": an allow of a quota was decided under a
// set that holds the quota.
func (c *Checker) judgePolicy(e *event) {
	quota := c.kept.subjects[e.subject].quota
	e.caps = c.sets.caps(quota, e.from, e.to)
	if len(c.sets.allowed.values[e.caps]) == 0 {
		c.violated(RulePolicy, append(c.sets.shown(quota, e.from, e.to), c.shownEvents(e)...),
			"%s: allowed within [%d, %d], when no set that may have been in force holds the quota", c.who(e.subject), e.from, e.to)
	}
}

func (c *Checker) indexClocks() {
	c.clocks = map[clockKey]*clock{}
	for i := range c.events {
		e := &c.events[i]
		key := clockKey{e.part, e.epoch}
		k := c.clocks[key]
		if k == nil {
			k = &clock{}
			c.clocks[key] = k
		}
		k.events = append(k.events, int32(i))
	}
	for _, k := range c.clocks {
		slices.SortFunc(k.events, func(i, j int32) int { return cmp.Compare(c.events[i].time, c.events[j].time) })
		latest := int64(math.MinInt64)
		for _, i := range k.events {
			e := &c.events[i]
			latest = max(latest, e.from)
			k.times, k.reached = append(k.times, e.time), append(k.reached, latest)
		}
	}
	c.report.Counts["clocks (partition and epoch)"] = len(c.clocks)
}

// surely is the latest real moment at which decision time is known to have been at most t; the beginning if
// none is. An event that was decided after a moment, at a time, shows that time hadn't passed it at that moment.
func (k *clock) surely(t int64) int64 {
	if k == nil {
		return math.MinInt64
	}
	n, _ := slices.BinarySearch(k.times, t+1)
	if n == 0 {
		return math.MinInt64
	}
	return k.reached[n-1]
}

// streamsOf are a subject's.
func (c *Checker) streamsOf(n int32) []stream { return c.streams[c.first[n]:c.first[n+1]] }

// within is what events of a stream with times in (after, until] cost.
func (c *Checker) within(s stream, after, until int64) uint64 {
	return c.upTo(s, until) - c.upTo(s, after)
}

// upTo is what the events of a stream with times up to t cost.
func (c *Checker) upTo(s stream, t int64) uint64 {
	if n := c.find(s, t); n > s.lo {
		return c.events[n-1].sum
	}
	return 0
}

// find returns the place of the first event of a stream with a time above t.
func (c *Checker) find(s stream, t int64) int32 {
	n, _ := slices.BinarySearchFunc(c.events[s.lo:s.hi], t, func(e event, t int64) int {
		if e.time <= t {
			return -1
		}
		return 1
	})
	return s.lo + int32(n)
}
