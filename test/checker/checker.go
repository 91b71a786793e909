package checker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Options say what a history doesn't. The zero value is right for the product as it comes.
type Options struct {
	// RetryHorizon is for how much decision time an id is remembered. 0: 20 s, the product's default.
	RetryHorizon time.Duration
	// Live: no denial in the history was remembered by a client. One that was claims the time of the
	// answer that it remembers; live ones are also held to the rules "pace" and "forward".
	Live bool
	// Fast is by how many millionths some clock of the run may have been faster than real time: a run that
	// makes one so on purpose says it. 0: none was.
	Fast int64
	// Fenced: every call of an id carried the newest decision time that was known when the id was first sent (as
	// those of the product's client do), and so isn't charged once half the horizon has passed since. Without that a
	// call that nobody has heard of may be charged at any time.
	Fenced bool
	// Lead is by how much the time of what a leader answers from memory can be ahead of the newest entry's,
	// so that a later leader's may be lower. 0: 10 s; the product's leaders log their time every 5.
	Lead time.Duration
	// Patience bounds the search for an order, for each piece of a key's history (rule "linear"). 0: 20 s.
	Patience time.Duration
	// AllowUndecided: a search that took longer is reported, and doesn't fail the history.
	AllowUndecided bool
	// Examples bounds how many violations of each rule are told in full. 0: 10.
	Examples int
}

func (o Options) withDefaults() Options {
	if o.RetryHorizon == 0 {
		o.RetryHorizon = 20 * time.Second
	}
	if o.Lead == 0 {
		o.Lead = 10 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 20 * time.Second
	}
	if o.Examples == 0 {
		o.Examples = 10
	}
	return o
}

// Checker takes a history line by line, and judges it.
type Checker struct {
	opt   Options
	kept  store
	sets  *sets
	lines int // the number of the newest line

	usages []usage
	states []state

	events  []event  // by subject, partition, epoch, time
	streams []stream // in that order
	first   []int32  // a subject's first stream, and behind the last of all
	clocks  map[clockKey]*clock
	maybes  map[int32][]maybe // by subject

	windows, realWindows, denials int // that were looked at

	report *Report
}

// New returns one that has seen nothing.
func New(opt Options) *Checker {
	c := &Checker{opt: opt.withDefaults(), kept: newStore()}
	c.report = &Report{Counts: map[string]int{}, Violated: map[string]int{}}
	c.sets = newSets(&c.kept)
	return c
}

// Check judges a history.
func Check(lines []Line, opt Options) (*Report, error) {
	c := New(opt)
	for i, l := range lines {
		if err := c.Add(i+1, l); err != nil {
			return nil, err
		}
	}
	return c.Report(), nil
}

// CheckFile judges the history in a file.
func CheckFile(path string, opt Options) (*Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return CheckReader(f, opt)
}

// CheckReader judges the history that r gives.
func CheckReader(r io.Reader, opt Options) (*Report, error) {
	c, in := New(opt), NewReader(r)
	for {
		l, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return c.Report(), nil
		case err != nil:
			return nil, err
		}
		if err := c.Add(in.Line(), l); err != nil {
			return nil, err
		}
	}
}

// Add takes the line with this number in the history. It keeps nothing of l but its strings.
func (c *Checker) Add(number int, l Line) error {
	if err := l.check(); err != nil {
		return fmt.Errorf("line %d: %w", number, err)
	}
	c.lines++
	r := c.report
	r.Counts["lines"]++
	switch l := l.(type) {
	case *Policies:
		r.Counts["policy sets "+string(l.Outcome)]++
		c.sets.add(number, l)
	case *Call:
		r.Counts["calls"]++
		r.Counts["answers "+string(l.Answer)]++
		if l.Answer == Allow && l.Replayed {
			r.Counts["answers allow, replayed"]++
		}
		c.kept.add(number, l)
	case *Usage:
		r.Counts["usages"]++
		c.usages = append(c.usages, usage{number, c.kept.subject(l.Quota, l.Key), l})
	case *State:
		r.Counts["states"]++
		c.states = append(c.states, state{number, l})
	}
	return nil
}

// Report judges what was added. It is called once.
func (c *Checker) Report() *Report {
	c.sets.seal()
	c.gather()
	c.index()
	c.judgeWindows()
	c.judgeRealWindows()
	c.judgeTimes()
	c.judgeDenials()
	c.judgeUsages()
	c.judgeStates()
	c.judgeOrder()
	n := c.report.Counts
	n["windows in decision time"], n["windows in real time"], n[CountDenials] = c.windows, c.realWindows, c.denials
	c.report.lenient = c.opt.AllowUndecided
	return c.report
}
