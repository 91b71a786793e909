package fsm_test

import (
	"fmt"
	"math"
	"math/big"
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
// but decision records, and models no memory bound.
type oracle struct {
	policies []policy.Policy // normalized
	horizon  int64
	now      int64
	events   map[key][]event // as they were accepted
	merged   map[key][]event // as a rolling log with a precision has them
	allows   []allow         // oldest first
	full     bool            // there is no memory for one more allow
}

type key struct {
	policy int32
	values string
}

type event struct {
	time int64
	cost uint64
}

// allow is a decision record.
type allow struct {
	domain int32
	id     fsm.ID
	digest uint64
	made   int64
	answer fsm.Answer
}

func newOracle(set policy.Set, horizon int64) *oracle {
	set = set.Clone()
	set.Normalize()
	return &oracle{policies: set.Policies, horizon: horizon, events: map[key][]event{}, merged: map[key][]event{}}
}

// advance moves decision time, never back.
func (o *oracle) advance(t int64) { o.now = max(o.now, t) }

// recorded finds the allow of an id.
func (o *oracle) recorded(c *fsm.Check) *allow {
	for i := range o.allows {
		if a := &o.allows[i]; a.domain == c.Domain && a.id == c.ID {
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
		again := a.answer
		again.Replayed, again.At = true, o.now
		return again
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
		o.allows = append(o.allows, allow{c.Domain, c.ID, c.Digest, o.now, answer})
	}
	return answer
}

func keyOf(ch *fsm.Charge) key { return key{ch.Policy, string(ch.Key)} }

// total is all that the check takes from one key.
func total(c *fsm.Check, k key) (sum uint64) {
	for i := range c.Charges {
		if keyOf(&c.Charges[i]) == k {
			sum += c.Charges[i].Cost
		}
	}
	return sum
}

// weigh asks every limit of every charge. The answer tells of the one that denies
// longest, or else of the one that leaves least; of equals the first.
func (o *oracle) weigh(c *fsm.Check) (fsm.Answer, law) {
	var allowed, denied []said
	for i := range c.Charges {
		ch := &c.Charges[i]
		for l := range o.policies[ch.Policy].Limits {
			w := o.law(ch, l)
			a := w.answer(o, total(c, keyOf(ch)))
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
		k := keyOf(&c.Charges[i])
		if slices.Contains(done, k) {
			continue
		}
		done = append(done, k)
		e := event{o.now, total(c, k)}
		o.events[k] = append(o.events[k], e)
		o.merged[k] = merge(append(o.merged[k], e), o.precision(k))
	}
}

func (o *oracle) precision(k key) (p int64) {
	for _, l := range o.policies[k.policy].Limits {
		p = max(p, l.Precision)
	}
	return p
}

// merge makes the last two events one, at the later time, if one grain holds both.
func merge(events []event, precision int64) []event {
	n := len(events)
	if n < 2 || precision == 0 || events[n-2].time/precision != events[n-1].time/precision {
		return events
	}
	one := event{events[n-1].time, events[n-2].cost + events[n-1].cost}
	return append(events[:n-2:n-2], one)
}

// law is one limit with the amounts that a charge has under it.
type law struct {
	algorithm limit.Algorithm
	key       key
	amount    uint64
	unlimited bool
	window    int64
	refill    uint64
	most      uint64 // the largest finite amount that the limit has for anybody
}

// law: the override's amount counts, else the tier's, else the limit's own.
func (o *oracle) law(ch *fsm.Charge, l int) law {
	p := &o.policies[ch.Policy]
	own := p.Limits[l]
	w := law{own.Algorithm, keyOf(ch), own.Amount, false, own.Window, own.Refill, largest(p, own)}
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
	if used := w.used(o, o.now); used < w.amount {
		left = w.amount - used
	}
	if cost <= left {
		a.Remaining = left - cost
		return a
	}
	a.Verdict, a.Remaining, a.Exceeds, a.At = fsm.VerdictDeny, left, cost > w.amount, limit.Never
	if !a.Exceeds {
		a.At = o.first(func(t int64) bool { return w.used(o, t)+cost <= w.amount })
	}
	return a
}

func (w law) fullAt(o *oracle) int64 {
	if w.unlimited {
		return o.now
	}
	return o.first(func(t int64) bool { return w.used(o, t) == 0 })
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
		return sum(o.merged[w.key], func(e event) bool { return t-e.time < w.window })
	case limit.TokenBucket:
		return w.debt(o.events[w.key], t)
	case limit.SlidingWindowCounter:
		at := func(k int64) uint64 {
			return sum(o.events[w.key], func(e event) bool { return e.time/w.window == k })
		}
		part := new(big.Int).Mul(number(at(t/w.window-1)), big.NewInt(w.window-t%w.window))
		return at(t/w.window) + roundUp(part, w.window)
	}
	return sum(o.events[w.key], func(e event) bool { return e.time/w.window == t/w.window })
}

// debt replays the whole life of a bucket, in units of 1/window. Only an unlimited
// charge can lead beyond the largest amount, and what it leads beyond is let go.
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
		debt.Add(debt, new(big.Int).Mul(number(e.cost), big.NewInt(w.window)))
		if most := new(big.Int).Mul(number(w.most), big.NewInt(w.window)); debt.Cmp(most) > 0 {
			debt = most
		}
	}
	flow(t)
	return roundUp(debt, w.window)
}

func sum(events []event, counts func(event) bool) (units uint64) {
	for _, e := range events {
		if counts(e) {
			units += e.cost
		}
	}
	return units
}

func number(v uint64) *big.Int { return new(big.Int).SetUint64(v) }

func roundUp(v *big.Int, divisor int64) uint64 {
	q := v.Add(v, big.NewInt(divisor-1))
	q.Div(q, big.NewInt(divisor))
	if !q.IsUint64() || q.Uint64() > math.MaxInt64 {
		panic(fmt.Sprintf("the oracle is asked about %v units", q))
	}
	return q.Uint64()
}
