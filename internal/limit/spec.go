package limit

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// MaxAmount is the largest amount, capacity and cost.
	MaxAmount uint64 = 1<<63 - 1
	// Unlimited is the amount that admits everything. What it admits is
	// recorded all the same.
	Unlimited uint64 = math.MaxUint64

	// Never is an instant that never comes.
	Never int64 = math.MaxInt64
	// Forever is the KnownSince of usage whose whole history is known.
	Forever int64 = math.MinInt64
)

// Algorithm names the law of a limit. The values are stored: they never change.
type Algorithm uint8

// The algorithms.
const (
	RollingWindow        Algorithm = 1
	TokenBucket          Algorithm = 2
	SlidingWindowCounter Algorithm = 3
	FixedWindow          Algorithm = 4
)

// String returns the algorithm's name as a policy file spells it.
func (a Algorithm) String() string {
	switch a {
	case RollingWindow:
		return "rollingWindow"
	case TokenBucket:
		return "tokenBucket"
	case SlidingWindowCounter:
		return "slidingWindowCounter"
	case FixedWindow:
		return "fixedWindow"
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// Spec is one limit as it applies to one check: tier and override are already
// chosen.
type Spec struct {
	Algorithm Algorithm
	// Amount is how many units fit: of a window, or a bucket's capacity.
	// 0 bans, Unlimited admits everything.
	Amount uint64
	// Window in nanoseconds, at least 1: the window, or the period in which a
	// bucket regains Refill units.
	Window int64
	// Refill is how many units a bucket regains per Window; 0 means none, ever.
	Refill uint64
}

// Usage is what one key has used of one limit. A key without state has the
// zero Log and the zero State, but it still has a KnownSince: its zero value
// says that nothing before instant 0 is known.
type Usage struct {
	Log   Log   // rolling windows
	State State // the other algorithms
	// KnownSince, for rolling windows: every event at or after it is known,
	// everything before counts as used up. Forever if all is known.
	KnownSince int64
}

// Decision is the answer of one limit.
type Decision struct {
	Allowed bool
	// Remaining counts the whole units left: after the charge if allowed, as
	// it stands if denied. Unlimited if the amount is.
	Remaining uint64
	// At is when to ask: if denied, the earliest decision time at which this cost
	// fits provided nothing else is admitted, Never if there is none (always
	// so when the cost exceeds the amount); if allowed, the time of the decision.
	At int64
}

// Peek says whether cost fits at now, and changes nothing. If now lies before
// the newest time recorded in u, that time is meant. A cost of 0 always fits.
func (s Spec) Peek(u Usage, now int64, cost uint64) Decision {
	if s.Amount == Unlimited {
		return Decision{Allowed: true, Remaining: Unlimited, At: now}
	}
	switch s.Algorithm {
	case RollingWindow:
		return s.peekRolling(u, now, cost)
	case TokenBucket:
		return s.peekBucket(u.State, now, cost)
	case SlidingWindowCounter:
		return s.peekCounter(u.State, now, cost)
	case FixedWindow:
		return s.peekFixed(u.State, now, cost)
	}
	panic("limit: peek of an unknown algorithm")
}

// Charge returns what the key remembers once cost is admitted at now. It does
// not ask whether the cost fits: Peek did. Sums saturate, which only an
// Unlimited amount can bring about. A rolling limit is charged by Log.Append;
// here it panics.
func (s Spec) Charge(st State, now int64, cost uint64) State {
	switch s.Algorithm {
	case TokenBucket:
		st = s.refilled(st, now)
	case SlidingWindowCounter:
		st = s.turned(st, now)
	case FixedWindow:
		st = s.opened(st, now)
	default:
		panic("limit: charge of an algorithm without state")
	}
	st.Used = addUnits(st.Used, cost)
	return st
}

// FullAt is when the whole amount is available again if nothing else is
// admitted: now if it already is, Never if it never will be.
func (s Spec) FullAt(u Usage, now int64) int64 {
	switch {
	case s.Amount == Unlimited:
		return now
	case s.Algorithm == RollingWindow:
		return max(now, s.clearAt(u, now))
	}
	return max(now, s.IdleAt(u.State))
}

// IdleAt is the decision time from which st says no more than an absent state
// would, so that it can be dropped: the bucket is full again, the counter's two
// windows or the fixed window are past. Never if that never comes. A rolling
// limit has no state; here it panics.
func (s Spec) IdleAt(st State) int64 {
	switch s.Algorithm {
	case TokenBucket:
		return s.refilledAt(s.refilled(st, st.At), st.Used)
	case SlidingWindowCounter:
		return s.idleCounter(st)
	case FixedWindow:
		return s.idleFixed(st)
	}
	panic("limit: idle time of an algorithm without state")
}

// Exhausted is the state of a key that used the whole amount up at the given
// instant: an empty bucket, a current window that is full. An Unlimited amount
// counts as MaxAmount here; a caller that wants less passes a Spec with less.
// A rolling limit says the same with KnownSince; here it panics.
func (s Spec) Exhausted(at int64) State {
	if s.Algorithm == RollingWindow {
		panic("limit: exhausted state of an algorithm without state")
	}
	return State{Used: min(s.Amount, MaxAmount), At: at}
}

// verdict is the decision when left units are free. A denial's At is for the
// algorithm to fill in where the cost can ever fit.
func verdict(left, cost uint64, now int64) Decision {
	if cost <= left {
		return Decision{Allowed: true, Remaining: left - cost, At: now}
	}
	return Decision{Remaining: left, At: Never}
}

// State is what a bucket, a counter or a fixed window remembers of one key. The
// zero State is that of a key never seen.
type State struct {
	// Used: a bucket's debt in whole units, rounded up; a counter's or fixed
	// window's units in the window of At.
	Used uint64
	// Carry: by how much a bucket's true debt is below Used, in units
	// of 1/Window; a counter's units in the window before that of At.
	Carry uint64
	// At is the decision time that Used and Carry hold for.
	At int64
}

// StateSize is the length of an encoded State in bytes.
const StateSize = 24

// PutState writes s to the first StateSize bytes of b: three little-endian words.
func PutState(b []byte, s State) {
	_ = b[StateSize-1]
	binary.LittleEndian.PutUint64(b, s.Used)
	binary.LittleEndian.PutUint64(b[8:], s.Carry)
	binary.LittleEndian.PutUint64(b[16:], uint64(s.At))
}

// GetState reads what PutState wrote.
func GetState(b []byte) State {
	_ = b[StateSize-1]
	return State{
		Used:  binary.LittleEndian.Uint64(b),
		Carry: binary.LittleEndian.Uint64(b[8:]),
		At:    int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

// WholeSeconds is a wait in nanoseconds as a Retry-After says it: whole
// seconds, rounded up, at least 1.
func WholeSeconds(wait int64) int64 {
	const second = 1_000_000_000
	if wait <= second {
		return 1
	}
	return (wait-1)/second + 1
}

// later is t + d for d >= 0; beyond the last instant it is Never.
func later(t, d int64) int64 {
	if t > Never-d {
		return Never
	}
	return t + d
}

// addUnits is a + b, at most MaxUint64.
func addUnits(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

// lessUnits is a - b, at least 0.
func lessUnits(a, b uint64) uint64 {
	if b < a {
		return a - b
	}
	return 0
}
