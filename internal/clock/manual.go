package clock

import (
	"sync/atomic"
	"time"
)

// Manual is a source for tests: both clocks stand still until moved, and can be moved apart, also
// backwards. The zero value reads zero on both. It is safe for concurrent use.
type Manual struct {
	monotonic, raw atomic.Int64
}

// Monotonic returns the manual CLOCK_MONOTONIC.
func (m *Manual) Monotonic() int64 { return m.monotonic.Load() }

// Raw returns the manual CLOCK_MONOTONIC_RAW.
func (m *Manual) Raw() int64 { return m.raw.Load() }

// Advance moves both clocks by d.
func (m *Manual) Advance(d time.Duration) {
	m.AdvanceMonotonic(d)
	m.AdvanceRaw(d)
}

// AdvanceMonotonic moves only CLOCK_MONOTONIC by d.
func (m *Manual) AdvanceMonotonic(d time.Duration) { m.monotonic.Add(int64(d)) }

// AdvanceRaw moves only CLOCK_MONOTONIC_RAW by d.
func (m *Manual) AdvanceRaw(d time.Duration) { m.raw.Add(int64(d)) }
