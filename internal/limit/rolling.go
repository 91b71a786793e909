package limit

// The rolling window looks back over (now-Window, now]: an event exactly Window
// old has left.

// peekRolling denies until enough units have left for this cost, which may be
// long before the window is empty and long after its oldest event has left.
func (s Spec) peekRolling(u Usage, now int64, cost uint64) Decision {
	end := u.Log.end()
	now = max(now, end.time)
	after := now - s.Window
	from := u.Log.seek(after)
	used := end.sum - from.sum
	full := s.unknownUntil(u, after)

	left := lessUnits(s.Amount, used)
	if full >= now { // equal only at the end of time, where both are Never
		left = 0
	}
	d := verdict(left, cost, now)
	if d.Allowed || cost > s.Amount {
		return d
	}
	d.At = full
	if free := s.Amount - cost; used > free {
		d.At = max(d.At, later(u.Log.reach(from, used-free), s.Window))
	}
	return d
}

// unknownUntil is the instant until which the window holds something that isn't
// known and therefore counts as full; Forever if the window after the
// given instant is wholly known.
func (s Spec) unknownUntil(u Usage, after int64) int64 {
	until := Forever
	if m, ok := u.Log.Marker(); ok && m > after {
		until = later(m, s.Window)
	}
	// The first instant of the window is after+1. It is covered once a
	// window's first instant is KnownSince: Window-1 later.
	if u.KnownSince > after+1 {
		until = max(until, later(u.KnownSince, s.Window-1))
	}
	return until
}

// clearAt is when the window holds no event and nothing unknown any more.
func (s Spec) clearAt(u Usage, now int64) int64 {
	end := u.Log.end()
	now = max(now, end.time)
	at := s.unknownUntil(u, now-s.Window)
	if !u.Log.Empty() {
		at = max(at, later(end.time, s.Window))
	}
	return at
}
