package checker

import (
	"fmt"
	"slices"
)

// judgeDenials is rule "denial": a denial at a time t of a cost c is true: for some limit of the key's quota the
// units that may have been in (t-W, t] leave less than c.
//
// The leader that denies has seen no event of a time above t, and all that it counts are events of times in
// the window, of this epoch or of earlier ones, or calls whose outcome the history doesn't know. A denial that a client
// remembers claims the time of the one that it remembers, which was true then, of no larger cost. A set that was
// in force within the window may have made the machine forget units beyond its own amounts, and a
// window that has forgotten any counts as full: so the lowest amount of any set that may have been in force within the window
// counts. Which sets those are: Checker.setsOf. Not judged: denials of quotas whose sets
// within the window differ in more than amounts (what was not kept counts as used up), or have limits of other
// algorithms, and those that claim no time.
//
// What had not been sent yet when the denial was answered can't have been counted; rule "linear" looks at that.
func (c *Checker) judgeDenials() {
	for i := range int32(c.kept.count) {
		k := c.kept.at(i)
		if k.answer != isDeny || k.subject == none {
			continue
		}
		v := c.verdictsOf(k)
		if v.excuse != "" {
			c.count("denials not judged: " + v.excuse)
			continue
		}
		c.denials++
		if !c.mayBeDenied(k, v) {
			c.tellDenial(k, v)
		}
	}
}

// verdictsOf is what a denial may have been denied by.
func (c *Checker) verdictsOf(k *call) *verdicts {
	if k.partition == none {
		return &verdicts{excuse: "no time"}
	}
	return c.setsOf(k.subject, clockKey{k.partition, k.epoch}, k.time, k.answered)
}

// setsOf are the sets that may have been in force while a window was filled that was looked at from memory at
// decision time t, in an answer of the moment given.
//
// When the last event of a time up to t-W was still to be decided, decision time was at most t-W: sets that
// were out of force by then have nothing to do with the window. That event has to come before the look. One that was
// decided after it may have a time below t, because t was in no log; but not one below t less what a leader's clock
// leads by.
func (c *Checker) setsOf(n int32, key clockKey, t, answered int64) *verdicts {
	quota := c.kept.subjects[n].quota
	back := max(c.sets.longest(quota), int64(c.opt.Lead))
	return c.sets.verdicts(quota, c.clocks[key].surely(t-back), answered)
}

// mayBeDenied says that some limit may have had too little left.
func (c *Checker) mayBeDenied(k *call, v *verdicts) bool {
	return slices.ContainsFunc(v.bounds, func(b bound) bool {
		return b.max != unlimited && c.held(k, b.window)+c.mayHaveFor(k, b.window)+k.cost > b.max
	})
}

func (c *Checker) mayHaveFor(k *call, window int64) uint64 {
	return c.mayHave(k.subject, k.answered, clockKey{k.partition, k.epoch}, k.time-window)
}

// held is what the events that a denial may count in a window cost.
func (c *Checker) held(k *call, window int64) (sum uint64) {
	for _, s := range c.streamsOf(k.subject) {
		if s.part == k.partition && s.epoch <= k.epoch {
			sum += c.within(s, k.time-window, k.time)
		}
	}
	return sum
}

func (c *Checker) tellDenial(k *call, v *verdicts) {
	var events []*event
	longest := c.sets.longest(c.kept.subjects[k.subject].quota)
	for _, s := range c.streamsOf(k.subject) {
		for i := c.find(s, k.time-longest); s.part == k.partition && i < c.find(s, k.time); i++ {
			events = append(events, &c.events[i])
		}
	}
	what := fmt.Sprintf("%s: denied %d at %d, and no limit that may have been in force does that", c.who(k.subject), k.cost, k.time)
	for _, b := range v.bounds {
		what += fmt.Sprintf("; of at least %d in (%d, %d] at most %d are used, and %d may be, by calls whose outcome isn't known",
			b.max, k.time-b.window, k.time, c.held(k, b.window), c.mayHaveFor(k, b.window))
	}
	c.violated(RuleDenial, append(c.shownEvents(events...), c.shown(k)...), "%s", what)
}
