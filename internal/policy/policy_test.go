package policy_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

const (
	second = int64(time.Second)
	minute = int64(time.Minute)
	hour   = int64(time.Hour)
	day    = 24 * hour
)

func when(name, value string) []keyspace.Entry {
	return []keyspace.Entry{{Name: name, Value: value}}
}

// conversions is the example of the documentation: every field of a policy, most of them with a value that
// isn't the default.
func conversions() policy.Set {
	return policy.Set{
		Policies: []policy.Policy{{
			Name: "conversions", Namespace: "media", Domain: "video-api",
			Match: when("api_class", "convert"),
			Key:   []string{"principal"},
			Limits: []policy.Limit{
				{Name: "per-minute", Algorithm: limit.RollingWindow, Amount: 3, Window: minute},
				{Name: "daily", Algorithm: limit.RollingWindow, Amount: 500, Window: day},
				{Name: "burst", Algorithm: limit.TokenBucket, Amount: 40, Refill: 2, Window: second},
			},
			Tiers: []policy.Tier{{When: when("tier", "pro"), Amounts: []policy.Amount{
				{Limit: "per-minute", Amount: 1000}, {Limit: "daily", Unlimited: true}, {Limit: "burst", Amount: 80},
			}}},
			Overrides: []policy.Override{{When: when("principal", "u42"), Amounts: []policy.Amount{
				{Limit: "per-minute", Amount: 5}, {Limit: "burst", Amount: 10, Refill: 3, Period: minute},
			}}},
			Costs:       []policy.CostRule{{When: when("operation", "search"), Cost: 10}},
			KeepHistory: 2 * day,
			Transition:  policy.Conservative,
		}},
		Domains: []policy.Domain{{Name: "video-api", Required: []string{"principal"}}},
	}
}

// least is the smallest policy: every default applies.
func least(name string) policy.Policy {
	return policy.Policy{
		Name: name, Key: []string{"principal"},
		Limits: []policy.Limit{{Name: "l", Algorithm: limit.RollingWindow, Amount: 3, Window: minute}},
	}
}

func TestDefaults(t *testing.T) {
	s := policy.Set{Policies: []policy.Policy{least("p")}}
	s.Normalize()
	want := policy.Policy{
		Name: "p", Namespace: "default", Quota: "p", Domain: "default",
		Key: []string{"principal"}, PartitionBy: []string{"principal"},
		Limits:      []policy.Limit{{Name: "l", Algorithm: limit.RollingWindow, Amount: 3, Window: minute}},
		KeepHistory: minute, Mode: policy.Enforce, OnUnavailable: policy.Deny,
	}
	if !reflect.DeepEqual(s.Policies[0], want) {
		t.Errorf("got  %+v\nwant %+v", s.Policies[0], want)
	}
}

func TestDefaultsDependOnEachOther(t *testing.T) {
	p := least("p")
	p.Namespace = "media"
	p.PartitionBy = []string{} // not nil: one partition for the domain
	p.Limits = append(p.Limits,
		policy.Limit{Name: "longer", Algorithm: limit.RollingWindow, Amount: 9, Window: hour},
		policy.Limit{Name: "keeps-none", Algorithm: limit.FixedWindow, Amount: 9, Window: day})
	s := policy.Set{Policies: []policy.Policy{p}}
	s.Normalize()
	got := s.Policies[0]
	if got.Domain != "media" || got.Quota != "p" || got.PartitionBy == nil || len(got.PartitionBy) != 0 || got.KeepHistory != hour {
		t.Errorf("domain %q, quota %q, partitionBy %#v, keepHistory %d", got.Domain, got.Quota, got.PartitionBy, got.KeepHistory)
	}
}

// TestNormalizeSortsWhatHasNoOrder, and keeps the order of what has one.
func TestNormalizeSortsWhatHasNoOrder(t *testing.T) {
	a := policy.Set{Policies: []policy.Policy{least("z"), least("a")}}
	p := &a.Policies[0]
	p.Match = []keyspace.Entry{{Name: "y", Value: "1"}, {Name: "x", Value: "2"}}
	p.Key = []string{"q", "p"}
	p.Limits = append(p.Limits, policy.Limit{Name: "a", Algorithm: limit.FixedWindow, Amount: 3, Window: minute})
	p.Tiers = []policy.Tier{
		{When: when("tier", "pro"), Amounts: []policy.Amount{{Limit: "l", Amount: 1}, {Limit: "a", Amount: 2}}},
		{When: when("tier", "big"), Amounts: []policy.Amount{{Limit: "l", Amount: 1}}},
	}
	a.Domains = []policy.Domain{{Name: "z", Required: []string{"q", "p"}}, {Name: "a"}}
	b := a.Clone()
	b.Policies[0].Match[0], b.Policies[0].Match[1] = b.Policies[0].Match[1], b.Policies[0].Match[0]
	b.Policies[0].Key = []string{"p", "q"}
	b.Policies[0].Tiers[0].Amounts = []policy.Amount{{Limit: "a", Amount: 2}, {Limit: "l", Amount: 1}}
	b.Domains = []policy.Domain{{Name: "a"}, {Name: "z", Required: []string{"p", "q"}}}
	if a.Hash() != b.Hash() {
		t.Errorf("two sets that say the same:\n%s\n%s", a.Canonical(), b.Canonical())
	}
	for name, swap := range map[string]func(*policy.Set){
		"policies": func(s *policy.Set) { s.Policies[0], s.Policies[1] = s.Policies[1], s.Policies[0] },
		"limits": func(s *policy.Set) {
			l := s.Policies[0].Limits
			l[0], l[1] = l[1], l[0]
		},
		"tiers": func(s *policy.Set) {
			tiers := s.Policies[0].Tiers
			tiers[0], tiers[1] = tiers[1], tiers[0]
		},
	} {
		c := a.Clone()
		if swap(&c); c.Hash() == a.Hash() {
			t.Errorf("the order of %s makes no difference", name)
		}
	}
}

func TestNormalizeTwiceIsOnce(t *testing.T) {
	once := conversions()
	once.Normalize()
	twice := once.Clone()
	twice.Normalize()
	if !reflect.DeepEqual(once, twice) {
		t.Errorf("once  %+v\ntwice %+v", once, twice)
	}
}

// TestReadingLeavesTheSetAlone: only Normalize changes a set.
func TestReadingLeavesTheSetAlone(t *testing.T) {
	s := policy.Set{Policies: []policy.Policy{least("p")}}
	s.Policies[0].Match = []keyspace.Entry{{Name: "y", Value: "1"}, {Name: "x", Value: "2"}}
	s.Policies[0].Key = []string{"q", "p"}
	before := s.Clone()
	s.Canonical()
	s.Hash()
	s.Policies[0].Revision()
	if _, err := policy.Compile(s); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, before) {
		t.Errorf("got  %+v\nwant %+v", s, before)
	}
}
