package limit_test

import (
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// TestRollingThreePerMinute: requests at 0, 10 and 20 s fill the minute; one
// at 50 s waits 10 s, and the one at 60 s takes the first one's place.
func TestRollingThreePerMinute(t *testing.T) {
	k := newKey(rolling(3, 60*second))
	k.wants(t, 0, 1, allow(0, 2))
	k.wants(t, 10*second, 1, allow(10*second, 1))
	k.wants(t, 20*second, 1, allow(20*second, 0))
	k.wants(t, 50*second, 1, deny(60*second, 0))
	k.wants(t, 60*second-1, 1, deny(60*second, 0))
	k.wants(t, 60*second, 1, allow(60*second, 0))
}

// TestFixedMinuteLetsSixThroughIn2400ms: the flaw of the fixed window, at 3 a minute.
// The rolling window lets three through.
func TestFixedMinuteLetsSixThroughIn2400ms(t *testing.T) {
	times := []int64{58_800, 59_200, 59_600, 60_000, 60_600, 61_200} // ms
	for _, c := range []struct {
		spec limit.Spec
		want int
	}{{fixed(3, 60*second), 6}, {rolling(3, 60*second), 3}} {
		k, got := newKey(c.spec), 0
		for _, ms := range times {
			if k.take(ms*second/1000, 1).Allowed {
				got++
			}
		}
		if got != c.want {
			t.Errorf("%s: %d allowed, want %d", c.spec.Algorithm, got, c.want)
		}
	}
}

// TestTenBeforeAndTenAfterNoon: ten requests in the last second before 12:00:00 and
// ten in the first after it. A fixed minute of ten lets all twenty through.
func TestTenBeforeAndTenAfterNoon(t *testing.T) {
	const noon = 12 * 3600 * second
	for _, c := range []struct {
		spec limit.Spec
		want int
	}{{fixed(10, 60*second), 20}, {rolling(10, 60*second), 10}} {
		k, got := newKey(c.spec), 0
		for _, at := range []int64{noon - second, noon} {
			for range 10 {
				if k.take(at, 1).Allowed {
					got++
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %d allowed, want %d", c.spec.Algorithm, got, c.want)
		}
	}
}

// TestBucketOfThreeRefilledOnePerSecond: three at once, then one a second.
func TestBucketOfThreeRefilledOnePerSecond(t *testing.T) {
	k := newKey(bucket(3, 1, second))
	for left := range uint64(3) {
		k.wants(t, 0, 1, allow(0, 2-left))
	}
	k.wants(t, 0, 1, deny(second, 0))
	k.wants(t, second-1, 1, deny(second, 0))
	k.wants(t, second, 1, allow(second, 0))
	k.wants(t, 3*second/2, 1, deny(2*second, 0))
	k.wants(t, 2*second, 1, allow(2*second, 0))
	k.wants(t, 3600*second, 3, allow(3600*second, 0)) // full holds three, not 3,598
}

// TestBucketKeepsTheFraction: capacity 3, refill 2 a second. Half a token flows
// back by 0.25 s and isn't lost when it is looked at: the next half makes it whole.
func TestBucketKeepsTheFraction(t *testing.T) {
	k := newKey(bucket(3, 2, second))
	k.wants(t, 0, 1, allow(0, 2))
	k.wants(t, 0, 1, allow(0, 1))
	k.wants(t, 0, 1, allow(0, 0))
	k.wants(t, second/4, 1, deny(second/2, 0))
	k.wants(t, second/2, 1, allow(second/2, 0))
	// A charge in the middle of a token keeps it too.
	k = newKey(bucket(3, 2, second))
	k.wants(t, 0, 2, allow(0, 1))
	k.wants(t, second/4, 1, allow(second/4, 0))
	k.wants(t, second/2, 1, allow(second/2, 0))
}

// TestBucketRefillRoundsDown: a third of a token a nanosecond is no token for two.
func TestBucketRefillRoundsDown(t *testing.T) {
	k := newKey(bucket(1, 1, 3))
	k.wants(t, 0, 1, allow(0, 0))
	k.wants(t, 2, 1, deny(3, 0))
	k.wants(t, 3, 1, allow(3, 0))
	// Three in ten nanoseconds: one after 3 1/3 of them, which is in the fourth.
	k = newKey(bucket(1, 3, 10))
	k.wants(t, 0, 1, allow(0, 0))
	k.wants(t, 3, 1, deny(4, 0))
	k.wants(t, 4, 1, allow(4, 0))
}

// TestBucketDebtOutlivesItsCapacity: usage counts against whatever capacity the next
// check has, larger or smaller.
func TestBucketDebtOutlivesItsCapacity(t *testing.T) {
	k := newKey(bucket(10, 1, second))
	k.wants(t, 0, 8, allow(0, 2))
	k.spec.Amount = 5
	k.wants(t, 0, 1, deny(4*second, 0)) // 8 - 4 + 1 = 5
	k.wants(t, 0, 6, deny(limit.Never, 0))
	k.spec.Amount = 20
	k.wants(t, 0, 12, allow(0, 0))
	k.spec.Amount = 5
	k.wants(t, 16*second, 1, allow(16*second, 0))
}

// TestBucketWithOtherRefill: a fraction of a unit belongs to the period that it was
// counted in; under another one the debt goes on in whole units, rounded up.
func TestBucketWithOtherRefill(t *testing.T) {
	k := newKey(bucket(3, 1, 10*second))
	k.wants(t, 0, 3, allow(0, 0))
	k.usage.State = k.spec.Settled(k.usage.State, 19*second) // 1.1 units of debt
	k.spec = bucket(3, 1, second)
	k.wants(t, 19*second, 2, deny(20*second, 1))
	k.wants(t, 20*second, 2, allow(20*second, 0))
}

// TestDenialWaitsForEnough: retry_after is when enough has left for this cost.
func TestDenialWaitsForEnough(t *testing.T) {
	k := newKey(rolling(10, 60*second))
	k.wants(t, 0, 1, allow(0, 9))
	k.wants(t, 10*second, 6, allow(10*second, 3))
	k.wants(t, 20*second, 3, allow(20*second, 0))
	k.wants(t, 30*second, 1, deny(60*second, 0))
	k.wants(t, 30*second, 2, deny(70*second, 0))
	k.wants(t, 30*second, 7, deny(70*second, 0))
	k.wants(t, 30*second, 8, deny(80*second, 0))
	k.wants(t, 30*second, 11, deny(limit.Never, 0))
}

// TestDeniedConsumesNothing: a hundred denials later the answer is the same.
func TestDeniedConsumesNothing(t *testing.T) {
	for _, s := range []limit.Spec{
		rolling(2, 60*second), bucket(2, 1, 60*second), counter(2, 60*second), fixed(2, 60*second),
	} {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			k := newKey(s)
			k.wants(t, 0, 1, allow(0, 1))
			want := k.take(0, 2)
			for range 100 {
				k.wants(t, 0, 2, want)
			}
			if want.Allowed || want.Remaining != 1 {
				t.Errorf("2 of 2 after 1: %+v", want)
			}
			k.wants(t, 0, 1, allow(0, 0))
		})
	}
}

// TestCostAboveTheAmountNeverFits, and leaves what there is to others.
func TestCostAboveTheAmountNeverFits(t *testing.T) {
	for _, s := range []limit.Spec{
		rolling(3, 60*second), bucket(3, 1, 60*second), counter(3, 60*second), fixed(3, 60*second),
	} {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			k := newKey(s)
			k.wants(t, 0, 4, deny(limit.Never, 3))
			k.wants(t, 0, 1, allow(0, 2))
			k.wants(t, 0, 4, deny(limit.Never, 2))
		})
	}
}

// TestEqualTimesAreSeparateEvents, and order among them doesn't matter.
func TestEqualTimesAreSeparateEvents(t *testing.T) {
	k := newKey(rolling(3, 60*second))
	for left := range uint64(3) {
		k.wants(t, 5, 1, allow(5, 2-left))
	}
	k.wants(t, 5, 1, deny(60*second+5, 0))
}

// TestWindowWithAMarkerIsFull until what was forgotten has left it.
func TestWindowWithAMarkerIsFull(t *testing.T) {
	k := newKey(rolling(3, 60*second))
	k.wants(t, 10*second, 1, allow(10*second, 2))
	k.usage.Log.Forget()
	k.wants(t, 20*second, 1, deny(70*second, 0))
	k.wants(t, 70*second-1, 1, deny(70*second, 0))
	k.wants(t, 70*second, 3, allow(70*second, 0))
}

// TestWindowBehindKnownSinceIsFull: with everything known since 100 s, the window
// (now-60, now] is wholly known when its first nanosecond is that of 100 s.
func TestWindowBehindKnownSinceIsFull(t *testing.T) {
	k := newKey(rolling(3, 60*second))
	k.usage.KnownSince = 100 * second
	k.wants(t, 100*second, 1, deny(160*second-1, 0))
	k.wants(t, 160*second-2, 1, deny(160*second-1, 0))
	k.wants(t, 160*second-1, 3, allow(160*second-1, 0))
	// Both reasons at once: the later one counts.
	k.usage.KnownSince = 200 * second
	k.wants(t, 210*second, 2, deny(260*second-1, 0))
}

// TestCounterCountsTheWindowBefore: 10 a minute, 10 used in the first minute. At 15 s
// into the next one, three quarters of them still count.
func TestCounterCountsTheWindowBefore(t *testing.T) {
	k := newKey(counter(10, 60*second))
	k.wants(t, 0, 10, allow(0, 0))
	k.wants(t, 60*second, 1, deny(66*second, 0))
	k.wants(t, 66*second-1, 1, deny(66*second, 0)) // a weight a shade above 9 is 10
	k.wants(t, 75*second, 2, allow(75*second, 0))  // 7.5 and 2
	k.wants(t, 75*second, 1, deny(78*second, 0))   // 7 and 2 and 1
	k.wants(t, 75*second, 9, deny(150*second, 0))  // 2 of this window at half weight, in the next
}

// TestTimeThatStepsBackMintsNothing: behind the newest recorded time it is that time.
func TestTimeThatStepsBackMintsNothing(t *testing.T) {
	const now = 1000 * second
	for _, c := range []struct {
		spec limit.Spec
		at   int64
	}{
		{rolling(1, 60*second), now + 60*second},
		{bucket(1, 1, 60*second), now + 60*second},
		{counter(1, 60*second), 1080 * second},
		{fixed(1, 60*second), 1020 * second},
	} {
		t.Run(c.spec.Algorithm.String(), func(t *testing.T) {
			k := newKey(c.spec)
			k.wants(t, now, 1, allow(now, 0))
			for _, back := range []int64{now - 1, now - 61*second, now - 500*second, 0} {
				k.wants(t, back, 1, deny(c.at, 0))
			}
			k.wants(t, c.at, 1, allow(c.at, 0))
		})
	}
}

// TestUnlimitedStillCharges: what an unlimited tier used counts when the key loses it.
func TestUnlimitedStillCharges(t *testing.T) {
	for _, s := range []limit.Spec{
		rolling(5, 60*second), bucket(5, 1, 60*second), counter(5, 60*second), fixed(5, 60*second),
	} {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			k := newKey(s)
			k.spec.Amount = limit.Unlimited
			k.wants(t, 0, 5, allow(0, limit.Unlimited))
			k.spec.Amount = 5
			if d := k.take(1, 1); d.Allowed {
				t.Errorf("allowed beside 5 of 5: %+v", d)
			}
		})
	}
}

// TestExhaustedStartsUsedUp: a limit that replaces another one begins with nothing left.
func TestExhaustedStartsUsedUp(t *testing.T) {
	for _, c := range []struct {
		spec limit.Spec
		at   int64
	}{
		{bucket(3, 1, 10*second), 80 * second},
		{counter(3, 60*second), 140 * second},
		{fixed(3, 60*second), 120 * second},
	} {
		t.Run(c.spec.Algorithm.String(), func(t *testing.T) {
			k := newKey(c.spec)
			k.usage.State = c.spec.Exhausted(70 * second)
			k.wants(t, 70*second, 1, deny(c.at, 0))
			if !k.take(c.at, 1).Allowed {
				t.Errorf("denied at %d too", c.at)
			}
		})
	}
}

// TestIdleStateSaysNothing: from IdleAt on, and not before, no state would answer the same.
func TestIdleStateSaysNothing(t *testing.T) {
	for _, c := range []struct {
		spec limit.Spec
		at   int64
	}{
		{bucket(3, 2, 3*second), 60*second + second/2},
		{counter(3, 60*second), 120 * second},
		{fixed(3, 60*second), 60 * second},
		{bucket(3, 0, second), limit.Never},
	} {
		t.Run(c.spec.Algorithm.String(), func(t *testing.T) {
			st := c.spec.Charge(limit.State{}, 59*second, 1)
			if got := c.spec.IdleAt(st); got != c.at {
				t.Fatalf("idle at %d, want %d", got, c.at)
			}
		})
	}
	for _, s := range []limit.Spec{bucket(3, 1, second), counter(3, 60*second), fixed(3, 60*second)} {
		if got := s.IdleAt(limit.State{}); got != 0 {
			t.Errorf("%s: an absent state is idle at %d", s.Algorithm, got)
		}
	}
	if got := counter(3, 60*second).IdleAt(limit.State{Carry: 1, At: 59 * second}); got != 60*second {
		t.Errorf("a counter with nothing but its window before is idle at %d", got)
	}
}

// TestStateEncoding: three words, lowest byte first, for ever.
func TestStateEncoding(t *testing.T) {
	want := limit.State{Used: 0x0102030405060708, Carry: 9, At: 1 << 62}
	b := make([]byte, limit.StateSize)
	limit.PutState(b, want)
	if b[0] != 8 || b[7] != 1 || b[8] != 9 || b[23] != 0x40 {
		t.Errorf("encoded as % x", b)
	}
	if got := limit.GetState(b); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAlgorithmNames: the numbers are stored and the names are in policy files.
func TestAlgorithmNames(t *testing.T) {
	for number, name := range map[limit.Algorithm]string{
		1: "rollingWindow", 2: "tokenBucket", 3: "slidingWindowCounter", 4: "fixedWindow", 9: "algorithm 9",
	} {
		if got := number.String(); got != name {
			t.Errorf("algorithm %d is %q, want %q", uint8(number), got, name)
		}
	}
}
