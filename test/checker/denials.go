package checker

import "slices"

// judgeDenials is rule "denial": a denial at a time t of a cost c is true: for some limit of the key's quota the
// units that may have been in (t-W, t] leave less than c.
//
// The leader that denies has seen no event of a time above t, and all that it counts are events of times in
// the window, of this epoch or of earlier ones, or calls whose outcome the history doesn't know. A denial that a client
// remembers claims the time of the one that it remembers, which was true then, of no larger cost. A set that was
// in force within the window may have made the machine forget units beyond its own amounts, and a
// window that has forgotten any counts as full: so the lowest amount of any set that may have been in force within the window
// counts. Decision time was at most t-W, surely, when the last event of a time up to t-W was still to be decided:
// sets that were out of force by then have nothing to do with it. Not judged: denials of quotas whose sets
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
	quota := c.kept.subjects[k.subject].quota
	clock := c.clocks[clockKey{k.partition, k.epoch}]
	return c.sets.verdicts(quota, clock.surely(k.time-c.sets.longest(quota)), k.answered)
}

// mayBeDenied says that some limit may have had too little left.
func (c *Checker) mayBeDenied(k *call, v *verdicts) bool {
	maybe := c.mayHave(k.subject, k.answered)
	return slices.ContainsFunc(v.bounds, func(b bound) bool {
		return b.max != unlimited && c.held(k, b.window)+maybe+k.cost > b.max
	})
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
	b := v.bounds
	lines := append(c.shownEvents(events...), c.shown(k)...)
	if len(b) == 0 {
		c.violated(RuleDenial, lines, "%s: denied, and no limit that may have been in force has an amount", c.who(k.subject))
		return
	}
	c.violated(RuleDenial, lines, "%s: denied %d at %d, and at most %d are used in (%d, %d], and %d may be by calls without an answer, of at least %d",
		c.who(k.subject), k.cost, k.time, c.held(k, b[0].window), k.time-b[0].window, k.time, c.mayHave(k.subject, k.answered), b[0].max)
}
