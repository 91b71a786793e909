package clock_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/clock"
)

func TestElapsedIsTheSmallerAdvanceLess500PPM(t *testing.T) {
	for _, tc := range []struct {
		name           string
		monotonic, raw time.Duration
		want           time.Duration
		gaps           uint64
	}{
		{"both agree", time.Second, time.Second, 999500 * time.Microsecond, 0},
		{"NTP slews CLOCK_MONOTONIC forward", 600 * time.Millisecond, 400 * time.Millisecond, 399800 * time.Microsecond, 0},
		{"NTP slews CLOCK_MONOTONIC back", 400 * time.Millisecond, 600 * time.Millisecond, 399800 * time.Microsecond, 0},
		{"one nanosecond rounds down to nothing", 1, 1, 0, 0},
		{"2,000 ns lose one", 2000, 2000, 1999, 0},
		{"2,001 ns lose two", 2001, 2001, 1999, 0},
		{"no advance is no gap", 0, 0, 0, 0},
		{"CLOCK_MONOTONIC alone stands still", 0, time.Second, 0, 0},
		{"frozen for 10 s", 10 * time.Second, 10 * time.Second, 0, 1},
		{"a nanosecond above a second", time.Second + 1, time.Second + 1, 0, 1},
		{"only CLOCK_MONOTONIC jumps", time.Hour, 50 * time.Millisecond, 0, 1},
		{"only CLOCK_MONOTONIC_RAW jumps", 50 * time.Millisecond, time.Hour, 0, 1},
		{"CLK-03 a clock steps back", -time.Hour, 50 * time.Millisecond, 0, 1},
		{"CLK-03 the other clock steps back", 50 * time.Millisecond, -1, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var source clock.Manual
			source.Advance(1000 * time.Hour) // the origin doesn't matter
			a := clock.New(&source)
			source.AdvanceMonotonic(tc.monotonic)
			source.AdvanceRaw(tc.raw)
			got := a.Read()
			if want := (clock.Reading{Elapsed: int64(tc.want), Gaps: tc.gaps}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestTimeGoesOnAfterAGap(t *testing.T) {
	var source clock.Manual
	a := clock.New(&source)
	source.Advance(time.Second)
	a.Read()
	source.Advance(time.Hour)
	a.Read()
	source.Advance(time.Second)
	if got, want := a.Read(), (clock.Reading{Elapsed: 1999 * int64(time.Millisecond), Gaps: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A clock that the kernel refuses to read shows the far end of time (see System); that must be a
// gap on the way out and on the way back.
func TestAnUnreadableClockIsAGap(t *testing.T) {
	var source clock.Manual
	source.Advance(time.Second)
	a := clock.New(&source)
	source.AdvanceMonotonic(time.Duration(math.MaxInt64 - source.Monotonic()))
	a.Read()
	source.AdvanceMonotonic(2*time.Second - math.MaxInt64)
	if got, want := a.Read(), (clock.Reading{Gaps: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// interrupted is a source whose reader is interrupted at every tenth pair, between the two clocks.
type interrupted struct {
	clock.Manual
	reads int
}

func (s *interrupted) Raw() int64 {
	if s.reads++; s.reads%10 == 0 {
		s.Advance(30 * time.Millisecond)
	}
	return s.Manual.Raw()
}

// What passes while a reader is interrupted between the two clocks is time like any other.
func TestTimeIsNotLostToInterruptions(t *testing.T) {
	source := &interrupted{}
	a := clock.New(source)
	for range 1000 {
		source.Advance(time.Millisecond)
		a.Read()
	}
	r, truly := a.Read(), source.Monotonic()
	if lost := truly - truly/2000 - r.Elapsed; r.Gaps > 0 || lost > int64(time.Microsecond) || lost < -2 {
		t.Errorf("%v of %v, %v lost, %d gaps", time.Duration(r.Elapsed), time.Duration(truly), time.Duration(lost), r.Gaps)
	}
}

// Readers that overtake each other between reading the clocks and adding would look like a clock
// that goes back.
func TestConcurrentReadersSeeNoGap(t *testing.T) {
	source, err := clock.NewSystem()
	if err != nil {
		t.Fatal(err)
	}
	a := clock.New(source)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			last := int64(0)
			for range 2000 {
				r := a.Read()
				if r.Elapsed < last {
					t.Errorf("elapsed fell from %d to %d", last, r.Elapsed)
				}
				last = r.Elapsed
			}
		})
	}
	readers.Wait()
	// A machine that stalls for a second would be a true gap, and is none of this test's business.
	if r := a.Read(); r.Gaps != 0 && r.Elapsed < clock.MaxAdvance {
		t.Errorf("%d gaps within %v", r.Gaps, time.Duration(r.Elapsed))
	}
}

// A System that nobody made has no origin, and must not fall back on the wall clock.
func TestAZeroSystemIsUnreadable(t *testing.T) {
	if got := (clock.System{}).Monotonic(); got != math.MaxInt64 {
		t.Errorf("read %d", got)
	}
}

// counting tells how long each pair of reads was apart, in the bubble's time.
type counting struct {
	last    time.Time
	longest time.Duration
	reads   int
}

func (c *counting) Monotonic() int64 { return time.Now().UnixNano() }

func (c *counting) Raw() int64 {
	now := time.Now()
	if !c.last.IsZero() {
		c.longest = max(c.longest, now.Sub(c.last))
	}
	c.last = now
	c.reads++
	return now.UnixNano()
}

func TestRunReadsAtLeastEvery100ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &counting{}
		a := clock.New(source)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		a.Run(ctx) // returns when ctx is done
		if source.longest > 100*time.Millisecond || source.reads < 100 {
			t.Errorf("%d reads in 10 s, up to %v apart", source.reads, source.longest)
		}
		if r := a.Read(); r.Gaps != 0 || r.Elapsed < int64(9900*time.Millisecond) {
			t.Errorf("after 10 healthy seconds: %+v", r)
		}
	})
}

func TestStampsNeverFallAndSaturate(t *testing.T) {
	h := clock.Held{Time: math.MaxInt64 - 5, At: 10}
	for _, tc := range []struct{ elapsed, want int64 }{
		{10, math.MaxInt64 - 5},
		{12, math.MaxInt64 - 3},
		{1000, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64},
		{9, math.MaxInt64 - 5}, // a reading from before: nothing has passed
		{math.MinInt64, math.MaxInt64 - 5},
	} {
		if got := h.FirstEntry(tc.elapsed); got != tc.want {
			t.Errorf("FirstEntry(%d) = %d, want %d", tc.elapsed, got, tc.want)
		}
	}
	if got := (clock.TermClock{Time: 1, At: math.MinInt64}).Stamp(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("Stamp wraps: %d", got)
	}
}

func BenchmarkRead(b *testing.B) {
	source, err := clock.NewSystem()
	if err != nil {
		b.Fatal(err)
	}
	a := clock.New(source)
	b.ReportAllocs()
	for b.Loop() {
		a.Read()
	}
}

func BenchmarkMonotonic(b *testing.B) {
	source, err := clock.NewSystem()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		source.Monotonic()
	}
}

func TestDriftIsHowFarOneClockRunsAheadOfTheOther(t *testing.T) {
	for _, tc := range []struct {
		monotonic, raw time.Duration // in each of a hundred reads
		want           int64
	}{
		{100 * time.Millisecond, 100 * time.Millisecond, 0},
		{100 * time.Millisecond, 99 * time.Millisecond, 10101},
		{99 * time.Millisecond, 100 * time.Millisecond, -10000},
		{100*time.Millisecond + 20*time.Microsecond, 100 * time.Millisecond, 200},
		{0, 0, 0},
		{2 * time.Second, time.Second, 0}, // gaps tell nothing
	} {
		source := &clock.Manual{}
		a := clock.New(source)
		for range 100 {
			source.AdvanceMonotonic(tc.monotonic)
			source.AdvanceRaw(tc.raw)
			a.Read()
		}
		if got := a.Drift(); got != tc.want {
			t.Errorf("%v against %v: %d ppm, want %d", tc.monotonic, tc.raw, got, tc.want)
		}
	}
}
