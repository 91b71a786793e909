package partition

import (
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/policy"
)

// Standing is what others need to know of a replica to ask it, and little enough to be looked at often.
type Standing struct {
	// Leading: it leads and answers, in that term.
	Leading bool
	Term    uint64
	Formed  bool   // settings are in force
	Epoch   uint64 // of the partition
	Now     int64  // decision time of the last entry applied
	HasSet  bool
	Version fsm.Version // of the set in force
}

// Standing looks at this replica.
func (g *Group) Standing() (s Standing) {
	if lead := g.lead.Load(); lead != nil {
		s.Leading, s.Term = lead.ready, lead.term
	}
	g.machine.Read(func(m *fsm.Machine) {
		set, version := m.Set()
		settings, formed := m.Settings()
		s.Formed, s.Epoch, s.Now, s.HasSet, s.Version = formed, settings.Epoch, m.Now(), set != nil, version
	})
	return s
}

// LeaderID is the server id of the replica that leads, as far as this one knows; empty: none.
func (g *Group) LeaderID() string { return g.leaderID() }

// Enforced returns the policy set in force with its version, nil before the first.
func (g *Group) Enforced() (set *policy.Compiled, v fsm.Version) {
	g.machine.Read(func(m *fsm.Machine) { set, v = m.Set() })
	return set, v
}

// Ticked is the reading of the monotonic clock at the last round of this replica's loop, which is fifty a second.
func (g *Group) Ticked() int64 { return g.ticked.Load() }
