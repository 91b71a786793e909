package node

import (
	"cmp"
	"context"
	"slices"
	"sync"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
)

// Confirmed says what the partitions enforce that this node leads, each as of a moment within the call, after a
// majority has confirmed that it does. What isn't confirmed by ctx's end is left out.
func (n *Node) Confirmed(ctx context.Context) *quotav1.GetPoliciesResponse {
	m := &quotav1.GetPoliciesResponse{}
	h := n.hosting.Load()
	if h == nil {
		return m
	}
	m.ClusterId, m.ClusterPartitions = h.genesis.Cluster[:], uint32(len(h.genesis.Groups))
	var (
		asking sync.WaitGroup
		mu     sync.Mutex
	)
	for _, r := range h.replicas {
		g := r.running()
		if g == nil || !g.Leads() {
			continue
		}
		asking.Go(func() {
			s, err := g.Confirm(ctx)
			if err != nil {
				n.log.Debug("leadership isn't confirmed", "partition", r.partition, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			m.Partitions = append(m.Partitions, confirmedVersion(r.partition, s))
		})
	}
	asking.Wait()
	slices.SortFunc(m.Partitions, func(a, b *quotav1.PartitionVersion) int { return cmp.Compare(a.Partition, b.Partition) })
	return m
}

func confirmedVersion(p int, s partition.Standing) *quotav1.PartitionVersion {
	v := &quotav1.PartitionVersion{Partition: uint32(p), Term: s.Term}
	if s.HasSet {
		v.Version = wireVersion(s.Version)
	}
	return v
}
