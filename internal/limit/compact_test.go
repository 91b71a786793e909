package limit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// TestLogIsCompact fixes what an event may cost in memory.
func TestLogIsCompact(t *testing.T) {
	var few limit.Log
	for _, at := range []int64{5 * second, 25*second + 17, 44*second + 3} {
		few = appended(few, at, 1)
	}
	if few.Size() > limit.LogHeader+14 {
		t.Errorf("3 events take %d bytes", few.Size())
	}
	eachSeed(t, 20, func(t *testing.T, seed uint64) {
		c, day := seeded(seed), int64(86_400*second)
		times := make([]int64, 500)
		for i := range times {
			times[i] = int64(c.below(uint64(day)))
		}
		slices.Sort(times)
		var many limit.Log
		for _, at := range times {
			many = appended(many, at, 1)
		}
		if many.Size() >= 3600 {
			t.Errorf("500 events take %d bytes", many.Size())
		}
	})
}

// TestLogRegionStaysBounded: appending for ever to a log that forgets as much needs
// no more room than twice the live events, and hardly ever a new region.
func TestLogRegionStaysBounded(t *testing.T) {
	for _, live := range []int{1, 3, 30, 500} {
		t.Run(fmt.Sprint(live), func(t *testing.T) {
			var l limit.Log
			regions, most := 0, 0
			for i := range 20 * (live + 100) {
				now := int64(i) * 20 * second
				if i >= live {
					l.DropFirst()
				}
				before := l.Capacity()
				if l = appended(l, now, 1); l.Capacity() != before {
					regions++
				}
				most = max(most, l.Capacity())
			}
			if limitBytes := 64 + 2*7*live; most > limitBytes || regions > 20 {
				t.Errorf("%d bytes (at most %d) in the course of %d regions", most, limitBytes, regions)
			}
		})
	}
}

// TestLogInPlaceReuse: with exactly the room that Need asks for, the log reclaims
// dead space itself.
func TestLogInPlaceReuse(t *testing.T) {
	l := limit.InitLog(make([]byte, limit.LogHeader+20))
	for i := range int64(1000) {
		now := i * 20 * second
		if i >= 2 {
			l.DropFirst()
		}
		if need := l.Need(now, 1); need > l.Capacity() {
			t.Fatalf("event %d needs %d bytes of %d", i, need, l.Capacity())
		}
		l.Append(now, 1)
		if got := l.Used(now - 21*second); got != min(uint64(i)+1, 2) {
			t.Fatalf("%d events after event %d", got, i)
		}
	}
}
