package limit_test

import (
	"math"
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// lawful checks what any answer must satisfy, whatever the numbers: totals stay in
// range, a denial's At is the first instant that admits, a charge is remembered.
func lawful(t *testing.T, s limit.Spec, u limit.Usage, now int64, cost uint64) {
	t.Helper()
	d := s.Peek(u, now, cost)
	if s.Amount == limit.Unlimited {
		if d != allow(now, limit.Unlimited) {
			t.Fatalf("%+v: unlimited, but %+v", s, d)
		}
	} else if d.Remaining > s.Amount || d.Allowed && (cost > s.Amount || d.Remaining > s.Amount-cost) {
		t.Fatalf("%+v %+v cost %d at %d: %+v", s, u.State, cost, now, d)
	}
	if d.At < now || !d.Allowed && d.At <= max(now, u.State.At) && d.At != limit.Never {
		t.Fatalf("%+v %+v cost %d at %d: said to fit at %d", s, u.State, cost, now, d.At)
	}
	if !d.Allowed && d.At != limit.Never {
		if !s.Peek(u, d.At, cost).Allowed || s.Peek(u, d.At-1, cost).Allowed {
			t.Fatalf("%+v %+v cost %d at %d: said to fit first at %d", s, u.State, cost, now, d.At)
		}
	}
	if at := s.FullAt(u, now); at < now {
		t.Fatalf("%+v %+v full in the past, at %d of %d", s, u.State, at, now)
	}
	if s.Algorithm != limit.RollingWindow {
		lawfulCharge(t, s, u, now, cost)
	}
}

func lawfulCharge(t *testing.T, s limit.Spec, u limit.Usage, now int64, cost uint64) {
	t.Helper()
	before := s.Peek(u, now, cost)
	u.State = s.Charge(u.State, now, cost)
	if u.State.At < now || u.State.Used < cost {
		t.Fatalf("%+v: %+v after cost %d at %d", s, u.State, cost, now)
	}
	if after := s.Peek(u, now, 0); before.Allowed && after.Remaining != before.Remaining {
		t.Fatalf("%+v cost %d at %d: %d left, %d were announced", s, cost, now, after.Remaining, before.Remaining)
	}
	if at := s.IdleAt(u.State); at < u.State.At {
		t.Fatalf("%+v: %+v idle in the past, at %d", s, u.State, at)
	}
}

// TestNumericExtremes: every combination of the smallest and largest numbers gets a
// lawful answer, and none overflows or panics.
func TestNumericExtremes(t *testing.T) {
	amounts := []uint64{0, 1, 3, 1 << 62, limit.MaxAmount, 1 << 63, math.MaxUint64 - 1, limit.Unlimited}
	instants := []int64{0, 1, 1 << 62, limit.Never - 1, limit.Never}
	for alg := limit.RollingWindow; alg <= limit.FixedWindow; alg++ {
		for _, amount := range amounts {
			for _, window := range instants[1:] {
				for _, refill := range []uint64{0, 1, 7, math.MaxUint64} {
					s := limit.Spec{Algorithm: alg, Amount: amount, Window: window, Refill: refill}
					extremeUsages(t, s, amounts, instants)
				}
			}
		}
	}
}

func extremeUsages(t *testing.T, s limit.Spec, amounts []uint64, instants []int64) {
	for _, at := range instants {
		for _, used := range amounts {
			carry := min(used, uint64(s.Window)-1)
			u := limit.Usage{KnownSince: at, State: limit.State{Used: used, Carry: carry, At: at}}
			if s.Algorithm == limit.RollingWindow {
				u.State = limit.State{}
				if u.KnownSince = limit.Forever; used > 0 && at < limit.Never {
					u.Log = appended(u.Log, at, min(used, limit.MaxAmount))
				}
			}
			for _, now := range instants {
				for _, cost := range amounts[1:] {
					lawful(t, s, u, now, cost)
				}
			}
		}
	}
}

// TestKnownSinceExtremes: the same for what isn't known.
func TestKnownSinceExtremes(t *testing.T) {
	instants := []int64{limit.Forever, limit.Forever + 1, -1, 0, 1, 1 << 62, limit.Never - 1, limit.Never}
	for _, since := range instants {
		for _, window := range instants[4:] {
			for _, now := range instants[3:] {
				lawful(t, rolling(1, window), limit.Usage{KnownSince: since}, now, 1)
			}
		}
	}
}

// TestSaturatedTime: what would be later than time itself is Never, not a wrap-around.
func TestSaturatedTime(t *testing.T) {
	const late = limit.Never - 10
	for _, s := range []limit.Spec{rolling(1, 60), bucket(1, 1, 60), counter(1, 60), fixed(1, 1<<61)} {
		k := newKey(s)
		k.wants(t, late, 1, allow(late, 0))
		k.wants(t, late+1, 1, deny(limit.Never, 0))
	}
}

// TestSaturatedDebt: an unlimited tier can't run a sum round to zero.
func TestSaturatedDebt(t *testing.T) {
	for _, s := range []limit.Spec{bucket(9, 1, 60), counter(9, 60), fixed(9, 60)} {
		st := limit.State{}
		for range 3 {
			st = s.Charge(st, 0, limit.MaxAmount)
		}
		if st.Used != math.MaxUint64 {
			t.Errorf("%s: %d used", s.Algorithm, st.Used)
		}
	}
}

func FuzzExtremes(f *testing.F) {
	f.Add(byte(1), uint64(3), int64(60), uint64(0), uint64(3), uint64(0), int64(0), int64(50), uint64(1))
	f.Add(byte(2), uint64(10), int64(13), uint64(7), uint64(9), uint64(12), int64(5), int64(3), uint64(4))
	f.Add(byte(3), uint64(1<<63), int64(1<<62), uint64(1), uint64(1<<63), uint64(1<<63), int64(1), int64(1<<62), uint64(1))
	f.Add(byte(4), uint64(1), int64(math.MaxInt64), uint64(1), uint64(1), uint64(0), int64(7), int64(math.MaxInt64), uint64(1))
	f.Fuzz(func(t *testing.T, alg byte, amount uint64, window int64, refill, used, carry uint64, at, now int64, cost uint64) {
		window, at, now, cost = max(window, 1), max(at, 0), max(now, 0), max(cost, 1)
		s := limit.Spec{Algorithm: limit.Algorithm(1 + alg%4), Amount: amount, Window: window, Refill: refill}
		u := limit.Usage{KnownSince: at, State: limit.State{Used: used, Carry: carry, At: at}}
		switch {
		case s.Algorithm == limit.RollingWindow:
			if u.State = (limit.State{}); used > 0 && at < limit.Never {
				u.Log = appended(u.Log, at, min(used, limit.MaxAmount))
			}
		case s.Algorithm == limit.TokenBucket: // what refilling leaves
			u.State.Carry %= uint64(window)
		}
		lawful(t, s, u, now, cost)
	})
}
