package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// TestChangesOfEveryField changes each field of the example, which has all of them, and one policy beside it.
func TestChangesOfEveryField(t *testing.T) {
	base := func() policy.Set {
		s := conversions()
		s.Policies = append(s.Policies, least("other"))
		return s
	}
	rules := func(change func(*policy.Rule)) func(*policy.Set) {
		return first(func(p *policy.Policy) { change(&p.Overrides[0]) })
	}
	for _, c := range []struct {
		name   string
		change func(*policy.Set)
		want   []string // paths; none: it is accepted
	}{
		{"nothing", func(*policy.Set) {}, nil},
		{"a rolling amount up", limitAt(0, func(l *policy.Limit) { l.Amount = 4 }), nil},
		{"a rolling amount down", limitAt(1, func(l *policy.Limit) { l.Amount = 20 }), nil},
		{"a capacity", limitAt(2, func(l *policy.Limit) { l.Amount = 41 }), nil},
		{"a tier's amount", first(func(p *policy.Policy) { p.Tiers[0].Amounts[0].Amount = 700 }), nil},
		{"no longer unlimited", first(func(p *policy.Policy) { p.Tiers[0].Amounts[1] = policy.Amount{Limit: "daily", Amount: 70} }), nil},
		{"no tiers", first(func(p *policy.Policy) { p.Tiers, p.Costs = nil, nil }), nil},
		{"an override's amount", rules(func(r *policy.Rule) { r.Amounts[0].Amount = 6 }), nil},
		{"the capacity beside an override's refill", rules(func(r *policy.Rule) { r.Amounts[1].Amount = 11 }), nil},
		{"costs", first(func(p *policy.Policy) { p.Costs[0].Cost = 2 }), nil},
		{"no costs", first(func(p *policy.Policy) { p.Costs = nil }), nil},
		{"match", first(func(p *policy.Policy) { p.Match = nil }), nil},
		{"the object's name", first(func(p *policy.Policy) { p.Name, p.Quota = "renamed", "conversions" }), nil},
		{"transition", first(func(p *policy.Policy) { p.Transition = "" }), nil},
		{"mode", first(func(p *policy.Policy) { p.Mode = policy.Shadow }), nil},
		{"onUnavailable", first(func(p *policy.Policy) { p.OnUnavailable = policy.Allow }), nil},
		{"allowAdjust", first(func(p *policy.Policy) { p.AllowAdjust = true }), nil},
		{"the order", func(s *policy.Set) { slices.Reverse(s.Policies) }, nil},
		{"a domain's entry", func(s *policy.Set) { s.Domains[0].OnNoMatchAllow, s.Domains[0].Required = true, nil }, nil},
		{"no domains' entries", func(s *policy.Set) { s.Domains = nil }, nil},
		{"another policy", func(s *policy.Set) { s.Policies = append(s.Policies, least("new")) }, nil},
		{"a policy less", func(s *policy.Set) { s.Policies = s.Policies[1:] }, nil},
		{"no policy", func(s *policy.Set) { *s = policy.Set{} }, nil},
		{"the default written out", func(s *policy.Set) { s.Normalize() }, nil},

		{"a limit more", first(func(p *policy.Policy) {
			p.Limits = append(p.Limits, policy.Limit{Name: "new", Algorithm: limit.FixedWindow, Amount: 10, Window: hour})
		}), []string{"policies[0].limits"}},
		{"a limit less", first(func(p *policy.Policy) { p.Limits, p.Tiers, p.Overrides, p.Costs = p.Limits[:2], nil, nil, nil }),
			[]string{"policies[0].limits", "policies[0].overrides"}},
		{"a limit renamed", first(func(p *policy.Policy) {
			p.Limits[0].Name, p.Tiers, p.Costs, p.Overrides[0].Amounts[0].Limit = "per-min", nil, nil, "per-min"
		}),
			[]string{"policies[0].limits"}},
		{"limits in another order", first(func(p *policy.Policy) { p.Limits[0], p.Limits[1] = p.Limits[1], p.Limits[0] }), []string{"policies[0].limits"}},
		{"the algorithm", limitAt(0, func(l *policy.Limit) { l.Algorithm = limit.FixedWindow }), []string{"policies[0].limits[0]"}},
		{"a longer window", limitAt(0, func(l *policy.Limit) { l.Window = hour }), []string{"policies[0].limits[0].rollingWindow.window"}},
		{"a shorter window", limitAt(0, func(l *policy.Limit) { l.Window = second }), []string{"policies[0].limits[0].rollingWindow.window"}},
		{"a precision", first(func(p *policy.Policy) { p.Limits[0].Precision, p.Limits[1].Precision = second*2, second*2 }),
			[]string{"policies[0].limits[0].rollingWindow.precision", "policies[0].limits[1].rollingWindow.precision"}},
		{"a bucket's period", limitAt(2, func(l *policy.Limit) { l.Window = hour }), []string{"policies[0].limits[2].tokenBucket.period"}},
		{"a bucket's refill", limitAt(2, func(l *policy.Limit) { l.Refill = 9 }), []string{"policies[0].limits[2].tokenBucket.refill"}},
		{"keepHistory", first(func(p *policy.Policy) { p.KeepHistory = 3 * day }), []string{"policies[0].keepHistory"}},
		{"no keepHistory", first(func(p *policy.Policy) { p.KeepHistory = 0 }), []string{"policies[0].keepHistory"}},
		{"a window that is kept by default", func(s *policy.Set) { s.Policies[1].Limits[0].Window = hour }, []string{"policies[1].limits[0].rollingWindow.window"}},
		{"key", first(func(p *policy.Policy) { p.Key, p.PartitionBy = []string{"principal", "region"}, []string{"principal"} }), []string{"policies[0].key"}},
		{"key and where it lives", func(s *policy.Set) { s.Policies[1].Key = []string{"user"} }, []string{"policies[1].key", "policies[1].partitionBy"}},
		{"global", func(s *policy.Set) { s.Policies[1].Key, s.Policies[1].Global = nil, true }, []string{"policies[1].key", "policies[1].partitionBy"}},
		{"partitionBy", first(func(p *policy.Policy) { p.PartitionBy = []string{} }), []string{"policies[0].partitionBy"}},
		{"domain", first(func(p *policy.Policy) { p.Domain = "audio-api" }), []string{"policies[0].domain"}},
		{"quota", first(func(p *policy.Policy) { p.Quota = "fresh" }), []string{"policies[0].quota"}},
		{"an override's refill", rules(func(r *policy.Rule) { r.Amounts[1].Refill = 4 }), []string{"policies[0].overrides"}},
		{"an override's period", rules(func(r *policy.Rule) { r.Amounts[1].Period = hour }), []string{"policies[0].overrides"}},
		{"an override's refill unlimited", rules(func(r *policy.Rule) { r.Amounts[1] = policy.Amount{Limit: "burst", Unlimited: true} }),
			[]string{"policies[0].overrides"}},
		{"an override's refill gone", rules(func(r *policy.Rule) { r.Amounts = r.Amounts[:1] }), []string{"policies[0].overrides"}},
		{"an override for another key", rules(func(r *policy.Rule) { r.When = when("principal", "u43") }), []string{"policies[0].overrides"}},
		{"an override less", first(func(p *policy.Policy) { p.Overrides = nil }), []string{"policies[0].overrides"}},
		{"an override before one with a refill", first(func(p *policy.Policy) {
			p.Overrides = append([]policy.Override{{When: when("principal", "u1"), Amounts: []policy.Amount{{Limit: "daily", Amount: 1}}}}, p.Overrides...)
		}), []string{"policies[0].overrides"}},
		{"an override without a refill", func(s *policy.Set) {
			s.Policies[1].Overrides = []policy.Override{{When: when("principal", "u1"), Amounts: []policy.Amount{{Limit: "l", Amount: 1}}}}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := base()
			c.change(&next)
			if problems := next.Malformed(); len(problems) > 0 {
				t.Fatalf("no set at all: %v", problems)
			}
			demand(t, base().ChangeTo(next, nil), c.want)
			if c.name != "quota" { // see TestWhoFollowsMaySkipADeletion
				demand(t, base().FollowTo(next), c.want)
			}
			if got := next.ChangeTo(base(), nil); (len(got) == 0) != (len(c.want) == 0) {
				t.Errorf("the way back: %v", got)
			}
		})
	}
}

// demand compares the paths of problems, each of which says what to do.
func demand(t *testing.T, got policy.Problems, want []string) {
	t.Helper()
	var paths []string
	for _, p := range got {
		paths = append(paths, p.Path)
		if !strings.Contains(p.Message, "Give the policy another") && !strings.Contains(p.Message, "Delete") {
			t.Errorf("%q doesn't say what to do", p.Message)
		}
	}
	if !slices.Equal(paths, want) {
		t.Errorf("problems\n%v\nwant paths %q", got, want)
	}
}

func TestProblemsOfAChangeNameOldAndNew(t *testing.T) {
	next := conversions()
	next.Policies[0].Limits[0].Window = hour
	got := conversions().ChangeTo(next, nil).Error()
	if want := "policies[0].limits[0].rollingWindow.window: can't be changed from 1m0s to 1h0m0s yet: "; !strings.HasPrefix(got, want) {
		t.Errorf("%s\nwant %s...", got, want)
	}
}

// An edit of quota would start at nothing, so it is no edit; an object that takes the old quota over is one.
func TestAQuotaMayMoveToAnotherObject(t *testing.T) {
	one, two := least("one"), least("two")
	two.Quota = "one" // the object "one" renamed
	fresh := least("one")
	fresh.Quota = "fresh"
	before, after := policy.Set{Policies: []policy.Policy{one}}, policy.Set{Policies: []policy.Policy{two, fresh}}
	demand(t, before.ChangeTo(after, nil), nil)
	demand(t, after.ChangeTo(before, nil), nil)
	demand(t, before.ChangeTo(policy.Set{Policies: []policy.Policy{fresh}}, nil), []string{"policies[0].quota"})
}

// tombstone is that of the only policy of a set.
func tombstone(s policy.Set) policy.Tombstone {
	s = s.Clone()
	s.Normalize()
	return policy.Tombstone{Frame: s.Policies[0].Frame()}
}

func TestADeletedQuotaComesBackAsItWas(t *testing.T) {
	gone := []policy.Tombstone{tombstone(conversions())}
	again := conversions()
	again.Policies[0].Limits[0].Amount, again.Policies[0].Match, again.Policies[0].Name = 1000, nil, "renamed"
	again.Policies[0].Quota = "conversions"
	demand(t, policy.Set{}.ChangeTo(again, gone), nil)
	for field, change := range map[string]func(*policy.Policy){
		"domain": func(p *policy.Policy) { p.Domain = "x" }, "key": func(p *policy.Policy) { p.Key, p.PartitionBy = []string{"principal", "x"}, []string{"principal"} },
		"partitionBy": func(p *policy.Policy) { p.PartitionBy = []string{} }, "limits": func(p *policy.Policy) { p.Limits[0], p.Limits[1] = p.Limits[1], p.Limits[0] },
		"keepHistory": func(p *policy.Policy) { p.KeepHistory = 3 * day }, "overrides": func(p *policy.Policy) { p.Overrides = nil },
	} {
		other := conversions()
		change(&other.Policies[0])
		demand(t, policy.Set{}.ChangeTo(other, gone), []string{"policies[0]." + field})
		demand(t, policy.Set{}.FollowTo(other), nil)
		// One of several under the name is enough.
		demand(t, policy.Set{}.ChangeTo(other, append(gone, tombstone(other))), nil)
	}
	elsewhere := conversions()
	elsewhere.Policies[0].Namespace, elsewhere.Policies[0].Key = "other", []string{"x"}
	elsewhere.Policies[0].Overrides = nil
	demand(t, policy.Set{}.ChangeTo(elsewhere, gone), nil)
}

// Two sets may come so quickly that a partition sees the second only: the first deletes a policy, the second gives its
// name to another quota. What the order of sets allowed must not keep it for ever.
func TestWhoFollowsMaySkipADeletion(t *testing.T) {
	before := policy.Set{Policies: []policy.Policy{least("a"), least("b")}}
	between := policy.Set{Policies: before.Policies[1:]}
	after := before.Clone()
	after.Policies[0].Quota = "another"
	demand(t, before.ChangeTo(between, nil), nil)
	demand(t, between.ChangeTo(after, []policy.Tombstone{tombstone(policy.Set{Policies: before.Policies[:1]})}), nil)
	demand(t, before.ChangeTo(after, nil), []string{"policies[0].quota"})
	demand(t, before.FollowTo(after), nil)
}

func TestDeletionsAreBounded(t *testing.T) {
	var gone []policy.Tombstone
	for i := range policy.MaxTombstones - 1 {
		gone = append(gone, tombstone(policy.Set{Policies: []policy.Policy{least(fmt.Sprint("p", i))}}))
	}
	two := policy.Set{Policies: []policy.Policy{least("a"), least("b")}}
	one := policy.Set{Policies: two.Policies[:1]}
	demand(t, two.ChangeTo(one, gone), nil)
	demand(t, two.ChangeTo(policy.Set{}, gone), []string{"policies"})
	demand(t, two.FollowTo(policy.Set{}), nil)
	// What comes back makes room.
	demand(t, two.ChangeTo(policy.Set{Policies: []policy.Policy{least("p0")}}, gone), nil)
}

// TestTheRuleOfChangesIsAnEquivalence, but for what is deleted and remembered: everything may stay, what may be
// changed may be changed back, and what may be reached in two steps may be reached in one.
func TestTheRuleOfChangesIsAnEquivalence(t *testing.T) {
	accepted, refused := 0, 0
	eachSeed(t, 300, func(t *testing.T, g *generator) {
		a := g.set(1+g.rng.IntN(4), 2)
		b := g.changed(a)
		c := g.changed(b)
		if got := a.ChangeTo(a, nil); len(got) > 0 {
			t.Errorf("it can't stay: %v", got)
		}
		there, back := a.ChangeTo(b, nil), b.ChangeTo(a, nil)
		if (len(there) == 0) != (len(back) == 0) {
			t.Errorf("there: %v\nand back: %v", there, back)
		}
		if len(there) == 0 && len(b.ChangeTo(c, nil)) == 0 && kept(a, b, c) && len(a.ChangeTo(c, nil)) > 0 {
			t.Errorf("in two steps it is accepted, in one: %v", a.ChangeTo(c, nil))
		}
		if len(there) == 0 {
			accepted++
		} else {
			refused++
		}
	})
	if accepted < 30 || refused < 30 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// kept reports whether what two sets have in common, by quota or by name, is in the one between them too: else a
// policy was deleted on the way, which a tombstone would tell.
func kept(a, between, c policy.Set) bool {
	return !slices.ContainsFunc(a.Policies, func(p policy.Policy) bool {
		in := func(s policy.Set) bool {
			return slices.ContainsFunc(s.Policies, func(o policy.Policy) bool { return o.Name == p.Name })
		}
		return in(c) && !in(between)
	})
}

// changed is a valid set that differs from s here and there.
func (g *generator) changed(s policy.Set) policy.Set {
	for {
		next := s.Clone()
		for range 1 + g.rng.IntN(2) {
			g.change(&next)
		}
		if len(next.Validate()) == 0 {
			return next
		}
	}
}

func (g *generator) change(s *policy.Set) {
	if len(s.Policies) == 0 || g.oneIn(8) {
		s.Policies = append(s.Policies, g.policy(fmt.Sprintf("q%d", g.rng.IntN(100)), "d0"))
		return
	}
	i := g.rng.IntN(len(s.Policies))
	p := &s.Policies[i]
	if len(p.Limits) == 0 {
		return
	}
	l := &p.Limits[g.rng.IntN(len(p.Limits))]
	changes := []func(){
		func() { l.Amount++ }, func() { l.Window++ }, func() { l.Refill++ }, func() { p.Match = g.entries(names, 0, 2) },
		func() { p.Limits = p.Limits[1:] }, func() { slices.Reverse(p.Limits) }, func() { p.Domain += "x" },
		func() { p.Key = g.names(2); p.Global = len(p.Key) == 0; p.PartitionBy = nil },
		func() { p.Tiers = g.rules(p, names, 2, false) }, func() { p.Overrides = g.rules(p, p.Key, 2, true) },
		func() { p.Costs = nil }, func() { s.Policies = slices.Delete(s.Policies, i, i+1) }, func() { slices.Reverse(s.Policies) },
		func() { p.Quota = p.Name + "-other" }, func() { s.Domains = nil }, func() { p.PartitionBy = []string{} },
	}
	changes[g.rng.IntN(len(changes))]()
}
