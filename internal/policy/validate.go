package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

// Bounds of a set. They keep what one set can cost a node within what it was sized for.
const (
	MaxPolicies  = 65535 // and as many domains
	MaxLimits    = 16    // of a policy
	MaxTiers     = 64    // of a policy
	MaxOverrides = 1000  // of a policy
	MaxCosts     = 64    // of a policy
	MaxNameBytes = 253   // of the name of a policy, limit, quota, namespace or domain

	// MaxUnmergedAmount is the largest rolling amount that needs no precision, and the most grains that
	// a precision may cut a window into: what one key's log may grow to.
	MaxUnmergedAmount = 100_000
)

// Problem is one thing that is wrong with a set.
type Problem struct {
	Path    string // as in policies[2].limits[0].rollingWindow.window
	Message string
}

// String is the path, if any, and the message.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// Problems is everything that is wrong with a set, in the order of the set. As an error it has a line for each.
type Problems []Problem

// Error has a line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Validate returns everything that is wrong with the set, nothing if it is fine. The set need not be
// normalized; positions in paths are those of s. Validate decides alike everywhere: it depends on the
// set alone.
func (s Set) Validate() Problems { return s.validate(true) }

// Malformed is Validate for those who enforce nothing: it lets pass what is only not supported yet.
func (s Set) Malformed() Problems { return s.validate(false) }

func (s Set) validate(enforced bool) Problems {
	v := validator{enforced: enforced}
	s = s.Clone()
	if len(s.Policies) > MaxPolicies {
		v.add("policies", "%d policies, at most %d are allowed", len(s.Policies), MaxPolicies)
	}
	if len(s.Domains) > MaxPolicies {
		v.add("domains", "%d domains, at most %d are allowed", len(s.Domains), MaxPolicies)
	}
	names, quotas := map[[2]string]int{}, map[[2]string]int{}
	for i := range s.Policies {
		p := &s.Policies[i]
		p.normalize()
		path := fmt.Sprintf("policies[%d]", i)
		v.policy(path, p)
		if j, taken := firstUse(names, p.Namespace, p.Name, i); taken {
			v.add(path+".name", "%q in namespace %q is already the name of policies[%d]", p.Name, p.Namespace, j)
		} else if j, taken := firstUse(quotas, p.Namespace, p.Quota, i); taken {
			v.add(path+".quota", "%q in namespace %q is already the quota of policies[%d]", p.Quota, p.Namespace, j)
		}
	}
	v.domains(s.Domains)
	return v.problems
}

func firstUse(seen map[[2]string]int, a, b string, i int) (first int, taken bool) {
	first, taken = seen[[2]string{a, b}]
	if !taken {
		seen[[2]string{a, b}] = i
	}
	return first, taken
}

type validator struct {
	problems Problems
	enforced bool // what isn't supported yet is a problem
}

func (v *validator) add(path, format string, args ...any) {
	v.problems = append(v.problems, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// policy checks a policy that is normalized.
func (v *validator) policy(path string, p *Policy) {
	v.name(path+".name", p.Name)
	v.name(path+".namespace", p.Namespace)
	if p.Quota != p.Name { // a default repeats its source's problem
		v.name(path+".quota", p.Quota)
	}
	if p.Domain != p.Namespace {
		v.domainName(path+".domain", p.Domain)
	}
	v.match(path, p)
	v.limits(path+".limits", p.Limits)
	v.merging(path, p)
	v.rules(path+".tiers", p, p.Tiers, false)
	v.rules(path+".overrides", p, p.Overrides, true)
	v.costs(path+".costs", p)
	v.keepHistory(path+".keepHistory", p)
	v.choices(path, p)
}

// match checks what a policy takes and whose allowance that is.
func (v *validator) match(path string, p *Policy) {
	v.entries(path+".match", p.Match)
	v.entryNames(path+".key", p.Key)
	switch {
	case len(p.Key) == 0 && !p.Global:
		v.add(path+".key", "names no entry; write the entries that each have their own allowance, or global: true for one allowance for all")
	case len(p.Key) > 0 && p.Global:
		v.add(path+".global", "true and a key exclude each other")
	}
	c := condition{match: p.Match, key: p.Key}
	if n := len(c.witness()); n > keyspace.MaxEntries {
		v.add(path+".key", "needs %d entries together with match, a descriptor has at most %d", n, keyspace.MaxEntries)
	}
	v.entryNames(path+".partitionBy", p.PartitionBy)
	for _, name := range p.PartitionBy {
		if !slices.Contains(p.Key, name) {
			v.add(path+".partitionBy", "%q is not in key: one allowance can't be in two partitions", name)
		}
	}
}

// choices checks the fields that hold one word of a few.
func (v *validator) choices(path string, p *Policy) {
	oneOf(v, path+".transition", p.Transition, "", Conservative, FromNow)
	oneOf(v, path+".mode", p.Mode, Enforce, Shadow)
	oneOf(v, path+".onUnavailable", p.OnUnavailable, Deny, Allow)
	if !v.enforced {
		return
	}
	if p.Mode == Shadow {
		v.add(path+".mode", "Shadow is not supported yet")
	}
	if p.OnUnavailable == Allow {
		v.add(path+".onUnavailable", "Allow is not supported yet")
	}
	if p.AllowAdjust {
		v.add(path+".allowAdjust", "true is not supported yet")
	}
}

func oneOf[T ~string](v *validator, path string, value T, words ...T) {
	if slices.Contains(words, value) {
		return
	}
	var quoted []string
	for _, w := range words {
		if w != "" {
			quoted = append(quoted, string(w))
		}
	}
	v.add(path, "%s is not one of %s", quote(string(value)), strings.Join(quoted, ", "))
}

// Warnings returns what a valid set says that is probably not meant: policies that can't win, since
// whatever they match, an earlier one takes. It isn't wrong: the order of a set may change, and in
// Kubernetes the earlier one may be somebody else's.
func (s Set) Warnings() Problems {
	var v validator
	s = s.Clone()
	s.Normalize()
	winner := winners(s.Policies)
	for i := range s.Policies {
		if by := int(winner[i]); by != i {
			v.add(fmt.Sprintf("policies[%d]", i), "never wins: policies[%d] (%q) matches all that this one does", by, s.Policies[by].Name)
		}
	}
	return v.problems
}

// winners returns, for each policy, which one takes the least descriptor that it matches: another one
// exactly if it can never win.
func winners(policies []Policy) []int32 {
	winner := make([]int32, len(policies))
	for _, ranked := range domainMembers(policies) { // any order: each writes its own
		conditions := policyConditions(policies, ranked)
		x := newIndex(conditions)
		for at := range conditions {
			winner[ranked[at]] = ranked[x.first(conditions[at].witness())]
		}
	}
	return winner
}

func (v *validator) domains(domains []Domain) {
	seen := map[[2]string]int{}
	for i, d := range domains {
		path := fmt.Sprintf("domains[%d]", i)
		v.domainName(path+".name", d.Name)
		if j, taken := firstUse(seen, d.Name, "", i); taken {
			v.add(path+".name", "%q is already the name of domains[%d]", d.Name, j)
		}
		v.entryNames(path+".required", sortedNames(d.Required))
	}
}

func (v *validator) keepHistory(path string, p *Policy) {
	switch longest := longestWindow(p.Limits); {
	case p.KeepHistory < 0:
		v.add(path, "%s is negative", FormatDuration(p.KeepHistory))
	case p.KeepHistory > MaxSpan:
		if p.KeepHistory != longest { // else it is the default, and the window's problem
			v.add(path, "%s is longer than %s, the longest allowed", FormatDuration(p.KeepHistory), FormatDuration(MaxSpan))
		}
	case longest == 0 && p.KeepHistory > 0:
		// A limit without an algorithm is reported, and may have been meant to be one.
		if !slices.ContainsFunc(p.Limits, func(l Limit) bool { return l.Algorithm == limit.RollingWindow || l.Algorithm == 0 }) {
			v.add(path, "only rolling windows keep history, and there is none")
		}
	case p.KeepHistory < longest:
		v.add(path, "%s is shorter than the longest window, %s", FormatDuration(p.KeepHistory), FormatDuration(longest))
	}
}
