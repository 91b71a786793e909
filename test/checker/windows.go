package checker

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// judgeWindows is rule "window": for every event at a time t, the costs of the key's events in (t-W, t] are no more
// than the limit.
//
// Entries of a partition have times that never fall, so all events of a lower time had been decided when the
// event was, and counted against it. Of several at one time the last one had all others before it; which one that was
// isn't known, so the largest amount that any of them may have been held to is what counts. An amount may have been in force when
// the event was decided, anywhere between its first sending and its first answer. Windows that end elsewhere hold no
// more than one that ends at an event. Calls whose outcome isn't known are left out: they may not have been charged.
func (c *Checker) judgeWindows() {
	for _, s := range c.streams {
		for lo := s.lo; lo < s.hi; {
			hi, e := lo+1, &c.events[lo]
			caps := slices.Clone(c.sets.allowed.values[e.caps])
			for ; hi < s.hi && c.events[hi].time == e.time; hi++ {
				raise(caps, c.sets.allowed.values[c.events[hi].caps])
			}
			c.judgeInstant(s, e.time, caps)
			lo = hi
		}
	}
}

func (c *Checker) judgeInstant(s stream, t int64, caps []uint64) {
	for w, window := range c.sets.windows[c.kept.subjects[s.subject].quota] {
		if len(caps) == 0 {
			return // rule "policy" has said so
		}
		c.windows++
		if sum := c.within(s, t-window, t); sum > caps[w] {
			c.tellWindow(s, t, window, sum, caps[w])
		}
	}
}

// raise raises each amount to the other's.
func raise(caps, other []uint64) {
	for i := range min(len(caps), len(other)) {
		caps[i] = max(caps[i], other[i])
	}
}

func (c *Checker) tellWindow(s stream, t, window int64, sum, most uint64) {
	var events []*event
	for i := c.find(s, t-window); i < c.find(s, t); i++ {
		events = append(events, &c.events[i])
	}
	c.violated(RuleWindow, c.shownEvents(events...), "%s: %d units in (%d, %d], a window of %d ns, and %s",
		c.who(events[0].subject), sum, t-window, t, window, atMost(most))
}

func atMost(n uint64) string { return fmt.Sprintf("at most %d may have been the limit", n) }

// judgeRealWindows is rule "real-window": no set of a key's events must, whatever moments one picks for them, lie
// in less than a window of real time with more than the limit.
//
// Each was decided between its first sending and its first answer. Those that were sent at or after a moment a
// and answered before a+W lie within W of each other, whatever one picks. Decision time is never faster than real time,
// so they lie within W in decision time too, and were all counted against the last one of them, whichever it is:
// the largest amount that any of them may have been held to counts. This rule trusts no claimed time, and holds over
// partitions and epochs: a key has one partition, and a rewound one admits nothing that a window of the
// old epoch could still hold.
func (c *Checker) judgeRealWindows() {
	for lo := 0; lo < len(c.events); {
		hi := lo + 1
		for hi < len(c.events) && c.events[hi].subject == c.events[lo].subject {
			hi++
		}
		c.judgeRealWindowsOf(c.events[lo:hi])
		lo = hi
	}
}

func (c *Checker) judgeRealWindowsOf(events []event) {
	windows := c.sets.windows[c.kept.subjects[events[0].subject].quota]
	if len(windows) == 0 {
		return
	}
	byFrom, byTo := make([]*event, len(events)), make([]*event, len(events))
	for i := range events {
		byFrom[i], byTo[i] = &events[i], &events[i]
	}
	slices.SortFunc(byFrom, func(a, b *event) int { return cmp.Compare(b.from, a.from) }) // the latest first
	slices.SortFunc(byTo, func(a, b *event) int { return cmp.Compare(a.to, b.to) })
	rank := make(map[*event]int, len(events))
	for i, e := range byTo {
		rank[e] = i
	}
	for w, window := range windows {
		t, told := newTree(len(events)), false
		for i := 0; i < len(byFrom) && !told; {
			from := byFrom[i].from
			for ; i < len(byFrom) && byFrom[i].from == from; i++ {
				e := byFrom[i]
				t.add(rank[e], e.cost, capOf(c.sets.allowed.values[e.caps], w))
			}
			c.realWindows++
			end := from + c.atLeast(window)
			n, _ := slices.BinarySearchFunc(byTo, end, func(e *event, end int64) int {
				if e.to < end {
					return -1
				}
				return 1
			})
			if sum, most := t.first(n); sum > most {
				told = true // one of a key is enough
				c.tellRealWindow(byTo[:n], from, window, sum, most)
			}
		}
	}
}

// atLeast is how much real time so much decision time takes at least.
func (c *Checker) atLeast(window int64) int64 {
	return window - (c.fastest(window) - window)
}

// capOf is the amount for a window; an event without a policy has broken another rule.
func capOf(caps []uint64, w int) uint64 {
	if len(caps) == 0 {
		return unlimited
	}
	return caps[w]
}

func (c *Checker) tellRealWindow(events []*event, from, window int64, sum, most uint64) {
	var in []*event
	for _, e := range events {
		if e.from >= from {
			in = append(in, e)
		}
	}
	c.violated(RuleReal, c.shownEvents(in...), "%s: %d units, all sent at or after %d and answered before %d, so within %d ns of real time, and %s",
		c.who(in[0].subject), sum, from, from+c.atLeast(window), window, atMost(most))
}

// tree adds up costs, and finds the largest cap, of the first n places, in log n steps (a Fenwick tree).
type tree struct {
	sums, caps []uint64
}

func newTree(n int) *tree { return &tree{make([]uint64, n+1), make([]uint64, n+1)} }

func (t *tree) add(place int, cost, most uint64) {
	for i := place + 1; i < len(t.sums); i += i & -i {
		t.sums[i] += cost
		t.caps[i] = max(t.caps[i], most)
	}
}

// first is the sum and the largest cap of the first n places.
func (t *tree) first(n int) (sum, most uint64) {
	for i := n; i > 0; i -= i & -i {
		sum += t.sums[i]
		most = max(most, t.caps[i])
	}
	if n == 0 {
		most = math.MaxUint64
	}
	return sum, most
}
