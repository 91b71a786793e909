package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// orderer is the partition whose log orders policy sets. The others adopt what it has committed.
const orderer = 0

// enforcedEverywhere returns the newest set that each partition whose leader is known enforces, or a later one;
// nil if there is none. It is what gateways are given: from then on a new policy's limit is promised.
func (n *Node) enforcedEverywhere(h *hosting) *policySet {
	newest := n.sets.newest()
	if newest == nil {
		return nil
	}
	least := newest.version
	for p := range h.genesis.Groups {
		switch r := n.routes.of(p); {
		case r.leader == "":
		case r.version == (fsm.Version{}):
			return nil // it enforces nothing yet
		case r.version.Before(least):
			least = r.version
		}
	}
	return n.sets.upTo(least)
}

// Policies returns the newest set in canonical form, nil before the first, its version, and what each
// partition's leader enforces.
func (n *Node) Policies() (canonical []byte, version *quotav1.SetVersion, partitions []*quotav1.PartitionVersion) {
	if newest := n.sets.newest(); newest != nil {
		canonical, version = newest.canonical, wireVersion(newest.version)
	}
	return canonical, version, n.partitionVersions()
}

func (n *Node) partitionVersions() (versions []*quotav1.PartitionVersion) {
	h := n.hosting.Load()
	if h == nil {
		return nil
	}
	for p := range h.genesis.Groups {
		v := &quotav1.PartitionVersion{Partition: uint32(p)}
		if r := n.routes.of(p); r.version != (fsm.Version{}) {
			v.Version = wireVersion(r.version)
		}
		versions = append(versions, v)
	}
	return versions
}

// spreadEvery is how often a leader looks whether there is a newer set.
const spreadEvery = 50 * time.Millisecond

// spreadPolicies has the partitions that this node leads adopt what the orderer committed, until ctx ends.
func (n *Node) spreadPolicies(ctx context.Context) {
	var adopting sync.WaitGroup
	defer adopting.Wait()
	busy := map[int]*sync.Mutex{}
	for pause(ctx, spreadEvery) {
		h := n.hosting.Load()
		if h == nil {
			continue
		}
		n.fetchPolicies(ctx)
		newest := n.sets.newest()
		if newest == nil {
			continue
		}
		for _, r := range h.replicas {
			g := r.running()
			if g == nil || r.partition == orderer {
				continue
			}
			if s := g.Standing(); !s.Leading || !s.Formed || s.HasSet && !s.Version.Before(newest.version) {
				continue
			}
			if busy[r.partition] == nil {
				busy[r.partition] = &sync.Mutex{}
			}
			if mine := busy[r.partition]; mine.TryLock() {
				adopting.Go(func() { defer mine.Unlock(); n.adopt(ctx, r.partition, g, newest) })
			}
		}
	}
}

// adoptWithin bounds one try.
const adoptWithin = 5 * time.Second

func (n *Node) adopt(ctx context.Context, p int, g *partition.Group, set *policySet) {
	ctx, cancel := context.WithTimeout(ctx, adoptWithin)
	defer cancel()
	if err := g.AdoptPolicies(ctx, set.version, set.canonical); err != nil && ctx.Err() == nil {
		n.log.Warn("adopt policies", "partition", p, "version", set.version.Number, "error", err)
		pause(ctx, time.Second)
	}
}

// fetchPolicies gets the orderer's set from its leader where this node has no replica of it to see it by.
func (n *Node) fetchPolicies(ctx context.Context) {
	r := n.routes.of(orderer)
	newest := n.sets.newest()
	if r.leader == "" || r.leader == n.cfg.Name || r.version == (fsm.Version{}) || newest != nil && !newest.version.Before(r.version) ||
		n.hosting.Load().of(orderer) != nil {
		return
	}
	for _, p := range n.peers {
		if p.name == r.leader {
			if err := n.fetchFrom(ctx, p); err != nil {
				n.log.Warn("fetch policies", "peer", p.name, "error", err)
				pause(ctx, time.Second)
			}
		}
	}
}

func (n *Node) fetchFrom(ctx context.Context, p *peer) error {
	ctx, cancel := context.WithTimeout(ctx, adoptWithin)
	defer cancel()
	stream, err := quotav1.NewAdminClient(p.conn).GetPolicies(ctx, &quotav1.GetPoliciesRequest{})
	if err != nil {
		return err
	}
	var text []byte
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		part := m.GetPolicies()
		if part == nil {
			continue
		}
		if text = append(text, part.GetJson()...); uint64(len(text)) > part.GetSize() || part.GetSize() > maxSet {
			return errors.New("its parts are more than the whole")
		}
		if !part.GetLast() {
			continue
		}
		set, err := policy.ParseCanonical(text)
		if err != nil {
			return err
		}
		compiled, err := policy.Compile(set)
		if err != nil {
			return err
		}
		n.sets.add(compiled, fsm.Version{Epoch: part.GetVersion().GetEpoch(), Number: part.GetVersion().GetNumber()})
		return nil
	}
}

// maxSet bounds a policy set, in bytes.
const maxSet = 64 << 20

// Apply puts a set in the place of the one in force, if that has the expected version; nil: whatever it has.
// It fails with [policy.Problems] where the set isn't accepted, with [partition.ErrSetVersion] where another
// version is in force, and with [partition.NotLeaderError] where another node has to be asked.
func (n *Node) Apply(ctx context.Context, set policy.Set, expected *quotav1.SetVersion, dryRun bool) (*quotav1.ApplyPoliciesResponse, error) {
	g, err := n.awaitOrderer(ctx)
	if err != nil {
		return nil, err
	}
	before := g.Standing()
	if dryRun {
		return n.applied(g, before.Version, false), g.CheckPolicies(set, versionOf(expected))
	}
	version, err := g.ChangePolicies(ctx, set, versionOf(expected))
	if err != nil {
		return nil, fmt.Errorf("change the policies: %w", err)
	}
	n.sets.add(g.Enforced())
	n.awaitVersion(ctx, version)
	return n.applied(g, version, !before.HasSet || before.Version.Before(version)), nil
}

func versionOf(m *quotav1.SetVersion) *fsm.Version {
	if m == nil {
		return nil
	}
	if m.GetNumber() == 0 {
		return &fsm.Version{}
	}
	return &fsm.Version{Epoch: m.GetEpoch(), Number: m.GetNumber()}
}

func (n *Node) applied(g *partition.Group, v fsm.Version, changed bool) *quotav1.ApplyPoliciesResponse {
	m := &quotav1.ApplyPoliciesResponse{Changed: changed, Partitions: n.partitionVersions()}
	if v != (fsm.Version{}) {
		hash := g.Status().SetHash
		m.Version, m.SetHash = wireVersion(v), hash[:]
	}
	return m
}

// awaitOrderer returns the group that orders sets, if it leads here. Where nobody is known to lead it, or it has
// no settings yet, as at the beginning, it waits, as long as this node may still hear of one.
func (n *Node) awaitOrderer(ctx context.Context) (*partition.Group, error) {
	began := n.Monotonic()
	for {
		if r := n.hosting.Load().of(orderer); r != nil {
			if s := r.running().Standing(); s.Leading && s.Formed {
				return r.running(), nil
			}
		}
		if leader := n.leaderOf(orderer); leader != "" {
			return nil, &partition.NotLeaderError{Leader: leader}
		}
		if why := n.wontHear(began); why != "" || !pause(ctx, lookEvery) {
			return nil, &partition.NotLeaderError{Why: why}
		}
	}
}

// wontHear says why there is no point in waiting here for a leader, as since the reading of the clock: others may know
// of one. Empty: there is one.
func (n *Node) wontHear(since int64) string {
	if out := n.staysOut(); out != "" {
		return out
	}
	if n.Monotonic()-since > int64(2*timesEvery) && !n.inTouch() {
		return "this node hears too few others to know who orders policy sets; ask another one"
	}
	return ""
}

// leaderOf returns the server id of a partition's leader, as far as it is known here, unless it is this node.
func (n *Node) leaderOf(p int) string {
	h := n.hosting.Load()
	if h == nil {
		return ""
	}
	if r := h.of(p); r != nil {
		if id := r.running().LeaderID(); id != "" && id != n.disk.identity.ServerID() {
			return id
		}
	}
	if leader := n.routes.of(p).leader; leader != n.cfg.Name {
		return h.genesis.idOf(leader)
	}
	return ""
}

// awaitVersion waits until every partition enforces a version, or ctx is about to end.
func (n *Node) awaitVersion(ctx context.Context, v fsm.Version) {
	const margin = 100 * time.Millisecond // for the answer
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-margin))
		defer cancel()
	}
	for {
		changed := n.routes.changed()
		if n.everywhere(v) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (n *Node) everywhere(v fsm.Version) bool {
	for p := range n.hosting.Load().genesis.Groups {
		if n.routes.of(p).version.Before(v) {
			return false
		}
	}
	return true
}
