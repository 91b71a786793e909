package fsm_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// What the oracle says of sets that change: who keeps which quota, and which bucket isn't as large as its policy
// says yet.

type heldLimit struct{ quota, limit string }

// heldTo is a capacity that a bucket keeps until some time.
type heldTo struct {
	most  uint64
	until int64
}

// enforce puts a set in the place of the one in force.
func (o *oracle) enforce(set policy.Set) {
	set = set.Clone()
	set.Normalize()
	before := o.quotas
	o.quotas, o.domains = nil, nil
	for _, p := range set.Policies {
		id := o.find(p, before)
		if id == "" {
			o.made++
			id = fmt.Sprintf("%s#%d", nameOf(p), o.made)
		} else {
			o.hold(id, p)
		}
		if _, gone := o.deleted[id]; gone {
			delete(o.deleted, id)
			o.back++
		}
		o.past[id] = p
		o.quotas = append(o.quotas, id)
		o.domains = append(o.domains, p.Domain)
	}
	for _, id := range before {
		if !slices.Contains(o.quotas, id) {
			o.deleted[id] = o.now
		}
	}
	for _, d := range set.Domains {
		o.domains = append(o.domains, d.Name)
	}
	slices.Sort(o.domains)
	o.domains = slices.Compact(o.domains)
	o.policies = set.Policies
}

func nameOf(p policy.Policy) string { return p.Namespace + "/" + p.Quota }

// find is the quota that a policy goes on with: that of its name in the set before, or a deleted one that was kept
// alike.
func (o *oracle) find(p policy.Policy, before []string) string {
	for _, id := range before {
		if nameOf(o.past[id]) == nameOf(p) {
			return id
		}
	}
	for _, id := range slices.Sorted(maps.Keys(o.deleted)) {
		if reflect.DeepEqual(kept(o.past[id]), kept(p)) {
			return id
		}
	}
	return ""
}

// kept is a policy without all that may change.
func kept(p policy.Policy) policy.Policy {
	k := policy.Policy{
		Namespace: p.Namespace, Quota: p.Quota, Domain: p.Domain, Key: p.Key, PartitionBy: p.PartitionBy, KeepHistory: p.KeepHistory,
		Limits: slices.Clone(p.Limits),
	}
	for i := range k.Limits {
		k.Limits[i].Amount = 0
	}
	refills := func(o policy.Override) bool {
		return slices.ContainsFunc(o.Amounts, func(a policy.Amount) bool { return a.Refill != 0 || a.Period != 0 })
	}
	if !slices.ContainsFunc(p.Overrides, refills) {
		return k
	}
	for _, o := range p.Overrides {
		bare := policy.Override{When: o.When}
		for _, a := range o.Amounts {
			if a.Refill != 0 || a.Period != 0 {
				bare.Amounts = append(bare.Amounts, policy.Amount{Limit: a.Limit, Refill: a.Refill, Period: a.Period})
			}
		}
		k.Overrides = append(k.Overrides, bare)
	}
	return k
}

// hold keeps the buckets of a quota as large as they were, where something of them was let go: until one of the new
// size, empty when that was, would be full, under whatever refill.
func (o *oracle) hold(id string, next policy.Policy) {
	past := o.past[id]
	cut, ever := o.cuts[id]
	for i, l := range next.Limits {
		if !ever || l.Algorithm != limit.TokenBucket || largest(&next, l) <= largest(&past, past.Limits[i]) {
			continue
		}
		w := law{algorithm: l.Algorithm, window: l.Window, refill: l.Refill, limit: l.Name}
		until := w.emptied(o, cut, largest(&next, l))
		for _, r := range next.Overrides {
			for _, a := range r.Amounts {
				if a.Limit == l.Name && a.Refill+uint64(a.Period) > 0 {
					slow := w
					slow.refill, slow.window = max(a.Refill, l.Refill*boolean(a.Refill == 0)), max(a.Period, l.Window*int64(boolean(a.Period == 0)))
					until = max(until, slow.emptied(o, cut, largest(&next, l)))
				}
			}
		}
		most := largest(&past, past.Limits[i])
		if h := o.holds[heldLimit{id, l.Name}]; o.now < h.until {
			most, until = min(most, h.most), max(until, h.until)
		}
		o.holds[heldLimit{id, l.Name}] = heldTo{most, until}
	}
}

func boolean(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// emptied is when a bucket that owes so many units at some time owes nothing any more.
func (w law) emptied(o *oracle, at int64, owed uint64) int64 {
	whole := event{at, owed, &policy.Policy{Limits: []policy.Limit{{Name: w.limit, Amount: owed}}}}
	later := *o
	later.now = at
	return later.first(func(t int64) bool { return w.debt([]event{whole}, t) == 0 })
}

// noteCuts notes when an unlimited charge goes beyond what a bucket may owe.
func (o *oracle) noteCuts(ch *fsm.Charge, cost uint64) {
	p := &o.policies[ch.Policy]
	for i, l := range p.Limits {
		w := o.law(ch, i)
		if !w.unlimited || l.Algorithm != limit.TokenBucket {
			continue
		}
		owed := w.used(o, o.now)
		if most := max(largest(p, l), owed); cost > most-owed {
			o.cuts[w.key.quota] = o.now
		}
	}
}

// reform orders another set, or what no leader should order.
func (h *history) reform() {
	next := h.reformed()
	problems := h.set.ChangeTo(next, h.m.Tombstones())
	switch h.IntN(8) {
	case 0: // one who expects another
		expected := h.v
		expected.Number += pick(h.choices, uint64(1), ^uint64(0))
		v := fsm.Version{Epoch: h.v.Epoch, Number: expected.Number + 1}
		if v == h.v && next.Hash() == h.set.Hash() {
			next.Policies = nil // or it would be the very set in force
		}
		h.switched(fsm.RefusedConflict, h.apply(fsm.ChangeEntry(h.header(), expected, v, next.Canonical())), next, v)
	case 1: // the same again
		h.switched(fsm.Accepted, h.apply(fsm.PoliciesEntry(h.header(), h.v, h.set.Canonical())), h.set, h.v)
	case 2: // what another partition has ordered
		v := fsm.Version{Epoch: h.v.Epoch, Number: h.v.Number + 1 + h.Uint64N(3)}
		want := fsm.Accepted
		if len(h.set.FollowTo(next)) > 0 {
			want = fsm.RefusedSet
		}
		h.switched(want, h.apply(fsm.PoliciesEntry(h.header(), v, next.Canonical())), next, v)
	default:
		v, want := fsm.Version{Epoch: h.v.Epoch, Number: h.v.Number + 1}, fsm.Accepted
		if len(problems) > 0 {
			want = fsm.RefusedSet
		}
		h.switched(want, h.apply(fsm.ChangeEntry(h.header(), h.v, v, next.Canonical())), next, v)
	}
	h.remembered()
}

// switched notes what became of a set.
func (h *history) switched(want fsm.Refusal, a fsm.Applied, next policy.Set, v fsm.Version) {
	h.tb.Helper()
	if a.Refusal != want {
		h.tb.Errorf("entry %d: refusal %d of a set, want %d: %v", h.index, a.Refusal, want, h.set.ChangeTo(next, h.m.Tombstones()))
	}
	h.switches[a.Refusal]++
	if a.Refusal == fsm.Accepted && v != h.v {
		h.former = append(h.former, h.set.Policies...)
		h.former = h.former[max(0, len(h.former)-10):]
		h.set, h.v = next, v
		h.oracle.enforce(next)
	}
	set, inForce := h.m.Set()
	if inForce != h.v || set.Set().Hash() != h.set.Hash() || h.m.SetHash() != h.set.Hash() {
		h.tb.Errorf("entry %d: version %v is in force, want %v", h.index, inForce, h.v)
	}
}

// remembered compares what is remembered of deleted quotas. The machine may forget what the oracle doesn't, ninety
// days later.
func (h *history) remembered() {
	gone := map[string]int{}
	for _, t := range h.m.Tombstones() {
		gone[fmt.Sprint(t.Namespace, "/", t.Quota, t.Deleted)]++
	}
	for id, at := range h.oracle.deleted {
		name := fmt.Sprint(nameOf(h.oracle.past[id]), at)
		if gone[name] == 0 && h.m.Now()-at < policy.TombstoneLife {
			h.tb.Errorf("entry %d: of %s, deleted at %d, nothing is remembered", h.index, id, at)
		}
		gone[name]--
	}
	for name, n := range gone {
		if n > 0 {
			h.tb.Errorf("entry %d: %d times too often %s is remembered", h.index, n, name)
		}
	}
}

// reformed is another valid set with something in the domain "a", mostly one that may follow.
func (h *history) reformed() policy.Set {
	for {
		next := h.set.Clone()
		for range 1 + h.IntN(3) {
			h.alter(&next)
		}
		set, err := policy.Compile(next)
		if err != nil || len(h.set.FollowTo(next)) > 0 && !h.oneIn(10) {
			continue
		}
		if d, ok := set.Domain("a"); ok && set.DomainName(d) == "a" && slices.ContainsFunc(next.Policies, func(p policy.Policy) bool { return p.Domain == "a" }) {
			return next
		}
	}
}

// alter changes something, perhaps something that can't be.
func (h *history) alter(s *policy.Set) {
	if h.sizes {
		pick(h.choices, s.Policies...).Limits[0].Amount = 1 + h.Uint64N(12)
		return
	}
	i := h.IntN(len(s.Policies) + 1)
	if i == len(s.Policies) || len(s.Policies[i].Limits) == 0 {
		h.found(s)
		return
	}
	p := &s.Policies[i]
	l := &p.Limits[h.IntN(len(p.Limits))]
	switch h.IntN(16) {
	case 0, 1, 2:
		l.Amount = h.Uint64N(14)
	case 3: // larger buckets
		for i := range p.Limits {
			if b := &p.Limits[i]; b.Algorithm == limit.TokenBucket {
				b.Amount = largest(p, *b) + 1 + h.Uint64N(5)
			}
		}
	case 4, 5:
		fresh := *p
		fresh.Tiers, fresh.Overrides, fresh.Costs = nil, nil, nil
		randomRules(h.choices, &fresh)
		p.Tiers, p.Costs = fresh.Tiers, fresh.Costs
		if h.oneIn(2) {
			p.Overrides = fresh.Overrides
		}
	case 6, 7:
		for i := range p.Overrides {
			if a := &p.Overrides[i].Amounts[0]; !a.Unlimited {
				a.Amount = h.Uint64N(14)
			}
		}
	case 8:
		p.Match = nil
		if h.oneIn(2) {
			p.Match = []keyspace.Entry{{Name: "class", Value: pick(h.choices, "x", "y")}}
		}
	case 9:
		h.Shuffle(len(s.Policies), func(i, j int) { s.Policies[i], s.Policies[j] = s.Policies[j], s.Policies[i] })
	case 10, 11:
		s.Policies = slices.Delete(s.Policies, i, i+1)
	case 12: // renamed
		if p.Quota == "" {
			p.Quota = p.Name
		}
		p.Name = fmt.Sprintf("n%d", h.IntN(1000))
	case 13:
		s.Domains = nil
		for _, name := range []string{"a", "aa", "b", "d"} {
			if h.oneIn(2) {
				s.Domains = append(s.Domains, policy.Domain{Name: name, OnNoMatchAllow: h.oneIn(2)})
			}
		}
	case 14:
		h.found(s)
	default:
		pick(h.choices, func() { l.Window++ }, func() { p.Limits = p.Limits[1:] }, func() { p.Domain = "b" }, func() { p.KeepHistory += second })()
	}
}

// found adds a policy, a new one or one that was there before, perhaps changed.
func (h *history) found(s *policy.Set) {
	if len(s.Policies) > 6 {
		return
	}
	p := randomPolicy(h.choices, fmt.Sprintf("p%d", h.IntN(8)))
	if len(h.former) > 0 && !h.oneIn(4) {
		p = policy.Set{Policies: []policy.Policy{pick(h.choices, h.former...)}}.Clone().Policies[0]
		p.Limits[0].Amount = 1 + h.Uint64N(14)
	}
	if h.oneIn(6) {
		p.Domain = "c"
	}
	s.Policies = append(s.Policies, p)
}
