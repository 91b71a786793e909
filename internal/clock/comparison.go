package clock

import "time"

const (
	// FastPPM is by how many parts per million two clocks may differ, both of which lose 500 ppm by design: an
	// oscillator within its bounds is never further off.
	FastPPM = 1000
	// compareOver is the least time over which clocks are compared. Over less, the way of a question and its
	// answer counts for more than any drift.
	compareOver = 10 * time.Second
)

// Sample is one look at another process's accumulator: it was read at some moment between two readings of our
// own.
type Sample struct {
	Asked, Heard Reading // ours, before the question went out and after the answer came in
	Theirs       Reading
}

// Comparison watches whether our accumulator runs faster than another process's. It isn't safe for concurrent
// use.
type Comparison struct {
	// Over is the least time over which to compare, 10 s if it is 0.
	Over time.Duration

	samples []Sample
}

// Add takes in a sample, newer than those before. A gap on either side begins anew: nobody knows how much real
// time it hides.
func (c *Comparison) Add(s Sample) {
	if c.Over == 0 {
		c.Over = compareOver
	}
	if s.Asked.Gaps != s.Heard.Gaps {
		c.samples = nil
		return
	}
	if n := len(c.samples); n > 0 {
		last := c.samples[n-1]
		if last.Heard.Gaps != s.Asked.Gaps || last.Theirs.Gaps != s.Theirs.Gaps || s.Theirs.Elapsed < last.Theirs.Elapsed {
			c.samples = nil
		}
	}
	c.samples = append(c.samples, s)
	// The oldest goes once the next is old enough to compare with.
	for len(c.samples) > 2 && s.Asked.Elapsed-c.samples[1].Heard.Elapsed >= int64(c.Over) {
		c.samples = c.samples[1:]
	}
}

// Verdict is what is known of our speed beside another clock's.
type Verdict uint8

const (
	Unknown  Verdict = iota // it can't be told: not for long enough, or the ways of the questions took too long
	Faster                  // ours runs faster, by more than [FastPPM]
	NoFaster                // it doesn't
)

// Verdict compares the time since the oldest sample. How long the ways of the questions took is known, how that was
// shared between there and back isn't: between their two readings at least as much of our time passed as from
// hearing the first to asking for the second, and at most as from asking for the first to hearing the second. Only
// what holds for both is a verdict.
func (c *Comparison) Verdict() Verdict {
	if len(c.samples) < 2 {
		return Unknown
	}
	first, last := c.samples[0], c.samples[len(c.samples)-1]
	least, most := last.Asked.Elapsed-first.Heard.Elapsed, last.Heard.Elapsed-first.Asked.Elapsed
	theirs := last.Theirs.Elapsed - first.Theirs.Elapsed
	switch {
	case least < int64(c.Over):
		return Unknown
	case least-theirs > least/1e6*FastPPM:
		return Faster
	case most-theirs <= most/1e6*FastPPM:
		return NoFaster
	}
	return Unknown
}
