package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// description is what a node's disk and configuration say, as nodes tell each other before there is a cluster.
type description struct {
	name        string
	id          string
	zone        string
	genesis     *Genesis
	founded     bool
	partitions  int // 0: as many as nodes
	replication int
	memory      uint64
	nodes       []string // names of the initial nodes, sorted
}

// step is what a node does next on the way to a cluster.
type step uint8

const (
	// wait: something has to come from others first.
	wait step = iota
	// draw: nobody has a genesis document, and it is this node that makes it.
	draw
	// pass: hand the document to those who have none.
	pass
	// begin: every initial node holds the document, or held it: write the founding entries, and start.
	begin
	// stayOut: this disk isn't one of the cluster's, or lost what it held.
	stayOut
)

// ErrBlank says that a disk holds nothing in a cluster that was at work.
var ErrBlank = errors.New("the disk is blank, or holds nothing of what it held, in a cluster that is at work")

// planFounding decides what a node that isn't founded does next, from its own description and those of the
// initial nodes that it can reach, by name. Why says what it waits for, or what keeps it out. It is a pure
// function. It never lets a cluster begin where something may have been decided before, and never two:
//
//   - a document is drawn only while every initial node is reached and none holds one, by the node whose name
//     comes first;
//   - a node begins only once every initial node has shown the same document, on the very disk that it names;
//     a node that has begun proves that, so from then on whoever holds the document may begin;
//   - a disk without the document, in a cluster that has begun, has lost it; one that the document doesn't name
//     has replaced one that may have known better. Both stay out.
func planFounding(self description, others map[string]description) (next step, why error) {
	all := []description{self}
	for _, name := range self.nodes {
		if d, reached := others[name]; reached {
			all = append(all, d)
		}
	}
	holder, err := holderOf(all)
	if err != nil {
		return stayOut, err
	}
	if holder == nil {
		return planDrawing(self, all)
	}
	if !holder.genesis.names(self.id) {
		return stayOut, fmt.Errorf("%w: the document of %s names %s, this is %s", ErrForeignDisk, holder.name,
			holder.genesis.idOf(self.name), self.id)
	}
	begun := slices.ContainsFunc(all, func(d description) bool { return d.founded && d.genesis != nil && d.genesis.equal(*holder.genesis) })
	switch {
	case begun && self.genesis == nil:
		return stayOut, ErrBlank
	case begun:
		return begin, nil
	case self.genesis == nil:
		return wait, fmt.Errorf("waiting for the genesis document, which %s holds", holder.name)
	}
	return planBeginning(self, all)
}

// holderOf returns one of those who hold the document, nil if nobody does, and an error if there are two
// documents. The first description is this node's own.
func holderOf(all []description) (holder *description, err error) {
	if self := &all[0]; self.genesis != nil && slices.ContainsFunc(all, func(d description) bool {
		return d.founded && d.genesis != nil && d.genesis.equal(*self.genesis)
	}) {
		return self, nil // its cluster has begun: whatever a stranger holds is of another one
	}
	for i := range all {
		switch d := &all[i]; {
		case d.genesis == nil:
		case holder == nil:
			holder = d
		case !holder.genesis.equal(*d.genesis):
			return nil, fmt.Errorf("%w: of %s and of %s", ErrGenesisDiffers, holder.name, d.name)
		}
	}
	return holder, nil
}

func planDrawing(self description, all []description) (step, error) {
	if missing := missingOf(self, all); len(missing) > 0 {
		return wait, fmt.Errorf("a cluster begins once all its initial nodes are reached; missing: %s", strings.Join(missing, ", "))
	}
	for _, d := range all {
		if err := self.agree(d); err != nil {
			return wait, err
		}
	}
	if self.name != self.nodes[0] {
		return wait, fmt.Errorf("waiting for the genesis document, which %s makes", self.nodes[0])
	}
	return draw, nil
}

func planBeginning(self description, all []description) (step, error) {
	if missing := missingOf(self, all); len(missing) > 0 {
		return wait, fmt.Errorf("a cluster begins once all its initial nodes have the genesis document; missing: %s", strings.Join(missing, ", "))
	}
	lack := false
	for _, d := range all {
		if !self.genesis.names(d.id) {
			return wait, fmt.Errorf("%w: node %s is %s, the document names %s", ErrForeignDisk, d.name, d.id, self.genesis.idOf(d.name))
		}
		lack = lack || d.genesis == nil
	}
	if lack {
		return pass, nil
	}
	return begin, nil
}

// missingOf returns the initial nodes that are not among those reached.
func missingOf(self description, all []description) (missing []string) {
	for _, name := range self.nodes {
		if !slices.ContainsFunc(all, func(d description) bool { return d.name == name }) {
			missing = append(missing, name)
		}
	}
	return missing
}

// agree says what another node's configuration wants otherwise.
func (d description) agree(o description) error {
	switch {
	case !slices.Equal(d.nodes, o.nodes):
		return fmt.Errorf("the configurations of %s and %s differ: initial nodes %s and %s; make them the same",
			d.name, o.name, strings.Join(d.nodes, ", "), strings.Join(o.nodes, ", "))
	case d.partitions != o.partitions:
		return fmt.Errorf("the configurations of %s and %s differ: %d and %d partitions; make them the same", d.name, o.name, d.partitions, o.partitions)
	case d.replication != o.replication:
		return fmt.Errorf("the configurations of %s and %s differ: %d and %d replicas of each partition; make them the same",
			d.name, o.name, d.replication, o.replication)
	case d.memory != o.memory:
		return fmt.Errorf("the configurations of %s and %s differ: %d and %d bytes of memory; make them the same", d.name, o.name, d.memory, o.memory)
	}
	return nil
}
