package policy_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the first random set; 0 picks one")

// eachSeed runs f with n generators. A failure names the seed that replays it.
func eachSeed(t *testing.T, n int, f func(*testing.T, *generator)) {
	t.Helper()
	first := *seedFlag
	if first == 0 {
		first = rand.Uint64()
	}
	for seed := first; seed != first+uint64(n); seed++ {
		if f(t, newGenerator(seed)); t.Failed() {
			t.Fatalf("replay with -run '^%s$' -seed=%d", t.Name(), seed)
		}
	}
}

// generator makes sets and descriptors over few names and values, so that they meet.
type generator struct{ rng *rand.Rand }

var (
	names  = []string{"a", "b", "c", "d"}
	values = []string{"1", "2", "3"}
)

func (g *generator) oneIn(n int) bool { return g.rng.IntN(n) == 0 }

func (g *generator) names(most int) (picked []string) {
	for _, i := range g.rng.Perm(len(names))[:g.rng.IntN(most+1)] {
		picked = append(picked, names[i])
	}
	return picked
}

func (g *generator) entries(from []string, least, most int) (picked []keyspace.Entry) {
	most = min(most, len(from))
	for _, i := range g.rng.Perm(len(from))[:least+g.rng.IntN(most-least+1)] {
		picked = append(picked, keyspace.Entry{Name: from[i], Value: values[g.rng.IntN(len(values))]})
	}
	return picked
}

// descriptor has entries that policies ask for, others, and empty ones.
func (g *generator) descriptor() keyspace.Descriptor {
	list := g.entries(append(names, "other"), 0, len(names)+1)
	for i := range list {
		if g.oneIn(8) {
			list[i].Value = ""
		}
	}
	d, err := keyspace.NewDescriptor(list)
	if err != nil {
		panic(err)
	}
	return d
}

// set makes a valid set of n policies in up to as many domains.
func (g *generator) set(n, domains int) policy.Set {
	var s policy.Set
	for i := range n {
		s.Policies = append(s.Policies, g.policy(fmt.Sprintf("p%d", i), fmt.Sprintf("d%d", g.rng.IntN(domains))))
	}
	for i := range domains {
		if g.oneIn(2) {
			s.Domains = append(s.Domains, policy.Domain{Name: fmt.Sprintf("d%d", i), OnNoMatchAllow: g.oneIn(2), Required: g.names(2)})
		}
	}
	if problems := s.Validate(); len(problems) > 0 {
		panic(fmt.Sprintf("the generator made an invalid set: %s", problems))
	}
	return s
}

func (g *generator) policy(name, domain string) policy.Policy {
	p := policy.Policy{Name: name, Domain: domain, Match: g.entries(names, 0, 3), Key: g.names(2)}
	p.Global = len(p.Key) == 0
	if g.oneIn(2) {
		p.PartitionBy = append([]string{}, p.Key[:g.rng.IntN(len(p.Key)+1)]...)
	}
	for i := range 1 + g.rng.IntN(3) {
		p.Limits = append(p.Limits, policy.Limit{
			Name:      fmt.Sprintf("l%d", i),
			Algorithm: limit.Algorithm(1 + g.rng.IntN(4)),
			Amount:    10 + g.rng.Uint64N(100),
			Window:    1 + g.rng.Int64N(hour),
		})
		if l := &p.Limits[i]; l.Algorithm == limit.TokenBucket {
			l.Refill = 1 + g.rng.Uint64N(10)
		}
	}
	p.Tiers = g.rules(&p, names, 3, false)
	p.Overrides = g.rules(&p, p.Key, 12, true)
	for _, r := range g.rules(&p, names, 3, false) {
		p.Costs = append(p.Costs, policy.CostRule{When: r.When, Cost: 1 + g.rng.Uint64N(10)})
	}
	return p
}

// rules makes up to n tiers or overrides. The ones with more entries come first, so that each can apply.
func (g *generator) rules(p *policy.Policy, from []string, n int, override bool) (rules []policy.Rule) {
	if len(from) == 0 {
		return nil
	}
	seen := map[string]bool{}
	for size := min(2, len(from)); size > 0; size-- {
		for range g.rng.IntN(n + 1) {
			r := policy.Rule{When: g.entries(from, size, size)}
			keyspace.SortEntries(r.When)
			if id := fmt.Sprint(r.When); !seen[id] {
				seen[id] = true
				r.Amounts = g.amounts(p, override)
				rules = append(rules, r)
			}
		}
	}
	return rules
}

func (g *generator) amounts(p *policy.Policy, override bool) (amounts []policy.Amount) {
	for len(amounts) == 0 {
		for _, l := range p.Limits {
			if g.oneIn(2) {
				continue
			}
			a := policy.Amount{Limit: l.Name, Amount: 10 + g.rng.Uint64N(100)}
			switch {
			case g.oneIn(4):
				a = policy.Amount{Limit: l.Name, Unlimited: true}
			case override && l.Algorithm == limit.TokenBucket && g.oneIn(2):
				a.Refill, a.Period = g.rng.Uint64N(10), g.rng.Int64N(hour)
			}
			amounts = append(amounts, a)
		}
	}
	return amounts
}

func newGenerator(seed uint64) *generator { return &generator{rand.New(rand.NewPCG(seed, 7))} }
