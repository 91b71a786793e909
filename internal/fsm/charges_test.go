package fsm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// RACE-02: creating a key is part of the decision that creates it.
func TestRACE02FreshKeyAdmitsExactlyItsLimit(t *testing.T) {
	r := start(t, settings(), perUser(rolling(1, minute)))
	for i := range 100 {
		var checks []*fsm.Check
		for range 100 {
			checks = append(checks, r.check(1, desc("user="+string(rune('A'+i)))))
		}
		allowed := 0
		for _, a := range r.decide(checks...) {
			if a.Verdict == fsm.VerdictAllow {
				allowed++
			}
		}
		if allowed != 1 {
			t.Errorf("key %d: %d allowed", i, allowed)
		}
	}
}

// KEY-01, KEY-02: different values are different keys, wherever one ends and the
// next begins.
func TestKEY01KEY02ValuesNeverRunTogether(t *testing.T) {
	p := perUser(rolling(1, minute))
	p.Key = []string{"a", "b"}
	r := start(t, settings(), p)
	pairs := [][2]string{
		{"a|b", "c"}, {"a", "b|c"}, {"a_b", "c"}, {"a", "b_c"}, {"10.0.0.1", "1/a"}, {"10.0.0.11", "/a"},
		{"\x00", "x"}, {"x", "\x00"}, {"x\x00", "\x00"}, {"\x01x", "y"}, {"x", "\x01y"}, {"A", "c"}, {"a", "c"},
	}
	for _, want := range []fsm.Verdict{fsm.VerdictAllow, fsm.VerdictDeny} {
		for _, v := range pairs {
			r.want(want, r.check(1, desc("a="+v[0], "b="+v[1])))
		}
	}
}

func TestEqualValuesOfDifferentQuotasAreDifferentKeys(t *testing.T) {
	p, q := perUser(rolling(1, minute)), perUser(rolling(1, minute))
	q.Name, q.Match = "q", []keyspace.Entry{{Name: "class", Value: "x"}}
	r := start(t, settings(), p, q)
	for _, want := range []fsm.Verdict{fsm.VerdictAllow, fsm.VerdictDeny} {
		r.want(want, r.check(1, desc("user=a")))
		r.want(want, r.check(1, desc("user=a", "class=x")))
	}
}

// NUM-04: amounts up to the largest work exactly, also where sums pass 64 bits.
func TestNUM04HugeAmountsAreExact(t *testing.T) {
	const huge = 1 << 62
	l := rolling(huge, minute)
	l.Precision = second
	p, q := perUser(l, bucket(huge, huge, minute)), perUser()
	q.Name, q.Match = "most", []keyspace.Entry{{Name: "class", Value: "most"}}
	most := rolling(limit.MaxAmount, minute)
	most.Precision = second
	q.Limits = []policy.Limit{most}
	r := start(t, settings(), p, q)
	if a := r.want(fsm.VerdictAllow, r.check(1, desc("user=a"))); a.Remaining != huge-1 {
		t.Errorf("%d left, want %d", a.Remaining, uint64(huge-1))
	}
	if a := r.want(fsm.VerdictDeny, r.check(huge, desc("user=a"))); a.Remaining != huge-1 || a.Exceeds {
		t.Errorf("%+v", a)
	}
	r.want(fsm.VerdictAllow, r.check(huge, desc("user=b")))
	// Twice the largest cost exceeds the largest amount, though the sum has no name.
	twice := r.check(limit.MaxAmount, desc("user=c", "class=most"), desc("user=c", "class=most", "n=2"))
	if a := r.want(fsm.VerdictDeny, twice); !a.Exceeds {
		t.Errorf("%+v, want a cost that never fits", a)
	}
	r.want(fsm.VerdictAllow, r.check(limit.MaxAmount, desc("user=c", "class=most")))
}

func TestUnlimitedAdmitsAndRecordsSumsBeyondTheLargestAmount(t *testing.T) {
	l := rolling(5, minute)
	l.Precision = second
	p := perUser(l, bucket(5, 5, minute))
	none := []policy.Amount{{Limit: "rolling", Unlimited: true}, {Limit: "bucket", Unlimited: true}}
	p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: none}}
	r := start(t, settings(), p)
	for range 5 {
		d := desc("user=a", "tier=none")
		if a := r.want(fsm.VerdictAllow, r.check(limit.MaxAmount, d, d, d)); !a.Unlimited {
			t.Errorf("%+v", a)
		}
	}
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
	clone(t, r.m)
}

// Costs that a rule multiplies beyond all amounts don't come back to small ones where a check takes several of them
// from one key: an even number of them summed up to nothing, which a bucket had room for and a rolling log no form.
func TestCostsThatNeverFitNeverFitTogether(t *testing.T) {
	for name, l := range map[string]policy.Limit{
		"rolling": rolling(5, minute), "bucket": bucket(5, 5, minute), "counter": counter(5, minute), "fixed": fixed(5, minute),
	} {
		p := perUser(l)
		p.Costs = []policy.CostRule{{When: []keyspace.Entry{{Name: "op", Value: "search"}}, Cost: 2}}
		d := desc("user=a", "op=search")
		for n := 1; n <= keyspace.MaxDescriptors; n++ {
			r := start(t, settings(), p)
			c := r.check(limit.MaxAmount, slices.Repeat([]keyspace.Descriptor{d}, n)...)
			if a, refused := r.m.Refuse(c, r.m.Now()); !refused || !a.Exceeds {
				t.Errorf("%s: %d charges are not refused from memory: %+v", name, n, a)
				continue
			}
			if a := r.want(fsm.VerdictDeny, c); !a.Exceeds {
				t.Errorf("%s: %d charges: %+v, want a cost that never fits", name, n, a)
			}
		}
	}
}

// COST-07: there is no cost below 1. No leader writes one, so it is damage.
func TestCOST07CostsThatNoLeaderWritesAreDamage(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	r.want(fsm.VerdictAllow, r.check(3, desc("user=a")))
	minus := -1
	for _, cost := range []uint64{0, uint64(minus), policy.TooMuch + 1} {
		c := r.check(1, desc("user=a"))
		c.Charges[0].Cost = cost
		if err := r.damage(c); err == nil {
			t.Errorf("a cost of %d is applied", cost)
		}
	}
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
}

// damage applies a batch to a copy of the machine and returns its error.
func (r *replica) damage(c *fsm.Check) error {
	_, err := clone(r.tb, r.m).Apply(r.index+1, r.term, fsm.BatchEntry(r.header(), version, []*fsm.Check{c}))
	return err
}

func TestNumbersThatNoLeaderWritesAreDamage(t *testing.T) {
	p := perUser(rolling(3, minute))
	q := perUser(rolling(3, minute))
	q.Name, q.Domain = "q", "other"
	r := start(t, settings(), p, q)
	for name, spoil := range map[string]func(c *fsm.Check){
		"no such domain":             func(c *fsm.Check) { c.Domain = 2 },
		"domain below zero":          func(c *fsm.Check) { c.Domain = -1 },
		"no such policy":             func(c *fsm.Check) { c.Charges[0].Policy = 2 },
		"policy below zero":          func(c *fsm.Check) { c.Charges[0].Policy = -1 },
		"policy of another domain":   func(c *fsm.Check) { c.Charges[0].Policy = 1 },
		"no such tier":               func(c *fsm.Check) { c.Charges[0].Tier = 0 },
		"tier below none":            func(c *fsm.Check) { c.Charges[0].Tier = -2 },
		"no such override":           func(c *fsm.Check) { c.Charges[0].Override = 0 },
		"override below none":        func(c *fsm.Check) { c.Charges[0].Override = -2 },
		"no charge":                  func(c *fsm.Check) { c.Charges = nil },
		"one charge more than there": func(c *fsm.Check) { c.Charges = make([]fsm.Charge, fsm.MaxCharges+1) },
	} {
		c := r.check(1, desc("user=a"))
		if spoil(c); r.damage(c) == nil {
			t.Errorf("%s: it is applied", name)
		}
	}
}

// All limits of all descriptors admit and are charged, or none is.
func TestAllOrNothingAcrossLimitsAndDescriptors(t *testing.T) {
	p := perUser(named("wide", rolling(10, minute)), bucket(10, 10, minute), named("tight", rolling(2, second)))
	global := policy.Policy{Name: "all", Global: true, Match: []keyspace.Entry{{Name: "class", Value: "x"}}, Limits: []policy.Limit{rolling(3, minute)}}
	r := start(t, settings(), p, global)
	both := []keyspace.Descriptor{desc("user=a"), desc("class=x")}
	r.want(fsm.VerdictAllow, r.check(2, both...))
	r.unchanged(func() {
		// The limit "tight" of the first descriptor denies; nobody is charged.
		if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.Limit != 2 {
			t.Errorf("limit %d denies, want 2", a.Limit)
		}
		// "tight" until 1 s, the global one until 60 s: the longer wait is told.
		if a := r.want(fsm.VerdictDeny, r.check(2, both...)); a.Policy != 1 || a.At != minute {
			t.Errorf("policy %d denies until %d, want 1 until %d", a.Policy, a.At, minute)
		}
	})
	// Another user is free, and the global limit still has room for one.
	r.unchanged(func() { r.want(fsm.VerdictDeny, r.check(2, desc("user=b"), desc("class=x"))) })
	if a := r.want(fsm.VerdictAllow, r.check(1, desc("user=b"), desc("class=x"))); a.Policy != 1 || a.Remaining != 0 {
		t.Errorf("%+v, want 0 left of the global limit, the tightest", a)
	}
	r.want(fsm.VerdictAllow, r.check(1, desc("user=b"))) // charged 1 before, not 3
}

func TestChargesToOneKeyAreSummed(t *testing.T) {
	for _, l := range []policy.Limit{rolling(3, minute), bucket(3, 1, minute)} {
		r := start(t, settings(), perUser(l))
		a := desc("user=a")
		r.unchanged(func() {
			if x := r.want(fsm.VerdictDeny, r.check(2, a, a)); !x.Exceeds {
				t.Errorf("%+v, want a cost of 4 that never fits 3", x)
			}
			r.want(fsm.VerdictDeny, r.check(1, a, desc("user=b"), a, a, a))
		})
		c := r.check(1, a, desc("user=b"), a)
		if x := r.want(fsm.VerdictAllow, c); x.Remaining != 1 {
			t.Errorf("%d left, want 1", x.Remaining)
		}
		if n := r.used(c); n != 2 {
			t.Errorf("%s: %d units used, want 2", l.Name, n)
		}
	}
}

// An event exactly as old as the window has left it; one a nanosecond younger hasn't.
func TestEventLeavesWhenItIsExactlyAWindowOld(t *testing.T) {
	r := start(t, settings(), perUser(rolling(2, minute)))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	r.at(10*second).want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	if a := r.at(minute-1).want(fsm.VerdictDeny, r.late(1, desc("user=a"))); a.At != minute {
		t.Errorf("denied until %d, want %d", a.At, minute)
	}
	r.at(minute).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
}

// MEM-06, MEM-09: nothing that still counts expires, however often expiry runs.
func TestMEM06MEM09UsageOutlastsEveryCollection(t *testing.T) {
	r := start(t, settings(), perUser(rolling(4, hour)))
	r.want(fsm.VerdictAllow, r.check(4, desc("user=a")))
	for now := int64(0); now < hour; now += 100 * second {
		r.at(now).settle()
		if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.At != hour {
			t.Fatalf("at %d: denied until %d", now, a.At)
		}
	}
	r.at(hour).settle()
	r.want(fsm.VerdictAllow, r.check(4, desc("user=a")))

	r = start(t, settings(), perUser(bucket(1, 1, minute)))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	for now := int64(0); now < minute; now += 10 * second {
		r.at(now).settle()
		r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
	}
	r.at(minute).settle()
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
}

// What a key has used can be asked without changing it, also where nothing is limited.
func TestInspectTellsWhatIsUsed(t *testing.T) {
	p := perUser(rolling(9, minute), bucket(5, 1, minute))
	p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "rolling", Unlimited: true}, {Limit: "bucket", Unlimited: true}}}}
	r := start(t, settings(), p)
	fresh := r.check(1, user(1))
	for range 2 {
		r.at(r.now+second).want(fsm.VerdictAllow, r.check(2, desc("user=a", "tier=none")))
	}
	for _, step := range []struct {
		c      *fsm.Check
		used   uint64
		left   [2]uint64
		fullAt [2]int64
	}{
		{r.check(1, desc("user=a")), 4, [2]uint64{5, 1}, [2]int64{62 * second, 4*minute + second}},
		{r.check(1, desc("user=a", "tier=none")), 4, [2]uint64{limit.Unlimited, limit.Unlimited}, [2]int64{2 * second, 2 * second}},
		{fresh, 0, [2]uint64{9, 5}, [2]int64{2 * second, 2 * second}},
	} {
		r.unchanged(func() {
			for l, u := range r.m.Inspect(nil, &step.c.Charges[0], r.m.Now()) {
				if int(u.Limit) != l || u.Used != step.used || u.Left != step.left[l] || u.FullAt != step.fullAt[l] {
					t.Errorf("key %q: %+v, want %d used, %d left, full at %d", step.c.Charges[0].Key, u, step.used, step.left[l], step.fullAt[l])
				}
			}
		})
	}
}

// Deciding allocates nothing, however long the key.
func TestDecidingAllocatesNothing(t *testing.T) {
	r := start(t, settings(), perUser(rolling(1, hour), bucket(1, 1, hour)))
	long := desc("user=" + strings.Repeat("u", 500))
	r.want(fsm.VerdictAllow, r.check(1, long))
	e := fsm.BatchEntry(r.header(), version, []*fsm.Check{r.check(1, long), r.check(1, long, user(1))})
	if n := testing.AllocsPerRun(100, func() { r.index++; _, _ = r.m.Apply(r.index, r.term, e) }); n > 0 {
		t.Errorf("%v allocations for a batch", n)
	}
}
