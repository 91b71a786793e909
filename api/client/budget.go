package client

import (
	"sync"
	"sync/atomic"
	"time"
)

// The retry budget, in tenths of a repetition: each check earns one tenth, so that on top of a cluster that
// answers nobody there come 10 % at most, and time earns enough for a client that asks little.
const (
	repetition   = 10
	earnedASec   = 10 * repetition
	budgetAtMost = 1024 * repetition
)

// budget bounds how much of what was asked is asked again in the hope of another answer. What a node's answer
// names to ask in its place is no such repetition.
type budget struct {
	now    func() int64
	tenths atomic.Int64

	mu   sync.Mutex
	last int64 // when time was last paid for
}

func newBudget(now func() int64) *budget {
	b := &budget{now: now, last: now()}
	b.tenths.Store(budgetAtMost)
	return b
}

// earn pays for one check.
func (b *budget) earn() {
	if b.tenths.Load() < budgetAtMost {
		b.tenths.Add(1)
	}
}

// take spends one repetition, false if there is none left.
func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	const tenth = int64(time.Second) / earnedASec
	earned := max(0, now-b.last) / tenth
	b.last = max(b.last, now-max(0, now-b.last)%tenth)
	b.tenths.Add(min(earned, budgetAtMost-min(b.tenths.Load(), budgetAtMost)))
	if b.tenths.Load() < repetition {
		return false
	}
	b.tenths.Add(-repetition)
	return true
}
