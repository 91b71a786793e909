package clienttest

import (
	"context"
	"sync"
	"time"
)

// clock is time that is moved by hand, in nanoseconds from zero.
type clock struct {
	mu     sync.Mutex
	now    int64
	timers map[*timer]struct{}
	more   chan struct{} // closed and made anew when a timer is added
}

type timer struct {
	at   int64
	fire chan time.Time
}

func newClock() *clock { return &clock{timers: map[*timer]struct{}{}, more: make(chan struct{})} }

func (c *clock) read() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// after returns what gets a value when d has passed, and a function that gives it up.
func (c *clock) after(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.now + int64(d), fire: make(chan time.Time, 1)}
	if d <= 0 {
		t.fire <- time.Time{}
		return t.fire, func() {}
	}
	c.timers[t] = struct{}{}
	close(c.more)
	c.more = make(chan struct{})
	return t.fire, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.timers, t)
	}
}

// advance moves time, and then fires what is due.
func (c *clock) advance(d time.Duration, moved func(now int64)) {
	c.mu.Lock()
	c.now += int64(d)
	now := c.now
	var due []*timer
	for t := range c.timers { // any order: all of them are woken at the same instant
		if t.at <= now {
			due = append(due, t)
			delete(c.timers, t)
		}
	}
	c.mu.Unlock()
	moved(now)
	for _, t := range due {
		t.fire <- time.Time{}
	}
}

// await waits until n timers run.
func (c *clock) await(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		running, more := len(c.timers), c.more
		c.mu.Unlock()
		if running >= n {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
