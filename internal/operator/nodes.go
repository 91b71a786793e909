package operator

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
)

// Nodes is what the operator asks of a cluster, as [client.Admin] does it.
type Nodes interface {
	Enforced(context.Context) (*client.Enforced, error)
	Policies(ctx context.Context, atLeast *quotav1.SetVersion) ([]byte, *quotav1.SetVersion, []*quotav1.PartitionVersion, error)
	Apply(context.Context, []byte, *quotav1.ApplyOptions) (*quotav1.ApplyPoliciesResponse, error)
}

// follows says that no other version was in force between o and v.
func follows(v, o client.Version) bool {
	return v == o || v.Epoch == o.Epoch && v.Number == o.Number+1
}

// observation is what the nodes say at one moment.
type observation struct {
	force      *force
	partitions int
	confirmed  map[uint32]client.Version // of the partitions whose leaders a majority has confirmed
}

// observe asks the nodes. A set that is the same as before isn't read again.
func observe(ctx context.Context, nodes Nodes, before *force) (*observation, error) {
	e, err := nodes.Enforced(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the nodes what they enforce: %w", err)
	}
	o := &observation{partitions: e.Partitions, confirmed: map[uint32]client.Version{}}
	// What a majority has confirmed, or what was seen before: a node that is behind is found out.
	newest, cluster := client.Version{}, string(e.Cluster)
	if before != nil && before.cluster == cluster {
		newest = before.version
	}
	for p, v := range e.Versions {
		o.confirmed[p] = client.VersionOf(v)
		if newest.Before(o.confirmed[p]) {
			newest = o.confirmed[p]
		}
	}
	canonical, wire, _, err := nodes.Policies(ctx, newest.Message())
	if err != nil {
		return nil, fmt.Errorf("ask the nodes for the policies in force: %w", err)
	}
	v := client.VersionOf(wire)
	if before != nil && before.version == v && before.cluster == cluster {
		o.force = before
		return o, nil
	}
	var set policy.Set
	if wire != nil {
		if set, err = policy.ParseCanonical(canonical); err != nil {
			return nil, fmt.Errorf("read the policies in force: %w", err)
		}
	}
	o.force = newForce(set, v)
	o.force.cluster = cluster
	return o, nil
}

// everywhere says that every partition is confirmed to enforce the set in force, or a later one.
func (o *observation) everywhere() bool {
	for _, v := range o.confirmed {
		if v.Before(o.force.version) {
			return false
		}
	}
	return len(o.confirmed) == o.partitions
}
