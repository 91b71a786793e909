package server

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
)

const (
	// maxReplicas bounds the replicas of one node: one of each partition, and one of the group beside them.
	maxReplicas = keyspace.Slots + 1
	// incarnationLen is the length of the hex digits at the end of a server id.
	incarnationLen = 16
	maxNodeName    = 63 // a DNS label
)

// peerService is the gRPC service Peer. Only nodes get this far; each speaks for itself alone.
type peerService struct {
	quotav1.UnimplementedPeerServer
	server *Server
}

// Describe says what this node's disk holds.
func (p *peerService) Describe(ctx context.Context, m *quotav1.DescribeRequest) (*quotav1.DescribeResponse, error) {
	if err := p.server.speaksFor(ctx, "from", m.GetFrom()); err != nil {
		return nil, err
	}
	return p.server.cfg.Member.Describe(), nil
}

// Found puts the genesis document on this node's disk.
func (p *peerService) Found(_ context.Context, m *quotav1.FoundRequest) (*quotav1.FoundResponse, error) {
	if len(m.GetGenesis()) == 0 {
		return nil, statusOf(refusal(&fault{"genesis", "is empty"}))
	}
	if err := p.server.cfg.Member.Found(m.GetGenesis()); err != nil {
		return nil, foundingError(err)
	}
	return &quotav1.FoundResponse{}, nil
}

// Announce notes the start of another node.
func (p *peerService) Announce(ctx context.Context, m *quotav1.AnnounceRequest) (*quotav1.AnnounceResponse, error) {
	if f := announceFault(m); f != nil {
		return nil, statusOf(refusal(f))
	}
	if err := p.server.speaksFor(ctx, "id", nodeOf(m.GetId())); err != nil {
		return nil, err
	}
	known, err := p.server.cfg.Member.Announce(m)
	if err != nil {
		return nil, announceError(err)
	}
	return known, nil
}

// Elapsed reads this node's measure of elapsed time.
func (p *peerService) Elapsed(context.Context, *quotav1.ElapsedRequest) (*quotav1.ElapsedResponse, error) {
	return p.server.cfg.Member.Elapsed(), nil
}

// speaksFor returns an error unless the caller is the node that it names in the field.
func (s *Server) speaksFor(ctx context.Context, field, node string) error {
	id, err := s.identify(ctx)
	if err != nil {
		return err
	}
	switch {
	case node == "" || len(node) > maxNodeName:
		return statusOf(refusal(faultf(field, "names no node")))
	case !s.isNodeNamed(id, node):
		return s.forbid(field + ": is of another node than the caller's certificate")
	}
	return nil
}

// announceFault says what is wrong with an announcement: a node tells of itself only, and of each group once.
func announceFault(m *quotav1.AnnounceRequest) *fault {
	if nodeOf(m.GetId()) == "" {
		return &fault{"id", "is not the name of a node, a hyphen and 16 hex digits"}
	}
	if n := len(m.GetStarts()); n > maxReplicas {
		return faultf("starts", "has %d replicas, at most %d are allowed", n, maxReplicas)
	}
	seen := map[uint32]bool{}
	for i, start := range m.GetStarts() {
		switch group := start.GetGroup(); {
		case nodeOf(start.GetId()) != nodeOf(m.GetId()):
			return (&fault{"id", "is of another node than the one that announces itself"}).under(index("starts", i))
		case group >= maxReplicas:
			return faultf("group", "is %d, not below %d", group, maxReplicas).under(index("starts", i))
		case seen[group]:
			return (&fault{"group", "is told of twice"}).under(index("starts", i))
		default:
			seen[group] = true
		}
	}
	return nil
}

// nodeOf is the name of the node that a server id names, empty if it names none.
func nodeOf(id string) string {
	at := len(id) - incarnationLen - 1
	if at < 1 || at > maxNodeName || id[at] != '-' || strings.Trim(id[at+1:], "0123456789abcdef") != "" {
		return ""
	}
	return id[:at]
}

// foundingError is the status of what keeps two nodes from being of one cluster, or a disk from being taken
// for what it was. What the operating system reports may be gone the next time; nothing else is.
func foundingError(err error) error {
	code := codes.FailedPrecondition
	if system := syscall.Errno(0); errors.As(err, &system) {
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

// announceError is the status of a start that was not noted. Only one that is behind what is known is final: its
// disk is lost. One whose software is too old is told so, and nothing of its disk.
func announceError(err error) error {
	code := codes.Unavailable
	switch {
	case errors.Is(err, partition.ErrRewound):
		code = codes.FailedPrecondition
	case errors.Is(err, partition.ErrLevel):
		code = codes.OutOfRange
	}
	return status.Error(code, err.Error())
}
