package transport

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Remote is the transport of one replica to those on other nodes: a raft.Transport with pre-vote and
// Close. Make one with [Links.Group].
type Remote struct {
	links    *Links
	group    uint32
	self     raft.ServerAddress
	nodeOf   func(raft.ServerAddress) (string, bool)
	consumer chan raft.RPC
	acks     atomic.Pointer[Acks]

	once   sync.Once
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	conns  *conns // snapshots that are being sent

	mu      sync.Mutex
	arrives map[string]*arrival // snapshots that are being received, by node
}

var (
	_ raft.Transport   = (*Remote)(nil)
	_ raft.WithPreVote = (*Remote)(nil)
	_ raft.WithClose   = (*Remote)(nil)
)

func newRemote(l *Links, group uint32, self raft.ServerID, nodeOf func(raft.ServerAddress) (string, bool)) *Remote {
	r := &Remote{
		links: l, group: group, self: raft.ServerAddress(self), nodeOf: nodeOf,
		// Unbuffered: a request is either taken by the main loop or never was.
		consumer: make(chan raft.RPC),
		conns:    newConns(), arrives: map[string]*arrival{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// OnAck sets who is told of answers from now on. Set it before Raft starts, so that none is missed.
func (r *Remote) OnAck(a Acks) { r.acks.Store(&a) }

// Consumer returns the channel of requests that peers send here.
func (r *Remote) Consumer() <-chan raft.RPC { return r.consumer }

// LocalAddr returns the replica's server id.
func (r *Remote) LocalAddr() raft.ServerAddress { return r.self }

// EncodePeer returns an address as bytes; the id is not needed.
func (r *Remote) EncodePeer(_ raft.ServerID, address raft.ServerAddress) []byte {
	return []byte(address)
}

// DecodePeer reverses EncodePeer.
func (r *Remote) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler does nothing (hashicorp/raft #695; see the package's invariants).
func (r *Remote) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline is not supported (hashicorp/raft #612; see the package's invariants).
func (r *Remote) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries sends entries, or a heartbeat, and reports the answers to whom OnAck named. Raft counts entries, not
// bytes: more than fit into one request go in several, each of which follows from the one before. Where one isn't
// taken, its answer is that to all.
func (r *Remote) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	part := *args // the request is Raft's
	for {
		rest := part.Entries
		part.Entries = fitting(rest, r.links.opt.MaxMessage/2)
		if err := r.appendEntries(id, target, &part, resp); err != nil {
			return err
		}
		if len(part.Entries) == len(rest) || !resp.Success {
			return nil
		}
		last := part.Entries[len(part.Entries)-1]
		part.PrevLogEntry, part.PrevLogTerm, part.Entries = last.Index, last.Term, rest[len(part.Entries):]
	}
}

// fitting returns the first entries, at least one if there is any, that together have at most so many bytes.
func fitting(entries []*raft.Log, most int) []*raft.Log {
	const overhead = 64 // more than an entry takes beside its bytes
	size := 0
	for i, e := range entries {
		if size += len(e.Data) + len(e.Extensions) + overhead; size > most && i > 0 {
			return entries[:i]
		}
	}
	return entries
}

func (r *Remote) appendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	acks, sentAt := r.acks.Load(), int64(0)
	if acks != nil {
		sentAt = acks.Now() // before the request is queued, and so before it can have been handled
	}
	if err := ask(r, target, args, resp, r.patience(args)); err != nil {
		return err
	}
	if acks != nil && resp.Success && resp.Term == args.Term && acks.Now()-sentAt < acks.MaxAge {
		acks.Acked(id, args.Term, sentAt)
	}
	return nil
}

// patience is how long an AppendEntries may take.
func (r *Remote) patience(args *raft.AppendEntriesRequest) time.Duration {
	if len(args.Entries) == 0 {
		return r.links.opt.Timeout
	}
	size := 0
	for _, e := range args.Entries {
		size += len(e.Data) + len(e.Extensions)
	}
	return scaled(r.links.opt.EntriesTimeout, int64(size))
}

// scaled adds a second for each MiB.
func scaled(d time.Duration, size int64) time.Duration {
	return d + time.Duration(max(0, size)>>20)*time.Second
}

// RequestVote asks for a vote.
func (r *Remote) RequestVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return ask(r, target, args, resp, r.links.opt.Timeout)
}

// RequestPreVote asks whether a vote would be given, so that a replica that was cut off doesn't
// depose a leader when it returns.
func (r *Remote) RequestPreVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return ask(r, target, args, resp, r.links.opt.Timeout)
}

// TimeoutNow asks a peer to stand for election at once.
func (r *Remote) TimeoutNow(_ raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return ask(r, target, args, resp, r.links.opt.Timeout)
}

// InstallSnapshot streams a snapshot over a connection of its own. Data is read in here only.
func (r *Remote) InstallSnapshot(_ raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	p, err := r.peer(target)
	if err != nil {
		return err
	}
	message, err := r.sendSnapshot(p, target, args, data)
	if err != nil {
		if r.ctx.Err() != nil {
			err = ErrClosed
		}
		return fmt.Errorf("snapshot to %s: %w", target, err)
	}
	return read(target, message, resp)
}

// Close ends the transport: requests in flight, from it and to it, fail with [ErrClosed], and its group
// is free again. The links stay. It can be called more than once.
func (r *Remote) Close() error {
	r.end()
	return nil
}

func (r *Remote) end() {
	r.once.Do(func() {
		r.links.leave(r)
		r.cancel()
		r.conns.closeAll()
	})
}

// closed is closed by Close.
func (r *Remote) closed() <-chan struct{} { return r.ctx.Done() }

// peer returns the node where an address lives.
func (r *Remote) peer(target raft.ServerAddress) (*peer, error) {
	if r.ctx.Err() != nil {
		return nil, ErrClosed
	}
	node, ok := r.nodeOf(target)
	if !ok {
		return nil, fmt.Errorf("request to %s: %w: its node is not known", target, ErrUnreachable)
	}
	p := r.links.peer(node)
	if p == nil {
		return nil, fmt.Errorf("request to %s: %w: more than %d nodes", target, ErrUnreachable, maxPeers)
	}
	return p, nil
}

// ask sends a request over the peer's link and waits for the answer, both within timeout.
func ask[R any](r *Remote, target raft.ServerAddress, request any, answer *R, timeout time.Duration) error {
	p, err := r.peer(target)
	if err != nil {
		return err
	}
	message, err := r.exchange(p, target, request, timeout)
	if err != nil {
		return fmt.Errorf("request to %s: %w", target, err)
	}
	return read(target, message, answer)
}

func (r *Remote) exchange(p *peer, target raft.ServerAddress, request any, timeout time.Duration) ([]byte, error) {
	until := time.Now().Add(timeout)
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	out, err := p.link(deadline.C, r.closed())
	if err != nil {
		return nil, err
	}
	e := envelope{remaining: micros(time.Until(until)), target: string(target)}
	encoded, err := encodeRequest(e, request, r.links.opt.MaxMessage)
	if err != nil {
		return nil, err
	}
	return out.ask(r.group, encoded, deadline.C, r.closed())
}

// read decodes an answer, which must be of the replica that was asked if it says whose it is.
func read[R any](target raft.ServerAddress, message []byte, answer *R) error {
	var got R
	if err := decodeAnswer(message, &got); err != nil {
		return err
	}
	if h, ok := any(&got).(raft.WithRPCHeader); ok {
		if from := h.GetRPCHeader().ID; len(from) > 0 && string(from) != string(target) {
			return fmt.Errorf("answer of %q to a request to %s", from, target)
		}
	}
	*answer = got
	return nil
}

// judge says whether a peer's request may be handed over: 0, or the status to refuse it with.
func (l *Links) judge(p *peer, r *Remote, target string, command any) status {
	if r == nil || string(r.self) != target {
		p.stray.Add(1)
		return statusAbsent
	}
	if claim, ok := claims(command); !ok || nodeOf(claim) != p.node {
		p.impostor.Add(1)
		if l.mayReport() {
			l.opt.Log.Error("request claims another node's replica", "peer", p.node, "claim", claim, "group", r.group)
		}
		return statusImpostor
	}
	return 0
}

// claims returns the server id that a request says it is from, if it says one thing only: Raft reads
// the id, the address, and where they are empty the fields from before them.
func claims(command any) (string, bool) {
	header := command.(raft.WithRPCHeader).GetRPCHeader()
	var older []byte
	switch m := command.(type) {
	case *raft.AppendEntriesRequest:
		older = m.Leader //nolint:staticcheck // still read by the library
	case *raft.RequestVoteRequest:
		older = m.Candidate //nolint:staticcheck // as above
	case *raft.InstallSnapshotRequest:
		older = m.Leader
	}
	id := string(header.ID)
	return id, string(header.Addr) == id && (len(older) == 0 || string(older) == id)
}
