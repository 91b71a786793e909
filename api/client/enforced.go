package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// enforcedWithin bounds [Admin.Enforced]: a node answers within 5 s, or is silent.
const enforcedWithin = 10 * time.Second

// Enforced is what the partitions of a cluster enforce, for certain.
type Enforced struct {
	// Cluster is the cluster's id, 16 bytes.
	Cluster []byte
	// Partitions is how many partitions it has.
	Partitions int
	// Versions has the version that each partition enforced at some moment within the call, by the word of a leader
	// whom a majority of its replicas confirmed in that time; nil where it enforced no set. What nobody confirmed is
	// missing.
	Versions map[uint32]*quotav1.SetVersion
	// Failed says of nodes why nothing was heard of them. What they lead is missing.
	Failed []*NodeError
}

// Complete says that every partition is confirmed.
func (e *Enforced) Complete() bool { return e.Partitions > 0 && len(e.Versions) == e.Partitions }

// Enforced asks all nodes at once, each for the partitions that it leads, and returns as soon as all partitions are
// confirmed, or all nodes have answered, but within ten seconds. Of two leaders that are confirmed for one partition the later
// term's word counts. Each node has to be among the addresses that the Admin was given, or what it leads is missing.
// It fails if no node tells of a cluster, with what [Admin.Status] fails with, and if the nodes belong to several.
func (a *Admin) Enforced(ctx context.Context) (*Enforced, error) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithTimeout(ctx, enforcedWithin)
	defer cancel()
	answers := make(chan confirmation, len(a.nodes))
	for _, n := range a.nodes {
		asking.Go(func() { answers <- n.confirm(ctx) })
	}
	all := &confirmed{Enforced: Enforced{Versions: map[uint32]*quotav1.SetVersion{}}, terms: map[uint32]uint64{}}
	for range a.nodes {
		if err := all.add(<-answers); err != nil {
			return nil, err
		}
		if all.Complete() {
			break
		}
	}
	if all.Partitions == 0 {
		failed := make([]error, len(all.Failed))
		for i, e := range all.Failed {
			failed[i] = e
		}
		return nil, errors.Join(failed...)
	}
	return &all.Enforced, nil
}

// confirmation is one node's answer.
type confirmation struct {
	address string
	message *quotav1.GetPoliciesResponse
	err     error
}

// confirm asks one node what it leads.
func (n *adminNode) confirm(ctx context.Context) confirmation {
	ctx, cancel := context.WithCancel(ctx) // ends a stream that isn't read to its end
	defer cancel()
	c := confirmation{address: n.address}
	stream, err := n.admin.GetPolicies(ctx, &quotav1.GetPoliciesRequest{Confirm: true})
	if err == nil {
		c.message, err = stream.Recv()
	}
	if c.err = err; err == nil {
		c.err = c.check()
	}
	return c
}

// check refuses an answer that says nothing for certain, and one that can't be right.
func (c *confirmation) check() error {
	m := c.message
	switch {
	case len(m.GetClusterId()) == 0 && len(m.GetPartitions()) > 0:
		return malformed("it confirms nothing, as nodes of an earlier version don't")
	case len(m.GetClusterId()) == 0:
		return malformed("it tells of no cluster: there is none yet, or it stays out")
	case len(m.GetClusterId()) != len(cluster{}.id), m.GetClusterPartitions() < 1, m.GetClusterPartitions() > maxPartitions:
		return malformed("a cluster with an id of %d bytes and %d partitions", len(m.GetClusterId()), m.GetClusterPartitions())
	}
	seen := map[uint32]bool{}
	for _, v := range m.GetPartitions() {
		switch p := v.GetPartition(); {
		case p >= m.GetClusterPartitions(), seen[p]:
			return malformed("partition %d of %d, or twice", p, m.GetClusterPartitions())
		case v.GetTerm() == 0:
			return malformed("partition %d is confirmed in no term", p)
		default:
			seen[p] = true
		}
	}
	return nil
}

// confirmed puts answers together.
type confirmed struct {
	Enforced
	terms map[uint32]uint64 // in which each partition's leader was confirmed
	first string            // the node that told of the cluster first
}

// errTwoClusters says that the nodes at the addresses given aren't all of one cluster.
var errTwoClusters = errors.New("the nodes belong to two clusters")

func (e *confirmed) add(c confirmation) error {
	if c.err != nil {
		e.Failed = append(e.Failed, nodeError(c.address, c.err))
		return nil
	}
	m := c.message
	if e.Partitions == 0 {
		e.Cluster, e.Partitions, e.first = m.GetClusterId(), int(m.GetClusterPartitions()), c.address
	}
	if !bytes.Equal(e.Cluster, m.GetClusterId()) || e.Partitions != int(m.GetClusterPartitions()) {
		return fmt.Errorf("%w: %s is of %x, %s of %x", errTwoClusters, e.first, e.Cluster, c.address, m.GetClusterId())
	}
	for _, v := range m.GetPartitions() {
		e.take(v)
	}
	return nil
}

// take lets the later term count. In one term there is one leader, who may be asked at two addresses: what it said
// of an earlier moment claims less.
func (e *confirmed) take(v *quotav1.PartitionVersion) {
	p := v.GetPartition()
	switch term := e.terms[p]; {
	case v.GetTerm() < term:
		return
	case v.GetTerm() == term && !VersionOf(v.GetVersion()).Before(VersionOf(e.Versions[p])):
		return
	}
	e.terms[p], e.Versions[p] = v.GetTerm(), v.GetVersion()
}
