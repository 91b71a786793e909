package partition

import "github.com/hashicorp/raft"

// Switches for mitigations. They exist in tests only.

// Forgive has errors of the stores end nothing.
func (s *Stores) Forgive() {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	s.guard.forgives = true
}

// Reseal gives an entry, as the disk has it, the checksum that it should have.
func Reseal(l *raft.Log) {
	l.Extensions = l.Extensions[:max(0, len(l.Extensions)-4)]
	l.Extensions = sealEntry(l)
}

// HandedOver is what the library calls applied: the newest entry that it has handed to the state machine.
func (g *Group) HandedOver() uint64 { return g.raft.AppliedIndex() }
