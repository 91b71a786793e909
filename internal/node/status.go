package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
)

// The states of replicas, as status tells them.
const (
	stateLeader   = "leader"
	stateFollower = "follower"
	stateDown     = "down"
	stateUnknown  = "unknown"
	unreachable   = "unreachable"
)

// caughtUp is how many entries a replica may be behind and count as up to date: those on their way.
const caughtUp = 64

// Status says how this node sees the cluster.
func (n *Node) Status() *quotav1.StatusResponse {
	m := &quotav1.StatusResponse{Node: n.cfg.Name, Nodes: n.nodeStatuses(), Clock: n.clockStatus()}
	h := n.hosting.Load()
	if h == nil {
		return m
	}
	m.ClusterId, m.SystemReplicas = h.genesis.Cluster[:], h.genesis.System
	own := n.ownReplicas(h)
	for p, members := range h.genesis.Groups {
		s := &quotav1.PartitionStatus{Route: n.routes.wire(p, n.routes.of(p))}
		for _, id := range members {
			s.Replicas = append(s.Replicas, n.replicaStatus(p, id, own))
		}
		if r := h.of(p); r != nil {
			if st := r.running().Status(); st.HasSet {
				s.SetHash = st.SetHash[:]
			}
		}
		m.Partitions = append(m.Partitions, s)
	}
	return m
}

func (n *Node) clockStatus() *quotav1.ClockStatus {
	r := n.clock.Read()
	return &quotav1.ClockStatus{ElapsedNs: r.Elapsed, Gaps: r.Gaps, DriftPpm: n.clock.Drift()}
}

func (n *Node) nodeStatuses() (list []*quotav1.NodeStatus) {
	list = append(list, n.ownStatus())
	for _, p := range n.peers {
		list = append(list, n.peerStatus(p))
	}
	slices.SortFunc(list, func(a, b *quotav1.NodeStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (n *Node) ownStatus() *quotav1.NodeStatus {
	self := n.phase.Load()
	return &quotav1.NodeStatus{
		Name: n.cfg.Name, Id: n.disk.identity.ServerID(), Zone: n.cfg.Zone, State: self.state, Detail: self.detail, Address: n.address(n.cfg.Name),
		Level: n.cfg.Level,
	}
}

// silent is after how long a node that is heard every second counts as unreachable.
const silent = 5 * time.Second

func (n *Node) peerStatus(p *peer) *quotav1.NodeStatus {
	s := &quotav1.NodeStatus{Name: p.name, State: unreachable, Address: n.address(p.name)}
	if h := n.hosting.Load(); h != nil {
		s.Id = h.genesis.idOf(p.name)
		for _, m := range h.genesis.Nodes {
			if m.ID == s.Id {
				s.Zone = m.Zone
			}
		}
	}
	heard := p.heard.Load()
	if heard == 0 {
		s.Detail = "it has not been heard since this node started"
		return s
	}
	ago := n.Monotonic() - heard
	s.HeardAgoNs = &ago
	if ago > int64(silent) {
		s.Detail = fmt.Sprintf("it was heard %v ago", time.Duration(ago).Round(time.Second))
		return s
	}
	if told := p.itself(); told != nil {
		s.Id, s.Zone, s.State, s.Detail, s.Level = told.GetId(), told.GetZone(), told.GetState(), told.GetDetail(), told.GetLevel()
		return s
	}
	s.State = starting
	return s
}

// replicaStatus is what is known of a replica: of this node's own all, of others what they told.
func (n *Node) replicaStatus(p int, id string, own []*quotav1.ReplicaStatus) *quotav1.ReplicaStatus {
	told := own
	if name := nameOf(id); name != n.cfg.Name {
		told = nil
		for _, peer := range n.peers {
			if heard := peer.heard.Load(); peer.name == name && heard != 0 && n.Monotonic()-heard <= int64(silent) {
				told = peer.told()
			}
		}
	}
	for _, s := range told {
		if int(s.GetPartition()) == p && s.GetId() == id {
			return s
		}
	}
	return &quotav1.ReplicaStatus{Node: nameOf(id), Id: id, State: stateUnknown, Partition: uint32(p)}
}

// ownReplicas says how this node's replicas are.
func (n *Node) ownReplicas(h *hosting) (list []*quotav1.ReplicaStatus) {
	for _, r := range h.replicas {
		s := &quotav1.ReplicaStatus{Node: n.cfg.Name, Id: n.disk.identity.ServerID(), State: stateDown, Partition: uint32(r.partition)}
		if why := r.keptOut(); why != nil {
			s.State, s.Detail = awaiting, why.Error()
		} else if g := r.running(); g != nil {
			fillReplica(s, g.Status())
			s.ClockDoubted = r.doubted.Load()
		}
		list = append(list, s)
	}
	return list
}

func fillReplica(m *quotav1.ReplicaStatus, s partition.Status) {
	m.State = strings.ToLower(s.State)
	m.Term, m.Applied, m.Lag, m.DecisionTimeNs, m.StateHash = s.Term, s.Applied, s.Lag, s.Now, s.Hash
	m.MemoryBytes, m.MemoryBoundBytes = s.Memory.Bytes, s.Memory.Bound
	m.Keys, m.Records, m.LogBytes, m.Level = uint64(s.Memory.Keys), uint64(s.Memory.Records), s.LogBytes, s.Level
}

// Ready says whether every replica of this node knows a leader and has caught up with it, and if not, why. What it
// can't tell yet, as after a start, doesn't count as caught up: whoever empties machines would take the next one. A node that
// stops isn't ready; one that waits for a cluster to be founded is.
func (n *Node) Ready() (ok bool, why string) {
	if n.leaving.Load() {
		return false, "it stops"
	}
	ph := n.phase.Load()
	if ph.state == awaiting || ph.state == starting {
		return false, strings.TrimSuffix(ph.state+": "+ph.detail, ": ")
	}
	h := n.hosting.Load()
	if h == nil {
		return true, "" // it waits for the others: a start in order must go on
	}
	for _, r := range h.replicas {
		g := r.running()
		if g == nil {
			return false, fmt.Sprintf("the replica of partition %d doesn't run", r.partition)
		}
		s := g.Status()
		behind, known := n.behindLeader(r, s)
		switch {
		case s.Leader == "":
			return false, fmt.Sprintf("partition %d has no leader that this node knows", r.partition)
		case s.Lag > caughtUp:
			return false, fmt.Sprintf("the replica of partition %d is %d entries behind", r.partition, s.Lag)
		case !known:
			return false, fmt.Sprintf("the leader of partition %d hasn't said yet how far it is", r.partition)
		case behind > caughtUp:
			return false, fmt.Sprintf("the replica of partition %d is %d entries behind its leader", r.partition, behind)
		}
	}
	return true, ""
}

// behindLeader is how many entries a replica is behind what its leader told that it has applied, if it has told. What
// a replica itself knows to be committed is only what it got.
func (n *Node) behindLeader(r *replica, s partition.Status) (entries uint64, known bool) {
	if s.Leader == n.disk.identity.ServerID() {
		return 0, true
	}
	for _, p := range n.peers {
		if heard := p.heard.Load(); heard == 0 || n.Monotonic()-heard > int64(silent) {
			continue // it says nothing of now
		}
		for _, told := range p.told() {
			if int(told.GetPartition()) == r.partition && told.GetId() == s.Leader {
				return told.GetApplied() - min(s.Applied, told.GetApplied()), true
			}
		}
	}
	return 0, false
}

// stalled is how long a loop that ticks fifty times a second may stand still before its process is of no use.
const stalled = 30 * time.Second

// Alive returns why the process should be ended: a loop of its own that stands still. It never looks at others.
func (n *Node) Alive() error {
	h := n.hosting.Load()
	if h == nil {
		return nil
	}
	for _, r := range h.replicas {
		if g := r.running(); g != nil {
			if stood := n.Monotonic() - g.Ticked(); stood > int64(stalled) {
				return fmt.Errorf("the loop of partition %d has stood still for %v", r.partition, time.Duration(stood).Round(time.Second))
			}
		}
	}
	return nil
}

// Leading reports whether every partition has a leader that answers, as far as this node knows.
func (n *Node) Leading() bool {
	h := n.hosting.Load()
	if h == nil {
		return false
	}
	for p := range h.genesis.Groups {
		if n.routes.of(p).leader == "" {
			return false
		}
	}
	return true
}

// State is how far the node has come, in a word, and what keeps it.
func (n *Node) State() (state, detail string) {
	p := n.phase.Load()
	return p.state, p.detail
}

// Led reports whether every replica that this node runs knows a leader.
func (n *Node) Led() bool {
	h := n.hosting.Load()
	if h == nil {
		return false
	}
	for _, r := range h.replicas {
		if g := r.running(); g != nil && g.LeaderID() == "" {
			return false
		}
	}
	return true
}

// ID is the node's id: its name and the incarnation of its disk.
func (n *Node) ID() string { return n.disk.identity.ServerID() }
