package checker_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/quorate/quorate/test/checker"
)

const (
	ms      = int64(1e6)
	second  = 1000 * ms
	horizon = 20 * second
	runFor  = 60 * second
)

// tooLate marks a copy of a call that came when it couldn't be charged any more.
const tooLate = "too late"

// world is callers, a network that delays, doubles and loses, and one limiter, in virtual time. What callers see goes
// into a history. fault is what is wrong with the limiter; empty: nothing.
type world struct {
	fault string
	rng   *rand.Rand
	now   int64
	queue agenda
	lines []checker.Line

	*limiter
	former      *limiter // of a leader that doesn't know yet that it was deposed
	formerUntil int64
	down        int64 // no leader until then
	ids         int
	sets        uint64
	hints       map[string]hint // of one client for all
	forgetful   bool            // it remembers no denial
}

// hint is a denial that a client remembers.
type hint struct {
	answer checker.Call
	until  int64
}

// task is something that happens at a moment.
type task struct {
	at int64
	do func()
	n  int
}

type agenda struct {
	tasks []task
	n     int
}

func (a *agenda) Len() int { return len(a.tasks) }
func (a *agenda) Less(i, j int) bool {
	return a.tasks[i].at < a.tasks[j].at || a.tasks[i].at == a.tasks[j].at && a.tasks[i].n < a.tasks[j].n
}
func (a *agenda) Swap(i, j int) { a.tasks[i], a.tasks[j] = a.tasks[j], a.tasks[i] }
func (a *agenda) Push(x any)    { a.tasks = append(a.tasks, x.(task)) }
func (a *agenda) Pop() any {
	last := a.tasks[len(a.tasks)-1]
	a.tasks = a.tasks[:len(a.tasks)-1]
	return last
}

// after plans something.
func (w *world) after(delay int64, do func()) {
	w.queue.n++
	heap.Push(&w.queue, task{w.now + delay, do, w.queue.n})
}

// live runs a world for its time and returns what its callers saw. In one with an odd seed no client remembers denials.
func live(seed uint64, fault string) []checker.Line {
	w := &world{fault: fault, forgetful: seed%2 == 1, rng: rand.New(rand.NewPCG(seed, 17)), now: second, hints: map[string]hint{}}
	grains := []int64{1, 1, 50 * ms, 250 * ms}
	w.limiter = newLimiter(fault, w.rng, w.now, grains[w.rng.IntN(len(grains))])
	w.limits = []limitSpec{{"fast", second, 3}, {"slow", 5 * second, 9}}
	w.tellPolicies(checker.Applied, w.limits, 1, w.now, w.now)
	for range 6 {
		w.after(w.upTo(second), w.client)
	}
	w.after(2*second+w.upTo(6*second), w.failover)
	w.after(2*second+w.upTo(6*second), w.edit)
	w.after(w.upTo(5*second), w.inspect)
	w.after(5*second, w.tick)
	for w.queue.Len() > 0 {
		t := heap.Pop(&w.queue).(task)
		w.now = t.at
		t.do()
	}
	for range 40 {
		w.inspect()
	}
	return w.lines
}

func (w *world) upTo(n int64) int64    { return w.rng.Int64N(n) + 1 }
func (w *world) chance(p float64) bool { return w.rng.Float64() < p }
func (w *world) over() bool            { return w.now > runFor }

// delay is a message's: mostly short.
func (w *world) delay() int64 {
	switch {
	case w.chance(0.02):
		return w.upTo(40 * second)
	case w.chance(0.2):
		return w.upTo(300 * ms)
	default:
		return w.upTo(4 * ms)
	}
}

// client asks, waits a while, and asks again.
func (w *world) client() {
	if w.over() {
		return
	}
	w.ids++
	id := fmt.Sprintf("%032x", w.ids)
	key := fmt.Sprintf("k%d", w.rng.IntN(1+w.rng.IntN(4)))
	cost := uint64(1)
	if w.chance(0.1) {
		cost = uint64(w.upTo(4))
	}
	c := checker.Call{Client: "c", ID: id, Quota: "q", Key: key, Cost: cost}
	if h, ok := w.hints[key]; ok && w.now < h.until && cost >= h.answer.Cost {
		told := h.answer
		told.ID, told.Cost, told.Sent, told.Answered = id, cost, w.now, w.now+1
		w.lines = append(w.lines, &told)
	} else {
		w.call(c)
		for at := int64(0); w.chance(0.25); {
			at += w.upTo(8 * second)
			w.after(at, func() { w.call(c) })
		}
	}
	w.after(w.upTo(250*ms), w.client)
}

// call sends one call, perhaps twice, and writes its line when it is answered, or was given up.
func (w *world) call(c checker.Call) {
	c.Sent, c.Partition, c.Answer = w.now, -1, checker.Unknown
	fence, done, doubled := w.logged, false, w.chance(0.01)
	arrive := func() { // it waits until the next entry is sealed
		w.after(w.grain-1-(w.now-1)%w.grain, func() {
			told := w.arrive(c, fence)
			if w.chance(0.05) {
				return // the answer is lost
			}
			w.after(w.delay(), func() {
				if !done {
					done = true
					w.answered(told)
				}
			})
		})
	}
	if !w.chance(0.01) {
		w.after(w.delay(), arrive)
	}
	if c.Resent = doubled; doubled {
		w.after(w.delay(), arrive)
		w.after(w.upTo(45*second), arrive)
	}
	w.after(2*second, func() {
		if !done {
			done = true
			w.lines = append(w.lines, &c)
		}
	})
}

func (w *world) answered(told checker.Call) {
	told.Answered = w.now
	w.lines = append(w.lines, &told)
	if told.Answer == checker.Deny && !w.forgetful && w.chance(0.5) {
		if wait := w.wait(told.Key, told.Cost, told.Time); wait > 0 {
			w.hints[told.Key] = hint{told, told.Sent + wait}
		}
	}
}

// arrive is a call at a leader, or at a node that is none.
func (w *world) arrive(c checker.Call, fence int64) checker.Call {
	if w.now < w.down {
		c.Answer = checker.Unavailable
		switch {
		case w.fault == "admits without a leader":
			c.Answer, c.Partition, c.Epoch, c.Time = checker.Allow, 0, 1, w.clock(w.now)
		case w.fault == "charges and says unavailable" && w.chance(0.5):
			w.decide(&checker.Call{ID: c.ID, Key: c.Key, Cost: c.Cost}, fence, w.now)
		}
		return c
	}
	l := w.limiter
	if w.former != nil && w.now < w.formerUntil && w.chance(0.5) {
		l = w.former
	}
	l.decide(&c, fence, w.now)
	if c.Reason == "STALE_TIME" {
		w.lines = append(w.lines, &checker.Mark{At: w.now, Name: tooLate})
	}
	if w.chance(0.01) && c.Answer == checker.Allow {
		c.Answer, c.Partition, c.Epoch, c.Time, c.Replayed = checker.Unknown, -1, 0, 0, false
	}
	return c
}

// failover: nobody leads for a while; then somebody does whose clock has lost some time.
func (w *world) failover() {
	if w.over() {
		return
	}
	w.lines = append(w.lines, &checker.Mark{At: w.now, Name: "failover"})
	if w.fault == "two leaders" {
		w.former, w.formerUntil = w.copy(), w.now+4*second
	}
	w.down = w.now + w.upTo(2*second)
	w.after(w.down-w.now, func() {
		w.elected(w.now)
		w.compare()
	})
	w.after(3*second+w.upTo(8*second), w.failover)
}

// compare: two replicas tell their states.
func (w *world) compare() {
	hash := fmt.Sprintf("%x", len(w.log))
	w.lines = append(w.lines, &checker.State{Node: "n1", Index: uint64(w.now), Hash: hash})
	if w.fault == "replicas differ" {
		hash += "0"
	}
	w.lines = append(w.lines, &checker.State{Node: "n2", Index: uint64(w.now), Hash: hash})
}

// tick logs the leader's time.
func (w *world) tick() {
	if w.now >= w.down {
		w.logged = max(w.logged, w.clock(w.now))
	}
	if !w.over() {
		w.after(5*second, w.tick)
	}
}

// edit changes the limits' amounts.
func (w *world) edit() {
	if w.over() {
		return
	}
	limits := slices.Clone(w.limits)
	at := w.rng.IntN(len(limits))
	limits[at].max = []uint64{0, 2, 3, 5, 9, 12}[w.rng.IntN(6)]
	outcome := []checker.Outcome{checker.Applied, checker.Applied, checker.Undecided, checker.Refused}[w.rng.IntN(4)]
	w.sets++
	set, sent, effect := w.sets+1, w.now, w.upTo(400*ms)
	happens := outcome == checker.Applied || outcome == checker.Undecided && w.chance(0.5) || w.fault == "applies what it refused"
	w.after(effect, func() {
		if happens {
			w.change(limits)
			clear(w.hints)
		}
	})
	w.after(effect+w.upTo(400*ms), func() {
		w.tellPolicies(outcome, limits, set, sent, w.now)
		w.after(2*second+w.upTo(6*second), w.edit)
	})
}

func (w *world) tellPolicies(outcome checker.Outcome, limits []limitSpec, set uint64, sent, answered int64) {
	p := &checker.Policies{Sent: sent, Answered: answered, Outcome: outcome, Set: set}
	for _, l := range limits {
		p.Limits = append(p.Limits, checker.Limit{Quota: "q", Name: l.name, Algorithm: checker.Rolling, Max: l.max, Window: l.window})
	}
	w.lines = append(w.lines, p)
}

// inspect asks for a key's usage.
func (w *world) inspect() {
	u := &checker.Usage{Quota: "q", Key: fmt.Sprintf("k%d", w.rng.IntN(4)), Sent: w.now, Epoch: 1}
	w.now += w.upTo(3 * ms)
	if w.now >= w.down {
		u.Time = max(w.clock(w.now), w.logged)
		for _, l := range w.limits {
			u.Limits = append(u.Limits, checker.Used{Name: l.name, Used: w.used(u.Key, u.Time, l.window)})
		}
		w.now += w.upTo(3 * ms)
		u.Answered = w.now
		w.lines = append(w.lines, u)
	}
	if !w.over() {
		w.after(w.upTo(5*second), w.inspect)
	}
}
