package clock_test

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/clock"
)

// compared samples two clocks once a second for so long: ours runs ppm faster than theirs, and answers come back
// after the delays, in turn.
func compared(c *clock.Comparison, seconds int, ppm int64, delays ...time.Duration) {
	for i := range seconds {
		asked := int64(i) * int64(time.Second)
		delay := int64(delays[i%len(delays)])
		read := asked + delay/2 // by our clock
		c.Add(clock.Sample{
			Asked: clock.Reading{Elapsed: asked}, Heard: clock.Reading{Elapsed: asked + delay},
			Theirs: clock.Reading{Elapsed: 1e12 + read - read/1e6*ppm},
		})
	}
}

func TestAClockThatRunsFastIsFoundOut(t *testing.T) {
	for _, tc := range []struct {
		name    string
		seconds int
		ppm     int64
		delays  []time.Duration
		want    clock.Verdict
	}{
		{"alike", 30, 0, []time.Duration{time.Millisecond}, clock.NoFaster},
		{"within the bounds", 30, 900, []time.Duration{time.Millisecond}, clock.NoFaster},
		{"faster", 30, 2000, []time.Duration{time.Millisecond}, clock.Faster},
		{"slower", 30, -5000, []time.Duration{time.Millisecond}, clock.NoFaster},
		{"faster, but not for long enough", 10, 50_000, []time.Duration{time.Millisecond}, clock.Unknown},
		{"alike, with answers that crawl", 30, 0, []time.Duration{900 * time.Millisecond}, clock.Unknown},
		{"too fast, with answers that crawl", 30, 10_000, []time.Duration{900 * time.Millisecond}, clock.Unknown},
		{"much faster, all the same", 30, 100_000, []time.Duration{time.Millisecond, 900 * time.Millisecond}, clock.Faster},
		{"a single sample", 1, 0, []time.Duration{0}, clock.Unknown},
	} {
		var c clock.Comparison
		compared(&c, tc.seconds, tc.ppm, tc.delays...)
		if v := c.Verdict(); v != tc.want {
			t.Errorf("%s: verdict %d, want %d", tc.name, v, tc.want)
		}
	}
}

// A gap hides real time on one side only, so nothing is compared over it.
func TestNothingIsComparedOverAGap(t *testing.T) {
	for name, gap := range map[string]func(*clock.Sample){
		"ours":            func(s *clock.Sample) { s.Asked.Gaps++; s.Heard.Gaps++ },
		"theirs":          func(s *clock.Sample) { s.Theirs.Gaps++ },
		"in the question": func(s *clock.Sample) { s.Heard.Gaps++ },
		"their restart":   func(s *clock.Sample) { s.Theirs.Elapsed = 5 },
	} {
		var c clock.Comparison
		compared(&c, 30, 5000, time.Millisecond)
		s := clock.Sample{
			Asked: clock.Reading{Elapsed: 30e9}, Heard: clock.Reading{Elapsed: 30e9 + 1e6}, Theirs: clock.Reading{Elapsed: 1e12 + 29e9},
		}
		gap(&s)
		c.Add(s)
		if v := c.Verdict(); v != clock.Unknown {
			t.Errorf("%s: verdict %d", name, v)
		}
	}
}

// What was long ago doesn't hide what is so now.
func TestOldSamplesAreForgotten(t *testing.T) {
	var c clock.Comparison
	compared(&c, 3600, 0, time.Millisecond)
	for i := range 25 {
		asked := int64(3600+i) * int64(time.Second)
		c.Add(clock.Sample{
			Asked: clock.Reading{Elapsed: asked}, Heard: clock.Reading{Elapsed: asked + 1e6},
			Theirs: clock.Reading{Elapsed: 1e12 + 3600e9 + int64(i)*995e6},
		})
	}
	if v := c.Verdict(); v != clock.Faster {
		t.Errorf("verdict %d", v)
	}
}
