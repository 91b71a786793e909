package limit_test

import (
	"math"
	"math/big"
	"sort"
)

// The oracle decides the slow, obvious way: from the whole history of
// admissions, in integers of any size, with no state of its own. It shares no
// code and no type with the package.

type admission struct {
	time int64
	cost uint64
}

type oracle struct {
	algorithm  string
	window     int64
	refill     uint64
	history    []admission
	knownSince *int64 // nil: everything is known
	marker     *int64 // nil: nothing was forgotten
}

type verdict struct {
	allowed   bool
	remaining uint64
	at        int64
}

const never = math.MaxInt64

func nat(v uint64) *big.Int        { return new(big.Int).SetUint64(v) }
func num(v int64) *big.Int         { return big.NewInt(v) }
func plus(a, b *big.Int) *big.Int  { return new(big.Int).Add(a, b) }
func minus(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
func times(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// capped is v, or 2^64-1 if v is larger: what a word can hold.
func capped(v *big.Int) *big.Int {
	if most := nat(math.MaxUint64); v.Cmp(most) > 0 {
		return most
	}
	return v
}

// used is the usage at an instant, in parts, of which window make a unit, and
// whether something unknown fills the window.
func (o *oracle) used(now int64) (parts *big.Int, full bool) {
	w := num(o.window)
	switch o.algorithm {
	case "rolling":
		units, full := o.usedRolling(now)
		return times(units, w), full
	case "bucket":
		return o.debt(now), false
	case "counter":
		k := now / o.window
		overlap := num(o.window - now%o.window)
		return plus(times(o.inWindow(k), w), times(o.inWindow(k-1), overlap)), false
	case "fixed":
		return times(o.inWindow(now/o.window), w), false
	}
	panic(o.algorithm)
}

func (o *oracle) usedRolling(now int64) (units *big.Int, full bool) {
	inside := func(t int64) bool { return now-o.window < t && t <= now }
	units = num(0)
	for _, a := range o.history {
		if inside(a.time) {
			units = plus(units, nat(a.cost))
		}
	}
	firstInstant := now - o.window + 1
	full = o.marker != nil && inside(*o.marker) || o.knownSince != nil && firstInstant < *o.knownSince
	return units, full
}

// debt replays the bucket, in parts: it flows back between admissions, refill parts
// per nanosecond, and never below none.
func (o *oracle) debt(now int64) *big.Int {
	debt, last := num(0), int64(0)
	flow := func(until int64) {
		debt = minus(debt, times(nat(o.refill), num(until-last)))
		if debt.Sign() < 0 {
			debt = num(0)
		}
		last = until
	}
	for _, a := range o.history {
		flow(a.time)
		whole := o.units(debt)
		fraction := minus(times(whole, num(o.window)), debt)
		debt = minus(times(capped(plus(whole, nat(a.cost))), num(o.window)), fraction)
	}
	flow(now)
	return debt
}

// units is parts in whole units, rounded up.
func (o *oracle) units(parts *big.Int) *big.Int {
	whole, rest := new(big.Int).DivMod(parts, num(o.window), new(big.Int))
	if rest.Sign() > 0 {
		whole = plus(whole, num(1))
	}
	return whole
}

// inWindow is what was admitted in [kW, (k+1)W).
func (o *oracle) inWindow(k int64) *big.Int {
	units := num(0)
	for _, a := range o.history {
		if a.time/o.window == k {
			units = capped(plus(units, nat(a.cost)))
		}
	}
	return units
}

// left is the whole units left of an amount.
func (o *oracle) left(amount uint64, now int64) uint64 {
	parts, full := o.used(now)
	rest := minus(nat(amount), o.units(parts))
	if full || rest.Sign() < 0 {
		return 0
	}
	return rest.Uint64()
}

// newest is the last instant that the history speaks of: time before it counts as it.
func (o *oracle) newest() int64 {
	t := int64(0)
	if o.marker != nil {
		t = *o.marker
	}
	for _, a := range o.history {
		t = max(t, a.time)
	}
	return t
}

func (o *oracle) decide(amount uint64, now int64, cost uint64) verdict {
	if amount == math.MaxUint64 {
		return verdict{true, amount, now}
	}
	now = max(now, o.newest())
	if left := o.left(amount, now); cost <= left {
		return verdict{true, left - cost, now}
	} else if cost > amount {
		return verdict{false, left, never}
	} else {
		fits := func(t int64) bool { return cost <= o.left(amount, t) }
		return verdict{false, left, o.firstAfter(now, fits)}
	}
}

// clearAt is the first instant from now on at which nothing is used.
func (o *oracle) clearAt(now int64) int64 {
	now = max(now, o.newest())
	clear := func(t int64) bool {
		used, full := o.used(t)
		return used.Sign() == 0 && !full
	}
	if clear(now) {
		return now
	}
	return o.firstAfter(now, clear)
}

// firstAfter finds the first instant after now at which ok holds, given that it
// doesn't at now and that, once it holds, it goes on holding: with nothing new
// admitted usage only shrinks.
func (o *oracle) firstAfter(now int64, ok func(int64) bool) int64 {
	step := int64(1)
	for now <= never-1-step && !ok(now+step) {
		if now += step; step < math.MaxInt64/2 {
			step *= 2
		}
	}
	if now > never-1-step {
		step = never - now
	}
	return now + 1 + int64(sort.Search(int(step-1), func(i int) bool { return ok(now + 1 + int64(i)) }))
}
