package partition

import (
	"errors"

	"github.com/quorate/quorate/internal/fsm"
)

// ErrLevel says that a node's software doesn't have the level of a partition that it has a replica of.
var ErrLevel = errors.New("this version of the software doesn't have the level of the partition")

// Level is the partition's level of behaviour, as far as this replica has applied its log; 0: it can't be told.
func (g *Group) Level() (level uint64) {
	g.machine.Read(func(m *fsm.Machine) { level = m.Level() })
	return level
}

// raisable reports whether this replica has a newer level than the partition, and can hear who else has.
func (g *Group) raisable() bool {
	if g.cfg.Said == nil {
		return false
	}
	now := g.Level()
	return now > 0 && now < g.cfg.Newest
}

// raise proposes the newest level that all members have, if that is above the partition's. A member that goes back to
// older software behind our back costs its own replica, which stops at that entry; no state ever differs.
func (g *Group) raise(lead *leadership) {
	level, err := g.levelOfAll()
	if err != nil || level <= g.Level() {
		return
	}
	g.log.Info("raising the level", "term", lead.term, "level", level)
	g.proposeBare(func(h fsm.Header) []byte { return fsm.LevelEntry(h, level) })
}

// levelOfAll is the newest level that every server in Raft's newest configuration has said, whether or not it votes.
func (g *Group) levelOfAll() (uint64, error) {
	members := g.raft.GetConfiguration()
	if err := members.Error(); err != nil {
		return 0, err
	}
	level := g.cfg.Newest
	for _, s := range members.Configuration().Servers {
		if id := string(s.ID); id != g.cfg.ID {
			level = min(level, g.cfg.Said(id))
		}
	}
	return level, nil
}
