package checker

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// judgeOrder is rule "linear": the answers of one key are those of one limiter that decides its calls one after
// another, each between its sending and its answer. An independent checker of linearizability, porcupine, looks for
// such an order.
//
// The limiter takes the times that the answers claim: an allow inserts its event, and no window may go above what its events
// may have been held to; a denial must be true of what was inserted before it. So, other than in rule
// "denial", an allow that was sent after a denial had been answered explains nothing. A call without an outcome may
// have happened or not; it can make a denial true and nothing wrong, so it counts for denials from the moment at which it
// was sent, and never against an allow.
//
// A key's history is cut into pieces by the times at which calls were sent, because the search remembers all
// that it has tried. A piece begins with all events that were sent before it, and holds, beside its own calls, all
// events that a denial of its own overlaps. More events make a denial only truer, and an order of events matters to
// nothing else, so no piece of a good history fails. For the same reasons an order, if there is one, is found at once.
func (c *Checker) judgeOrder() {
	denials := c.denialsByStream()
	for i := range c.streams {
		s := &c.streams[i]
		c.judgeStream(s.streamKey, c.events[s.lo:s.hi], denials[s.streamKey])
		delete(denials, s.streamKey)
	}
	for _, key := range slices.SortedFunc(maps.Keys(denials), compareStreams) {
		c.judgeStream(key, nil, denials[key])
	}
}

func compareStreams(a, b streamKey) int {
	return cmp.Or(cmp.Compare(a.subject, b.subject), cmp.Compare(a.part, b.part), cmp.Compare(a.epoch, b.epoch))
}

// denialsByStream are the denials that can be judged, in the order in which they were sent.
func (c *Checker) denialsByStream() map[streamKey][]int32 {
	by := map[streamKey][]int32{}
	for i := range int32(c.kept.count) {
		if k := c.kept.at(i); k.answer == isDeny && k.subject != none && c.verdictsOf(k).excuse == "" {
			key := streamKey{k.subject, k.partition, k.epoch}
			by[key] = append(by[key], i)
		}
	}
	for _, list := range by {
		slices.SortFunc(list, func(i, j int32) int { return cmp.Compare(c.kept.at(i).sent, c.kept.at(j).sent) })
	}
	return by
}

// pieceLength is after how many denials, or events, a piece ends.
const pieceLength = 400

// judgeStream looks for an order of one key's calls, piece by piece, until it meets a piece without one. Without a
// denial any order is one that rule "window" has judged.
func (c *Checker) judgeStream(key streamKey, events []event, denials []int32) {
	if len(denials) == 0 {
		return
	}
	c.count("keys in order")
	sent := make([]*event, len(events))
	for i := range events {
		sent[i] = &events[i]
	}
	slices.SortFunc(sent, func(a, b *event) int { return cmp.Compare(a.from, b.from) })
	for len(denials) > 0 && c.report.Violated[RuleLinear] < c.opt.Examples {
		p := c.nextPiece(key, events, sent, denials)
		sent, denials = sent[p.passed:], denials[len(p.denials):]
		c.count("pieces in order")
		c.report.Counts["calls in order"] += len(p.ops)
		result := p.judge()
		if result == porcupine.Ok {
			continue
		}
		if !c.tellDenialOf(p) {
			if result == porcupine.Illegal {
				c.tellPiece(p)
			} else {
				c.report.Undecided = append(c.report.Undecided, fmt.Sprintf("%s: no order of %d calls found within %v", c.who(key.subject), len(p.ops), c.opt.Patience))
			}
		}
		return
	}
}

// piece is some of a key's calls.
type piece struct {
	c       *Checker
	key     streamKey
	before  []*event // by time
	sums    []uint64 // of before's costs
	ops     []porcupine.Operation
	passed  int // how many of the key's events, in the order of their sending, were sent before it
	denials []int32
	windows []int64
	longest int64
}

// nextPiece cuts off the next piece: some denials, and the events that were sent meanwhile. sent are the
// key's events from the piece before on, events are all of them by their times.
func (c *Checker) nextPiece(key streamKey, events []event, sent []*event, denials []int32) *piece {
	quota := c.kept.subjects[key.subject].quota
	p := &piece{c: c, key: key, windows: c.sets.windows[quota], longest: c.sets.longest(quota)}
	start := c.kept.at(denials[0]).sent
	p.passed = sentBefore(sent, start)
	last, oldest, newest := int64(0), int64(math.MaxInt64), int64(0)
	for n, i := range denials {
		k := c.kept.at(i)
		if n == pieceLength || n > 0 && sentBefore(sent, k.sent)-p.passed > pieceLength {
			break
		}
		last, oldest, newest = max(last, k.answered), min(oldest, k.time), max(newest, k.time)
		p.denials = denials[:n+1]
		p.ops = append(p.ops, c.denialOp(i))
	}
	for _, e := range sent[p.passed:] {
		if e.from > last {
			break
		}
		newest = max(newest, e.time)
		p.ops = append(p.ops, porcupine.Operation{Input: &step{event: e}, Call: e.from, Return: e.to})
	}
	sum := uint64(0)
	for i := upToTime(events, oldest-p.longest); i < len(events) && events[i].time <= newest; i++ {
		if e := &events[i]; e.from < start {
			sum += e.cost
			p.before, p.sums = append(p.before, e), append(p.sums, sum)
		}
	}
	return p
}

// sentBefore is how many events, in the order of their sending, were sent before a moment.
func sentBefore(sent []*event, t int64) int {
	n, _ := slices.BinarySearchFunc(sent, t, func(e *event, t int64) int { return cmp.Compare(e.from, t) })
	return n
}

// upToTime is how many events, in the order of their times, have times up to t.
func upToTime(events []event, t int64) int {
	n, _ := slices.BinarySearchFunc(events, t, func(e event, t int64) int {
		if e.time <= t {
			return -1
		}
		return 1
	})
	return n
}

// step is one call as the model sees it: an event, or a denial.
type step struct {
	event  *event
	denial *call
	bounds []bound
	// always is what counts for the denial wherever it is put: earlier epochs, calls without an outcome.
	always []uint64
}

func (c *Checker) denialOp(i int32) porcupine.Operation {
	k := c.kept.at(i)
	s := &step{denial: k, bounds: c.verdictsOf(k).bounds}
	for _, b := range s.bounds {
		sum := c.mayHaveFor(k, b.window)
		for _, st := range c.streamsOf(k.subject) {
			if st.part == k.partition && st.epoch < k.epoch {
				sum += c.within(st, k.time-b.window, k.time)
			}
		}
		s.always = append(s.always, sum)
	}
	return porcupine.Operation{Input: s, Call: k.sent, Return: k.answered}
}

// judge runs porcupine.
func (p *piece) judge() porcupine.CheckResult {
	model := porcupine.Model{
		Init:  func() any { return inserted(nil) },
		Step:  func(state, input, _ any) (bool, any) { return p.step(state.(inserted), input.(*step)) },
		Equal: func(a, b any) bool { return slices.Equal(a.(inserted), b.(inserted)) },
	}
	return porcupine.CheckOperationsTimeout(model, p.ops, p.c.opt.Patience)
}

// inserted are the events that were inserted so far, by time.
type inserted []*event

// step inserts an event, or asks whether a denial is true.
func (p *piece) step(in inserted, s *step) (bool, any) {
	if s.denial != nil {
		for i, b := range s.bounds {
			used := p.within(in, s.denial.time-b.window, s.denial.time)
			if b.max != unlimited && used+s.always[i]+s.denial.cost > b.max {
				return true, in
			}
		}
		return false, in
	}
	at, _ := slices.BinarySearchFunc(in, s.event, func(a, b *event) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.call, b.call)) })
	next := make(inserted, 0, len(in)+1)
	next = append(append(append(next, in[:at]...), s.event), in[at:]...)
	return p.fits(next, at), next
}

// fits says that no window that holds the event at a place is above what its last event may have been held to.
func (p *piece) fits(in inserted, at int) bool {
	for i := at; i < len(in) && in[i].time < in[at].time+p.longest; i++ {
		if i+1 < len(in) && in[i+1].time == in[i].time {
			continue // the last of an instant stands for it
		}
		for w, window := range p.windows {
			if p.within(in, in[i].time-window, in[i].time) > p.capAt(in, i, w) {
				return false
			}
		}
	}
	return true
}

// capAt is the largest amount that the events of an instant may have been held to; those of the same
// instant that were there at the beginning too.
func (p *piece) capAt(in inserted, i, w int) (most uint64) {
	for j := i; j >= 0 && in[j].time == in[i].time; j-- {
		most = max(most, capOf(p.c.sets.allowed.values[in[j].caps], w))
	}
	for j := upTo(p.before, in[i].time) - 1; j >= 0 && p.before[j].time == in[i].time; j-- {
		most = max(most, capOf(p.c.sets.allowed.values[p.before[j].caps], w))
	}
	return most
}

// within is what events in (after, until] cost, of those at the beginning and of those inserted.
func (p *piece) within(in inserted, after, until int64) (sum uint64) {
	if hi := upTo(p.before, until); hi > 0 {
		sum = p.sums[hi-1]
		if lo := upTo(p.before, after); lo > 0 {
			sum -= p.sums[lo-1]
		}
	}
	for i := upTo(in, until) - 1; i >= 0 && in[i].time > after; i-- {
		sum += in[i].cost
	}
	return sum
}

// upTo is how many events, in the order of their times, have times up to t.
func upTo(in []*event, t int64) int {
	n, _ := slices.BinarySearchFunc(in, t, func(e *event, t int64) int {
		if e.time <= t {
			return -1
		}
		return 1
	})
	return n
}

// tellDenialOf looks for a denial of a piece that no order can make true: not even with all before it that was
// sent before its answer. It says whether there is one.
func (c *Checker) tellDenialOf(p *piece) bool {
	for _, op := range p.ops {
		s := op.Input.(*step)
		if s.denial == nil {
			continue
		}
		var sent inserted
		for _, o := range p.ops {
			if e := o.Input.(*step).event; e != nil && e.from <= s.denial.answered {
				sent = append(sent, e)
			}
		}
		slices.SortFunc(sent, func(a, b *event) int { return cmp.Compare(a.time, b.time) })
		if ok, _ := p.step(sent, s); !ok {
			used := p.within(sent, s.denial.time-p.longest, s.denial.time)
			c.violated(RuleLinear, append(c.shownEvents(slices.Concat(p.before, sent)...), c.shown(s.denial)...),
				"%s: denied %d at %d, when at most %d units, of calls that were sent before it was answered, can have been used",
				c.who(p.key.subject), s.denial.cost, s.denial.time, used)
			return true
		}
	}
	return false
}

// tellPiece shows a piece whose fault isn't one denial's.
func (c *Checker) tellPiece(p *piece) {
	var lines []Shown
	for _, op := range p.ops {
		if s := op.Input.(*step); s.event != nil {
			lines = append(lines, c.shownEvents(s.event)...)
		} else {
			lines = append(lines, c.shown(s.denial)...)
		}
	}
	c.violated(RuleLinear, lines, "%s: no order of %d calls explains their answers", c.who(p.key.subject), len(p.ops))
}
