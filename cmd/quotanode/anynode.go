package main

import (
	"context"
	"errors"

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
