package fsm_test

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// TestBucketsKeepTheirSizeAsTheOracleSays plays histories of buckets that are free for some, and whose capacities go up
// and down.
func TestBucketsKeepTheirSizeAsTheOracleSays(t *testing.T) {
	kept := 0
	eachSeed(t, 6, func(t *testing.T, seed uint64) {
		c := seeded(seed)
		var set policy.Set
		for i, l := range []policy.Limit{bucket(3, 1, second), bucket(9, 2, 10*second), bucket(5, 1, minute)} {
			p := perUser(l)
			p.Name, p.Domain = fmt.Sprint("p", i), pick(c, "a", "b", "c")
			p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "pro"}}, Amounts: []policy.Amount{{Limit: "bucket", Unlimited: true}}}}
			if i == 2 {
				p.Domain = "a"
				p.Overrides = []policy.Override{{When: []keyspace.Entry{{Name: "user", Value: "u1"}}, Amounts: []policy.Amount{{Limit: "bucket", Amount: 4, Refill: 3}}}}
			}
			set.Policies = append(set.Policies, p)
		}
		h := newHistoryWith(t, c, settings(), set)
		h.sizes = true
		for range 100 {
			h.step()
		}
		kept += len(h.oracle.holds)
	})
	if kept == 0 {
		t.Error("no bucket of any history kept its size")
	}
}

// Units that went early leave a marker, and a larger amount doesn't make them unused.
func TestARaisedLimitDoesntReopenForgottenUnits(t *testing.T) {
	p := unlimitedTier()
	r := start(t, settings(), p)
	for i := range int64(5) {
		r.at((i+1)*second).want(fsm.VerdictAllow, r.check(1, desc("user=a", "tier=none")))
	}
	p.Limits = []policy.Limit{rolling(9, minute)}
	r.change(p)
	if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.At != 62*second || a.Remaining != 0 {
		t.Errorf("%+v, want denied until what was forgotten has left", a)
	}
}

// freeBucket is a bucket that refills a unit a minute, of which the tier "none" is free.
func freeBucket(capacity uint64) policy.Policy {
	p := perUser(bucket(capacity, 1, minute))
	p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "bucket", Unlimited: true}}}}
	return p
}

// What an unlimited charge took beyond the largest capacity isn't known any more, so a larger one isn't there before a
// bucket of it, emptied by that charge, would be full. Without such a charge it is there at once.
func TestARaisedCapacityWaitsForWhatWasLetGo(t *testing.T) {
	r := start(t, settings(), freeBucket(5))
	r.want(fsm.VerdictAllow, r.check(9, desc("user=a", "tier=none")))
	r.at(minute).change(freeBucket(8))
	clone(t, r.m)
	c := r.late(2, desc("user=a")) // 4 owed of 5
	if a := r.want(fsm.VerdictDeny, c); a.At != 2*minute || a.Remaining != 1 || a.Exceeds {
		t.Errorf("%+v", a)
	}
	if left := r.left(c); left != 1 {
		t.Errorf("%d left, want 1", left)
	}
	r.want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	if a := r.want(fsm.VerdictDeny, r.late(7, desc("user=a"))); a.At != 8*minute || a.Exceeds {
		t.Errorf("more than there was: %+v", a)
	}
	r.at(8*minute-1).want(fsm.VerdictDeny, r.late(7, desc("user=a")))
	r.at(8*minute).want(fsm.VerdictAllow, r.late(7, desc("user=a")))

	r = start(t, settings(), freeBucket(5))
	r.want(fsm.VerdictAllow, r.check(5, desc("user=a", "tier=none")))
	r.at(minute).change(freeBucket(8))
	r.want(fsm.VerdictAllow, r.late(4, desc("user=a")))
}

// The one who waits longest is a key whose override refills more slowly.
func TestARaisedCapacityWaitsForTheSlowestRefill(t *testing.T) {
	policies := func(capacity uint64) policy.Policy {
		p := freeBucket(capacity)
		p.Overrides = []policy.Override{{When: []keyspace.Entry{{Name: "user", Value: "slow"}}, Amounts: []policy.Amount{{Limit: "bucket", Amount: capacity, Period: hour}}}}
		return p
	}
	r := start(t, settings(), policies(5))
	r.want(fsm.VerdictAllow, r.check(9, desc("user=a", "tier=none")))
	r.change(policies(8))
	r.at(8*hour-1).want(fsm.VerdictDeny, r.late(6, desc("user=b")))
	r.at(8*hour).want(fsm.VerdictAllow, r.late(6, desc("user=b")))
}

// A bound that is still there is kept through further raises, and the earlier of two sizes counts.
func TestTwoRaisesOfACapacityKeepTheFirstSize(t *testing.T) {
	r := start(t, settings(), freeBucket(2))
	r.want(fsm.VerdictAllow, r.check(9, desc("user=a", "tier=none")))
	r.change(freeBucket(4))
	r.at(second).want(fsm.VerdictAllow, r.check(9, desc("user=a", "tier=none")))
	r.change(freeBucket(6))
	r.want(fsm.VerdictDeny, r.late(3, desc("user=b")))
	r.at(second+6*minute-1).want(fsm.VerdictDeny, r.late(3, desc("user=b")))
	r.at(second+6*minute).want(fsm.VerdictAllow, r.late(6, desc("user=b")))
}

// A bucket keeps its debt when its capacity is lowered: an unlimited charge may let go of what it adds, never of what
// was owed before.
func TestAnUnlimitedChargeNeverLowersADebt(t *testing.T) {
	r := start(t, settings(), freeBucket(8))
	r.want(fsm.VerdictAllow, r.check(8, desc("user=a")))
	r.change(freeBucket(3))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a", "tier=none")))
	if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.At != 6*minute {
		t.Errorf("denied until %d s, want six minutes", a.At/second)
	}
}

// An event of a grain merges on under another amount, and no key is kept for shorter than it was.
func TestLogsGoOnUnderAnotherAmount(t *testing.T) {
	l := rolling(10, minute)
	l.Precision = second
	r := start(t, settings(), perUser(l))
	c := r.at(100).late(2, desc("user=a"))
	r.want(fsm.VerdictAllow, c)
	l.Amount = 3
	r.at(200).change(perUser(l))
	r.at(300).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	r.demand(c, -1, event1(300, 3))
	l.Amount = 1
	r.change(perUser(l))
	r.at(minute+299).want(fsm.VerdictDeny, r.late(1, desc("user=a")))
	r.at(minute+300).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
}
