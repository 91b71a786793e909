package fsm_test

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
	"sort"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// The oracle is the state machine as one would explain it on a blackboard: it
// keeps every event that was ever accepted and adds them all up for every
// question. It shares no code with the machine; of the policies it reads the plain
// data. When something fits again it finds by trying: usage without new events
// only falls, so a binary search over all instants is enough. It forgets nothing
// but decision records and what a rolling log may forget, and models no memory bound.
type oracle struct {
	policies []policy.Policy // of the set in force, normalized
	quotas   []string        // which quota each of them has: its name, and which one of that name
	domains  []string        // of the set in force, in order
	past     map[string]policy.Policy
	deleted  map[string]int64 // when a quota lost its policy
	made     int              // quotas, and
	back     int              // how many came back

	horizon int64
	now     int64
	events  map[key][]event // as they were accepted
	logs    map[key]rollingLog
	allows  []allow // oldest first
	full    bool    // there is no memory for one more allow

	cuts  map[string]int64 // when something was last let go of a bucket of the quota
	holds map[heldLimit]heldTo
}

type key struct{ quota, values string }

type event struct {
	time  int64
	cost  uint64
	under *policy.Policy // that was in force
}

// allow is a decision record.
type allow struct {
	domain string
	id     fsm.ID
	digest uint64
	made   int64
	quota  string
	answer fsm.Answer
}

func newOracle(set policy.Set, horizon int64) *oracle {
	o := &oracle{
		horizon: horizon, events: map[key][]event{}, logs: map[key]rollingLog{},
		past: map[string]policy.Policy{}, deleted: map[string]int64{}, cuts: map[string]int64{}, holds: map[heldLimit]heldTo{},
	}
	o.enforce(set)
	return o
}

// advance moves decision time, never back.
func (o *oracle) advance(t int64) { o.now = max(o.now, t) }

// recorded finds the allow of an id.
func (o *oracle) recorded(c *fsm.Check) *allow {
	for i := range o.allows {
		if a := &o.allows[i]; a.domain == o.domains[c.Domain] && a.id == c.ID {
			return a
		}
	}
	return nil
}

func (a *allow) old(o *oracle) bool { return o.now-a.made > o.horizon }

// forget drops up to most records that are older than the horizon.
func (o *oracle) forget(most int) {
	for ; most > 0 && len(o.allows) > 0 && o.allows[0].old(o); most-- {
		o.allows = o.allows[1:]
	}
}

func (o *oracle) decide(c *fsm.Check) fsm.Answer {
	if a := o.recorded(c); a != nil {
		if a.digest != c.Digest {
			return fsm.Answer{Verdict: fsm.VerdictConflict, Time: o.now}
		}
		return o.again(c, a)
	}
	if c.Fence < 0 || c.Fence > o.now || c.Fence < o.now-o.horizon/2 {
		return fsm.Answer{Verdict: fsm.VerdictStaleTime, Time: o.now}
	}
	answer, of := o.weigh(c)
	if answer.Verdict == fsm.VerdictAllow {
		if o.full {
			return fsm.Answer{Verdict: fsm.VerdictMemory, Time: o.now}
		}
		o.charge(c)
	}
	answer.FullAt = of.fullAt(o)
	if answer.Verdict == fsm.VerdictAllow {
		o.allows = append(o.allows, allow{o.domains[c.Domain], c.ID, c.Digest, o.now, o.quotas[answer.Policy], answer})
	}
	return answer
}

// again is the recorded allow once more. It speaks of its limit if the check still meets that; of several amounts of
// the least that holds what remained, or else of the largest, and of no finite one if it was unlimited, or the other
// way round.
func (o *oracle) again(c *fsm.Check, a *allow) fsm.Answer {
	answer := fsm.Answer{Verdict: fsm.VerdictAllow, Replayed: true, Time: a.made, At: o.now, Policy: -1}
	var fit, short []law
	for i := range c.Charges {
		if ch := &c.Charges[i]; o.quotas[ch.Policy] == a.quota {
			switch w := o.law(ch, int(a.answer.Limit)); {
			case w.unlimited != a.answer.Unlimited:
			case w.unlimited || w.amount >= a.answer.Remaining:
				fit = append(fit, w)
			default:
				short = append(short, w)
			}
		}
	}
	sort.SliceStable(fit, func(i, j int) bool { return fit[i].amount < fit[j].amount })
	sort.SliceStable(short, func(i, j int) bool { return short[i].amount > short[j].amount })
	if fit = append(fit, short...); len(fit) == 0 {
		return answer
	}
	w := fit[0]
	answer.Policy, answer.Limit, answer.Unlimited = int32(slices.Index(o.quotas, a.quota)), a.answer.Limit, w.unlimited
	answer.Amount, answer.Remaining, answer.FullAt = w.amount, min(w.amount, a.answer.Remaining), w.fullAt(o)
	if w.unlimited {
		answer.Amount, answer.Remaining = limit.Unlimited, limit.Unlimited
	}
	return answer
}

func (o *oracle) keyOf(ch *fsm.Charge) key { return key{o.quotas[ch.Policy], string(ch.Key)} }

// total is all that the check takes from one key.
func (o *oracle) total(c *fsm.Check, k key) (sum uint64) {
	for i := range c.Charges {
		if o.keyOf(&c.Charges[i]) == k {
			sum = plus(sum, c.Charges[i].Cost)
		}
	}
	return min(sum, policy.TooMuch)
}

// weigh asks every limit of every charge. The answer tells of the one that denies
// longest, or else of the one that leaves least; of equals the first.
func (o *oracle) weigh(c *fsm.Check) (fsm.Answer, law) {
	var allowed, denied []said
	for i := range c.Charges {
		ch := &c.Charges[i]
		for l := range o.policies[ch.Policy].Limits {
			w := o.law(ch, l)
			a := w.answer(o, o.total(c, o.keyOf(ch)))
			a.Policy, a.Limit, a.Time = ch.Policy, int32(l), o.now
			if a.Verdict == fsm.VerdictAllow {
				allowed = append(allowed, said{a, w})
			} else {
				denied = append(denied, said{a, w})
			}
		}
	}
	if len(denied) > 0 {
		sort.SliceStable(denied, func(i, j int) bool { return denied[i].At > denied[j].At })
		return denied[0].Answer, denied[0].law
	}
	sort.SliceStable(allowed, func(i, j int) bool { return allowed[i].Remaining < allowed[j].Remaining })
	return allowed[0].Answer, allowed[0].law
}

type said struct {
	fsm.Answer
	law
}

func (o *oracle) charge(c *fsm.Check) {
	var done []key
	for i := range c.Charges {
		ch := &c.Charges[i]
		k := o.keyOf(ch)
		if slices.Contains(done, k) {
			continue
		}
		done = append(done, k)
		e := event{o.now, o.total(c, k), &o.policies[ch.Policy]}
		o.noteCuts(ch, e.cost)
		o.events[k] = append(o.events[k], e)
		o.logs[k] = o.logs[k].with(e, o.coveredBy(ch))
	}
}

// rollingLog is what is kept for rolling windows: with a precision events of one grain are one, and of units that no
// window can need the oldest go.
type rollingLog struct {
	events []event
	marks  []int64 // when those were that went before their time
}

// with is the log once e is admitted.
func (l rollingLog) with(e event, covered bool) rollingLog {
	kept, most, grain := e.under.KeepHistory, uint64(0), int64(0)
	for _, own := range e.under.Limits {
		if own.Algorithm == limit.RollingWindow {
			most, grain = max(most, largest(e.under, own)), max(grain, own.Precision)
			if kept > longest(*e.under) {
				most = max(most, 100_000)
			}
		}
	}
	events := slices.DeleteFunc(slices.Clone(l.events), func(o event) bool { return o.time <= e.time-kept })
	if n := len(events) - 1; n >= 0 && grain > 0 && events[n].time/grain == e.time/grain {
		e.cost = plus(e.cost, events[n].cost)
		events = events[:n]
	}
	all := func(event) bool { return true }
	for !covered && len(events) > 0 && plus(sum(events[1:], all), e.cost) >= most {
		l.marks = append(l.marks, events[0].time)
		events = events[1:]
	}
	return rollingLog{append(events, e), l.marks}
}

// coveredBy reports whether a finite limit looks at all that the log of the charge's quota keeps.
func (o *oracle) coveredBy(ch *fsm.Charge) bool {
	p := &o.policies[ch.Policy]
	for i, l := range p.Limits {
		if l.Algorithm == limit.RollingWindow && l.Window == p.KeepHistory && !o.law(ch, i).unlimited {
			return true
		}
	}
	return false
}

// law is one limit with the amounts that a charge has under it.
type law struct {
	algorithm limit.Algorithm
	key       key
	amount    uint64
	unlimited bool
	window    int64
	refill    uint64
	limit     string
	held      heldTo
}

func limitOf(limits []policy.Limit, name string) policy.Limit {
	return limits[slices.IndexFunc(limits, func(l policy.Limit) bool { return l.Name == name })]
}

// law: the override's amount counts, else the tier's, else the limit's own.
func (o *oracle) law(ch *fsm.Charge, l int) law {
	p := &o.policies[ch.Policy]
	own := p.Limits[l]
	k := o.keyOf(ch)
	w := law{own.Algorithm, k, own.Amount, false, own.Window, own.Refill, own.Name, o.holds[heldLimit{k.quota, own.Name}]}
	for _, a := range chosen(p, ch, own.Name) {
		w.amount, w.unlimited = a.Amount, a.Unlimited
		if a.Refill != 0 {
			w.refill = a.Refill
		}
		if a.Period != 0 {
			w.window = a.Period
		}
	}
	return w
}

// fitting is how much fits at t: nothing while the window holds something that went before its time.
func (w law) fitting(o *oracle, t int64) uint64 {
	if w.algorithm == limit.RollingWindow && w.lost(o, t) {
		return 0
	}
	if t < w.held.until {
		return min(w.amount, w.held.most)
	}
	return w.amount
}

func (w law) lost(o *oracle, t int64) bool {
	return slices.ContainsFunc(o.logs[w.key].marks, func(m int64) bool { return t-m < w.window })
}

func largest(p *policy.Policy, l policy.Limit) uint64 {
	all := []uint64{l.Amount}
	for _, r := range slices.Concat(p.Tiers, p.Overrides) {
		for _, a := range r.Amounts {
			if a.Limit == l.Name && !a.Unlimited {
				all = append(all, a.Amount)
			}
		}
	}
	return slices.Max(all)
}

// chosen is the amount of a tier or override that replaces the limit's own, if any.
func chosen(p *policy.Policy, ch *fsm.Charge, name string) []policy.Amount {
	var rules []policy.Rule
	if ch.Override >= 0 {
		rules = append(rules, p.Overrides[ch.Override])
	}
	if ch.Tier >= 0 {
		rules = append(rules, p.Tiers[ch.Tier])
	}
	for _, r := range rules {
		for _, a := range r.Amounts {
			if a.Limit == name {
				return []policy.Amount{a}
			}
		}
	}
	return nil
}

func (w law) answer(o *oracle, cost uint64) fsm.Answer {
	if w.unlimited {
		return fsm.Answer{Verdict: fsm.VerdictAllow, Unlimited: true, Amount: limit.Unlimited, Remaining: limit.Unlimited, At: o.now}
	}
	a := fsm.Answer{Verdict: fsm.VerdictAllow, Amount: w.amount, At: o.now}
	left := uint64(0)
	if used, most := w.used(o, o.now), w.fitting(o, o.now); used < most {
		left = most - used
	}
	if cost <= left {
		a.Remaining = left - cost
		return a
	}
	a.Verdict, a.Remaining, a.Exceeds, a.At = fsm.VerdictDeny, left, cost > w.amount, limit.Never
	if !a.Exceeds {
		a.At = o.first(func(t int64) bool { return plus(w.used(o, t), cost) <= w.fitting(o, t) })
	}
	return a
}

func (w law) fullAt(o *oracle) int64 {
	if w.unlimited {
		return o.now
	}
	return o.first(func(t int64) bool { return w.used(o, t) == 0 && !(w.algorithm == limit.RollingWindow && w.lost(o, t)) })
}

// first finds the first instant from now on at which fits holds and goes on to hold.
func (o *oracle) first(fits func(int64) bool) int64 {
	span := limit.Never - o.now
	return o.now + int64(sort.Search(int(span), func(wait int) bool { return fits(o.now + int64(wait)) }))
}

// used is what counts at t as used, whole units, rounded up.
func (w law) used(o *oracle, t int64) uint64 {
	switch w.algorithm {
	case limit.RollingWindow:
		return sum(o.logs[w.key].events, func(e event) bool { return t-e.time < w.window })
	case limit.TokenBucket:
		return w.debt(o.events[w.key], t)
	case limit.SlidingWindowCounter:
		at := func(k int64) uint64 {
			return sum(o.events[w.key], func(e event) bool { return e.time/w.window == k })
		}
		part := new(big.Int).Mul(number(at(t/w.window-1)), big.NewInt(w.window-t%w.window))
		return plus(at(t/w.window), roundUp(part, w.window))
	}
	return sum(o.events[w.key], func(e event) bool { return e.time/w.window == t/w.window })
}

// debt replays the whole life of a bucket, in units of 1/window. Only an unlimited
// charge can lead beyond the largest amount that anybody has at that time, and what it
// leads beyond is let go; not what was owed before, under a larger amount.
func (w law) debt(events []event, t int64) uint64 {
	debt, last := new(big.Int), int64(0)
	flow := func(until int64) {
		debt.Sub(debt, new(big.Int).Mul(number(w.refill), big.NewInt(until-last)))
		if debt.Sign() < 0 {
			debt.SetInt64(0)
		}
		last = until
	}
	for _, e := range events {
		flow(e.time)
		units := max(largest(e.under, limitOf(e.under.Limits, w.limit)), roundUp(new(big.Int).Set(debt), w.window))
		debt.Add(debt, new(big.Int).Mul(number(e.cost), big.NewInt(w.window)))
		if most := new(big.Int).Mul(number(units), big.NewInt(w.window)); debt.Cmp(most) > 0 {
			debt = most
		}
	}
	flow(t)
	return roundUp(debt, w.window)
}

func sum(events []event, counts func(event) bool) (units uint64) {
	for _, e := range events {
		if counts(e) {
			units = plus(units, e.cost)
		}
	}
	return units
}

// plus adds, and stays at the largest number where there is none for the sum.
func plus(a, b uint64) uint64 {
	if sum, carry := bits.Add64(a, b, 0); carry == 0 {
		return sum
	}
	return math.MaxUint64
}

func number(v uint64) *big.Int { return new(big.Int).SetUint64(v) }

func roundUp(v *big.Int, divisor int64) uint64 {
	q := v.Add(v, big.NewInt(divisor-1))
	q.Div(q, big.NewInt(divisor))
	if !q.IsUint64() {
		return math.MaxUint64
	}
	return q.Uint64()
}
