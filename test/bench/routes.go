package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/keyspace"
)

// routes say which node is asked for which key.
type routes struct {
	seed    keyspace.Seed
	slots   keyspace.Table
	leaders []string // addresses, by partition
}

// homesOf finds the partition of each key of a workload beforehand, as a client that remembers would.
func (r *routes) homesOf(w workload) homes {
	if len(r.leaders) == 1 {
		return nil
	}
	h := make(homes, w.keys)
	names := []string{w.entry}
	text := make([]byte, valueLen)
	for key := range h {
		putKey(text, w.family, uint32(key))
		d := keyspace.Descriptor{{Name: w.entry, Value: string(text)}}
		h[key] = byte(r.slots[r.seed.Slot(domain, d, names)])
	}
	return h
}

// awaitLeaders waits until each partition is led by the node that should.
func (c *cluster) awaitLeaders() (*routes, error) {
	creds, err := c.credentials()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(c.nodes[0].grpc, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing depends on it
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	watch, err := quotav1.NewRoutingClient(conn).Watch(ctx, &quotav1.WatchRequest{})
	if err != nil {
		return nil, err
	}
	var r *routes
	for r == nil || !r.settled(c.nodes) {
		m, err := watch.Recv()
		if err != nil {
			return nil, fmt.Errorf("wait for leaders on every node: %w", err)
		}
		if r == nil {
			if r, err = newRoutes(m.GetCluster()); err != nil {
				return nil, err
			}
		}
		for _, p := range m.GetPartitions() {
			r.leaders[p.GetPartition()] = p.GetAddress()
		}
	}
	return r, nil
}

func newRoutes(m *quotav1.Cluster) (*routes, error) {
	r := &routes{leaders: make([]string, m.GetPartitions())}
	if len(m.GetSeed()) != len(r.seed) || len(m.GetSlots()) != 2*keyspace.Slots {
		return nil, errors.New("the first message of a watch has no cluster")
	}
	copy(r.seed[:], m.GetSeed())
	for slot := range r.slots {
		r.slots[slot] = uint16(m.GetSlots()[2*slot])<<8 | uint16(m.GetSlots()[2*slot+1])
	}
	return r, nil
}

// settled reports whether each partition is led by the node that leads it whenever it can: each in turn. Until then a
// handover is to come, which would be in the middle of a leg.
func (r *routes) settled(nodes []*node) bool {
	for partition, address := range r.leaders {
		if address != nodes[partition%len(nodes)].grpc {
			return false
		}
	}
	return true
}

// clientTLS is how a gateway dials nodes.
func (c *cluster) clientTLS() (*tls.Config, error) {
	k, err := access.Open(access.Files{CA: c.path("certs/ca.crt"), Cert: c.path("certs/gateway.crt"), Key: c.path("certs/gateway.key")}, time.Now)
	if err != nil {
		return nil, err
	}
	return k.ClientTLS(access.IsPeer), nil
}
