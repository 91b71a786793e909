package limit_test

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// BenchmarkRolling is one admission in the steady state of a full window: peek, drop
// what has left, append.
func BenchmarkRolling(b *testing.B) {
	for _, events := range []int{3, 500, 100_000} {
		b.Run(fmt.Sprint(events), func(b *testing.B) {
			gap := 20 * second
			s := rolling(uint64(events), int64(events)*gap)
			u := limit.Usage{Log: filled(events, gap), KnownSince: limit.Forever}
			now := int64(events) * gap
			b.ReportAllocs()
			for b.Loop() {
				if d := s.Peek(u, now, 1); !d.Allowed {
					b.Fatalf("denied at %d: %+v", now, d)
				}
				for e, ok := u.Log.First(); ok && e.Time <= now-s.Window; e, ok = u.Log.First() {
					u.Log.DropFirst()
				}
				if u.Log.Need(now, 1) > u.Log.Capacity() {
					b.Fatal("the region has become too small")
				}
				u.Log.Append(now, 1)
				now += gap
			}
		})
	}
}

// filled is a log of events so many nanoseconds apart, in a region of twice its size.
func filled(events int, gap int64) limit.Log {
	var l limit.Log
	for i := range events {
		l = appended(l, int64(i)*gap, 1)
	}
	return l.CopyTo(make([]byte, 2*l.CompactSize()+64))
}

// BenchmarkRollingPeek is a question in the middle of a window: allowed, and denied.
func BenchmarkRollingPeek(b *testing.B) {
	for _, events := range []int{3, 500, 100_000} {
		gap := 20 * second
		u := limit.Usage{Log: filled(events, gap), KnownSince: limit.Forever}
		now := int64(events) * gap
		for name, amount := range map[string]uint64{"allow": uint64(events), "deny": uint64(events)/2 - 1} {
			b.Run(fmt.Sprint(events, "/", name), func(b *testing.B) {
				s := rolling(amount, now/2)
				b.ReportAllocs()
				for b.Loop() {
					s.Peek(u, now, 1)
				}
			})
		}
	}
}

func BenchmarkState(b *testing.B) {
	for _, s := range []limit.Spec{bucket(100, 7, 60*second), counter(100, 60*second), fixed(100, 60*second)} {
		b.Run(s.Algorithm.String(), func(b *testing.B) {
			b.ReportAllocs()
			var u limit.Usage
			for now := int64(0); b.Loop(); now += second {
				if s.Peek(u, now, 1).Allowed {
					u.State = s.Charge(u.State, now, 1)
				}
			}
		})
	}
}
