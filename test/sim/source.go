package sim

import (
	"sync"
	"time"
)

// source is a machine's two clocks. Each runs at a rate of its own, within what oscillators may be off, from an
// origin of its own. They jump and stand still when told to.
//
// What may be done to them is what decision time promises to survive: one of them jumps ahead by anything, or back;
// both jump ahead by more than a second, or back; either stands still. Both jumping ahead by less is no fault but a
// clock that is wrong by more than 500 ppm, which is excluded (and is what Breaks.FastClock does).
type source struct {
	begun time.Time

	mu             sync.Mutex
	at             int64 // the world's time of the last change, ns since begun
	monotonic, raw face
}

// face is one clock: what it showed at the last change, and its rate since.
type face struct {
	shown int64
	ppm   int64 // above what is right
	still bool
}

func (f *face) after(passed int64) int64 {
	if f.still {
		return f.shown
	}
	return f.shown + passed + passed/1e6*f.ppm + passed%1e6*f.ppm/1e6
}

func newSource(begun time.Time, s *stream, ppm int64) *source {
	c := &source{begun: begun}
	c.monotonic = face{shown: int64(s.span(0, 1000*time.Hour)), ppm: rate(s) + ppm}
	c.raw = face{shown: int64(s.span(0, 1000*time.Hour)), ppm: rate(s) + ppm}
	return c
}

// rate is that of an oscillator, in ppm.
func rate(s *stream) int64 { return int64(s.below(1001)) - 500 }

// Monotonic implements clock.Source.
func (c *source) Monotonic() int64 { return c.read(&c.monotonic) }

// Raw implements clock.Source.
func (c *source) Raw() int64 { return c.read(&c.raw) }

func (c *source) read(f *face) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.after(int64(time.Since(c.begun)) - c.at)
}

// change settles what both show and changes them.
func (c *source) change(do func(monotonic, raw *face)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := int64(time.Since(c.begun))
	for _, f := range []*face{&c.monotonic, &c.raw} {
		f.shown = f.after(now - c.at)
	}
	c.at = now
	do(&c.monotonic, &c.raw)
}
