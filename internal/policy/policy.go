package policy

import (
	"cmp"
	"slices"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

// Set is all policies of a cluster, one version. The order of Policies is their precedence; the order of
// Domains means nothing.
type Set struct {
	Policies []Policy
	Domains  []Domain
}

// Policy says which descriptors it takes, whose allowance they draw on, and how large that is. Zero
// fields mean the defaults that [Set.Normalize] fills in.
type Policy struct {
	Name      string
	Namespace string // default: "default"
	Quota     string // the allowance's name, with Namespace its identity; default: Name
	Domain    string // default: Namespace

	Match  []keyspace.Entry // entries that a descriptor must have, with these values; none: any descriptor
	Key    []string         // entries whose values make up the quota key; none only if Global
	Global bool             // one allowance for all

	// PartitionBy names the key entries that choose the partition. Nil means Key; empty but not nil means
	// one partition for the whole domain.
	PartitionBy []string

	Limits    []Limit    // all must admit; their order is the order of reports
	Tiers     []Tier     // the first that applies counts
	Overrides []Override // the first that applies counts, and wins over tiers
	Costs     []CostRule // the first that applies counts

	KeepHistory   int64 // ns that the rolling log is kept; default: the longest rolling window; 0 without one
	Transition    Transition
	AllowAdjust   bool
	Mode          Mode          // default: Enforce
	OnUnavailable OnUnavailable // default: Deny
}

// Limit is one limit of a policy.
type Limit struct {
	Name      string
	Algorithm limit.Algorithm
	Amount    uint64 // units per window; a bucket's capacity; 0 bans; at most limit.MaxAmount
	Window    int64  // ns, the window; for a bucket the refill period
	Refill    uint64 // bucket: tokens per Window
	Precision int64  // rolling window: ns within which events may merge to the later time; 0: none merge
}

// Amount replaces the amount of the limit it names. In an override it may replace a bucket's refill too;
// tiers may differ between checks of one key, so there the refill stays the limit's.
type Amount struct {
	Limit     string // the limit's name
	Unlimited bool   // then Amount is 0
	Amount    uint64 // as in Limit
	Refill    uint64 // 0: unchanged
	Period    int64  // ns; 0: unchanged
}

// Rule gives other amounts to checks that have all of When.
type Rule struct {
	When    []keyspace.Entry
	Amounts []Amount
}

// Tier is a rule whose When may name any entry.
type Tier = Rule

// Override is a rule whose When names key entries only, so that it is fixed for a key.
type Override = Rule

// CostRule multiplies the cost of checks whose descriptor has all of When.
type CostRule struct {
	When []keyspace.Entry
	Cost uint64 // 1..limit.MaxAmount
}

// Domain says what holds in a domain beyond its policies. A domain that a policy names exists without one.
type Domain struct {
	Name           string
	OnNoMatchAllow bool     // a check that no policy matches is allowed, marked, and charges nothing
	Required       []string // entries without which a check is bad input
}

// Transition is what a policy's author chose for a change that needs a choice.
type Transition string

// The transitions. None chosen is the empty string: a change that needs one is not accepted.
const (
	Conservative Transition = "Conservative" // what isn't known counts as used up
	FromNow      Transition = "FromNow"      // promised for windows that begin after the change
)

// Mode says whether a policy decides.
type Mode string

// The modes.
const (
	Enforce Mode = "Enforce"
	Shadow  Mode = "Shadow" // counts and reports as if enforced, and always allows
)

// OnUnavailable is a gateway's answer when no leader gives one.
type OnUnavailable string

// The answers.
const (
	Deny  OnUnavailable = "Deny"
	Allow OnUnavailable = "Allow"
)

// DefaultNamespace is the namespace of a policy that names none.
const DefaultNamespace = "default"

// Normalize fills in the defaults and sorts what has no order, in place: afterwards two sets that say the
// same are deeply equal. It repairs nothing; a set is valid before exactly if it is valid after.
func (s *Set) Normalize() {
	for i := range s.Policies {
		s.Policies[i].normalize()
	}
	for i := range s.Domains {
		s.Domains[i].Required = sortedNames(s.Domains[i].Required)
	}
	slices.SortStableFunc(s.Domains, func(a, b Domain) int { return cmp.Compare(a.Name, b.Name) })
	s.Policies, s.Domains = nilIfEmpty(s.Policies), nilIfEmpty(s.Domains)
}

func (p *Policy) normalize() {
	setDefault(&p.Namespace, DefaultNamespace)
	setDefault(&p.Quota, p.Name)
	setDefault(&p.Domain, p.Namespace)
	setDefault(&p.Mode, Enforce)
	setDefault(&p.OnUnavailable, Deny)
	setDefault(&p.KeepHistory, longestWindow(p.Limits))
	p.Match, p.Key = sortedEntries(p.Match), sortedNames(p.Key)
	if p.PartitionBy == nil {
		p.PartitionBy = p.Key
	}
	// Never nil, so that filling in the default twice is filling it in once.
	p.PartitionBy = append([]string{}, sortedNames(p.PartitionBy)...)
	p.Limits, p.Tiers = nilIfEmpty(p.Limits), nilIfEmpty(p.Tiers)
	p.Overrides, p.Costs = nilIfEmpty(p.Overrides), nilIfEmpty(p.Costs)
	normalizeRules(p.Tiers)
	normalizeRules(p.Overrides)
	for i := range p.Costs {
		p.Costs[i].When = sortedEntries(p.Costs[i].When)
	}
}

func normalizeRules(rules []Rule) {
	for i := range rules {
		r := &rules[i]
		r.When, r.Amounts = sortedEntries(r.When), nilIfEmpty(r.Amounts)
		slices.SortStableFunc(r.Amounts, func(a, b Amount) int { return cmp.Compare(a.Limit, b.Limit) })
	}
}

// longestWindow is the longest of the rolling windows in ns, 0 if there is none: only they need history.
func longestWindow(limits []Limit) int64 {
	var longest int64
	for _, l := range limits {
		if l.Algorithm == limit.RollingWindow {
			longest = max(longest, l.Window)
		}
	}
	return longest
}

// Clone returns a deep copy.
func (s Set) Clone() Set {
	c := Set{Policies: slices.Clone(s.Policies), Domains: slices.Clone(s.Domains)}
	for i := range c.Policies {
		p := &c.Policies[i]
		p.Match, p.Key, p.PartitionBy = slices.Clone(p.Match), slices.Clone(p.Key), slices.Clone(p.PartitionBy)
		p.Limits, p.Costs = slices.Clone(p.Limits), slices.Clone(p.Costs)
		p.Tiers, p.Overrides = cloneRules(p.Tiers), cloneRules(p.Overrides)
		for j := range p.Costs {
			p.Costs[j].When = slices.Clone(p.Costs[j].When)
		}
	}
	for i := range c.Domains {
		c.Domains[i].Required = slices.Clone(c.Domains[i].Required)
	}
	return c
}

func cloneRules(rules []Rule) []Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].When, rules[i].Amounts = slices.Clone(rules[i].When), slices.Clone(rules[i].Amounts)
	}
	return rules
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func nilIfEmpty[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

func sortedNames(names []string) []string {
	slices.Sort(names)
	return nilIfEmpty(names)
}

func sortedEntries(entries []keyspace.Entry) []keyspace.Entry {
	keyspace.SortEntries(entries)
	return nilIfEmpty(entries)
}
