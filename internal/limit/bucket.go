package limit

import (
	"math"
	"math/bits"
)

// A bucket remembers its debt: Used - Carry/Window units, where
// 0 <= Carry < Window and a debt of 0 has no Carry. It admits when debt + cost is
// within the capacity. As Carry/Window is less than one unit and the rest are
// integers, that is the same as Used + cost <= capacity: debt rounds up.

func (s Spec) peekBucket(st State, now int64, cost uint64) Decision {
	st = s.refilled(st, now)
	d := verdict(lessUnits(s.Amount, st.Used), cost, st.At)
	if d.Allowed || cost > s.Amount {
		return d
	}
	d.At = s.refilledAt(st, st.Used-(s.Amount-cost))
	return d
}

// refilled is st brought forward to now: the debt falls by Refill/Window units
// for each nanosecond, exactly. A fraction is dropped only with the last of the debt.
func (s Spec) refilled(st State, now int64) State {
	now = max(now, st.At)
	hi, lo := bits.Mul64(s.Refill, uint64(now-st.At))
	lo, over := bits.Add64(lo, st.Carry, 0)
	hi += over
	if hi >= uint64(s.Window) { // more than 2^64 units: more than any debt
		return State{At: now}
	}
	units, part := bits.Div64(hi, lo, uint64(s.Window))
	if units >= st.Used {
		return State{At: now}
	}
	return State{Used: st.Used - units, Carry: part, At: now}
}

// refilledAt is the first instant at which Used has fallen by units, 0 <= units <=
// Used: the least st.At+d with Carry + Refill·d >= units·Window. The state must
// come from refilled, which keeps Carry below Window.
func (s Spec) refilledAt(st State, units uint64) int64 {
	if units == 0 || st.Used == 0 {
		return st.At
	}
	hi, lo := bits.Mul64(units, uint64(s.Window))
	lo, under := bits.Sub64(lo, st.Carry, 0)
	hi -= under
	if hi >= s.Refill { // also when Refill is 0
		return Never
	}
	wait, rest := bits.Div64(hi, lo, s.Refill)
	if rest > 0 {
		wait = addUnits(wait, 1)
	}
	if wait > math.MaxInt64 {
		return Never
	}
	return later(st.At, int64(wait))
}

// Settled is a bucket's state at now with the fraction given up, so that a
// bucket with another Refill or Window can go on from it: the fraction's
// denominator is the Window it was made under.
func (s Spec) Settled(st State, now int64) State {
	st = s.refilled(st, now)
	st.Carry = 0
	return st
}
