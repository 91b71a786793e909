package faults_test

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// now is the monotonic clock of this machine, which histories are written by.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no Linux without it
	}
	return ts.Nano()
}

// pause waits, and reports whether ctx has not ended by then.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
