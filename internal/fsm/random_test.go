package fsm_test

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// randomSet is a valid set of a few policies in two domains.
func randomSet(c choices) policy.Set {
	for {
		s := policy.Set{}
		for i := range 1 + c.IntN(4) {
			s.Policies = append(s.Policies, randomPolicy(c, fmt.Sprintf("p%d", i)))
		}
		set, err := policy.Compile(s)
		if err != nil {
			continue
		}
		if _, ok := set.Domain("a"); ok {
			return s
		}
	}
}

func randomPolicy(c choices, name string) policy.Policy {
	p := policy.Policy{Name: name, Domain: pick(c, "a", "b")}
	switch c.IntN(4) {
	case 0:
		p.Global = true
	case 1:
		p.Key = []string{"user", "class"}
	default:
		p.Key = []string{"user"}
	}
	if c.oneIn(2) {
		p.Match = []keyspace.Entry{{Name: "class", Value: pick(c, "x", "y")}}
	}
	precision := pick(c, 0, 0, 100*int64(1e6), second)
	for i := range 1 + c.IntN(3) {
		p.Limits = append(p.Limits, randomLimit(c, fmt.Sprintf("l%d", i), precision))
	}
	if c.oneIn(3) {
		p.KeepHistory = 2 * longest(p)
	}
	randomRules(c, &p)
	return p
}

func longest(p policy.Policy) (window int64) {
	for _, l := range p.Limits {
		if l.Algorithm == limit.RollingWindow {
			window = max(window, l.Window)
		}
	}
	return window
}

func randomLimit(c choices, name string, precision int64) policy.Limit {
	l := policy.Limit{
		Name:      name,
		Algorithm: pick(c, limit.RollingWindow, limit.RollingWindow, limit.TokenBucket, limit.SlidingWindowCounter, limit.FixedWindow),
		Amount:    1 + c.Uint64N(9),
		Window:    pick(c, 10*second, 10*second+1, 60*second, 7*second/2*10, hour),
	}
	if c.oneIn(30) {
		l.Amount = 0
	}
	switch l.Algorithm {
	case limit.TokenBucket:
		l.Refill = 1 + c.Uint64N(7)
		l.Window = pick(c, 1, 3, second, second+1, 10*second, minute)
	case limit.RollingWindow:
		l.Precision = precision
	default:
		l.Window = pick(c, 3, second, 10*second, 10*second+1, hour)
	}
	return l
}

// randomRules gives some checks other amounts and costs.
func randomRules(c choices, p *policy.Policy) {
	amount := func(override bool) policy.Amount {
		l := pick(c, p.Limits...)
		if c.oneIn(3) {
			return policy.Amount{Limit: l.Name, Unlimited: true}
		}
		a := policy.Amount{Limit: l.Name, Amount: c.Uint64N(14)}
		if override && l.Algorithm == limit.TokenBucket && c.oneIn(2) {
			a.Refill, a.Period = 1+c.Uint64N(5), pick(c, 0, 1, 2*second)
		}
		return a
	}
	for _, tier := range []string{"pro", "max"} {
		if c.oneIn(2) {
			p.Tiers = append(p.Tiers, policy.Tier{When: []keyspace.Entry{{Name: "tier", Value: tier}}, Amounts: []policy.Amount{amount(false)}})
		}
	}
	if slices.Contains(p.Key, "user") && c.oneIn(2) {
		p.Overrides = []policy.Override{{When: []keyspace.Entry{{Name: "user", Value: "u1"}}, Amounts: []policy.Amount{amount(true)}}}
	}
	if c.oneIn(3) {
		p.Costs = []policy.CostRule{{When: []keyspace.Entry{{Name: "op", Value: "search"}}, Cost: 2}}
	}
}
