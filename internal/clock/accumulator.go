package clock

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	// MaxAdvance is the longest advance between two reads, in nanoseconds, that counts as time. A
	// process that read every 100 ms and then sees more was stopped, suspended or restored; how much
	// of it was real can't be known, so none of it counts.
	MaxAdvance = int64(time.Second)

	// readEvery is half of the 100 ms that the design allows between two reads: a tick that comes
	// late by its own length still keeps to it.
	readEvery = 50 * time.Millisecond

	// driftDivisor takes 500 ppm (one part in 2,000) off the sum: no quartz that NTP would still
	// accept is further off, so what remains is never faster than real time.
	driftDivisor = 2000
)

// Reading is one reading of an [Accumulator].
type Reading struct {
	Elapsed int64  // nanoseconds since the accumulator began; never falls
	Gaps    uint64 // advances that counted as nothing, so far
}

// Accumulator adds up the elapsed time of one process. There is one per process, read by every
// partition, so that all of them see the same gaps. It is safe for concurrent use.
type Accumulator struct {
	source Source

	// mu covers the reading of the clocks too. Were they read outside, a reader that is overtaken
	// would bring an older pair and turn it into a gap.
	mu             sync.Mutex
	monotonic, raw int64
	sum            int64
	gaps           uint64

	byMonotonic, byRaw int64 // what each of the clocks showed for itself, without gaps
}

// New returns an accumulator that begins at zero now.
func New(source Source) *Accumulator {
	return &Accumulator{source: source, monotonic: source.Monotonic(), raw: source.Raw()}
}

// Read adds what has passed since the last read, the smaller advance of the two clocks, and returns
// the new reading. An advance of either clock below 0 or above [MaxAdvance] adds nothing and is a
// gap. 500 ppm are taken off the sum, rounded so that less elapses, never more.
func (a *Accumulator) Read() Reading {
	a.mu.Lock()
	defer a.mu.Unlock()
	monotonic, raw := a.pair()
	byMonotonic, byRaw := monotonic-a.monotonic, raw-a.raw
	a.monotonic, a.raw = monotonic, raw
	if counts(byMonotonic) && counts(byRaw) {
		a.sum = addClamped(a.sum, min(byMonotonic, byRaw))
		a.byMonotonic, a.byRaw = addClamped(a.byMonotonic, byMonotonic), addClamped(a.byRaw, byRaw)
	} else {
		a.gaps++
	}
	return Reading{Elapsed: a.sum - (a.sum/driftDivisor + min(a.sum%driftDivisor, 1)), Gaps: a.gaps}
}

// torn is how far apart, in nanoseconds, the two clocks of a pair may have been read. An interruption between them
// makes this advance of the second clock too long and the next one too short, of which the minimum takes only the
// latter: that time would be lost, and a busy machine loses percents so, which nothing else makes up for.
const torn = int64(20 * time.Microsecond)

// pair reads both clocks, again if the reading was interrupted. On a machine so busy that this is in vain, time is lost.
func (a *Accumulator) pair() (monotonic, raw int64) {
	for range 4 {
		monotonic, raw = a.source.Monotonic(), a.source.Raw()
		if a.source.Monotonic()-monotonic <= torn {
			break
		}
	}
	return monotonic, raw
}

// Drift is how far the monotonic clock has run ahead of the raw one since the accumulator began, in parts per
// million, rounded towards 0; negative: behind. It is what slews the clock, not how wrong it is.
func (a *Accumulator) Drift() int64 {
	a.Read()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byRaw < 1e6 { // a millisecond tells nothing
		return 0
	}
	return (a.byMonotonic - a.byRaw) / (a.byRaw / 1e6)
}

// Elapsed is Read for a caller that has no use for the gaps.
func (a *Accumulator) Elapsed() int64 { return a.Read().Elapsed }

// Run reads often enough, at least every 100 ms, that a healthy process never sees a gap. It
// returns when ctx is done; the caller joins it.
func (a *Accumulator) Run(ctx context.Context) {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.Read()
		}
	}
}

// counts tells whether an advance is one that can be believed.
func counts(advance int64) bool { return 0 <= advance && advance <= MaxAdvance }

// addClamped returns a + b for a, b ≥ 0, at most the largest int64: 292 years, then time stands
// still and every window is full.
func addClamped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
