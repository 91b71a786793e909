package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// anyNode is what `dev` shows of its cluster at its own address: a node that takes part, whichever does.
type anyNode struct{ *dev }

// Status is one node's look at the cluster.
func (a anyNode) Status() *quotav1.StatusResponse { return a.some().Status() }

// Watch follows one node.
func (a anyNode) Watch(ctx context.Context, ownOnly bool, send func(*quotav1.WatchResponse) error) error {
	return a.some().Watch(ctx, ownOnly, send)
}

// Policies are as one node knows them.
func (a anyNode) Policies() ([]byte, *quotav1.SetVersion, []*quotav1.PartitionVersion) {
	return a.some().Policies()
}

// Confirmed is what all of them confirm. Of two that confirm one partition the later term counts.
func (a anyNode) Confirmed(ctx context.Context) *quotav1.GetPoliciesResponse {
	answers := make([]*quotav1.GetPoliciesResponse, len(a.names))
	var asking sync.WaitGroup
	for i, name := range a.names {
		if st := a.stations[name]; st != nil {
			asking.Go(func() { answers[i] = st.Confirmed(ctx) })
		}
	}
	asking.Wait()
	all, best := &quotav1.GetPoliciesResponse{}, map[uint32]*quotav1.PartitionVersion{}
	for _, m := range answers {
		if len(m.GetClusterId()) == 0 {
			continue
		}
		all.ClusterId, all.ClusterPartitions = m.GetClusterId(), m.GetClusterPartitions()
		for _, v := range m.GetPartitions() {
			if v.GetTerm() > best[v.GetPartition()].GetTerm() {
				best[v.GetPartition()] = v
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(best)) {
		all.Partitions = append(all.Partitions, best[p])
	}
	return all
}

// Apply asks each node until one orders the set.
func (a anyNode) Apply(ctx context.Context, set policy.Set, expected *quotav1.SetVersion, dryRun bool) (*quotav1.ApplyPoliciesResponse, error) {
	var last error = &partition.NotLeaderError{}
	for _, name := range a.names {
		st := a.stations[name]
		if st == nil {
			continue
		}
		m, err := st.Apply(ctx, set, expected, dryRun)
		if err == nil || !errors.As(err, new(*partition.NotLeaderError)) {
			return m, err
		}
		last = err
	}
	return nil, last
}

// AddressOf is any node's.
func (a anyNode) AddressOf(leader string) string { return a.some().AddressOf(leader) }
