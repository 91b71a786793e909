package clock

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Source reads the two clocks that elapsed time is made from, in nanoseconds since an arbitrary
// origin. Both may be read concurrently. They are read apart because each fails in its own way:
// NTP slews the first, and no one corrects the drift of the second.
type Source interface {
	Monotonic() int64 // CLOCK_MONOTONIC
	Raw() int64       // CLOCK_MONOTONIC_RAW
}

// System reads the kernel's clocks. Make one with [NewSystem]; the zero value reads the far end of
// time, which nobody takes for an answer (see unreadable).
type System struct {
	origin time.Time
}

// unreadable is what a clock shows that can't be read. An accumulator takes the jump to it, and the
// one back, for gaps, and every lease has run out by then: both refuse, which is the answer to not
// knowing.
const unreadable = math.MaxInt64

// NewSystem returns the kernel's clocks, or an error where the kernel lacks one of them.
func NewSystem() (System, error) {
	for _, id := range []int32{unix.CLOCK_MONOTONIC, unix.CLOCK_MONOTONIC_RAW} {
		var ts unix.Timespec
		if err := unix.ClockGettime(id, &ts); err != nil {
			return System{}, fmt.Errorf("read clock %d: %w", id, err)
		}
	}
	return System{origin: time.Now()}, nil
}

// Monotonic reads CLOCK_MONOTONIC, through Go's own reading of it: that needs no system call, and a
// leader takes one for each answer from memory. (Only the monotonic half of origin takes part; the
// wall clock never does.)
func (s System) Monotonic() int64 { return int64(time.Since(s.origin)) }

// Raw reads CLOCK_MONOTONIC_RAW.
func (System) Raw() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
		return unreadable
	}
	return ts.Nano()
}
