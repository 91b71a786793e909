package checker

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Which policy set was in force when nobody can know, only when it can have been. An attempt begins to be
// possible when it is sent. It surely is over once an attempt that comes after it has been answered as applied. Which
// of two comes after is told by the numbers of their versions, and where one has none by when they were sent:
// that is right as long as an attempt that may still be on its way is bound to the set that it was made for.

// spec is a rolling limit of one attempt's set.
type spec struct {
	name   string
	window int64
	max    uint64 // unlimited: none
}

const unlimited = math.MaxUint64

// quotaLimits are the limits of one quota in one attempt's set.
type quotaLimits struct {
	rolling []spec
	others  bool // it has limits that aren't judged: what they deny can't be checked
}

// attempt is one that may have put its set into force.
type attempt struct {
	line        int
	source      *Policies
	sent, until int64 // when it may be in force, both ends included
	quotas      map[int32]quotaLimits
}

// bound is the most units in a window of a length.
type bound struct {
	window int64
	max    uint64
}

// sets knows all attempts.
type sets struct {
	kept     *store
	attempts []*attempt
	windows  map[int32][]int64 // of a quota, each once, ascending

	allowed  interned[[]uint64]
	denied   interned[verdicts]
	scratch  []byte
	possible []*attempt
}

// verdicts is what a denial may have been denied by.
type verdicts struct {
	bounds []bound
	excuse string // why no denial under these sets can be judged; empty: it can
}

// interned keeps a value for each quota and choice of attempts.
type interned[V any] struct {
	numbers map[string]int32
	values  []V
}

func (i *interned[V]) of(key []byte, made func() V) int32 {
	n, ok := i.numbers[string(key)]
	if !ok {
		n = int32(len(i.values))
		i.values = append(i.values, made())
		i.numbers[string(key)] = n
	}
	return n
}

func newSets(kept *store) *sets {
	s := &sets{kept: kept, windows: map[int32][]int64{}}
	s.allowed.numbers, s.denied.numbers = map[string]int32{}, map[string]int32{}
	return s
}

func (s *sets) add(line int, p *Policies) {
	if p.Outcome == Refused {
		return
	}
	a := &attempt{line: line, source: p, sent: p.Sent, until: math.MaxInt64, quotas: map[int32]quotaLimits{}}
	for _, l := range p.Limits {
		quota := s.kept.name(l.Quota)
		q := a.quotas[quota]
		if l.Algorithm != Rolling {
			q.others = true
		} else {
			x := spec{name: l.Name, window: l.Window, max: l.Max}
			if l.Unlimited {
				x.max = unlimited
			}
			q.rolling = append(q.rolling, x)
			s.windows[quota] = append(s.windows[quota], l.Window)
		}
		a.quotas[quota] = q
	}
	s.attempts = append(s.attempts, a)
}

// seal finds until when each attempt may have been in force.
func (s *sets) seal() {
	for quota, w := range s.windows {
		slices.Sort(w)
		s.windows[quota] = slices.Compact(w)
	}
	for _, a := range s.attempts {
		for _, b := range s.attempts {
			if b.source.Outcome == Applied && b.after(a) {
				a.until = min(a.until, b.source.Answered)
			}
		}
	}
}

// after says that b, if both come into force, does so after a.
func (b *attempt) after(a *attempt) bool {
	if x, y := b.source.Set, a.source.Set; x != 0 && y != 0 && x != y {
		return x > y
	}
	return b.sent > a.sent
}

// between finds the attempts that may have been in force at some moment of [from, to], and a key for them
// and the quota.
func (s *sets) between(quota int32, from, to int64) []byte {
	s.possible = s.possible[:0]
	s.scratch = binary.AppendVarint(s.scratch[:0], int64(quota))
	for i, a := range s.attempts {
		if a.sent <= to && a.until >= from {
			s.possible = append(s.possible, a)
			s.scratch = binary.AppendUvarint(s.scratch, uint64(i))
		}
	}
	return s.scratch
}

// caps returns the number of what an allow that was decided within [from, to] may have been held to: for each
// window of its quota the largest amount. An empty list: no set that may have been in force holds the quota.
func (s *sets) caps(quota int32, from, to int64) int32 {
	return s.allowed.of(s.between(quota, from, to), func() []uint64 { return s.loosest(quota) })
}

// loosest gives, for each window w of the quota, the most units that any of the possible sets lets into it.
// A limit with a longer window bounds shorter ones too.
func (s *sets) loosest(quota int32) (caps []uint64) {
	for _, a := range s.possible {
		limits, ok := a.quotas[quota]
		if !ok {
			continue
		}
		if caps == nil {
			caps = make([]uint64, len(s.windows[quota])+1) // one more: a quota without rolling limits has caps too
		}
		for i, w := range s.windows[quota] {
			most := uint64(unlimited)
			for _, l := range limits.rolling {
				if l.window >= w {
					most = min(most, l.max)
				}
			}
			caps[i] = max(caps[i], most)
		}
	}
	return caps
}

// verdicts returns what a denial may have come from, if the sets of [from, to] may have taken part.
func (s *sets) verdicts(quota int32, from, to int64) *verdicts {
	n := s.denied.of(s.between(quota, from, to), func() verdicts { return s.strictest(quota) })
	return &s.denied.values[n]
}

// strictest gathers every limit of the possible sets, each with its lowest amount. A quota whose sets differ in
// more than amounts can't be judged: what was not kept by one counts as used up for another.
func (s *sets) strictest(quota int32) (v verdicts) {
	var first []spec
	for i, a := range s.possible {
		limits, ok := a.quotas[quota]
		switch {
		case !ok:
			return verdicts{excuse: "a set without the quota"}
		case limits.others:
			return verdicts{excuse: "limits of other algorithms"}
		case i > 0 && !sameShape(first, limits.rolling):
			return verdicts{excuse: "sets that differ in more than amounts"}
		case i == 0:
			first = limits.rolling
		}
		for _, l := range limits.rolling {
			v.lower(l)
		}
	}
	if len(s.possible) == 0 {
		v.excuse = "no set"
	}
	return v
}

func (v *verdicts) lower(l spec) {
	for i := range v.bounds {
		if v.bounds[i].window == l.window {
			v.bounds[i].max = min(v.bounds[i].max, l.max)
			return
		}
	}
	v.bounds = append(v.bounds, bound{l.window, l.max})
}

func sameShape(a, b []spec) bool {
	has := func(in []spec, l spec) bool {
		return slices.ContainsFunc(in, func(x spec) bool { return x.name == l.name && x.window == l.window })
	}
	for _, l := range a {
		if !has(b, l) {
			return false
		}
	}
	return len(a) == len(b)
}

// longest is the longest rolling window that the quota ever has.
func (s *sets) longest(quota int32) int64 {
	if w := s.windows[quota]; len(w) > 0 {
		return w[len(w)-1]
	}
	return 0
}

// shown are the lines of the attempts that may have been in force within [from, to].
func (s *sets) shown(quota int32, from, to int64) (lines []Shown) {
	s.between(quota, from, to)
	for _, a := range s.possible {
		lines = append(lines, Shown{a.line, fmt.Sprintf("set %d, %s, sent %d, answered %d, %s: %v",
			a.source.Set, a.source.Outcome, a.source.Sent, a.source.Answered, s.kept.names[quota], a.quotas[quota].rolling)})
	}
	return lines
}
