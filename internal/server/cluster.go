package server

import (
	"context"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
)

// Cluster is what a node knows and does beside checks, for the services Routing and Admin. It is safe for
// concurrent use. What it returns may be shared: nobody changes it.
type Cluster interface {
	// Status is how the node sees the cluster.
	Status() *quotav1.StatusResponse
	// Watch calls send with news, one call at a time, until ctx ends or send fails. The messages are those
	// of Routing, with the seed.
	Watch(ctx context.Context, ownOnly bool, send func(*quotav1.WatchResponse) error) error
	// Policies returns the newest set in canonical form (nil: there is none), its version, and what each
	// partition enforces.
	Policies() (canonical []byte, version *quotav1.SetVersion, partitions []*quotav1.PartitionVersion)
	// Confirmed is what the partitions enforce that the node leads, each read after a majority confirmed that it
	// does, in answer to requests sent since the call began. It leaves out what isn't confirmed by ctx's end.
	Confirmed(ctx context.Context) *quotav1.GetPoliciesResponse
	// Apply orders a set, which is valid, and waits for the partitions until ctx ends. A set that is not
	// accepted gives an error that is a [policy.Problems]; an expected version that is not the one in
	// force, one that wraps [partition.ErrSetVersion]; another leader, or none that can be waited for, a
	// [*partition.NotLeaderError]. After any other error nobody knows whether it was ordered.
	Apply(ctx context.Context, set policy.Set, expected *quotav1.SetVersion, dryRun bool) (*quotav1.ApplyPoliciesResponse, error)
	// AddressOf is where the node with that server id answers checks; empty: not known.
	AddressOf(leader string) string
}

// Member is what a node is to other nodes, for the service Peer. It is safe for concurrent use.
type Member interface {
	// Describe says what the node's disk holds.
	Describe() *quotav1.DescribeResponse
	// Found puts the genesis document on the disk. An error without a [syscall.Errno] in it is final: the disk
	// holds another document, or is not one that this one names.
	Found(document []byte) error
	// Announce notes another node's start. An error is final only if it wraps [partition.ErrRewound].
	Announce(start *quotav1.AnnounceRequest) (*quotav1.AnnounceResponse, error)
	// Elapsed reads the node's measure of elapsed time.
	Elapsed() *quotav1.ElapsedResponse
}
