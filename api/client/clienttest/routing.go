package clienttest

import (
	"encoding/binary"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// partBytes is the most of a policy set in one message.
const partBytes = 1<<20 - 64<<10

// routing is the service that says where to ask.
type routing struct {
	quotav1.UnimplementedRoutingServer
	server *Server
}

// Watch tells of the cluster, and then of every change.
func (r *routing) Watch(_ *quotav1.WatchRequest, stream grpc.ServerStreamingServer[quotav1.WatchResponse]) error {
	address := inMemory
	if p, ok := peer.FromContext(stream.Context()); ok {
		if at, ok := p.LocalAddr.(*net.TCPAddr); ok {
			address = at.String()
		}
	}
	beats := time.NewTicker(time.Second) // a node tells something every second, and whoever doesn't is left
	defer beats.Stop()
	var told uint64 // number of the newest set that was sent
	for first := true; ; first = false {
		messages, newest, news := r.server.tidings(address, first, told)
		told = newest
		for _, m := range messages {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-news:
		case <-beats.C:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// tidings is what a watch has to send that was told of the set of that number, and what is closed when there
// is more.
func (s *Server) tidings(address string, first bool, told uint64) (messages []*quotav1.WatchResponse, newest uint64, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &quotav1.WatchResponse{}
	if first {
		m.Cluster = s.cluster()
	}
	version := &quotav1.SetVersion{Epoch: s.version.Epoch, Number: s.version.Number}
	for i, c := range s.cells {
		now := c.machine.Now()
		m.Partitions = append(m.Partitions, &quotav1.PartitionRoute{
			Partition: uint32(i), Leader: "clienttest", Address: address, Term: c.machine.Term(), Epoch: epoch,
			DecisionTimeNs: &now, Version: version,
		})
	}
	messages = append(messages, m)
	if s.version.Number > told {
		messages = append(messages, parts(version, s.set.Canonical())...)
	}
	return messages, s.version.Number, s.news
}

func (s *Server) cluster() *quotav1.Cluster {
	m := &quotav1.Cluster{Id: s.seed[:], Seed: s.seed[:], Partitions: uint32(len(s.cells))}
	for _, part := range s.cells[0].machine.Slots() {
		m.Slots = binary.BigEndian.AppendUint16(m.Slots, part)
	}
	return m
}

// parts cuts a set into messages.
func parts(version *quotav1.SetVersion, canonical []byte) (messages []*quotav1.WatchResponse) {
	size := uint64(len(canonical))
	for len(canonical) > 0 {
		n := min(len(canonical), partBytes)
		messages = append(messages, &quotav1.WatchResponse{Policies: &quotav1.PolicySetPart{
			Version: version, Json: canonical[:n], Size: size, Last: n == len(canonical),
		}})
		canonical = canonical[n:]
	}
	return messages
}
