package limit

import "math/bits"

// The sliding window counter counts units in aligned windows [kW, (k+1)W). At e
// nanoseconds into a window it takes current + previous·(W-e)/W, rounded up to
// whole units, for the usage: with integers on the other side, rounding up is
// the same as comparing the fractions exactly.

func (s Spec) peekCounter(st State, now int64, cost uint64) Decision {
	st = s.turned(st, now)
	used := addUnits(st.Used, s.weighted(st.Carry, st.At))
	d := verdict(lessUnits(s.Amount, used), cost, st.At)
	if d.Allowed || cost > s.Amount {
		return d
	}
	start, free := st.At-st.At%s.Window, s.Amount-cost
	if st.Used <= free { // the previous window is in the way, this one isn't
		d.At = s.fadedAt(start, st.Carry, free-st.Used)
	} else { // nothing fits before this window has become the previous one
		d.At = s.fadedAt(later(start, s.Window), st.Used, free)
	}
	return d
}

// turned is st as seen from the window that holds now.
func (s Spec) turned(st State, now int64) State {
	now = max(now, st.At)
	switch (now - now%s.Window) - (st.At - st.At%s.Window) {
	case 0:
		return State{Used: st.Used, Carry: st.Carry, At: now}
	case s.Window:
		return State{Carry: st.Used, At: now}
	}
	return State{At: now}
}

// weighted is what the previous window's units count for at now, rounded up.
func (s Spec) weighted(previous uint64, now int64) uint64 {
	hi, lo := bits.Mul64(previous, uint64(s.Window-now%s.Window))
	units, rest := bits.Div64(hi, lo, uint64(s.Window)) // <= previous
	if rest > 0 {
		units++
	}
	return units
}

// fadedAt is the first instant of the window beginning at start, or its end, at
// which the previous window's units, more than free, count for no more than free: the
// least start+e with previous·(W-e) <= free·W.
func (s Spec) fadedAt(start int64, previous, free uint64) int64 {
	hi, lo := bits.Mul64(free, uint64(s.Window))
	remain, _ := bits.Div64(hi, lo, previous) // < Window, as free < previous
	return later(start, s.Window-int64(remain))
}

// idleCounter is when both windows have passed out of sight.
func (s Spec) idleCounter(st State) int64 {
	next := later(st.At-st.At%s.Window, s.Window)
	switch {
	case st.Used > 0:
		return later(next, s.Window)
	case st.Carry > 0:
		return next
	}
	return st.At
}
