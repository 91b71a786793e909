package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/limit"
)

// ChangeTo returns what stands against putting next in the place of s, nothing if usage goes on under it as the
// promise demands. Both are valid; paths are those of next, normalized. gone is what is remembered of deleted
// quotas: one of them may come back only as it was.
//
// What may change: amounts, tiers, overrides, costs, match, the order, an object's name, mode and
// onUnavailable, the domains' entries; policies come and go. The frame of a quota stays.
func (s Set) ChangeTo(next Set, gone []Tombstone) Problems {
	c := newChange(s, next)
	c.follow()
	c.replaced()
	c.revive(gone)
	return c.problems
}

// FollowTo is ChangeTo for who follows: sets between the two may have been skipped, and what is deleted and
// remembered doesn't stand against anything, as it was judged where the sets are ordered.
func (s Set) FollowTo(next Set) Problems {
	c := newChange(s, next)
	c.follow()
	return c.problems
}

// MaxBytes bounds a set that is put in force, in canonical form: it travels as one entry of a log.
const MaxBytes = 16 << 20

// TooLarge says that a set, of which that is the canonical form, is too large to be put in force; nothing: it isn't.
func TooLarge(canonical []byte) Problems {
	if len(canonical) <= MaxBytes {
		return nil
	}
	return Problems{{Message: fmt.Sprintf("the set has %d bytes in its canonical form, at most %d can be put in force; "+
		"spread its policies over fewer overrides, or its domains over several clusters", len(canonical), MaxBytes)}}
}

// change compares two sets.
type change struct {
	validator
	from, to     []Policy
	fromAt, toAt map[[2]string]int // by quota
	fromObject   map[[2]string]int // by name
	deleted      int
}

func newChange(from, to Set) *change {
	from, to = from.Clone(), to.Clone()
	from.Normalize()
	to.Normalize()
	c := &change{from: from.Policies, to: to.Policies, fromObject: map[[2]string]int{}}
	c.fromAt, c.toAt = byQuota(from.Policies), byQuota(to.Policies)
	for i := range c.from {
		c.fromObject[[2]string{c.from[i].Namespace, c.from[i].Name}] = i
	}
	return c
}

func byQuota(policies []Policy) map[[2]string]int {
	at := map[[2]string]int{}
	for i := range policies {
		at[policies[i].quota()] = i
	}
	return at
}

func (p *Policy) quota() [2]string { return [2]string{p.Namespace, p.Quota} }

// follow holds every policy of the new set to the one that had its quota.
func (c *change) follow() {
	for i := range c.to {
		p := &c.to[i]
		if at, there := c.fromAt[p.quota()]; there {
			old, now := c.from[at].Frame(), p.Frame()
			v := comparison{&c.validator, fmt.Sprintf("policies[%d]", i), "can't be changed from %s to %s yet: " + changeable}
			v.frames(&old, &now)
		}
	}
	for _, p := range c.from {
		if _, kept := c.toAt[p.quota()]; !kept {
			c.deleted++
		}
	}
}

// replaced refuses another quota under an object's name: its usage would be lost by an edit. Who follows may have
// skipped the set in which the policy was deleted.
func (c *change) replaced() {
	for i := range c.to {
		p := &c.to[i]
		at, there := c.fromObject[[2]string{p.Namespace, p.Name}]
		if _, known := c.fromAt[p.quota()]; known || !there {
			continue
		}
		// Another object may have taken the old quota over.
		if _, kept := c.toAt[c.from[at].quota()]; !kept {
			c.add(fmt.Sprintf("policies[%d].quota", i), "can't be changed from %q to %q: another quota is another allowance. "+
				"Delete the policy and add one under another name", c.from[at].Quota, p.Quota)
		}
	}
}

const changeable = "this version changes amounts, tiers, overrides, costs, match, names and the order, " +
	"and adds and deletes policies. Give the policy another name and quota, which is a new allowance"

// revive holds new policies to what is remembered under their quotas.
func (c *change) revive(gone []Tombstone) {
	remembered := map[[2]string][]int{}
	for i, t := range gone {
		q := [2]string{t.Namespace, t.Quota}
		remembered[q] = append(remembered[q], i)
	}
	left := len(gone)
	for i := range c.to {
		p := &c.to[i]
		stones := remembered[p.quota()]
		if _, live := c.fromAt[p.quota()]; live || len(stones) == 0 {
			continue
		}
		frame := p.Frame()
		if slices.ContainsFunc(stones, func(t int) bool { return frame.Equal(&gone[t].Frame) }) {
			left--
			continue
		}
		v := comparison{&c.validator, fmt.Sprintf("policies[%d]", i), "was %s when a policy of this quota was deleted and can't come back as %s: " + revivable}
		v.frames(&gone[stones[0]].Frame, &frame)
	}
	if left+c.deleted > MaxTombstones {
		c.add("policies", "%d quotas are deleted with this set and %d are remembered from before; at most %d can be, each for %s. "+
			"Delete some later", c.deleted, left, MaxTombstones, FormatDuration(TombstoneLife))
	}
}

const revivable = "for 90 days a quota comes back with what it has used, and so as it was. " +
	"Give the policy another quota, which is a new allowance"

// comparison names what differs between two frames of one quota. The format takes the old and the new value.
type comparison struct {
	*validator
	path, format string
}

func (v *comparison) differs(field, was, is string) {
	if was != is {
		v.add(v.path+field, v.format, was, is)
	}
}

func (v *comparison) frames(was, is *Frame) {
	before := len(v.problems)
	v.differs(".domain", strconv.Quote(was.Domain), strconv.Quote(is.Domain))
	v.differs(".key", list(was.Key), list(is.Key))
	v.differs(".partitionBy", list(was.PartitionBy), list(is.PartitionBy))
	v.limits(was.Limits, is.Limits)
	if was.KeepHistory != longestWindow(was.Limits) || is.KeepHistory != longestWindow(is.Limits) {
		v.differs(".keepHistory", FormatDuration(was.KeepHistory), FormatDuration(is.KeepHistory))
	} // else it is the default, and the windows' problem
	if was.Refills != is.Refills {
		v.add(v.path+".overrides", "refills can't be changed yet: where an override has a refill or a period, overrides keep their order, "+
			"their when, their refill and their period, and only amounts may be others. Give the policy another name and quota, which is a new allowance")
	}
	if len(v.problems) == before && !was.Equal(is) { // a field that is compared and has no words yet
		v.add(v.path, "differs from what usage was kept under. Give the policy another name and quota, which is a new allowance")
	}
}

func list(names []string) string { return "[" + strings.Join(names, ", ") + "]" }

func (v *comparison) limits(was, is []Limit) {
	v.differs(".limits", list(limitNames(was)), list(limitNames(is)))
	for i, l := range is {
		at := slices.IndexFunc(was, func(o Limit) bool { return o.Name == l.Name })
		if at >= 0 {
			v.limit(fmt.Sprintf(".limits[%d]", i), was[at], l)
		}
	}
}

func limitNames(limits []Limit) (names []string) {
	for _, l := range limits {
		names = append(names, l.Name)
	}
	return names
}

func (v *comparison) limit(field string, was, is Limit) {
	if was.Algorithm != is.Algorithm {
		v.differs(field, was.Algorithm.String(), is.Algorithm.String())
		return
	}
	window := ".window"
	if is.Algorithm == limit.TokenBucket {
		window = ".period"
	}
	field += "." + is.Algorithm.String()
	v.differs(field+window, FormatDuration(was.Window), FormatDuration(is.Window))
	v.differs(field+".refill", strconv.FormatUint(was.Refill, 10), strconv.FormatUint(is.Refill, 10))
	v.differs(field+".precision", FormatDuration(was.Precision), FormatDuration(is.Precision))
}
