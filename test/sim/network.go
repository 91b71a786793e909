package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/transport"
)

// How long a request is waited for, and the longest that a message can be under way. The longest is more: an answer
// may come when nobody waits for it any more.
const (
	requestTimeout  = 600 * time.Millisecond
	snapshotTimeout = 3 * time.Second
)

var (
	errTimeout = errors.New("no answer in time")
	errGone    = errors.New("link is closed")
	errTorn    = errors.New("connection broke")
)

// network carries the messages of replicas and of clients. What becomes of each follows from the seed, from its
// link (one way) and from its number there.
type network struct {
	w *world

	mu    sync.Mutex
	links map[way]*link
	at    map[string]*endpoint
}

// way is from whom to whom.
type way struct{ from, to string }

// link is one way between two.
type link struct {
	sent    uint64 // messages
	streams uint64
	cut     int           // how many troubles cut it
	slow    time.Duration // at most so much more
	rough   int           // messages lost, ppm
	late    *ladder       // nil: on time
}

// ladder has messages come late, each by another step, so that for as long as possible some always come: a leader
// waits for four answers at a time at most, two of each follower. The network's mutex guards it.
type ladder struct{ n int }

func (l *ladder) next() time.Duration {
	if l == nil {
		return 0
	}
	l.n++
	return time.Duration(1+(l.n-1)%4) * 110 * time.Millisecond
}

func newNetwork(w *world) *network {
	return &network{w: w, links: map[way]*link{}, at: map[string]*endpoint{}}
}

func (n *network) link(way way) *link {
	l := n.links[way]
	if l == nil {
		l = &link{}
		n.links[way] = l
	}
	return l
}

// stream draws for the next stream on a link.
func (n *network) stream(way way) *stream {
	n.mu.Lock()
	l := n.link(way)
	l.streams++
	number := l.streams
	n.mu.Unlock()
	return n.w.draw("stream "+way.from+" "+way.to, number)
}

// change does something to a link.
func (n *network) change(from, to string, do func(*link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do(n.link(way{from, to}))
}

func (n *network) isCut(way way) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.link(way).cut > 0
}

func (n *network) endpoint(id string) *endpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at[id]
}

// fate draws what becomes of the next message: after which times it arrives, none if it is lost.
func (n *network) fate(way way, what string) (arrivals []time.Duration) {
	n.mu.Lock()
	l := n.link(way)
	l.sent++
	number, slow, rough, late := l.sent, l.slow, l.rough, l.late.next()
	n.mu.Unlock()
	s := n.w.draw("message "+way.from+" "+way.to, number)
	copies := 1
	switch {
	case !n.w.troubled():
	case s.in(n.w.manners.lost + rough):
		copies = 0
		n.w.count("messages lost")
	case s.in(n.w.manners.doubled):
		copies = 2
		n.w.count("messages doubled")
	}
	for range copies {
		arrivals = append(arrivals, n.delay(s)+late+time.Duration(s.next()%uint64(slow+1)))
	}
	if n.w.trace != nil {
		n.w.trace.add("%s>%s %d %s %v", way.from, way.to, number, what, arrivals)
	}
	return arrivals
}

func (n *network) delay(s *stream) time.Duration {
	switch {
	case n.w.troubled() && s.in(n.w.manners.late):
		n.w.count("messages late")
		return s.span(20*time.Millisecond, 900*time.Millisecond)
	case s.in(30_000):
		return s.span(time.Millisecond, 20*time.Millisecond)
	}
	return s.span(50*time.Microsecond, 900*time.Microsecond)
}

// carryOnce is carry on a stream, on which nothing arrives twice.
func (n *network) carryOnce(way way, what string, arrive func()) {
	var once sync.Once
	n.carry(way, what, func() { once.Do(arrive) })
}

// carry has a message arrive, as often as it does, unless its way is cut by then.
func (n *network) carry(way way, what string, arrive func()) {
	for _, d := range n.fate(way, what) {
		time.AfterFunc(d, func() {
			if n.isCut(way) {
				n.w.count("messages cut off")
				return
			}
			arrive()
		})
	}
}

// endpoint is one process's place in the network.
type endpoint struct {
	net      *network
	id       string
	consumer chan raft.RPC
	acks     atomic.Pointer[transport.Acks]
	once     sync.Once
	closed   chan struct{}
}

var (
	_ partition.Transport = (*endpoint)(nil)
	_ raft.WithPreVote    = (*endpoint)(nil)
	_ raft.WithClose      = (*endpoint)(nil)
)

func (n *network) join(id string) *endpoint {
	e := &endpoint{net: n, id: id, consumer: make(chan raft.RPC), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[id] = e
	return e
}

// Close implements raft.WithClose.
func (e *endpoint) Close() error {
	e.once.Do(func() {
		e.net.mu.Lock()
		if e.net.at[e.id] == e {
			delete(e.net.at, e.id)
		}
		e.net.mu.Unlock()
		close(e.closed)
	})
	return nil
}

// OnAck implements partition.Transport.
func (e *endpoint) OnAck(a transport.Acks) { e.acks.Store(&a) }

// Consumer implements raft.Transport.
func (e *endpoint) Consumer() <-chan raft.RPC { return e.consumer }

// LocalAddr implements raft.Transport.
func (e *endpoint) LocalAddr() raft.ServerAddress { return raft.ServerAddress(e.id) }

// EncodePeer implements raft.Transport.
func (e *endpoint) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }

// DecodePeer implements raft.Transport.
func (e *endpoint) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler does nothing, as the product's transport does.
func (e *endpoint) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline is not supported, as by the product's transport.
func (e *endpoint) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries implements raft.Transport, and reports answers as the product's transport does.
func (e *endpoint) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	acks := e.acks.Load()
	sentAt := acks.Now()
	what := fmt.Sprintf("append t%d %d+%d", args.Term, args.PrevLogEntry, len(args.Entries))
	if len(args.Entries) > 0 && e.net.w.o.Breaks.Forged && e.net.stream(way{e.id, string(target)}).in(300_000) {
		*resp = raft.AppendEntriesResponse{Term: args.Term, LastLog: args.PrevLogEntry + uint64(len(args.Entries)), Success: true}
		return nil
	}
	err := ask(e, target, what, requestTimeout, func() raft.RPC { return raft.RPC{Command: copyAppend(args)} }, resp)
	if err != nil {
		return err
	}
	if e.net.w.o.Breaks.OldLease {
		sentAt = acks.Now()
	}
	if resp.Success && resp.Term == args.Term && acks.Now()-sentAt < acks.MaxAge {
		acks.Acked(id, args.Term, sentAt)
	}
	return nil
}

// RequestVote implements raft.Transport.
func (e *endpoint) RequestVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	what := fmt.Sprintf("vote t%d %d", args.Term, args.LastLogIndex)
	return ask(e, target, what, requestTimeout, copying(args), resp)
}

// RequestPreVote implements raft.WithPreVote.
func (e *endpoint) RequestPreVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	what := fmt.Sprintf("prevote t%d %d", args.Term, args.LastLogIndex)
	return ask(e, target, what, requestTimeout, copying(args), resp)
}

// TimeoutNow implements raft.Transport.
func (e *endpoint) TimeoutNow(_ raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return ask(e, target, "timeout now", requestTimeout, copying(args), resp)
}

// InstallSnapshot implements raft.Transport. Some of them break off in the middle.
func (e *endpoint) InstallSnapshot(_ raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	all, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	e.net.w.count("snapshots sent")
	what := fmt.Sprintf("snapshot t%d %d", args.Term, args.LastLogIndex)
	build := func() raft.RPC {
		copied := *args
		reader := io.Reader(bytes.NewReader(all))
		if s := e.net.stream(way{e.id, string(target)}); e.net.w.troubled() && s.in(e.net.w.manners.torn) {
			e.net.w.count("snapshots broken off")
			reader = io.MultiReader(bytes.NewReader(all[:s.below(len(all))]), broken{})
		}
		return raft.RPC{Command: &copied, Reader: reader}
	}
	if err := ask(e, target, what, snapshotTimeout, build, resp); err != nil {
		return err
	}
	if resp.Success {
		e.net.w.count("snapshots installed")
	}
	return nil
}

// broken is a connection that breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errTorn }

func copying[T any](args *T) func() raft.RPC {
	return func() raft.RPC {
		copied := *args
		return raft.RPC{Command: &copied}
	}
}

// copyAppend copies a request such that two replicas share nothing that either changes: Raft never changes what an
// entry holds.
func copyAppend(args *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	copied := *args
	copied.Entries = make([]*raft.Log, len(args.Entries))
	for i, e := range args.Entries {
		entry := *e
		copied.Entries[i] = &entry
	}
	return &copied
}

// ask sends a request, built anew for each copy that arrives, and waits for the first answer.
func ask[R any](e *endpoint, target raft.ServerAddress, what string, timeout time.Duration, build func() raft.RPC, answer *R) error {
	there := way{e.id, string(target)}
	rpc := build() // now: who sends reuses its request after a while
	answers := make(chan raft.RPCResponse, 4)
	e.net.carry(there, what, func() {
		again := rpc
		if _, stream := rpc.Command.(*raft.InstallSnapshotRequest); stream {
			again = build() // its reader is read once
		}
		e.net.hand(there, what, again, timeout, answers)
	})
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	select {
	case got := <-answers:
		if got.Error != nil {
			return got.Error
		}
		response, ok := got.Response.(*R)
		if !ok {
			return fmt.Errorf("unexpected answer %T", got.Response)
		}
		*answer = *response
		return nil
	case <-deadline.C:
		return errTimeout
	case <-e.closed:
		return errGone
	}
}

// hand gives a request to whoever is there, and carries the answer back.
func (n *network) hand(there way, what string, rpc raft.RPC, timeout time.Duration, answers chan raft.RPCResponse) {
	peer := n.endpoint(there.to)
	if peer == nil {
		return
	}
	if n.w.trace != nil {
		n.w.trace.add("%s<%s %s", there.to, there.from, what)
	}
	got := make(chan raft.RPCResponse, 1)
	rpc.RespChan = got
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case peer.consumer <- rpc:
	case <-peer.closed:
		return
	case <-limit.C:
		return
	}
	select {
	case r := <-got:
		n.carry(way{there.to, there.from}, "answer to "+what, func() {
			select {
			case answers <- r:
			default:
			}
		})
	case <-peer.closed:
	}
}
