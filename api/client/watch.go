package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
)

const (
	// silence is how long a watch may bring nothing: a node tells something every second, if only that it is there.
	// One that is frozen knows no news, and who watches it doesn't hear who leads instead.
	silence = 4 * time.Second
	// stale is how long it may bring no news: each partition that works logs its time every 5 s, so a node that
	// tells of none is cut off from the others.
	stale = 10 * time.Second
	// firstPause and longestPause are between two nodes that can't be watched.
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// errForeign says that a node belongs to another cluster than those heard before. Its answers would be of
// other allowances.
var errForeign = errors.New("the node belongs to another cluster")

// watch keeps the table fresh, from one node after the other, until the client closes.
func (c *Client) watch(ctx context.Context) {
	pause := firstPause
	for next := 0; ctx.Err() == nil; next++ {
		nodes := c.nodes()
		address := nodes[next%len(nodes)]
		heard, err := c.watchNode(ctx, address)
		if ctx.Err() != nil {
			return
		}
		c.log.Warn("a node can't be watched any longer; another one is asked", "address", address, "error", err)
		if heard {
			pause = firstPause
		}
		sleep(ctx, jitter(pause))
		pause = min(2*pause, longestPause)
	}
}

// nodes lists whom to ask where anybody will do: the configured addresses, then leaders that were heard of.
func (c *Client) nodes() []string {
	nodes := append([]string(nil), c.cfg.Addresses...)
	known := map[string]bool{"": true}
	for _, a := range nodes {
		known[a] = true
	}
	for _, r := range c.table.view.Load().routes {
		if a, _ := r.leader(); !known[a] {
			known[a] = true
			nodes = append(nodes, a)
		}
	}
	return nodes
}

// watchNode takes in one node's news until it has no more, and reports whether there were any.
func (c *Client) watchNode(ctx context.Context, address string) (heard bool, err error) {
	l, err := c.links.to(address)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(fmt.Errorf("it told nothing for %v", silence)) })
	defer quiet.Stop()
	cutOff := time.AfterFunc(stale, func() { cancel(fmt.Errorf("it told nothing new for %v", stale)) })
	defer cutOff.Stop()
	stream, err := l.routing.Watch(ctx, &quotav1.WatchRequest{})
	if err != nil {
		return false, err
	}
	parts := assembly{}
	for {
		m, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return heard, err
		}
		quiet.Reset(silence)
		if len(m.GetPartitions()) > 0 || m.GetPolicies() != nil {
			cutOff.Reset(stale)
		}
		if err := c.hear(m, !heard, &parts); err != nil {
			return heard, err
		}
		heard = true
	}
}

// hear takes in one message.
func (c *Client) hear(m *quotav1.WatchResponse, first bool, parts *assembly) error {
	if first {
		if err := c.hearCluster(m.GetCluster()); err != nil {
			return err
		}
	}
	routes, news := c.table.view.Load().routes, false
	for _, p := range m.GetPartitions() {
		if int(p.GetPartition()) >= len(routes) {
			return fmt.Errorf("it tells of partition %d of %d", p.GetPartition(), len(routes))
		}
		news = routes[p.GetPartition()].hear(p) || news
	}
	if news {
		c.table.tell()
	}
	if m.GetPolicies() == nil {
		return nil
	}
	canonical, v, err := parts.add(m.GetPolicies())
	if err != nil || canonical == nil {
		return err
	}
	c.hearPolicies(v, canonical)
	return nil
}

func (c *Client) hearCluster(m *quotav1.Cluster) error {
	told, err := readCluster(m)
	if err != nil {
		return err
	}
	switch known := c.table.view.Load().cluster; {
	case known == nil:
		c.table.found(told)
	case *known != *told:
		return errForeign
	}
	return nil
}

func readCluster(m *quotav1.Cluster) (*cluster, error) {
	c := &cluster{partitions: int(m.GetPartitions())}
	switch {
	case m == nil:
		return nil, errors.New("its first message has no cluster")
	case len(m.GetId()) != len(c.id):
		return nil, fmt.Errorf("the cluster's id has %d bytes, not %d", len(m.GetId()), len(c.id))
	case len(m.GetSeed()) != len(c.seed):
		return nil, errors.New("the cluster's seed is withheld: the certificate doesn't let its holder check")
	case c.partitions < 1 || c.partitions > keyspace.Slots:
		return nil, fmt.Errorf("the cluster has %d partitions", c.partitions)
	}
	copy(c.id[:], m.GetId())
	copy(c.seed[:], m.GetSeed())
	c.slots = keyspace.EvenTable(c.partitions)
	if len(m.GetSlots()) == 0 {
		return c, nil
	}
	if len(m.GetSlots()) != 2*keyspace.Slots {
		return nil, fmt.Errorf("the slot table has %d bytes", len(m.GetSlots()))
	}
	for i := range c.slots {
		c.slots[i] = binary.BigEndian.Uint16(m.GetSlots()[2*i:])
		if int(c.slots[i]) >= c.partitions {
			return nil, fmt.Errorf("slot %d belongs to partition %d of %d", i, c.slots[i], c.partitions)
		}
	}
	return c, nil
}

// hearPolicies prepares a newer set. One that this version can't enforce is left: until it is replaced the
// leaders' own resolutions have to do.
func (c *Client) hearPolicies(v Version, canonical []byte) {
	if s := c.table.view.Load().set; s != nil && !s.version.Before(v) {
		return
	}
	s, err := newPolicySet(v, canonical)
	if err != nil {
		c.log.Error("a policy set can't be taken", "epoch", v.Epoch, "version", v.Number, "error", err)
		return
	}
	c.table.adopt(s)
}

// assembly puts the parts of a set together.
type assembly struct {
	version Version
	size    uint64
	json    []byte
}

// add returns the set when it is whole.
func (a *assembly) add(m *quotav1.PolicySetPart) ([]byte, Version, error) {
	v := VersionOf(m.GetVersion())
	if len(a.json) == 0 || v != a.version { // the next one may begin before the last has ended
		*a = assembly{version: v, size: m.GetSize()}
	}
	got := uint64(len(a.json) + len(m.GetJson()))
	switch {
	case m.GetVersion() == nil:
		return nil, v, errors.New("a part of a policy set has no version")
	case m.GetSize() != a.size || a.size > MaxPolicyBytes || got > a.size || m.GetLast() != (got == a.size):
		return nil, v, fmt.Errorf("parts of a policy set don't add up: %d of %d bytes", got, m.GetSize())
	}
	a.json = append(a.json, m.GetJson()...)
	if !m.GetLast() {
		return nil, v, nil
	}
	whole := a.json
	*a = assembly{}
	return whole, v, nil
}
