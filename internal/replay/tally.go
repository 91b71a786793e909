package replay

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/quorate/quorate/internal/policy"
)

// maxTracked is how many keys are counted one by one. Beyond it keys that were never denied are
// forgotten first.
const maxTracked = 1 << 20

// tally counts decisions.
type tally struct {
	allowed, denied, unmatched, onlyShadow int64
	from, to                               int64

	policies []PolicySummary
	keys     keyCounts
	series   Series
	other    *Comparison
	newly    keyCounts // of rows that the other set allowed
}

func newTally(set policy.Set, top int) *tally {
	t := &tally{keys: newKeyCounts(top), newly: newKeyCounts(top)}
	for _, p := range set.Policies {
		t.policies = append(t.policies, PolicySummary{Namespace: p.Namespace, Name: p.Name, Shadow: p.Mode == policy.Shadow})
	}
	return t
}

// compare makes the tally ready for a second set.
func (t *tally) compare() { t.other = &Comparison{} }

// count counts one row. Rows come in the order of their times.
func (t *tally) count(time int64, e *engine, v *verdict) {
	if t.allowed+t.denied == 0 {
		t.from = time
	}
	t.to = time
	t.series.count(time, v.allowed)
	if v.allowed {
		t.allowed++
	} else {
		t.denied++
	}
	if v.onlyShadow() {
		t.onlyShadow++
	}
	t.countPolicy(e.enforced, &v.enforced)
	t.countPolicy(e.shadow, &v.shadow)
	if v.said == nil {
		t.unmatched++
		return
	}
	// Each policy that matched has the row under a key of its own.
	if v.enforced.matched {
		t.keys.count(e.enforced, &v.enforced, !v.enforced.allowed)
	}
	if v.shadow.matched {
		t.keys.count(e.shadow, &v.shadow, !v.shadow.allowed)
	}
}

func (t *tally) countPolicy(b *book, o *outcome) {
	if !o.matched {
		return
	}
	p := &t.policies[b.origin[o.policy]]
	p.Requests++
	if !o.allowed {
		p.Denied++
	}
}

// countOther counts what the other set says to the row.
func (t *tally) countOther(v, other *verdict) {
	c := t.other
	if other.allowed {
		c.Allowed++
	} else {
		c.Denied++
	}
	switch {
	case other.allowed && !v.allowed:
		c.NewlyDenied++
	case !other.allowed && v.allowed:
		c.NewlyAllowed++
	}
	if v.said != nil {
		t.newly.count(v.book, v.said, other.allowed && !v.allowed)
	}
}

// keyCounts counts requests by key. Keys are told apart by a 64-bit hash; the text of a key is kept once
// one of its requests was denied.
type keyCounts struct {
	top   int
	seed  maphash.Seed
	keys  map[uint64]keyCount
	text  map[uint64]Offender
	lossy bool
}

type keyCount struct{ requests, denied int64 }

func newKeyCounts(top int) keyCounts {
	return keyCounts{top: top, seed: maphash.MakeSeed(), keys: map[uint64]keyCount{}, text: map[uint64]Offender{}}
}

func (k *keyCounts) count(b *book, o *outcome, denied bool) {
	hash := maphash.Bytes(k.seed, o.key) ^ uint64(b.origin[o.policy])*0x9e3779b97f4a7c15
	c, known := k.keys[hash]
	if !known && len(k.keys) >= maxTracked {
		k.forget()
	}
	c.requests++
	if denied {
		if c.denied++; c.denied == 1 {
			p := b.set.Policy(o.policy)
			k.text[hash] = Offender{Key: string(b.appendKeyText(nil, o)), Policy: p.Namespace + "/" + p.Name}
		}
	}
	k.keys[hash] = c
}

// forget makes room: for all that was denied, if that is few enough, else for the half that was denied
// most.
func (k *keyCounts) forget() {
	k.lossy = true
	for hash, c := range k.keys {
		if c.denied == 0 {
			delete(k.keys, hash)
		}
	}
	if len(k.keys) < maxTracked/2 {
		return
	}
	for _, hash := range k.ranked()[maxTracked/4:] {
		delete(k.keys, hash)
		delete(k.text, hash)
	}
}

// ranked returns the keys that were denied, the most denied first, equals by their text.
func (k *keyCounts) ranked() []uint64 {
	var all []uint64
	for hash := range k.text {
		all = append(all, hash)
	}
	slices.SortFunc(all, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(k.keys[b].denied, k.keys[a].denied),
			cmp.Compare(k.text[a].Key, k.text[b].Key), cmp.Compare(k.text[a].Policy, k.text[b].Policy))
	})
	return all
}

func (k *keyCounts) offenders() []Offender {
	all := k.ranked()
	all = all[:min(len(all), k.top)]
	var top []Offender
	for _, hash := range all {
		o := k.text[hash]
		o.Requests, o.Denied = k.keys[hash].requests, k.keys[hash].denied
		top = append(top, o)
	}
	return top
}

// steps are the lengths that a slice of a series may have, each a multiple of the one before.
var steps = []int64{1e9, 5e9, 15e9, 60e9, 300e9, 900e9, 3600e9, 3 * 3600e9, 6 * 3600e9, 24 * 3600e9, 7 * 24 * 3600e9, 28 * 24 * 3600e9, 364 * 24 * 3600e9}

// maxSlices is how many slices a series has at most, but for traces of centuries.
const maxSlices = 240

// count counts a request in its slice; time never goes back.
func (s *Series) count(time int64, allowed bool) {
	if s.Step == 0 {
		s.Step = steps[0]
		s.Start = time / s.Step * s.Step
	}
	at := (time - s.Start) / s.Step
	for at >= maxSlices && s.Step < steps[len(steps)-1] {
		s.widen()
		at = (time - s.Start) / s.Step
	}
	for int64(len(s.Allowed)) <= at {
		s.Allowed, s.Denied = append(s.Allowed, 0), append(s.Denied, 0)
	}
	if allowed {
		s.Allowed[at]++
	} else {
		s.Denied[at]++
	}
}

// widen joins slices to such of the next length.
func (s *Series) widen() {
	next := slices.IndexFunc(steps, func(step int64) bool { return step > s.Step })
	wide := Series{Step: steps[next], Start: s.Start / steps[next] * steps[next]}
	for i := range s.Allowed {
		at := (s.Start + int64(i)*s.Step - wide.Start) / wide.Step
		for int64(len(wide.Allowed)) <= at {
			wide.Allowed, wide.Denied = append(wide.Allowed, 0), append(wide.Denied, 0)
		}
		wide.Allowed[at] += s.Allowed[i]
		wide.Denied[at] += s.Denied[i]
	}
	*s = wide
}

// summary puts together what the replay came to.
func (r *run) summary() *Summary {
	t := r.tally
	s := &Summary{
		Inputs: r.inputs,
		Lines:  r.counts.Lines, Blank: r.counts.Blank, Header: r.counts.Header, Bad: r.counts.Bad,
		Requests: t.allowed + t.denied, Allowed: t.allowed, Denied: t.denied,
		Unmatched: t.unmatched, ShadowDenied: t.onlyShadow,
		From: t.from, To: t.to, Series: t.series,
		Top: t.keys.offenders(), TopExact: !t.keys.lossy && !t.newly.lossy, Against: t.other,
	}
	for _, p := range t.policies {
		if p.Requests > 0 || r.inDomain(p) {
			s.Policies = append(s.Policies, p)
		}
	}
	for reason, n := range r.bad {
		s.BadBy = append(s.BadBy, Count{reason, n})
	}
	slices.SortFunc(s.BadBy, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	if t.other != nil {
		t.other.Top = t.newly.offenders()
	}
	return s
}

// inDomain tells whether the policy is of the domain that was replayed.
func (r *run) inDomain(p PolicySummary) bool {
	return slices.ContainsFunc(r.cfg.Set.Policies, func(q policy.Policy) bool {
		return q.Namespace == p.Namespace && q.Name == p.Name && q.Domain == r.cfg.Domain
	})
}

// union merges two sorted lists of names.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
