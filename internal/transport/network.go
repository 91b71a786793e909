package transport

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

var (
	// ErrUnreachable says that no such peer is there, or that the way to it or back is cut.
	ErrUnreachable = errors.New("peer unreachable")
	// ErrDeadline says that the peer didn't answer in time. It may yet act on the request.
	ErrDeadline = errors.New("peer did not answer in time")
	// ErrClosed says that one of the two ends was closed.
	ErrClosed = errors.New("transport closed")
	// ErrTaken says that an address is in use.
	ErrTaken = errors.New("address is in use")
)

// Options are the deadlines of a network. Zero values mean the defaults.
type Options struct {
	// Timeout bounds every request but InstallSnapshot. Default 5 s: above it the peer's disk is in
	// trouble, and well below it an election has begun.
	Timeout time.Duration
	// SnapshotTimeout bounds an InstallSnapshot, to which one second is added for each MiB. It
	// includes the peer's restore, since the answer comes after it. Default 30 s.
	SnapshotTimeout time.Duration
}

// Network connects the replicas of one process. It is safe for concurrent use.
type Network struct {
	options Options

	mu      sync.RWMutex
	members map[raft.ServerAddress]*Local
	cuts    map[link]struct{}
}

// link is one direction between two addresses.
type link struct{ from, to raft.ServerAddress }

// NewNetwork returns a network without members and without cuts.
func NewNetwork(options Options) *Network {
	if options.Timeout <= 0 {
		options.Timeout = 5 * time.Second
	}
	if options.SnapshotTimeout <= 0 {
		options.SnapshotTimeout = 30 * time.Second
	}
	return &Network{
		options: options,
		members: make(map[raft.ServerAddress]*Local),
		cuts:    make(map[link]struct{}),
	}
}

// Join opens a transport at an address: the replica's server id. The address of a closed transport
// is free again; one in use gives [ErrTaken].
func (n *Network) Join(serverID string) (*Local, error) {
	address := raft.ServerAddress(serverID)
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.members[address]; ok {
		return nil, fmt.Errorf("join as %s: %w", address, ErrTaken)
	}
	l := &Local{
		network: n,
		address: address,
		// Unbuffered: a request is either taken by the peer's main loop or never was. With a buffer
		// requests would be delivered long after their senders had given them up.
		consumer: make(chan raft.RPC),
		closed:   make(chan struct{}),
	}
	n.members[address] = l
	return l, nil
}

// Cut stops what from sends to to: its requests, and its answers to to's requests. The other
// direction stays open, and so do requests in flight until they need the cut one.
func (n *Network) Cut(from, to raft.ServerAddress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[link{from, to}] = struct{}{}
}

// Isolate cuts both directions between an address and every other member.
func (n *Network) Isolate(address raft.ServerAddress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.members {
		if other != address {
			n.cuts[link{address, other}] = struct{}{}
			n.cuts[link{other, address}] = struct{}{}
		}
	}
}

// Heal undoes every cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// route returns the open transport at to, if from reaches it.
func (n *Network) route(from, to raft.ServerAddress) (*Local, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if _, cut := n.cuts[link{from, to}]; cut {
		return nil, fmt.Errorf("from %s to %s: %w", from, to, ErrUnreachable)
	}
	peer, ok := n.members[to]
	if !ok {
		return nil, fmt.Errorf("from %s to %s: %w", from, to, ErrUnreachable)
	}
	return peer, nil
}

// leave frees the address of a transport that closes, once.
func (n *Network) leave(l *Local) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.members, l.address)
}
