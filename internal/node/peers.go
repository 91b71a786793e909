package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

const (
	// callWithin bounds one call to another node.
	callWithin = 2 * time.Second
	// watchAgain is how long after the end of a watch the next one begins.
	watchAgain = 250 * time.Millisecond
	maxMessage = 4 << 20
)

// peer is another node as this one calls it.
type peer struct {
	name string
	self string // who calls
	// election is the timeout of whoever calls, which the peer's must be, too.
	election time.Duration
	newest   uint64 // level of whoever calls
	conn     *grpc.ClientConn
	rpc      quotav1.PeerClient

	heard atomic.Int64 // monotonic; when it was heard last; 0: never

	comparison clock.Comparison // compareClocks' own
	verdict    clock.Verdict    // of our clock, by its; the same's
	judged     int64            // monotonic; when that was

	mu       sync.Mutex
	status   *quotav1.NodeStatus      // of itself, as it last told; nil: it hasn't
	replicas []*quotav1.ReplicaStatus // likewise
	level    saidLevel                // that its process said that runs now
}

func (n *Node) openPeers() error {
	for _, a := range n.cfg.Nodes {
		if a.Name == n.cfg.Name {
			continue
		}
		creds := insecure.NewCredentials()
		if n.cfg.Keeper != nil {
			creds = credentials.NewTLS(n.cfg.Keeper.ClientTLS(access.IsNode(a.Name)))
		}
		conn, err := grpc.NewClient("passthrough:///"+a.GRPC, grpc.WithTransportCredentials(creds),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
			// The library's own pauses grow to two minutes: so long a node that comes back would count as gone.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: callWithin,
			}))
		if err != nil {
			return fmt.Errorf("node %s at %q: %w", a.Name, a.GRPC, err)
		}
		n.peers = append(n.peers, &peer{
			name: a.Name, self: n.cfg.Name, election: n.cfg.Timing.Election, newest: n.cfg.Level, conn: conn, rpc: quotav1.NewPeerClient(conn),
		})
	}
	slices.SortFunc(n.peers, func(a, b *peer) int { return strings.Compare(a.name, b.name) })
	return nil
}

// describeOthers asks all other nodes at once who they are; those that don't answer are left out.
func (n *Node) describeOthers(ctx context.Context) map[string]description {
	found := make([]*description, len(n.peers))
	var all sync.WaitGroup
	for i, p := range n.peers {
		all.Go(func() {
			d, err := p.describe(ctx)
			if err != nil {
				n.log.Debug("describe", "peer", p.name, "error", err)
				return
			}
			p.heard.Store(n.Monotonic())
			found[i] = d
		})
	}
	all.Wait()
	others := map[string]description{}
	for i, d := range found {
		if d != nil {
			others[n.peers[i].name] = *d
		}
	}
	return others
}

func (p *peer) describe(ctx context.Context) (*description, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	m, err := p.rpc.Describe(ctx, &quotav1.DescribeRequest{From: p.self})
	if err != nil {
		return nil, err
	}
	return readDescription(m, p.name)
}

func readDescription(m *quotav1.DescribeResponse, name string) (*description, error) {
	d := &description{
		name: m.GetNode(), id: m.GetId(), zone: m.GetZone(), founded: m.GetFounded(), memory: m.GetMemory(),
		partitions: int(m.GetPartitions()), replication: int(m.GetReplication()), nodes: m.GetNodes(),
	}
	if d.name != name || nameOf(d.id) != name {
		return nil, fmt.Errorf("the node at the address of %s says that it is %s", name, d.id)
	}
	if len(m.GetGenesis()) > 0 {
		g, err := parseGenesis(m.GetGenesis())
		if err != nil {
			return nil, err
		}
		d.genesis = &g
	}
	return d, nil
}

// Describe says what this node's disk holds.
func (n *Node) Describe() *quotav1.DescribeResponse {
	d := n.describe()
	m := &quotav1.DescribeResponse{
		Node: d.name, Id: d.id, Zone: d.zone, Founded: d.founded, Memory: d.memory,
		Partitions: uint32(d.partitions), Replication: uint32(d.replication), Nodes: d.nodes,
	}
	if d.genesis != nil {
		m.Genesis = d.genesis.encode()
	}
	return m
}

func (p *peer) found(ctx context.Context, document []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	if _, err := p.rpc.Found(ctx, &quotav1.FoundRequest{Genesis: document}); err != nil {
		return fmt.Errorf("hand the genesis document to %s: %w", p.name, err)
	}
	return nil
}

// announce tells the peer, which must be that member of the cluster, of a start. It fails with
// [partition.ErrRewound], wrapped, if the peer knows better, and with [partition.ErrLevel] if this software is too old.
func (p *peer) announce(ctx context.Context, member, id string, shown []sight) ([]sight, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	m, err := p.rpc.Announce(ctx, &quotav1.AnnounceRequest{Id: id, Starts: wireSights(shown), Level: p.newest})
	if status.Code(err) == codes.FailedPrecondition {
		return nil, fmt.Errorf("%w, says %s: %s", partition.ErrRewound, p.name, status.Convert(err).Message())
	}
	if status.Code(err) == codes.OutOfRange {
		return nil, fmt.Errorf("%w, says %s: %s", partition.ErrLevel, p.name, status.Convert(err).Message())
	}
	if err != nil {
		return nil, fmt.Errorf("announce to %s: %w", p.name, err)
	}
	if m.GetId() != member {
		return nil, fmt.Errorf("announce to %s: %w: it is %s, not %s", p.name, partition.ErrNoMember, m.GetId(), member)
	}
	if theirs := time.Duration(m.GetElectionNs()); theirs != p.election {
		return nil, fmt.Errorf("%w: %v here, %v at %s", errElection, p.election, theirs, p.name)
	}
	return readSights(m.GetKnown()), nil
}

// errElection says that two nodes have other election timeouts. A leader counts on its lease for half of its own, and
// voters elect another after theirs.
var errElection = errors.New("the election timeout is not that of the other nodes; stop all of them to change it")

// Announce hears of another node's start. It fails with [partition.ErrRewound], wrapped, if the start is behind
// what is known, and with [partition.ErrLevel] if its software doesn't have the level of a partition.
func (n *Node) Announce(m *quotav1.AnnounceRequest) (*quotav1.AnnounceResponse, error) {
	for _, s := range m.GetStarts() {
		if s.GetId() != m.GetId() {
			return nil, errors.New("a node tells of its own starts only")
		}
		if s.GetGroup() >= maxGroups || s.GetRun() == 0 {
			return nil, errors.New("no start of a replica looks like this")
		}
	}
	d := n.describe()
	if d.genesis == nil || !d.genesis.names(d.id) {
		return nil, partition.ErrNoMember
	}
	if err := n.hasLevels(m); err != nil {
		return nil, err
	}
	if err := n.disk.notes.hear(readSights(m.GetStarts())); err != nil {
		return nil, err
	}
	return &quotav1.AnnounceResponse{
		Known: wireSights(n.disk.notes.all()), Id: d.id, ElectionNs: int64(n.cfg.Timing.Election),
	}, nil
}

const maxGroups = 4096

func wireSights(list []sight) (m []*quotav1.GroupStart) {
	for _, s := range list {
		m = append(m, &quotav1.GroupStart{
			Id: s.ID, Group: uint32(s.Group), Start: s.Start.Number, Term: s.Start.Term, Index: s.Start.Index, Run: s.Run,
		})
	}
	return m
}

func readSights(m []*quotav1.GroupStart) (list []sight) {
	for _, s := range m {
		list = append(list, sight{
			ID: s.GetId(), Group: int(s.GetGroup()), Run: s.GetRun(),
			Start: partition.Start{Number: s.GetStart(), Term: s.GetTerm(), Index: s.GetIndex()},
		})
	}
	return list
}

// listenTo hears what a peer leads, and how its replicas are, until ctx ends.
func (n *Node) listenTo(ctx context.Context, p *peer) {
	for ctx.Err() == nil {
		if err := n.listenOnce(ctx, p); err != nil && ctx.Err() == nil {
			n.log.Debug("watch", "peer", p.name, "error", err)
		}
		if !pause(ctx, watchAgain) {
			return
		}
	}
}

func (n *Node) listenOnce(ctx context.Context, p *peer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer p.says(saidLevel{}) // whoever comes after may be other software
	stream, err := quotav1.NewRoutingClient(p.conn).Watch(ctx, &quotav1.WatchRequest{OwnOnly: true})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if first { // it may be another process, or another disk, than the one that claimed
			n.routes.renew(p.name, m.GetPartitions())
		}
		p.heard.Store(n.Monotonic())
		if self := m.GetSelf(); self != nil {
			p.says(saidLevel{self.GetId(), max(self.GetLevel(), fsm.FirstLevel), n.Monotonic()})
		}
		p.mu.Lock()
		if m.GetSelf() != nil {
			p.status = m.GetSelf()
		}
		if len(m.GetReplicas()) > 0 {
			p.replicas = m.GetReplicas()
		}
		p.mu.Unlock()
		n.routes.hear(p.name, m.GetPartitions())
	}
}

// itself returns what the peer said of itself, nil before it said anything.
func (p *peer) itself() *quotav1.NodeStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// told returns what the peer said of its replicas.
func (p *peer) told() []*quotav1.ReplicaStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replicas
}
