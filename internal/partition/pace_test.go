package partition

import (
	"testing"
	"time"
)

// TestPace: a rest is as long as an entry stood in line, by the shortest time of the last seconds.
func TestPace(t *testing.T) {
	var p pace
	now := int64(time.Hour)
	for _, c := range []struct {
		what   string
		after  time.Duration // since the entry before
		took   time.Duration
		checks int
		want   time.Duration
	}{
		{"nothing is known yet", 0, 3 * time.Millisecond, 9, 0},
		{"as long as the shortest", time.Second, 3 * time.Millisecond, 9, 0},
		{"longer", 0, 5 * time.Millisecond, 9, 2 * time.Millisecond},
		{"shorter than all before", 0, time.Millisecond, 9, 0},
		{"longer than that", 0, 5 * time.Millisecond, 9, 4 * time.Millisecond},
		{"two checks have company", 0, 5 * time.Millisecond, 2, 4 * time.Millisecond},
		{"one has none", 0, 5 * time.Millisecond, 1, 0},
		{"a stall says nothing", 0, time.Minute, 9, longestRest},
		{"in the next span, the shortest counts still", paceSpan, 4 * time.Millisecond, 9, 3 * time.Millisecond},
		{"and to its end", paceSpan, 3 * time.Millisecond, 9, 2 * time.Millisecond},
		{"later it is forgotten: the log takes longer now", time.Nanosecond, 5 * time.Millisecond, 9, 2 * time.Millisecond},
	} {
		now += int64(c.after)
		if got := p.rest(now, c.took, c.checks); got != c.want {
			t.Errorf("%s: a rest of %v, want %v", c.what, got, c.want)
		}
	}
}
