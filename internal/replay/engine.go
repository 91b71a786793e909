package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// engine decides rows as a cluster with one policy set would have. Shadow policies are resolved apart,
// as a set of their own with usage of its own, and decided as if enforced.
type engine struct {
	enforced, shadow *book
	onNoMatch        bool // what no policy matches is allowed
}

// book is one compiled set with the state machine that it charges.
type book struct {
	set     *policy.Compiled
	machine *fsm.Machine
	domain  int
	origin  []int // places of its policies in the set that the engine was made of

	descriptor [1]keyspace.Descriptor
	check      fsm.Check
	charge     [1]fsm.Charge
	key        []byte
}

// outcome is what a book says to a row.
type outcome struct {
	matched bool
	allowed bool
	policy  int32 // place in the book's set
	answer  fsm.Answer
	key     []byte // of the charge; good until the book's next row
}

func newEngine(set policy.Set, domain string) (*engine, error) {
	e := &engine{}
	for _, d := range set.Domains {
		if d.Name == domain {
			e.onNoMatch = d.OnNoMatchAllow
		}
	}
	var err error
	if e.enforced, err = newBook(set, domain, policy.Enforce); err != nil {
		return nil, err
	}
	e.shadow, err = newBook(set, domain, policy.Shadow)
	return e, err
}

// newBook makes a book of the domain's policies of one mode, nil if there are none.
func newBook(set policy.Set, domain string, mode policy.Mode) (*book, error) {
	b := &book{}
	var own policy.Set
	for i, p := range set.Clone().Policies {
		if p.Domain != domain || p.Mode != mode {
			continue
		}
		// What the nodes don't enforce yet changes no decision of a healthy cluster.
		p.Mode, p.OnUnavailable, p.AllowAdjust = policy.Enforce, policy.Deny, false
		own.Policies = append(own.Policies, p)
		b.origin = append(b.origin, i)
	}
	if len(own.Policies) == 0 {
		return nil, nil
	}
	var err error
	if b.machine, err = newMachine(own); err != nil {
		return nil, err
	}
	b.set, _ = b.machine.Set()
	b.domain, _ = b.set.Domain(domain)
	b.check.Domain, b.check.Charges = int32(b.domain), b.charge[:]
	return b, nil
}

// newMachine returns a machine with the set in force since for ever and room for everything.
func newMachine(set policy.Set) (*fsm.Machine, error) {
	set.Normalize()
	if problems := set.Validate(); len(problems) > 0 {
		return nil, problems
	}
	const term, index = 1, 0
	h := fsm.Header{Term: term, Seq: index}
	m := fsm.New()
	for i, entry := range [][]byte{
		fsm.First(h),
		fsm.SettingsEntry(h, fsm.Settings{Partitions: 1, Horizon: fsm.DefaultHorizon, Bound: math.MaxInt64, DomainBound: math.MaxInt64}),
		fsm.PoliciesEntry(h, fsm.Version{Epoch: 1, Number: 1}, set.Canonical()),
	} {
		a, err := m.Apply(uint64(index+1+i), term, entry)
		if err == nil && a.Refusal != fsm.Accepted {
			err = fmt.Errorf("entry %d is refused: %d", i+1, a.Refusal)
		}
		if err != nil {
			return nil, fmt.Errorf("put policies in force: %w", err)
		}
	}
	return m, nil
}

// decide decides a row with the given entries, sorted by name. A nil book matches nothing.
func (b *book) decide(now int64, entries []keyspace.Entry, cost uint64) outcome {
	if b == nil {
		return outcome{}
	}
	d := keyspace.Descriptor(entries)
	b.descriptor[0] = d
	ch, ok := b.set.Resolve(b.domain, d, cost)
	if !ok {
		return outcome{}
	}
	b.key = b.set.AppendKey(b.key[:0], ch.Policy, d)
	b.charge[0] = fsm.Charge{Policy: ch.Policy, Tier: ch.Tier, Override: ch.Override, Cost: ch.Cost, Key: b.key}
	a := b.machine.Rehearse(now, &b.check)
	return outcome{matched: true, allowed: a.Verdict == fsm.VerdictAllow, policy: ch.Policy, answer: a, key: b.key}
}

// verdict is what became of one row under the engine's set.
type verdict struct {
	enforced, shadow outcome

	said    *outcome // the one of them to speak of; nil where no policy matched
	book    *book    // whose it is
	allowed bool
}

// decide decides a row by the enforced policies and, apart, by the Shadow ones, each with usage of its own.
// It counts as denied if either denies.
func (e *engine) decide(v *verdict, now int64, entries []keyspace.Entry, cost uint64) {
	v.enforced, v.shadow = e.enforced.decide(now, entries, cost), e.shadow.decide(now, entries, cost)
	switch {
	case v.shadow.matched && (!v.enforced.matched || v.enforced.allowed && !v.shadow.allowed):
		v.said, v.book = &v.shadow, e.shadow
	case v.enforced.matched:
		v.said, v.book = &v.enforced, e.enforced
	default:
		v.said, v.book, v.allowed = nil, nil, e.onNoMatch
		return
	}
	v.allowed = v.said.allowed
}

// onlyShadow tells whether a Shadow policy alone denies: live, the request passes.
func (v *verdict) onlyShadow() bool { return !v.allowed && v.said == &v.shadow }

// limitName names the limit that an outcome speaks of.
func (b *book) limitName(o *outcome) string { return b.set.LimitName(o.policy, int(o.answer.Limit)) }

// appendKeyText names a key for people: the value of its one entry, else name=value of each.
func (b *book) appendKeyText(dst []byte, o *outcome) []byte {
	names := b.set.Policy(o.policy).Key
	values, err := keyspace.SplitValues(nil, o.key)
	if err != nil || len(values) != len(names) {
		return fmt.Appendf(dst, "%x", o.key) // no key of ours looks so
	}
	if len(values) == 1 {
		return append(dst, values[0]...)
	}
	sorted := slices.Sorted(slices.Values(names)) // as AppendKey writes them
	for i, value := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, sorted[i]...), '=')
		if strings.ContainsAny(string(value), ",=\"") {
			dst = fmt.Appendf(dst, "%q", value)
		} else {
			dst = append(dst, value...)
		}
	}
	return dst
}

// retryAfter is the wait of a denied cost in whole seconds, rounded up; -1 where there is none.
func (o *outcome) retryAfter() int64 {
	if o.allowed || !o.matched || o.answer.At == limit.Never || o.answer.Exceeds {
		return -1
	}
	return limit.WholeSeconds(o.answer.At - o.answer.Time)
}

// Columns returns the names of the entries that the policies of a domain look at, and those that the
// domain requires, sorted.
func Columns(set policy.Set, domain string) (names, required []string) {
	add := func(entries []keyspace.Entry) {
		for _, e := range entries {
			names = append(names, e.Name)
		}
	}
	for _, p := range set.Policies {
		if p.Domain != domain {
			continue
		}
		names = append(names, p.Key...)
		add(p.Match)
		for _, rules := range [][]policy.Rule{p.Tiers, p.Overrides} {
			for _, r := range rules {
				add(r.When)
			}
		}
		for _, c := range p.Costs {
			add(c.When)
		}
	}
	for _, d := range set.Domains {
		if d.Name == domain {
			required = d.Required
		}
	}
	names = append(names, required...)
	slices.SortFunc(names, cmp.Compare[string])
	return slices.Compact(names), required
}

// OnlyDomain returns the one domain that a set's policies are for.
func OnlyDomain(set policy.Set) (string, error) {
	var names []string
	for _, p := range set.Policies {
		names = append(names, p.Domain)
	}
	slices.Sort(names)
	switch names = slices.Compact(names); len(names) {
	case 0:
		return "", fmt.Errorf("the set has no policies")
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("the policies are for several domains: say which one with --domain: %s", strings.Join(names, ", "))
}
