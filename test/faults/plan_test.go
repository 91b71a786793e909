package faults_test

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// phase is what goes on while a fault is done.
type phase string

const (
	steady     phase = "steady"     // load, and a policy edit now and then
	editing    phase = "editing"    // amounts are raised and lowered all the while
	installing phase = "installing" // a follower is taking in a snapshot when the fault comes
)

// ground is the kind of cluster that a cell runs on. Cells on the same ground share a cluster, until one leaves it
// broken.
type ground struct {
	steered    bool // the test's own node, with clocks that can be set and small logs
	partitions int  // a fault that leaves it open has 0
	mounted    bool // each node's disk is a file system of its own
	spaces     bool // each node is in a network namespace of its own
}

func (g ground) String() string {
	s := fmt.Sprintf("%d partition", g.partitions)
	if g.partitions > 1 {
		s += "s"
	}
	for name, is := range map[string]bool{"steered": g.steered, "mounted": g.mounted, "spaces": g.spaces} {
		if is {
			s += ", " + name
		}
	}
	return s
}

// fault is one kind of harm.
type fault struct {
	name  string
	about string // what must have happened: a counter of the cell that the fault adds to
	does  func(c *cell)
	on    ground // what it needs
	// lasting: a node is lost for good, and membership doesn't change yet: the next cell gets a new cluster.
	lasting bool
	// never has the phases in which it can't be done, and why.
	never map[phase]string
	// lacks says what this machine lacks for it; empty: nothing.
	lacks func() string
}

// planned is a cell that is to run.
type planned struct {
	fault fault
	phase phase
	on    ground
}

func (p planned) name() string { return p.fault.name + "/" + string(p.phase) }

// planOf puts a fault into a phase, on a ground that has what both need.
func planOf(f fault, p phase, partitions int) planned {
	on := f.on
	if on.partitions == 0 {
		on.partitions = partitions
	}
	if p == installing {
		on.steered, on.partitions = true, 1 // one log to fill, and that soon
	}
	return planned{f, p, on}
}

func phases() []phase { return []phase{steady, editing, installing} }

// drawn is every fault once, each in a phase and with one or three partitions, as the seed draws.
func drawn(seed uint64) (list []planned) {
	r := rand.New(rand.NewPCG(seed, 1))
	turn := r.IntN(3)
	for i, f := range faults() {
		p := phases()[(i+turn)%3]
		if f.never[p] != "" || r.IntN(8) == 0 {
			p = steady
		}
		list = append(list, planOf(f, p, 1+2*r.IntN(2)))
	}
	return ordered(list, r)
}

// named is every cell whose name has the text in it, with three partitions where that is open.
func named(text string) (list []planned) {
	for _, f := range faults() {
		for _, p := range phases() {
			if one := planOf(f, p, 3); f.never[p] == "" && strings.Contains(one.name(), text) {
				list = append(list, one)
			}
		}
	}
	return list
}

// smoke is what fits into twenty seconds.
func smoke() (list []planned) {
	for _, f := range faults() {
		if f.name == "kill" || f.name == "cut one way" {
			list = append(list, planOf(f, steady, 3))
		}
	}
	return list
}

// ordered shuffles cells, such that those on one ground follow each other and those that break it come last.
func ordered(list []planned, r *rand.Rand) []planned {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	place := map[ground]int{}
	for _, p := range list {
		if _, known := place[p.on]; !known {
			place[p.on] = len(place)
		}
	}
	slices.SortStableFunc(list, func(a, b planned) int {
		lasts := func(p planned) int {
			if p.fault.lasting {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(place[a.on], place[b.on]), cmp.Compare(lasts(a), lasts(b)))
	})
	return list
}

// chance is a cell's own: the same seed and name draw the same.
func chance(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// TestASeedDrawsTheSamePlan, every fault in it, and every phase.
func TestASeedDrawsTheSamePlan(t *testing.T) {
	for seed := range uint64(50) {
		names, seen := map[string]bool{}, map[phase]int{}
		first, again := drawn(seed), drawn(seed)
		for i, p := range first {
			if p.name() != again[i].name() || p.on != again[i].on {
				t.Fatalf("seed %d: %s and %s", seed, p.name(), again[i].name())
			}
			names[p.fault.name] = true
			seen[p.phase]++
			if p.fault.never[p.phase] != "" {
				t.Errorf("seed %d: %s can't be", seed, p.name())
			}
		}
		if len(names) != len(faults()) || len(seen) != len(phases()) {
			t.Errorf("seed %d: %d faults of %d, phases %v", seed, len(names), len(faults()), seen)
		}
	}
}
