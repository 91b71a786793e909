package limit

// A fixed window counts units in [kW, (k+1)W) and forgets them at the boundary.

func (s Spec) peekFixed(st State, now int64, cost uint64) Decision {
	st = s.opened(st, now)
	d := verdict(lessUnits(s.Amount, st.Used), cost, st.At)
	if !d.Allowed && cost <= s.Amount {
		d.At = s.windowEnd(st.At)
	}
	return d
}

// opened is st as seen from the window that holds now.
func (s Spec) opened(st State, now int64) State {
	now = max(now, st.At)
	if now-now%s.Window != st.At-st.At%s.Window {
		return State{At: now}
	}
	return State{Used: st.Used, At: now}
}

// windowEnd is the first instant after the window that holds t.
func (s Spec) windowEnd(t int64) int64 {
	return later(t-t%s.Window, s.Window)
}

// idleFixed is when the window is past.
func (s Spec) idleFixed(st State) int64 {
	if st.Used == 0 {
		return st.At
	}
	return s.windowEnd(st.At)
}
