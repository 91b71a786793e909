package policy

import (
	"slices"

	"github.com/quorate/quorate/internal/keyspace"
)

// condition is what a descriptor must have: entries with their values, and names with any value but the
// empty one. Both are sorted.
type condition struct {
	match []keyspace.Entry
	key   []string
}

func (c *condition) holds(d keyspace.Descriptor) bool {
	if !d.Contains(c.match) {
		return false
	}
	for _, name := range c.key {
		if !d.Has(name) {
			return false
		}
	}
	return true
}

// witness is the least descriptor that the condition holds for. Its filler is no UTF-8 and so is never a
// value that a valid policy asks for.
func (c *condition) witness() keyspace.Descriptor {
	d := slices.Clone(c.match)
	for _, name := range c.key {
		if !keyspace.Descriptor(c.match).Has(name) {
			d = append(d, keyspace.Entry{Name: name, Value: "\xff"})
		}
	}
	keyspace.SortEntries(d)
	return d
}

// index finds the first of a list of conditions that holds for a descriptor, without looking at all of
// them: each is filed under the rarest thing it asks for, and only what is filed under things that the
// descriptor has is looked at.
type index struct {
	conditions []condition
	byName     map[string]anchor // nil: so few conditions that looking at all is quicker
	always     []int32           // positions of conditions that ask for nothing
}

// anchor holds the positions, ascending, of what is filed under one entry name.
type anchor struct {
	byValue map[string][]int32
	present []int32 // any value but the empty one will do
}

// smallIndex is the number of conditions up to which a scan beats the maps.
const smallIndex = 4

func newIndex(conditions []condition) index {
	x := index{conditions: conditions}
	if len(conditions) <= smallIndex {
		return x
	}
	x.byName = map[string]anchor{}
	rarity := countAsks(conditions)
	for i := range conditions {
		at := int32(i)
		ask, found := conditions[i].rarest(rarity)
		if !found {
			x.always = append(x.always, at)
			continue
		}
		a := x.byName[ask.Name]
		if ask.Value == "" {
			a.present = append(a.present, at)
		} else {
			if a.byValue == nil {
				a.byValue = map[string][]int32{}
			}
			a.byValue[ask.Value] = append(a.byValue[ask.Value], at)
		}
		x.byName[ask.Name] = a
	}
	return x
}

// countAsks counts how many conditions ask for each entry; an empty value stands for "any value".
func countAsks(conditions []condition) map[keyspace.Entry]int {
	counts := map[keyspace.Entry]int{}
	for _, c := range conditions {
		for _, e := range c.match {
			counts[e]++
		}
		for _, name := range c.key {
			counts[keyspace.Entry{Name: name}]++
		}
	}
	return counts
}

// rarest is the thing that c asks for and the fewest others do; of equals a value before a mere name.
func (c *condition) rarest(counts map[keyspace.Entry]int) (ask keyspace.Entry, found bool) {
	consider := func(e keyspace.Entry) {
		if !found || counts[e] < counts[ask] {
			ask, found = e, true
		}
	}
	for _, e := range c.match {
		consider(e)
	}
	for _, name := range c.key {
		consider(keyspace.Entry{Name: name})
	}
	return ask, found
}

// first returns the position of the first condition that holds for d, -1 if none does.
func (x *index) first(d keyspace.Descriptor) int32 {
	if x.byName == nil {
		for i := range x.conditions {
			if x.conditions[i].holds(d) {
				return int32(i)
			}
		}
		return -1
	}
	none := int32(len(x.conditions))
	best := x.firstOf(x.always, d, none)
	for _, e := range d {
		a, found := x.byName[e.Name]
		if !found || e.Value == "" {
			continue
		}
		best = x.firstOf(a.present, d, best)
		best = x.firstOf(a.byValue[e.Value], d, best)
	}
	if best == none {
		return -1
	}
	return best
}

// firstOf returns the first of the positions whose condition holds for d, or best if none before best does.
func (x *index) firstOf(positions []int32, d keyspace.Descriptor, best int32) int32 {
	for _, i := range positions {
		if i >= best {
			break
		}
		if x.conditions[i].holds(d) {
			return i
		}
	}
	return best
}
