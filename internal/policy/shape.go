package policy

import (
	"maps"
	"slices"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

// The shape that the policy file, the canonical form and the admin API share, and the way there and back.
// JSON writes maps in the order of their keys.
type (
	setJSON struct {
		Policies []policyJSON `json:"policies"`
		Domains  []domainJSON `json:"domains,omitempty"`
	}
	policyJSON struct {
		Name          string            `json:"name"`
		Namespace     string            `json:"namespace"`
		Quota         string            `json:"quota"`
		Domain        string            `json:"domain"`
		Match         map[string]string `json:"match"`
		Key           []string          `json:"key,omitempty"`
		Global        bool              `json:"global,omitempty"`
		PartitionBy   []string          `json:"partitionBy"`
		Limits        []limitJSON       `json:"limits"`
		Tiers         []ruleJSON        `json:"tiers,omitempty"`
		Overrides     []ruleJSON        `json:"overrides,omitempty"`
		Costs         []costJSON        `json:"costs,omitempty"`
		KeepHistory   durationJSON      `json:"keepHistory,omitempty"`
		Transition    Transition        `json:"transition,omitempty"`
		AllowAdjust   bool              `json:"allowAdjust"`
		Mode          Mode              `json:"mode"`
		OnUnavailable OnUnavailable     `json:"onUnavailable"`
	}
	limitJSON struct {
		Name                 string      `json:"name"`
		RollingWindow        *windowJSON `json:"rollingWindow,omitempty"`
		TokenBucket          *bucketJSON `json:"tokenBucket,omitempty"`
		SlidingWindowCounter *windowJSON `json:"slidingWindowCounter,omitempty"`
		FixedWindow          *windowJSON `json:"fixedWindow,omitempty"`
	}
	windowJSON struct {
		Limit     uint64       `json:"limit"`
		Window    durationJSON `json:"window"`
		Precision durationJSON `json:"precision,omitempty"`
	}
	bucketJSON struct {
		Capacity uint64       `json:"capacity"`
		Refill   uint64       `json:"refill"`
		Period   durationJSON `json:"period"`
	}
	ruleJSON struct {
		When    map[string]string     `json:"when"`
		Amounts map[string]amountJSON `json:"amounts"`
	}
	amountJSON struct {
		Unlimited bool         `json:"unlimited,omitempty"`
		Limit     *uint64      `json:"limit,omitempty"`
		Capacity  *uint64      `json:"capacity,omitempty"`
		Refill    uint64       `json:"refill,omitempty"`
		Period    durationJSON `json:"period,omitempty"`
	}
	costJSON struct {
		When map[string]string `json:"when"`
		Cost uint64            `json:"cost"`
	}
	domainJSON struct {
		Name      string   `json:"name"`
		OnNoMatch string   `json:"onNoMatch"`
		Required  []string `json:"required,omitempty"`
	}
	durationJSON int64
)

// MarshalText writes the duration as [FormatDuration] does.
func (d durationJSON) MarshalText() ([]byte, error) { return []byte(FormatDuration(int64(d))), nil }

// UnmarshalText reads what [ParseDuration] reads.
func (d *durationJSON) UnmarshalText(b []byte) error {
	ns, err := ParseDuration(string(b))
	*d = durationJSON(ns)
	return err
}

func toSetJSON(s Set) setJSON {
	wire := setJSON{Policies: []policyJSON{}}
	for i := range s.Policies {
		wire.Policies = append(wire.Policies, toPolicyJSON(&s.Policies[i]))
	}
	for _, d := range s.Domains {
		onNoMatch := string(Deny)
		if d.OnNoMatchAllow {
			onNoMatch = string(Allow)
		}
		wire.Domains = append(wire.Domains, domainJSON{Name: d.Name, OnNoMatch: onNoMatch, Required: d.Required})
	}
	return wire
}

func toPolicyJSON(p *Policy) policyJSON {
	wire := policyJSON{
		Name: p.Name, Namespace: p.Namespace, Quota: p.Quota, Domain: p.Domain,
		Match: toMap(p.Match), Key: p.Key, Global: p.Global, PartitionBy: p.PartitionBy,
		Limits:      []limitJSON{},
		Tiers:       toRulesJSON(p.Tiers, p.Limits),
		Overrides:   toRulesJSON(p.Overrides, p.Limits),
		KeepHistory: durationJSON(p.KeepHistory), Transition: p.Transition,
		AllowAdjust: p.AllowAdjust, Mode: p.Mode, OnUnavailable: p.OnUnavailable,
	}
	for _, l := range p.Limits {
		wire.Limits = append(wire.Limits, toLimitJSON(l))
	}
	for _, c := range p.Costs {
		wire.Costs = append(wire.Costs, costJSON{When: toMap(c.When), Cost: c.Cost})
	}
	return wire
}

func toLimitJSON(l Limit) limitJSON {
	wire := limitJSON{Name: l.Name}
	window := &windowJSON{Limit: l.Amount, Window: durationJSON(l.Window), Precision: durationJSON(l.Precision)}
	switch l.Algorithm {
	case limit.RollingWindow:
		wire.RollingWindow = window
	case limit.TokenBucket:
		wire.TokenBucket = &bucketJSON{Capacity: l.Amount, Refill: l.Refill, Period: durationJSON(l.Window)}
	case limit.SlidingWindowCounter:
		wire.SlidingWindowCounter = window
	case limit.FixedWindow:
		wire.FixedWindow = window
	}
	return wire
}

func toRulesJSON(rules []Rule, limits []Limit) []ruleJSON {
	var wire []ruleJSON
	for _, r := range rules {
		amounts := map[string]amountJSON{}
		for _, a := range r.Amounts {
			w := amountJSON{Unlimited: a.Unlimited, Refill: a.Refill, Period: durationJSON(a.Period)}
			switch {
			case a.Unlimited:
			case algorithmOf(limits, a.Limit) == limit.TokenBucket:
				w.Capacity = &a.Amount
			default:
				w.Limit = &a.Amount
			}
			amounts[a.Limit] = w
		}
		wire = append(wire, ruleJSON{When: toMap(r.When), Amounts: amounts})
	}
	return wire
}

func toMap(entries []keyspace.Entry) map[string]string {
	m := make(map[string]string, len(entries))
	for _, e := range entries {
		m[e.Name] = e.Value
	}
	return m
}

// algorithmOf is the algorithm of the limit with that name, 0 if there is none.
func algorithmOf(limits []Limit, name string) limit.Algorithm {
	if i := slices.IndexFunc(limits, func(l Limit) bool { return l.Name == name }); i >= 0 {
		return limits[i].Algorithm
	}
	return 0
}

func (wire setJSON) set() Set {
	var s Set
	for _, p := range wire.Policies {
		s.Policies = append(s.Policies, p.policy())
	}
	for _, d := range wire.Domains {
		s.Domains = append(s.Domains, Domain{Name: d.Name, OnNoMatchAllow: d.OnNoMatch == string(Allow), Required: d.Required})
	}
	return s
}

func (wire policyJSON) policy() Policy {
	p := Policy{
		Name: wire.Name, Namespace: wire.Namespace, Quota: wire.Quota, Domain: wire.Domain,
		Match: fromMap(wire.Match), Key: wire.Key, Global: wire.Global, PartitionBy: wire.PartitionBy,
		Tiers: fromRulesJSON(wire.Tiers), Overrides: fromRulesJSON(wire.Overrides),
		KeepHistory: int64(wire.KeepHistory), Transition: wire.Transition,
		AllowAdjust: wire.AllowAdjust, Mode: wire.Mode, OnUnavailable: wire.OnUnavailable,
	}
	for _, l := range wire.Limits {
		p.Limits = append(p.Limits, l.limit())
	}
	for _, c := range wire.Costs {
		p.Costs = append(p.Costs, CostRule{When: fromMap(c.When), Cost: c.Cost})
	}
	return p
}

func (wire limitJSON) limit() Limit {
	window := func(a limit.Algorithm, w *windowJSON) Limit {
		return Limit{Name: wire.Name, Algorithm: a, Amount: w.Limit, Window: int64(w.Window), Precision: int64(w.Precision)}
	}
	switch b := wire.TokenBucket; {
	case b != nil:
		return Limit{Name: wire.Name, Algorithm: limit.TokenBucket, Amount: b.Capacity, Window: int64(b.Period), Refill: b.Refill}
	case wire.RollingWindow != nil:
		return window(limit.RollingWindow, wire.RollingWindow)
	case wire.SlidingWindowCounter != nil:
		return window(limit.SlidingWindowCounter, wire.SlidingWindowCounter)
	case wire.FixedWindow != nil:
		return window(limit.FixedWindow, wire.FixedWindow)
	}
	return Limit{Name: wire.Name}
}

func fromRulesJSON(wire []ruleJSON) []Rule {
	var rules []Rule
	for _, w := range wire {
		r := Rule{When: fromMap(w.When)}
		for _, name := range slices.Sorted(maps.Keys(w.Amounts)) {
			a := w.Amounts[name]
			amount := Amount{Limit: name, Unlimited: a.Unlimited, Refill: a.Refill, Period: int64(a.Period)}
			for _, units := range []*uint64{a.Limit, a.Capacity} {
				if units != nil {
					amount.Amount = *units
				}
			}
			r.Amounts = append(r.Amounts, amount)
		}
		rules = append(rules, r)
	}
	return rules
}

func fromMap(m map[string]string) []keyspace.Entry {
	var entries []keyspace.Entry
	for _, name := range slices.Sorted(maps.Keys(m)) {
		entries = append(entries, keyspace.Entry{Name: name, Value: m[name]})
	}
	return entries
}
