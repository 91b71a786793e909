package fsm_test

import (
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// demand compares the log that is kept of a key. No marker is -1.
func (r *replica) demand(c *fsm.Check, marker int64, want ...limit.Event) {
	r.tb.Helper()
	events, at, marked := r.m.LogOf(c)
	if !marked {
		at = -1
	}
	if !slices.Equal(events, want) || at != marker {
		r.tb.Errorf("at %d: events %v, marker %d; want %v and %d", r.m.Now(), events, at, want, marker)
	}
}

func event1(t int64, cost uint64) limit.Event { return limit.Event{Time: t, Cost: cost} }

// unlimitedTier is a policy of 3 a minute, of which the tier "none" is free.
func unlimitedTier() policy.Policy {
	p := perUser(rolling(3, minute))
	p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "rolling", Unlimited: true}}}}
	return p
}

// Of units beyond the policy's largest amount the oldest go early, and the log keeps a
// marker at the newest that went, until no window can hold that any more.
func TestForgottenUnitsLeaveAMarker(t *testing.T) {
	r := start(t, settings(), unlimitedTier())
	free := desc("user=a", "tier=none")
	c := r.check(1, free)
	for i := range int64(5) {
		r.at((i+1)*second).want(fsm.VerdictAllow, r.check(1, free))
	}
	r.demand(c, 2*second, event1(3*second, 1), event1(4*second, 1), event1(5*second, 1))
	r.at(6*second).want(fsm.VerdictAllow, r.check(2, free))
	r.demand(c, 4*second, event1(5*second, 1), event1(6*second, 2))
	// Before the marker is a window old the window is full, whoever asks.
	if a := r.at(7*second).want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.Remaining != 0 || a.At != 65*second {
		t.Errorf("%+v, want denied until 65 s", a)
	}
	r.at(64*second).want(fsm.VerdictDeny, r.late(1, desc("user=a")))
	r.at(65*second).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	r.demand(c, -1, event1(6*second, 2), event1(65*second, 1))
}

// Where the longest window is unlimited for a tier, a shorter one that isn't doesn't bound
// the log: it goes on to forget what is beyond the policy's largest amount.
func TestLogIsBoundedWhereOnlyAShorterWindowIsFinite(t *testing.T) {
	long, short := named("long", rolling(10, hour)), named("short", rolling(5, minute))
	for _, limits := range [][]policy.Limit{{long, short}, {short, long}} {
		p := perUser(limits...)
		p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "long", Unlimited: true}}}}
		r := start(t, settings(), p)
		for i := range int64(100) {
			c := r.at(i*minute/5).late(1, desc("user=a", "tier=none"))
			r.want(fsm.VerdictAllow, c)
			if events, _, marked := r.m.LogOf(c); len(events) > 10 || marked != (i >= 10) {
				t.Fatalf("%s first: after %d events the log holds %d, marked %t", limits[0].Name, i+1, len(events), marked)
			}
		}
		if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.At != 90*minute/5+hour {
			t.Errorf("%s first: without the tier denied until %d", limits[0].Name, a.At)
		}
	}
}

// An unlimited bucket goes into debt as deep as a finite check could ever notice and no
// deeper: the largest capacity that any check has. So it is reclaimed when that has
// flowed back, and a key that loses the tier isn't denied for longer.
func TestUnlimitedBucketOwesAtMostTheLargestCapacity(t *testing.T) {
	none := policy.Tier{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "bucket", Unlimited: true}}}
	pro := policy.Tier{When: []keyspace.Entry{{Name: "tier", Value: "pro"}}, Amounts: []policy.Amount{{Limit: "bucket", Amount: 8}}}
	other := policy.Override{When: []keyspace.Entry{{Name: "user", Value: "b"}}, Amounts: []policy.Amount{{Limit: "bucket", Amount: 9}}}
	for _, c := range []struct {
		tiers     []policy.Tier
		overrides []policy.Override
		own, most uint64
	}{
		{[]policy.Tier{none}, nil, 5, 5},
		{[]policy.Tier{none, pro}, nil, 5, 8},
		{[]policy.Tier{none, pro}, []policy.Override{other}, 5, 9},
		{[]policy.Tier{none}, nil, 0, 0},
	} {
		p := perUser(bucket(c.own, 1, minute))
		p.Tiers, p.Overrides = c.tiers, c.overrides
		r := start(t, settings(), p)
		free := desc("user=a", "tier=none")
		for range 20 {
			r.at(r.now+7*second).want(fsm.VerdictAllow, r.check(1e15, free))
		}
		clone(t, r.m)
		full := r.now + int64(c.most)*minute
		if c.own > 0 {
			if a := r.want(fsm.VerdictDeny, r.check(c.own, desc("user=a"))); a.At != full {
				t.Errorf("most %d: denied for %d s, want %d minutes", c.most, (a.At-r.now)/second, c.most)
			}
			r.at(full - 1).settle()
			if n := r.m.Memory().Keys; n != 1 {
				t.Errorf("most %d: %d keys before the debt is paid", c.most, n)
			}
		}
		r.at(full).settle()
		if n := r.m.Memory().Keys; n != 0 {
			t.Errorf("most %d: %d keys with no debt", c.most, n)
		}
	}
}

// What a lower tier has left over counts when a higher one asks: the log is kept for
// the largest amount that any check of the key can meet.
func TestLogIsKeptForTheLargestAmount(t *testing.T) {
	p := unlimitedTier()
	p.Tiers = append(p.Tiers, policy.Tier{When: []keyspace.Entry{{Name: "tier", Value: "pro"}}, Amounts: []policy.Amount{{Limit: "rolling", Amount: 6}}})
	r := start(t, settings(), p)
	for i := range int64(5) {
		r.at((i+1)*second).want(fsm.VerdictAllow, r.check(1, desc("user=a", "tier=none")))
	}
	if a := r.want(fsm.VerdictAllow, r.check(1, desc("user=a", "tier=pro"))); a.Remaining != 0 {
		t.Errorf("%d left, want 0", a.Remaining)
	}
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a", "tier=pro")))
}

// History is kept for as long as the policy says, to the nanosecond: a log that is used
// lets go of what is exactly so old.
func TestHistoryIsKeptForItsLength(t *testing.T) {
	p := perUser(rolling(100, minute))
	p.KeepHistory = 2 * minute
	r := start(t, settings(), p)
	c := r.check(1, desc("user=a"))
	for _, now := range []int64{0, second, 2*minute - 1} {
		r.at(now).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	}
	r.demand(c, -1, event1(0, 1), event1(second, 1), event1(2*minute-1, 1))
	r.at(2*minute).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	r.demand(c, -1, event1(second, 1), event1(2*minute-1, 1), event1(2*minute, 1))
}

// With a precision, events of one grain are one event at the later time.
func TestEventsOfOneGrainMerge(t *testing.T) {
	l := rolling(10, minute)
	l.Precision = second
	r := start(t, settings(), perUser(l))
	c := r.check(1, desc("user=a"))
	for _, now := range []int64{100, 200, second - 1, second, second + 5} {
		r.at(now).want(fsm.VerdictAllow, r.check(2, desc("user=a")))
	}
	r.demand(c, -1, event1(second-1, 6), event1(second+5, 4))
	clone(t, r.m)
}

// Far out in time nothing wraps around: what can't be counted in seconds is looked at
// again, never dropped before its time.
func TestTimeMayGoOnToItsEnd(t *testing.T) {
	for _, late := range []int64{1<<32*second - 2*second, 1 << 62, limit.Never - hour, limit.Never - 2} {
		r := start(t, settings(), perUser(rolling(1, hour), bucket(1, 1, hour)))
		r.at(late).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
		r.tick()
		r.want(fsm.VerdictDeny, r.late(1, desc("user=a")))
		clone(t, r.m)
		if late < limit.Never-hour {
			r.at(late + hour).tick()
			r.want(fsm.VerdictAllow, r.late(1, desc("user=a")))
		}
	}
}
