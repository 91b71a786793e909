package limit_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// second is the unit of the worked examples.
const second int64 = 1_000_000_000

// key is one quota key under one limit, the way the state machine keeps it:
// peek, and only if the answer is allow, charge.
type key struct {
	spec  limit.Spec
	usage limit.Usage
	most  uint64 // the largest amount that any check meets; 0: forget nothing
}

func newKey(s limit.Spec) *key {
	return &key{spec: s, usage: limit.Usage{KnownSince: limit.Forever}}
}

func rolling(amount uint64, window int64) limit.Spec {
	return limit.Spec{Algorithm: limit.RollingWindow, Amount: amount, Window: window}
}

func bucket(capacity, refill uint64, period int64) limit.Spec {
	return limit.Spec{Algorithm: limit.TokenBucket, Amount: capacity, Window: period, Refill: refill}
}

func counter(amount uint64, window int64) limit.Spec {
	return limit.Spec{Algorithm: limit.SlidingWindowCounter, Amount: amount, Window: window}
}

func fixed(amount uint64, window int64) limit.Spec {
	return limit.Spec{Algorithm: limit.FixedWindow, Amount: amount, Window: window}
}

func (k *key) peek(now int64, cost uint64) limit.Decision {
	return k.spec.Peek(k.usage, now, cost)
}

func (k *key) take(now int64, cost uint64) limit.Decision {
	d := k.peek(now, cost)
	if d.Allowed {
		k.charge(max(now, d.At), cost)
	}
	return d
}

func (k *key) charge(now int64, cost uint64) {
	if k.spec.Algorithm != limit.RollingWindow {
		k.usage.State = k.spec.Charge(k.usage.State, now, cost)
		return
	}
	for k.most > 0 {
		if _, ok := k.usage.Log.Excess(k.most, cost); !ok {
			break
		}
		k.usage.Log.Forget()
	}
	k.usage.Log = appended(k.usage.Log, now, cost)
}

// appended appends, after moving the log to a larger region if it must.
func appended(l limit.Log, t int64, cost uint64) limit.Log {
	if need := l.Need(t, cost); need > l.Capacity() {
		l = l.CopyTo(make([]byte, need+need/2))
	}
	l.Append(t, cost)
	return l
}

// wants checks one step of a worked example.
func (k *key) wants(t *testing.T, now int64, cost uint64, want limit.Decision) {
	t.Helper()
	if got := k.take(now, cost); got != want {
		t.Fatalf("cost %d at %d ns: %+v, want %+v", cost, now, got, want)
	}
}

func allow(now int64, remaining uint64) limit.Decision {
	return limit.Decision{Allowed: true, Remaining: remaining, At: now}
}

func deny(at int64, remaining uint64) limit.Decision {
	return limit.Decision{Remaining: remaining, At: at}
}

var seedFlag = flag.Uint64("seed", 0, "seed of the first random history; 0 picks one")

// eachSeed runs f on n seeds. A failure names the seed with which the same history
// comes first.
func eachSeed(t *testing.T, n int, f func(t *testing.T, seed uint64)) {
	t.Helper()
	first, passed := *seedFlag, uint64(0)
	if first == 0 {
		first = rand.Uint64()
	}
	defer func() {
		if passed < uint64(n) {
			t.Logf("replay with -run '^%s$' -seed=%d", t.Name(), first+passed)
		}
	}()
	for ; passed < uint64(n); passed++ {
		if f(t, first+passed); t.Failed() {
			return
		}
	}
}

// choices is where a random history comes from: a seeded generator, or the
// bytes of a fuzz input.
type choices struct {
	rng  *rand.Rand
	data []byte
}

func seeded(seed uint64) *choices {
	return &choices{rng: rand.New(rand.NewPCG(seed, 0x51))}
}

func (c *choices) over() bool { return c.rng == nil && len(c.data) == 0 }

// below is a number in [0, n).
func (c *choices) below(n uint64) uint64 {
	if c.rng != nil {
		return c.rng.Uint64N(n)
	}
	var v uint64
	for m := n - 1; m > 0 && len(c.data) > 0; m >>= 8 {
		v = v<<8 | uint64(c.data[0])
		c.data = c.data[1:]
	}
	return v % n
}

// pick is one of the values.
func pick[T any](c *choices, values ...T) T {
	return values[c.below(uint64(len(values)))]
}
