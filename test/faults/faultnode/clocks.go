package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/clock"
)

// skewed is the kernel's clocks, at a speed that can be changed: as if this machine's quartz were wrong.
type skewed struct {
	system clock.System
	reads  atomic.Int64

	mu             sync.Mutex
	ppm            int64 // faster by so many parts per million; negative: slower
	monotonic, raw face
}

// face is what a clock showed when its speed was last changed, and what it should have shown.
type face struct{ shown, true int64 }

func newSkewed() (*skewed, error) {
	system, err := clock.NewSystem()
	if err != nil {
		return nil, err
	}
	return &skewed{system: system}, nil
}

// Monotonic implements clock.Source.
func (s *skewed) Monotonic() int64 { return s.read(&s.monotonic, s.system.Monotonic) }

// Raw implements clock.Source.
func (s *skewed) Raw() int64 { return s.read(&s.raw, s.system.Raw) }

func (s *skewed) read(f *face, now func() int64) int64 {
	s.reads.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.at(now(), s.ppm)
}

func (f face) at(now, ppm int64) int64 {
	passed := now - f.true
	return f.shown + passed + passed/1e6*ppm + passed%1e6*ppm/1e6
}

// run makes both run at another speed from now on. Neither jumps.
func (s *skewed) run(ppm int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f, now := range map[*face]int64{&s.monotonic: s.system.Monotonic(), &s.raw: s.system.Raw()} {
		*f = face{f.at(now, s.ppm), now}
	}
	s.ppm = ppm
}

// wall is the wall clock, which can be set wrong. The process reads it where certificates are looked at.
type wall struct {
	shift atomic.Int64 // ns
	reads atomic.Int64 // since it was last set
}

func (w *wall) now() time.Time {
	w.reads.Add(1)
	return time.Now().Add(time.Duration(w.shift.Load()))
}

func (w *wall) set(shift time.Duration) {
	w.shift.Store(int64(shift))
	w.reads.Store(0)
}
