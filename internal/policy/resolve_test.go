package policy_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// applies is the rule of matching, word for word: all entries equal.
func applies(when []keyspace.Entry, d keyspace.Descriptor) bool {
	for _, e := range when {
		if value, ok := d.Get(e.Name); !ok || value != e.Value {
			return false
		}
	}
	return true
}

// resolveSlowly looks at every policy of the domain: most match entries win, then the order of the set.
func resolveSlowly(s policy.Set, domain string, d keyspace.Descriptor, cost uint64) (policy.Charge, bool) {
	best := -1
	for i, p := range s.Policies {
		hasKey := !slices.ContainsFunc(p.Key, func(name string) bool { return !d.Has(name) })
		if p.Domain != domain || !applies(p.Match, d) || !hasKey {
			continue
		}
		if best < 0 || len(p.Match) > len(s.Policies[best].Match) {
			best = i
		}
	}
	if best < 0 {
		return policy.Charge{}, false
	}
	p := s.Policies[best]
	first := func(rules []policy.Rule) int32 {
		return int32(slices.IndexFunc(rules, func(r policy.Rule) bool { return applies(r.When, d) }))
	}
	for _, c := range p.Costs {
		if applies(c.When, d) {
			cost *= c.Cost
			break
		}
	}
	return policy.Charge{Policy: int32(best), Tier: first(p.Tiers), Override: first(p.Overrides), Cost: cost}, true
}

// specSlowly is the limit's own spec, changed by what the tier says of it, or else the override.
func specSlowly(p *policy.Policy, l policy.Limit, charge policy.Charge) limit.Spec {
	spec := limit.Spec{Algorithm: l.Algorithm, Amount: l.Amount, Window: l.Window, Refill: l.Refill}
	var chosen *policy.Amount
	choose := func(rules []policy.Rule, at int32) {
		if at < 0 {
			return
		}
		for _, a := range rules[at].Amounts {
			if a.Limit == l.Name {
				chosen = &a
			}
		}
	}
	choose(p.Tiers, charge.Tier)
	choose(p.Overrides, charge.Override) // wins over the tier
	if chosen == nil {
		return spec
	}
	spec.Amount = chosen.Amount
	if chosen.Unlimited {
		spec.Amount = limit.Unlimited
	}
	if chosen.Refill > 0 {
		spec.Refill = chosen.Refill
	}
	if chosen.Period > 0 {
		spec.Window = chosen.Period
	}
	return spec
}

func compile(t testing.TB, s policy.Set) *policy.Compiled {
	t.Helper()
	c, err := policy.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestResolveMatchesTheOracle: random sets of few and of many policies, random descriptors.
func TestResolveMatchesTheOracle(t *testing.T) {
	eachSeed(t, 60, func(t *testing.T, g *generator) {
		s := g.set(1+g.rng.IntN(60), 2)
		c := compile(t, s)
		for range 100 {
			checkResolve(t, c, g.descriptor())
		}
	})
}

func checkResolve(t *testing.T, c *policy.Compiled, d keyspace.Descriptor) {
	t.Helper()
	for domain := range c.Domains() {
		want, wantMatch := resolveSlowly(c.Set(), c.DomainName(domain), d, 3)
		got, match := c.Resolve(domain, d, 3)
		if got != want || match != wantMatch {
			t.Errorf("%v resolves to %+v, %v, want %+v, %v", d, got, match, want, wantMatch)
			return
		}
		if match {
			checkSpecs(t, c, got)
		}
	}
}

func checkSpecs(t *testing.T, c *policy.Compiled, charge policy.Charge) {
	t.Helper()
	p := c.Policy(charge.Policy)
	if c.Limits(charge.Policy) != len(p.Limits) {
		t.Errorf("%d limits, want %d", c.Limits(charge.Policy), len(p.Limits))
	}
	for i, l := range p.Limits {
		got := c.Spec(charge.Policy, i, charge.Tier, charge.Override)
		if want := specSlowly(p, l, charge); got != want {
			t.Errorf("%+v, limit %s: got %+v, want %+v", charge, l.Name, got, want)
		}
		if c.LimitName(charge.Policy, i) != l.Name {
			t.Errorf("limit %d is called %s, want %s", i, c.LimitName(charge.Policy, i), l.Name)
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add(uint64(1), byte(40))
	f.Add(uint64(2), byte(3))
	f.Fuzz(func(t *testing.T, seed uint64, n byte) {
		g := newGenerator(seed)
		c := compile(t, g.set(1+int(n)%100, 1))
		for range 20 {
			checkResolve(t, c, g.descriptor())
		}
	})
}

// TestMostMatchEntriesWin, then the order of the set; entries that a policy doesn't name don't matter.
func TestMostMatchEntriesWin(t *testing.T) {
	broad, narrow, twin := least("broad"), least("narrow"), least("twin")
	narrow.Match = when("path", "/foo")
	twin.Match = when("plan", "pro")
	c := compile(t, policy.Set{Policies: []policy.Policy{broad, narrow, twin}})
	for want, words := range map[string][]keyspace.Entry{
		"broad":   {{Name: "path", Value: "/bar"}, {Name: "principal", Value: "u"}},
		"narrow":  {{Name: "path", Value: "/foo"}, {Name: "principal", Value: "u"}},
		"twin":    {{Name: "path", Value: "/bar"}, {Name: "plan", Value: "pro"}, {Name: "principal", Value: "u"}},
		"narrow ": {{Name: "path", Value: "/foo"}, {Name: "plan", Value: "pro"}, {Name: "principal", Value: "u"}},
	} {
		charge, ok := c.Resolve(0, words, 1)
		if got := c.Policy(charge.Policy).Name; !ok || got != string(bytes.TrimSpace([]byte(want))) {
			t.Errorf("%v: %s, %v, want %s", words, got, ok, want)
		}
	}
}

// TestRLS08EmptyValuesCountAsAbsent: nobody shares the allowance of those who left their key empty.
func TestRLS08EmptyValuesCountAsAbsent(t *testing.T) {
	c := compile(t, policy.Set{Policies: []policy.Policy{least("p")}})
	for _, d := range []keyspace.Descriptor{nil, when("principal", ""), when("other", "u")} {
		if charge, ok := c.Resolve(0, d, 1); ok {
			t.Errorf("%v resolves to %+v", d, charge)
		}
	}
}

// TestRLS11SameShapeInTwoDomains: two services with the same entries have their own policies.
func TestRLS11SameShapeInTwoDomains(t *testing.T) {
	a, b := least("a"), least("b")
	a.Domain, b.Domain = "a", "b"
	c := compile(t, policy.Set{Policies: []policy.Policy{a, b}})
	for i, name := range []string{"a", "b"} {
		domain, ok := c.Domain(name)
		charge, matched := c.Resolve(domain, when("principal", "u"), 1)
		if !ok || !matched || int(charge.Policy) != i {
			t.Errorf("domain %s: policy %d, %v, %v", name, charge.Policy, ok, matched)
		}
	}
}

func TestOutcomes(t *testing.T) {
	p := least("p")
	p.Domain = "denies"
	c := compile(t, policy.Set{
		Policies: []policy.Policy{p},
		Domains:  []policy.Domain{{Name: "allows", OnNoMatchAllow: true}, {Name: "empty"}},
	})
	u, nobody := keyspace.Descriptor(when("principal", "u")), keyspace.Descriptor(when("other", "x"))
	for _, test := range []struct {
		domain  string
		ds      []keyspace.Descriptor
		want    policy.Outcome
		charged []int32
	}{
		{"denies", []keyspace.Descriptor{u}, policy.Matched, []int32{0}},
		{"denies", []keyspace.Descriptor{nobody, u, u}, policy.Matched, []int32{1, 2}},
		{"denies", []keyspace.Descriptor{nobody}, policy.NoMatchDeny, nil},
		{"denies", nil, policy.NoMatchDeny, nil},
		{"empty", []keyspace.Descriptor{u}, policy.NoMatchDeny, nil},
		{"allows", []keyspace.Descriptor{u}, policy.NoMatchAllow, nil},
		{"unknown", []keyspace.Descriptor{u}, policy.UnknownDomain, nil},
	} {
		charges, outcome := c.ResolveCheck(nil, test.domain, test.ds, 1)
		var charged []int32
		for _, charge := range charges {
			charged = append(charged, charge.Descriptor)
		}
		if outcome != test.want || !slices.Equal(charged, test.charged) {
			t.Errorf("%s %v: %d, %v, want %d, %v", test.domain, test.ds, outcome, charged, test.want, test.charged)
		}
	}
}

func TestMissing(t *testing.T) {
	c := compile(t, policy.Set{Domains: []policy.Domain{{Name: "d", Required: []string{"tenant", "principal"}}}})
	tenant, principal := keyspace.Descriptor(when("tenant", "t")), keyspace.Descriptor(when("principal", "u"))
	for _, test := range []struct {
		ds   []keyspace.Descriptor
		want string
	}{
		{[]keyspace.Descriptor{tenant, principal}, ""},
		{[]keyspace.Descriptor{tenant}, "principal"},
		{[]keyspace.Descriptor{principal, keyspace.Descriptor(when("tenant", ""))}, "tenant"},
		{nil, "principal"},
	} {
		if got, missing := c.Missing(0, test.ds); got != test.want || missing != (test.want != "") {
			t.Errorf("%v: %q, %v, want %q", test.ds, got, missing, test.want)
		}
	}
}

// TestCostSaturates: a product beyond the largest amount is more than any amount, never a small one.
func TestCostSaturates(t *testing.T) {
	p := least("p")
	p.Limits[0] = policy.Limit{Name: "l", Algorithm: limit.FixedWindow, Amount: limit.MaxAmount, Window: minute}
	p.Costs = []policy.CostRule{{When: when("op", "x"), Cost: 1 << 40}}
	c := compile(t, policy.Set{Policies: []policy.Policy{p}})
	d := keyspace.Descriptor{{Name: "op", Value: "x"}, {Name: "principal", Value: "u"}}
	for cost, want := range map[uint64]uint64{
		1:               1 << 40,
		1<<23 - 1:       (1<<23 - 1) << 40,
		limit.MaxAmount: policy.TooMuch,
		1 << 23:         policy.TooMuch,
		1 << 24:         policy.TooMuch,
		1<<24 + 1:       policy.TooMuch,
		math.MaxUint64:  policy.TooMuch,
	} {
		if charge, _ := c.Resolve(0, d, cost); charge.Cost != want {
			t.Errorf("cost %d: %d, want %d", cost, charge.Cost, want)
		}
		if charge, _ := c.Resolve(0, when("principal", "u"), cost); charge.Cost != min(cost, policy.TooMuch) {
			t.Errorf("cost %d without the rule: %d", cost, charge.Cost)
		}
	}
}

func TestKeyAndSlotAreThePolicys(t *testing.T) {
	p := least("p")
	p.Domain, p.Key, p.PartitionBy = "d", []string{"tenant", "principal"}, []string{"tenant"}
	c := compile(t, policy.Set{Policies: []policy.Policy{p}})
	d := keyspace.Descriptor{{Name: "other", Value: "o"}, {Name: "principal", Value: "u"}, {Name: "tenant", Value: "t"}}
	if got := c.AppendKey(nil, 0, d); string(got) != "\x01u\x01t" {
		t.Errorf("key %q", got)
	}
	seed := keyspace.Seed{1}
	if got, want := c.Slot(seed, 0, d), seed.Slot("d", d, []string{"tenant"}); got != want {
		t.Errorf("slot %d, want %d", got, want)
	}
}

// TestWhatALogMustKeep: precision, retention and largest amount, for the four kinds of policy.
func TestWhatALogMustKeep(t *testing.T) {
	plain, kept, merged, none := conversions().Policies[0], conversions().Policies[0], least("merged"), least("none")
	plain.Name, plain.KeepHistory, plain.Domain = "plain", 0, "plain"
	merged.Limits[0].Amount, merged.Limits[0].Precision = 5_000_000, second
	none.Limits[0].Algorithm, none.Domain = limit.FixedWindow, "none"
	c := compile(t, policy.Set{Policies: []policy.Policy{plain, kept, merged, none}})
	for i, want := range []struct {
		precision, retention int64
		largest              uint64
	}{
		{0, day, 1000},
		{0, 2 * day, policy.MaxUnmergedAmount},
		{second, minute, 5_000_000},
		{0, 0, 0},
	} {
		at := int32(i)
		if c.Precision(at) != want.precision || c.Retention(at) != want.retention || c.LargestAmount(at) != want.largest {
			t.Errorf("%s: %d, %d, %d, want %+v", c.Policy(at).Name, c.Precision(at), c.Retention(at), c.LargestAmount(at), want)
		}
		if c.Revision(at) != c.Policy(at).Revision() {
			t.Errorf("%s: revision %x, want %x", c.Policy(at).Name, c.Revision(at), c.Policy(at).Revision())
		}
	}
}

// many is one policy per tenant in one domain, with as many overrides.
func many(policies, overrides int) policy.Set {
	var s policy.Set
	for i := range policies {
		p := conversions().Policies[0]
		p.Name, p.Namespace = fmt.Sprintf("p%d", i), "default"
		p.Match = append(p.Match, keyspace.Entry{Name: "tenant", Value: fmt.Sprintf("t%d", i)})
		p.Overrides = nil
		if i == 0 {
			for j := range overrides {
				p.Overrides = append(p.Overrides, policy.Override{
					When:    when("principal", fmt.Sprintf("u%d", j)),
					Amounts: []policy.Amount{{Limit: "daily", Amount: uint64(j)}},
				})
			}
		}
		s.Policies = append(s.Policies, p)
	}
	return s
}

func example() keyspace.Descriptor {
	return keyspace.Descriptor{
		{Name: "api_class", Value: "convert"}, {Name: "principal", Value: "u999"}, {Name: "tenant", Value: "t0"},
	}
}

func TestResolvingDoesNotAllocate(t *testing.T) {
	c := compile(t, many(1000, 1000))
	d := example()
	ds, charges, key := []keyspace.Descriptor{d}, make([]policy.Charge, 0, 1), make([]byte, 0, 64)
	charge, ok := c.Resolve(0, d, 1)
	if !ok || charge.Override != 999 {
		t.Fatalf("%+v, %v", charge, ok)
	}
	for name, f := range map[string]func(){
		"Domain":       func() { c.Domain("video-api") },
		"Resolve":      func() { c.Resolve(0, d, 1) },
		"ResolveCheck": func() { c.ResolveCheck(charges, "video-api", ds, 1) },
		"Missing":      func() { c.Missing(0, ds) },
		"AppendKey":    func() { c.AppendKey(key, charge.Policy, d) },
		"Slot":         func() { c.Slot(keyspace.Seed{}, charge.Policy, d) },
		"Spec":         func() { c.Spec(charge.Policy, 0, charge.Tier, charge.Override) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	for _, size := range []struct{ policies, overrides int }{{1, 0}, {1, 1000}, {1000, 0}, {1000, 1000}} {
		b.Run(fmt.Sprintf("policies=%d/overrides=%d", size.policies, size.overrides), func(b *testing.B) {
			c := compile(b, many(size.policies, size.overrides))
			d := example()
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := c.Resolve(0, d, 1); !ok {
					b.Fatal("no match")
				}
			}
		})
	}
}
