package node

import (
	"fmt"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// saidLevel is the newest level of behaviour that a peer's software has, as it said itself.
type saidLevel struct {
	id    string // its server id
	level uint64
	at    int64 // monotonic
}

// says notes what the peer says on a watch that is open; what it said on one that ended is forgotten, as its process may
// have ended with it.
func (p *peer) says(s saidLevel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.level = s
}

// said is the newest level that the node of a server id has said, lately and on a watch that is still open; 0: it hasn't.
// Software from before there were levels says none, which is the first.
func (n *Node) said(id string) uint64 {
	for _, p := range n.peers {
		p.mu.Lock()
		s := p.level
		p.mu.Unlock()
		if s.id == id && s.level > 0 && n.Monotonic()-s.at < int64(2*timesEvery) {
			return s.level
		}
	}
	return 0
}

// hasLevels returns [partition.ErrLevel], wrapped, if a node that starts doesn't have the level of a partition that it has
// a replica of. Its start then isn't noted here, and it runs nothing before a majority has noted it.
func (n *Node) hasLevels(m *quotav1.AnnounceRequest) error {
	h, theirs := n.hosting.Load(), max(m.GetLevel(), fsm.FirstLevel)
	for _, s := range m.GetStarts() {
		r := h.of(int(s.GetGroup()))
		if r == nil {
			continue
		}
		if level := r.running().Level(); level > theirs {
			return fmt.Errorf("%w: partition %d has level %d, and %s has level %d", partition.ErrLevel, r.partition, level, nameOf(m.GetId()), theirs)
		}
	}
	return nil
}
