package policy

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

// limits checks a policy's limits, each by itself.
func (v *validator) limits(path string, limits []Limit) {
	switch {
	case len(limits) == 0:
		v.add(path, "has no limit; at least one is required")
	case len(limits) > MaxLimits:
		v.add(path, "has %d limits, at most %d are allowed", len(limits), MaxLimits)
	}
	for i, l := range limits {
		at := fmt.Sprintf("%s[%d]", path, i)
		v.name(at+".name", l.Name)
		if j := slices.IndexFunc(limits, func(o Limit) bool { return o.Name == l.Name }); j < i && l.Name != "" {
			v.add(at+".name", "%q is already the name of limits[%d]", l.Name, j)
		}
		switch l.Algorithm {
		case limit.TokenBucket:
			v.bucket(at+".tokenBucket", l)
		case limit.RollingWindow, limit.SlidingWindowCounter, limit.FixedWindow:
			v.window(at+"."+l.Algorithm.String(), l)
		default:
			v.add(at, "needs one of rollingWindow, tokenBucket, slidingWindowCounter, fixedWindow")
		}
	}
}

func (v *validator) window(path string, l Limit) {
	v.amount(path+".limit", l.Amount)
	v.span(path+".window", l.Window)
	if l.Refill != 0 {
		v.add(path+".refill", "only a tokenBucket refills")
	}
	if l.Precision != 0 && l.Algorithm != limit.RollingWindow {
		v.add(path+".precision", "only a rollingWindow has a precision")
	}
}

func (v *validator) bucket(path string, l Limit) {
	v.amount(path+".capacity", l.Amount)
	v.refill(path+".refill", l.Refill)
	v.span(path+".period", l.Window)
	if l.Precision != 0 {
		v.add(path+".precision", "only a rollingWindow has a precision")
	}
	v.timeToRefill(path+".capacity", l.spec())
}

func (v *validator) amount(path string, n uint64) {
	if n > limit.MaxAmount {
		v.add(path, "%d is out of range, 0 to %d", n, limit.MaxAmount)
	}
}

func (v *validator) refill(path string, n uint64) {
	if n < 1 || n > limit.MaxAmount {
		v.add(path, "%d is out of range, 1 to %d", n, limit.MaxAmount)
	}
}

// span checks a window or a refill period.
func (v *validator) span(path string, ns int64) {
	switch {
	case ns <= 0:
		v.add(path, "%s is not positive", FormatDuration(ns))
	case ns > MaxSpan:
		v.add(path, "%s is longer than %s, the longest allowed", FormatDuration(ns), FormatDuration(MaxSpan))
	}
}

// timeToRefill checks that an empty bucket is full again within MaxSpan: for as long its state is kept, and a
// deleted quota's tombstone must outlast it.
func (v *validator) timeToRefill(path string, s limit.Spec) {
	if s.Amount > limit.MaxAmount || s.Refill == 0 || s.Window <= 0 || s.Window > MaxSpan {
		return // reported, or unlimited
	}
	needHi, needLo := bits.Mul64(s.Amount, uint64(s.Window))
	haveHi, haveLo := bits.Mul64(s.Refill, uint64(MaxSpan))
	if needHi > haveHi || needHi == haveHi && needLo > haveLo {
		v.add(path, "%d at %d per %s take longer than %s to refill, the longest allowed",
			s.Amount, s.Refill, FormatDuration(s.Window), FormatDuration(MaxSpan))
	}
}

// merging checks the precisions. All rolling limits of a policy read one log, so its events either merge
// for all of them or for none.
func (v *validator) merging(path string, p *Policy) {
	var first *Limit
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Algorithm != limit.RollingWindow {
			continue
		}
		at := fmt.Sprintf("%s.limits[%d].rollingWindow", path, i)
		if first == nil {
			first = l
		} else if l.Precision != first.Precision {
			v.add(at+".precision", "%s differs from the %s of limit %q; the rolling limits of a policy share one log and need one precision",
				FormatDuration(l.Precision), FormatDuration(first.Precision), first.Name)
		}
		if l.Precision == 0 {
			v.unmerged(at+".limit", l.Amount)
			continue
		}
		v.precision(at+".precision", l.Precision, l.Window, p.KeepHistory)
	}
}

// unmerged checks an amount of a rolling limit without a precision.
func (v *validator) unmerged(path string, amount uint64) {
	if amount > MaxUnmergedAmount && amount <= limit.MaxAmount {
		v.add(path, "%d is above %d: the limit needs a precision", amount, MaxUnmergedAmount)
	}
}

func (v *validator) precision(path string, precision, window, kept int64) {
	kept = max(kept, window)
	switch {
	case precision < 0:
		v.add(path, "%s is not positive", FormatDuration(precision))
	case window <= 0 || window > MaxSpan: // reported
	case precision > window/10:
		v.add(path, "%s is more than a tenth of the window, %s", FormatDuration(precision), FormatDuration(window))
	case kept <= MaxSpan && (kept-1)/precision >= MaxUnmergedAmount:
		v.add(path, "%s cuts the %s that the log is kept into more than %d parts",
			FormatDuration(precision), FormatDuration(kept), MaxUnmergedAmount)
	}
}

// rules checks tiers or overrides.
func (v *validator) rules(path string, p *Policy, rules []Rule, overrides bool) {
	most := MaxTiers
	if overrides {
		most = MaxOverrides
	}
	v.conditions(path, ruleConditions(rules), most)
	for i, r := range rules {
		at := fmt.Sprintf("%s[%d]", path, i)
		if overrides {
			v.keyEntries(at+".when", p, r.When)
		}
		if len(r.Amounts) == 0 {
			v.add(at+".amounts", "has no amount; at least one is required")
		}
		for j, a := range r.Amounts {
			field := at + ".amounts." + a.Limit
			if j > 0 && r.Amounts[j-1].Limit == a.Limit {
				v.add(field, "is given twice")
			}
			k := slices.IndexFunc(p.Limits, func(l Limit) bool { return l.Name == a.Limit })
			if k < 0 {
				v.add(at+".amounts", "%q is not the name of a limit of this policy", a.Limit)
				continue
			}
			if p.Limits[k].Algorithm != 0 { // else reported
				v.ruleAmount(field, p.Limits[k], a, overrides)
			}
		}
	}
}

// keyEntries checks that an override depends on its key alone.
func (v *validator) keyEntries(path string, p *Policy, when []keyspace.Entry) {
	for _, e := range when {
		if !slices.Contains(p.Key, e.Name) {
			v.add(path, "%q is not in key: an override goes by key entries, a tier by any", e.Name)
		}
	}
}

func (v *validator) ruleAmount(path string, l Limit, a Amount, override bool) {
	bucket := l.Algorithm == limit.TokenBucket
	field := path + ".limit"
	if bucket {
		field = path + ".capacity"
	}
	if a.Unlimited && (a.Amount != 0 || a.Refill != 0 || a.Period != 0) {
		v.add(path, "unlimited and other amounts exclude each other")
		return
	}
	if a.Refill != 0 || a.Period != 0 {
		switch {
		case !bucket:
			v.add(path, "only a tokenBucket has a refill and a period")
			return
		case !override:
			v.add(path, "a tier can't change refill or period, which must be the same for all checks of a key")
			return
		}
	}
	v.amount(field, a.Amount)
	if !bucket {
		if l.Algorithm == limit.RollingWindow && l.Precision == 0 {
			v.unmerged(field, a.Amount)
		}
		return
	}
	if a.Refill != 0 {
		v.refill(path+".refill", a.Refill)
	}
	if a.Period != 0 {
		v.span(path+".period", a.Period)
	}
	v.timeToRefill(field, a.apply(l.spec()))
}

// costs checks the cost rules, also that what each makes of a check's least cost, 1, can ever be admitted.
func (v *validator) costs(path string, p *Policy) {
	v.conditions(path, costConditions(p.Costs), MaxCosts)
	for i, c := range p.Costs {
		at := fmt.Sprintf("%s[%d].cost", path, i)
		if c.Cost < 1 || c.Cost > limit.MaxAmount {
			v.add(at, "%d is out of range, 1 to %d", c.Cost, limit.MaxAmount)
			continue
		}
		for _, l := range p.Limits {
			// An amount of 0 bans on purpose.
			if largest := p.largestOf(l); largest > 0 && c.Cost > largest && !p.everUnlimited(l) {
				v.add(at, "%d never fits limit %q, whose largest amount is %d", c.Cost, l.Name, largest)
			}
		}
	}
}

func (p *Policy) everUnlimited(l Limit) bool {
	unlimited := func(r Rule) bool {
		return slices.ContainsFunc(r.Amounts, func(a Amount) bool { return a.Unlimited && a.Limit == l.Name })
	}
	return slices.ContainsFunc(p.Tiers, unlimited) || slices.ContainsFunc(p.Overrides, unlimited)
}

// conditions checks the when of rules of which the first that applies counts.
func (v *validator) conditions(path string, conditions []condition, most int) {
	if len(conditions) > most {
		v.add(path, "has %d entries, at most %d are allowed", len(conditions), most)
	}
	x := newIndex(conditions)
	for i := range conditions {
		at := fmt.Sprintf("%s[%d]", path, i)
		when := conditions[i].match
		if len(when) == 0 {
			v.add(at+".when", "names no entry; at least one is required")
			continue
		}
		before := len(v.problems)
		v.entries(at+".when", when)
		if first := x.first(conditions[i].witness()); int(first) != i && len(v.problems) == before {
			list := path[strings.LastIndexByte(path, '.')+1:]
			v.add(at, "never applies: %s[%d] applies to all that this one does", list, first)
		}
	}
}
