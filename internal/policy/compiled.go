package policy

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

// Compiled is a set prepared for resolving. It is immutable and safe for concurrent use; its methods don't
// allocate. Policies go by their position in the normalized set, domains by their position among all domain
// names in order; other positions are the caller's mistake and panic.
type Compiled struct {
	set      Set
	byDomain map[string]int
	domains  []compiledDomain
	policies []compiledPolicy
}

type compiledDomain struct {
	name     string
	allow    bool
	required []string
	index    index
	ranked   []int32 // the policy at each position of the index
}

type compiledPolicy struct {
	*Policy
	tiers, overrides, costs index

	// specs has a row per choice of amounts: the limits' own, then one per tier, then one per override; a
	// row has one spec per limit, its Window 0 where the choice leaves that limit alone.
	specs []limit.Spec

	revision  uint64
	precision int64
	largest   uint64
}

// Outcome says what the policies say to a check as a whole.
type Outcome uint8

// The outcomes of [Compiled.ResolveCheck].
const (
	Matched       Outcome = iota + 1 // there is something to charge
	NoMatchDeny                      // no policy matches, and the domain denies that
	NoMatchAllow                     // no policy matches, and the domain allows that
	UnknownDomain                    // no policy and no domain entry names the domain
)

// Charge is what one descriptor of a check is to be charged under the policy that won it.
type Charge struct {
	Descriptor int32  // its position in the check
	Policy     int32  // the winner
	Tier       int32  // the tier that applies, -1 for none
	Override   int32  // the override that applies, -1 for none
	Cost       uint64 // the check's cost times the cost rule that applies, at most TooMuch
}

// TooMuch is the cost of a check whose true cost is above limit.MaxAmount: more than any amount but an
// unlimited one admits.
const TooMuch = limit.MaxAmount + 1

// Compile validates the set, normalizes a copy of it and prepares that. Its error is [Problems].
func Compile(s Set) (*Compiled, error) {
	if problems := s.Validate(); len(problems) > 0 {
		return nil, problems
	}
	c := &Compiled{set: s.Clone(), byDomain: map[string]int{}}
	c.set.Normalize()
	for i := range c.set.Policies {
		c.policies = append(c.policies, compilePolicy(&c.set.Policies[i]))
	}
	c.compileDomains()
	return c, nil
}

func (c *Compiled) compileDomains() {
	byName := map[string]*compiledDomain{}
	for _, d := range c.set.Domains {
		byName[d.Name] = &compiledDomain{name: d.Name, allow: d.OnNoMatchAllow, required: d.Required}
	}
	members := domainMembers(c.set.Policies)
	for name := range members { // any order: it fills a map
		if byName[name] == nil {
			byName[name] = &compiledDomain{name: name}
		}
	}
	for i, name := range slices.Sorted(maps.Keys(byName)) {
		d := byName[name]
		d.ranked = members[name]
		d.index = newIndex(policyConditions(c.set.Policies, d.ranked))
		c.domains = append(c.domains, *d)
		c.byDomain[name] = i
	}
}

// domainMembers lists the positions of each domain's policies in the order in which they win: most match
// entries first, then the order of the set.
func domainMembers(policies []Policy) map[string][]int32 {
	members := map[string][]int32{}
	for i := range policies {
		members[policies[i].Domain] = append(members[policies[i].Domain], int32(i))
	}
	for _, ranked := range members { // any order: each list is sorted by itself
		slices.SortStableFunc(ranked, func(a, b int32) int {
			return cmp.Compare(len(policies[b].Match), len(policies[a].Match))
		})
	}
	return members
}

func policyConditions(policies []Policy, positions []int32) []condition {
	conditions := make([]condition, len(positions))
	for i, p := range positions {
		conditions[i] = condition{match: policies[p].Match, key: policies[p].Key}
	}
	return conditions
}

func ruleConditions(rules []Rule) []condition {
	conditions := make([]condition, len(rules))
	for i := range rules {
		conditions[i].match = rules[i].When
	}
	return conditions
}

func costConditions(costs []CostRule) []condition {
	conditions := make([]condition, len(costs))
	for i := range costs {
		conditions[i].match = costs[i].When
	}
	return conditions
}

func compilePolicy(p *Policy) compiledPolicy {
	c := compiledPolicy{
		Policy:    p,
		tiers:     newIndex(ruleConditions(p.Tiers)),
		overrides: newIndex(ruleConditions(p.Overrides)),
		costs:     newIndex(costConditions(p.Costs)),
		revision:  p.Revision(),
		largest:   p.largestAmount(),
	}
	for _, l := range p.Limits {
		c.specs = append(c.specs, l.spec())
		c.precision = max(c.precision, l.Precision)
	}
	for _, rules := range [][]Rule{p.Tiers, p.Overrides} {
		for _, r := range rules {
			c.specs = append(c.specs, p.specRow(r)...)
		}
	}
	return c
}

func (l *Limit) spec() limit.Spec {
	return limit.Spec{Algorithm: l.Algorithm, Amount: l.Amount, Window: l.Window, Refill: l.Refill}
}

// specRow returns the specs that the rule gives, in the order of the limits.
func (p *Policy) specRow(r Rule) []limit.Spec {
	row := make([]limit.Spec, len(p.Limits))
	for i := range p.Limits {
		if j := slices.IndexFunc(r.Amounts, func(a Amount) bool { return a.Limit == p.Limits[i].Name }); j >= 0 {
			row[i] = r.Amounts[j].apply(p.Limits[i].spec())
		}
	}
	return row
}

func (a *Amount) apply(s limit.Spec) limit.Spec {
	s.Amount = a.Amount
	if a.Unlimited {
		s.Amount = limit.Unlimited
	}
	if a.Refill != 0 {
		s.Refill = a.Refill
	}
	if a.Period != 0 {
		s.Window = a.Period
	}
	return s
}

// largestAmount is the most units that a rolling log of this policy can be asked about.
func (p *Policy) largestAmount() uint64 {
	var largest uint64
	for _, l := range p.Limits {
		if l.Algorithm == limit.RollingWindow {
			largest = max(largest, p.largestOf(l))
		}
	}
	if p.KeepHistory > longestWindow(p.Limits) {
		// History beyond the windows is kept for amounts that aren't known yet.
		largest = max(largest, MaxUnmergedAmount)
	}
	return largest
}

// largestOf is the largest finite amount of l, over its own, the tiers' and the overrides'.
func (p *Policy) largestOf(l Limit) uint64 {
	largest := l.Amount
	for _, rules := range [][]Rule{p.Tiers, p.Overrides} {
		for _, r := range rules {
			for _, a := range r.Amounts {
				if a.Limit == l.Name && !a.Unlimited {
					largest = max(largest, a.Amount)
				}
			}
		}
	}
	return largest
}

// Domain returns the position of the domain, and false if no policy and no domain entry names it.
func (c *Compiled) Domain(name string) (domain int, known bool) {
	domain, known = c.byDomain[name]
	return domain, known
}

// Resolve returns the charge of one descriptor, its position left 0, and whether a policy of the domain
// matches: all match entries equal, all key entries there and not empty. Of several the one with the most
// match entries wins, then the first of the set.
func (c *Compiled) Resolve(domain int, d keyspace.Descriptor, cost uint64) (Charge, bool) {
	in := &c.domains[domain]
	at := in.index.first(d)
	if at < 0 {
		return Charge{}, false
	}
	winner := in.ranked[at]
	p := &c.policies[winner]
	if rule := p.costs.first(d); rule >= 0 {
		cost = multiply(cost, p.Costs[rule].Cost)
	}
	return Charge{Policy: winner, Tier: p.tiers.first(d), Override: p.overrides.first(d), Cost: min(cost, TooMuch)}, true
}

// ResolveCheck appends to dst the charges of a check's descriptors, in their order, those that no policy
// matches left out, and says what that amounts to.
func (c *Compiled) ResolveCheck(dst []Charge, domain string, ds []keyspace.Descriptor, cost uint64) ([]Charge, Outcome) {
	at, known := c.byDomain[domain]
	if !known {
		return dst, UnknownDomain
	}
	before := len(dst)
	for i, d := range ds {
		if charge, matched := c.Resolve(at, d, cost); matched {
			charge.Descriptor = int32(i)
			dst = append(dst, charge)
		}
	}
	switch {
	case len(dst) > before:
		return dst, Matched
	case c.domains[at].allow:
		return dst, NoMatchAllow
	}
	return dst, NoMatchDeny
}

// Missing returns the first entry that the domain requires and none of the descriptors has with a value
// that isn't empty. Such a check is bad input.
func (c *Compiled) Missing(domain int, ds []keyspace.Descriptor) (name string, missing bool) {
	for _, name := range c.domains[domain].required {
		if !anyHas(ds, name) {
			return name, true
		}
	}
	return "", false
}

func anyHas(ds []keyspace.Descriptor, name string) bool {
	for _, d := range ds {
		if d.Has(name) {
			return true
		}
	}
	return false
}

// Spec returns the limit as it applies under that tier and override (-1 for none): the override's amount, else
// the tier's, else the limit's own.
func (c *Compiled) Spec(policy int32, limitAt int, tier, override int32) limit.Spec {
	p := &c.policies[policy]
	n := len(p.Limits)
	if override >= 0 {
		if s := p.specs[(1+len(p.Tiers)+int(override))*n+limitAt]; s.Window != 0 {
			return s
		}
	}
	if tier >= 0 {
		if s := p.specs[(1+int(tier))*n+limitAt]; s.Window != 0 {
			return s
		}
	}
	return p.specs[limitAt]
}

// AppendKey appends the values of d that with the quota make up the key, as [keyspace.AppendValues] does.
func (c *Compiled) AppendKey(dst []byte, policy int32, d keyspace.Descriptor) []byte {
	return keyspace.AppendValues(dst, d, c.policies[policy].Key)
}

// Slot returns where that key lives.
func (c *Compiled) Slot(seed keyspace.Seed, policy int32, d keyspace.Descriptor) uint16 {
	p := &c.policies[policy]
	return seed.Slot(p.Domain, d, p.PartitionBy)
}

// Policies is the number of policies.
func (c *Compiled) Policies() int { return len(c.policies) }

// Policy returns the policy, normalized. Nothing in it may be changed.
func (c *Compiled) Policy(policy int32) *Policy { return c.policies[policy].Policy }

// Domains is the number of domains.
func (c *Compiled) Domains() int { return len(c.domains) }

// DomainName returns the name of the domain.
func (c *Compiled) DomainName(domain int) string { return c.domains[domain].name }

// Set returns the normalized set. Nothing in it may be changed.
func (c *Compiled) Set() Set { return c.set }

// Limits is the number of the policy's limits.
func (c *Compiled) Limits(policy int32) int { return len(c.policies[policy].Limits) }

// LimitName returns the name of one of them.
func (c *Compiled) LimitName(policy int32, limitAt int) string {
	return c.policies[policy].Limits[limitAt].Name
}

// Revision returns [Policy.Revision] of the policy.
func (c *Compiled) Revision(policy int32) uint64 { return c.policies[policy].revision }

// Precision returns the ns within which events of the policy's rolling log may merge, 0 for none.
func (c *Compiled) Precision(policy int32) int64 { return c.policies[policy].precision }

// Retention returns the ns for which the policy's rolling log is kept, 0 without rolling limits.
func (c *Compiled) Retention(policy int32) int64 { return c.policies[policy].KeepHistory }

// LargestAmount returns the units that the policy's rolling log must be able to tell: its largest finite
// rolling amount, and at least [MaxUnmergedAmount] where it is kept for longer than its windows.
func (c *Compiled) LargestAmount(policy int32) uint64 { return c.policies[policy].largest }

// AddCosts returns the sum of two costs, each at most TooMuch, and TooMuch where it is larger: two that no amount
// admits must not wrap around to one that fits.
func AddCosts(a, b uint64) uint64 {
	if a > TooMuch-b {
		return TooMuch
	}
	return a + b
}

// multiply saturates at TooMuch.
func multiply(cost, factor uint64) uint64 {
	hi, lo := bits.Mul64(cost, factor)
	if hi != 0 {
		return TooMuch
	}
	return min(lo, TooMuch)
}
