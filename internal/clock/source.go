package clock

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Source reads the two clocks that elapsed time is made from, in nanoseconds since an arbitrary
// origin. Both may be read concurrently. They are read apart because each fails in its own way:
// NTP slews the first, and no one corrects the drift of the second. And only the first goes on while
// the machine is suspended, so that a lease ends meanwhile and an accumulator sees a gap.
type Source interface {
	Monotonic() int64 // CLOCK_BOOTTIME: CLOCK_MONOTONIC and the time that the machine was suspended
	Raw() int64       // CLOCK_MONOTONIC_RAW
}

// System reads the kernel's clocks. Make one with [NewSystem]; the zero value reads the far end of
// time, which nobody takes for an answer (see unreadable).
type System struct {
	origin int64 // what CLOCK_BOOTTIME showed, never 0
}

// unreadable is what a clock shows that can't be read. An accumulator takes the jump to it, and the
// one back, for gaps, and every lease has run out by then: both refuse, which is the answer to not
// knowing.
const unreadable = math.MaxInt64

// NewSystem returns the kernel's clocks, or an error where the kernel lacks one of them.
func NewSystem() (System, error) {
	var now [2]int64
	for i, id := range []int32{unix.CLOCK_BOOTTIME, unix.CLOCK_MONOTONIC_RAW} {
		var ts unix.Timespec
		if err := unix.ClockGettime(id, &ts); err != nil {
			return System{}, fmt.Errorf("read clock %d: %w", id, err)
		}
		now[i] = ts.Nano()
	}
	return System{origin: max(1, now[0])}, nil
}

// Monotonic reads CLOCK_BOOTTIME.
func (s System) Monotonic() int64 {
	if s.origin == 0 {
		return unreadable
	}
	now := read(unix.CLOCK_BOOTTIME)
	if now == unreadable {
		return unreadable
	}
	return now - s.origin
}

// Raw reads CLOCK_MONOTONIC_RAW.
func (System) Raw() int64 { return read(unix.CLOCK_MONOTONIC_RAW) }

func read(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return unreadable
	}
	return ts.Nano()
}
