package node

import (
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// Submit takes calls to the replicas of their partitions; what isn't led here ends as not led here. Each call's
// Done runs exactly once, perhaps before Submit returns.
func (n *Node) Submit(calls ...*partition.Call) {
	h := n.hosting.Load()
	if h == nil {
		for _, c := range calls {
			finish(c, partition.Outcome{Result: partition.NoQuorum})
		}
		return
	}
	if p, same := n.together(h, calls); same {
		n.submitTo(h, p, calls)
		return
	}
	byPartition := make([][]*partition.Call, len(h.genesis.Groups))
	for _, c := range calls {
		p, o := n.partitionOf(h, c.To, c.Domain, c.Descriptors)
		if o.Result != 0 {
			finish(c, o)
			continue
		}
		byPartition[p] = append(byPartition[p], c)
	}
	for p, some := range byPartition {
		if len(some) > 0 {
			n.submitTo(h, p, some)
		}
	}
}

// together tells whether all calls name one partition, as those of a stream from a client that routes do.
func (n *Node) together(h *hosting, calls []*partition.Call) (p int, same bool) {
	if len(calls) == 0 {
		return 0, false
	}
	to := calls[0].To
	for _, c := range calls {
		if c.To != to {
			return 0, false
		}
	}
	return int(to), to >= 0 && int(to) < len(h.genesis.Groups)
}

func (n *Node) submitTo(h *hosting, p int, calls []*partition.Call) {
	if r := h.of(p); r != nil {
		r.running().Submit(calls...)
		return
	}
	for _, c := range calls {
		finish(c, n.notHere(p))
	}
}

// notHere is the outcome for a partition that this node has no replica of.
func (n *Node) notHere(p int) partition.Outcome {
	o := partition.Outcome{Result: partition.NotLeader, Partition: uint16(p), Leader: n.leaderOf(p)}
	if o.Leader == "" {
		o.Result = partition.NoQuorum
	}
	return o
}

func finish(c *partition.Call, o partition.Outcome) {
	c.Outcome = o
	c.Done(c)
}

// partitionOf returns the partition that decides a check: the one that it names, else the one where all of its
// keys live. An outcome with a result says why there is none. It only finds the way; the leader resolves anew.
func (n *Node) partitionOf(h *hosting, to int32, domain string, ds []keyspace.Descriptor) (int, partition.Outcome) {
	switch {
	case to >= 0 && int(to) < len(h.genesis.Groups):
		return int(to), partition.Outcome{}
	case to >= 0:
		return 0, partition.Outcome{Result: partition.Invalid, Detail: "there is no such partition"}
	}
	newest := n.sets.newest()
	if newest == nil {
		return 0, partition.Outcome{Result: partition.Pending}
	}
	set, seed, table := newest.compiled, keyspace.Seed(h.genesis.Seed), keyspace.EvenTable(len(h.genesis.Groups))
	charges, outcome := set.ResolveCheck(nil, domain, ds, 1)
	if outcome != policy.Matched {
		return int(table[seed.Slot(domain, nil, nil)]), partition.Outcome{}
	}
	p := int(table[set.Slot(seed, charges[0].Policy, ds[charges[0].Descriptor])])
	for _, ch := range charges[1:] {
		if int(table[set.Slot(seed, ch.Policy, ds[ch.Descriptor])]) != p {
			return 0, partition.Outcome{Result: partition.NotSupported, Detail: partition.SeveralPartitions}
		}
	}
	return p, partition.Outcome{}
}

// Inspect asks the leader of its partition what a descriptor's key has used.
func (n *Node) Inspect(domain string, d keyspace.Descriptor) partition.Inspection {
	h := n.hosting.Load()
	if h == nil {
		return partition.Inspection{Outcome: partition.Outcome{Result: partition.NoQuorum}}
	}
	p, o := n.partitionOf(h, partition.AnyPartition, domain, []keyspace.Descriptor{d})
	if o.Result != 0 {
		return partition.Inspection{Outcome: o}
	}
	if r := h.of(p); r != nil {
		return r.running().Inspect(domain, d)
	}
	return partition.Inspection{Outcome: n.notHere(p)}
}

// Domains names the domains of the newest policy set, in order.
func (n *Node) Domains() (names []string) {
	newest := n.sets.newest()
	if newest == nil {
		return nil
	}
	for i := range newest.compiled.Domains() {
		names = append(names, newest.compiled.DomainName(i))
	}
	return names
}

// AddressOf returns where the node of a server id answers checks.
func (n *Node) AddressOf(serverID string) string { return n.address(nameOf(serverID)) }
