package node

import (
	"slices"
	"sync"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/policy"
)

// policySet is a version of the policies that a majority of partition 0 holds.
type policySet struct {
	version   fsm.Version
	compiled  *policy.Compiled
	canonical []byte
}

// keptSets is how many versions are kept: partitions are rarely more than one apart.
const keptSets = 8

// sets are the newest versions that this node has seen in force anywhere.
type sets struct {
	mu   sync.Mutex
	list []*policySet // oldest first
	news chan struct{}
}

func newSets() *sets { return &sets{news: make(chan struct{})} }

func (s *sets) has(v fsm.Version) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.list, func(p *policySet) bool { return p.version == v })
}

// add takes in a version that is in force somewhere. Nil, before the first, is fine.
func (s *sets) add(set *policy.Compiled, v fsm.Version) {
	if set == nil || s.has(v) {
		return
	}
	next := &policySet{version: v, compiled: set, canonical: set.Set().Canonical()}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := slices.BinarySearchFunc(s.list, v, func(p *policySet, v fsm.Version) int {
		if p.version.Before(v) {
			return -1
		}
		if v.Before(p.version) {
			return 1
		}
		return 0
	})
	if found {
		return
	}
	s.list = slices.Insert(s.list, at, next)
	if len(s.list) > keptSets {
		s.list = slices.Delete(s.list, 0, len(s.list)-keptSets)
	}
	close(s.news)
	s.news = make(chan struct{})
}

// newest is nil before the first.
func (s *sets) newest() *policySet {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	return s.list[len(s.list)-1]
}

// upTo returns the newest one that isn't after v, else the oldest that is kept.
func (s *sets) upTo(v fsm.Version) *policySet {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.Backward(s.list) {
		if !v.Before(p.version) {
			return p
		}
	}
	if len(s.list) == 0 {
		return nil
	}
	return s.list[0]
}

// changed is closed when a version comes.
func (s *sets) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news
}
