package checker_test

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/quorate/quorate/test/checker"
)

// limitSpec is a rolling limit.
type limitSpec struct {
	name   string
	window int64
	max    uint64
}

// entry is one charge.
type entry struct {
	time int64
	cost uint64
}

// limiter decides as obviously as it can, or with one fault.
type limiter struct {
	fault  string
	rng    *rand.Rand
	limits []limitSpec
	log    map[string][]entry
	marker map[string]int64 // the newest entry that was forgotten early
	record map[string]entry // by id

	grain  int64 // entries are sealed at multiples of it in real time, so that some have the same time
	slow   bool  // the clock is 500 ppm slower than real time; else as fast
	logged int64 // the newest time of an entry
	real   int64 // when the leader's clock was at since
	since  int64
}

func newLimiter(fault string, rng *rand.Rand, now, grain int64) *limiter {
	return &limiter{fault: fault, rng: rng, log: map[string][]entry{}, marker: map[string]int64{}, record: map[string]entry{}, grain: grain, slow: rng.IntN(2) == 0, real: now}
}

// copy is a limiter that goes its own way.
func (l *limiter) copy() *limiter {
	c := *l
	c.log, c.marker, c.record = map[string][]entry{}, maps.Clone(l.marker), maps.Clone(l.record)
	for k, v := range l.log {
		c.log[k] = slices.Clone(v)
	}
	return &c
}

// clock is the leader's decision time.
func (l *limiter) clock(now int64) int64 {
	ran := now - l.real
	switch {
	case l.fault == "clock 1 % fast":
		ran += ran / 100
	case l.slow:
		ran -= ran/2000 + 1
	}
	return l.since + max(ran, 0)
}

// elected begins another leader's clock: somewhere between the newest entry and where the former one was.
func (l *limiter) elected(now int64) {
	was := l.clock(now)
	l.since, l.real = l.logged, now
	if was > l.logged {
		l.since += l.rng.Int64N(was - l.logged + 1)
	}
	switch l.fault {
	case "forgets usage on failover":
		clear(l.log)
	case "forgets ids on failover":
		clear(l.record)
	case "time goes back on failover":
		l.since = max(l.since-4*second, 0)
		l.logged = l.since
	}
	l.logged = max(l.logged, l.clock(now))
}

// decide answers a call that arrives now.
func (l *limiter) decide(c *checker.Call, fence, now int64) {
	c.Partition, c.Epoch = 0, 1
	t := max(l.clock(now), l.logged)
	if e, ok := l.record[c.ID]; ok && t-e.time < horizon && l.fault != "charges again" && (l.fault != "looks for ids last" || l.admits(c.Key, t, c.Cost)) {
		c.Answer, c.Replayed, c.Time = checker.Allow, true, e.time
		return
	}
	c.Time = t // a denial's comes from memory and is in no log
	if !l.admits(c.Key, t, c.Cost) || l.fault == "always denies" {
		c.Answer = checker.Deny
		return
	}
	if t-fence > horizon/2 && l.fault != "ignores fences" {
		c.Answer, c.Partition, c.Epoch, c.Time, c.Reason = checker.Error, -1, 0, 0, "STALE_TIME"
		return
	}
	c.Answer, l.logged = checker.Allow, t
	e := entry{t, c.Cost}
	l.record[c.ID] = e
	if l.fault == "charges one for all" {
		e.cost = 1
	}
	if l.fault != "loses an allow" || l.rng.IntN(20) > 0 {
		l.log[c.Key] = append(l.log[c.Key], e)
	}
}

// admits says that every limit has room.
func (l *limiter) admits(key string, t int64, cost uint64) bool {
	limits := l.limits
	if l.fault == "looks at one limit" {
		limits = limits[:1]
	}
	for _, s := range limits {
		if m, ok := l.marker[key]; ok && m > t-s.window || l.counted(key, t, s.window)+cost > s.max {
			return false
		}
	}
	return true
}

// used is what a window holds.
func (l *limiter) used(key string, t, window int64) (sum uint64) {
	for _, e := range l.log[key] {
		if e.time > t-window && e.time <= t {
			sum += e.cost
		}
	}
	return sum
}

// counted is what it holds for who decides.
func (l *limiter) counted(key string, t, window int64) (sum uint64) {
	switch l.fault {
	case "fixed windows":
		window = t%window + 1
	case "window a grain short":
		window -= l.grain
	case "window a tenth short":
		window -= window / 10
	case "what is W old counts":
		window++
	case "equal times don't count":
		return l.used(key, t-1, window-1)
	}
	return l.used(key, t, window)
}

// wait is how long it takes until there is room.
func (l *limiter) wait(key string, cost uint64, t int64) (wait int64) {
	for _, s := range l.limits {
		for _, e := range l.log[key] {
			if l.used(key, t, s.window)+cost > s.max && l.used(key, e.time+s.window, s.window)+cost <= s.max {
				wait = max(wait, e.time+s.window-t)
				break
			}
		}
	}
	return wait
}

// change brings other limits into force, and forgets what they never need: of what is beyond the largest amount
// the oldest goes.
func (l *limiter) change(limits []limitSpec) {
	l.limits = limits
	most := uint64(0)
	for _, s := range limits {
		most = max(most, s.max)
	}
	for key, log := range l.log {
		kept := uint64(0)
		for i := len(log) - 1; i >= 0; i-- {
			if kept >= most {
				l.marker[key] = log[i].time
				l.log[key] = slices.Clone(log[i+1:])
				break
			}
			kept += log[i].cost
		}
	}
}
