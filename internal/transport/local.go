package transport

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Local is the transport of one replica among others in the same process: a raft.Transport with
// pre-vote and Close. Make one with [Network.Join].
type Local struct {
	network  *Network
	address  raft.ServerAddress
	consumer chan raft.RPC
	acks     atomic.Pointer[Acks]

	once   sync.Once
	closed chan struct{} // closed by Close, once
}

var (
	_ raft.Transport   = (*Local)(nil)
	_ raft.WithPreVote = (*Local)(nil)
	_ raft.WithClose   = (*Local)(nil)
)

// Acks is how a leader hears that a peer still follows it.
type Acks struct {
	// Now reads the plain monotonic clock, in nanoseconds.
	Now func() int64
	// MaxAge is the age, in nanoseconds since its request was sent, from which on an answer is not
	// reported. A lease has no use for one that is older than its length.
	MaxAge int64
	// Acked is called for every successful answer, by peer, to an AppendEntries request of the given
	// term, heartbeats included; sentAt is what Now read before the request was sent. It runs on
	// Raft's replication goroutines, concurrently, and must not block.
	Acked func(peer raft.ServerID, term uint64, sentAt int64)
}

// OnAck sets who is told of answers from now on. Set it before Raft starts, so that none is missed.
func (l *Local) OnAck(a Acks) { l.acks.Store(&a) }

// Consumer returns the channel of requests that peers send here.
func (l *Local) Consumer() <-chan raft.RPC { return l.consumer }

// LocalAddr returns the address that the replica joined under.
func (l *Local) LocalAddr() raft.ServerAddress { return l.address }

// EncodePeer returns an address as bytes; the id is not needed.
func (l *Local) EncodePeer(_ raft.ServerID, address raft.ServerAddress) []byte {
	return []byte(address)
}

// DecodePeer reverses EncodePeer.
func (l *Local) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler does nothing, so that heartbeats go through Consumer and are handled by Raft's
// main loop, one after another with everything else. The handler that the library offers here runs
// beside that loop (hashicorp/raft #695; see the package's invariants).
func (l *Local) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline is not supported (hashicorp/raft #612; see the package's invariants).
func (l *Local) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries sends entries, or a heartbeat, and reports the answer to whom OnAck named.
func (l *Local) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	acks, sentAt := l.acks.Load(), int64(0)
	if acks != nil {
		sentAt = acks.Now() // before the request can have been handled
	}
	if err := call(l, target, copyAppend(args), resp); err != nil {
		return err
	}
	if acks != nil && resp.Success && resp.Term == args.Term && acks.Now()-sentAt < acks.MaxAge {
		acks.Acked(id, args.Term, sentAt)
	}
	return nil
}

// RequestVote asks for a vote.
func (l *Local) RequestVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	copied := *args
	return call(l, target, &copied, resp)
}

// RequestPreVote asks whether a vote would be given, so that a replica that was cut off doesn't
// depose a leader when it returns.
func (l *Local) RequestPreVote(_ raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	copied := *args
	return call(l, target, &copied, resp)
}

// TimeoutNow asks a peer to stand for election at once.
func (l *Local) TimeoutNow(_ raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	copied := *args
	return call(l, target, &copied, resp)
}

// InstallSnapshot streams a snapshot. The peer reads from a pipe, never from data: data belongs to
// the sender, who closes it when this returns, while a peer that was given up may still be reading.
func (l *Local) InstallSnapshot(_ raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	copied := *args
	reader, writer := io.Pipe()
	var sender sync.WaitGroup
	sender.Go(func() {
		_, err := io.Copy(writer, data)
		writer.CloseWithError(err) // nil reads as the end
	})
	timeout := l.network.options.SnapshotTimeout + time.Duration(max(0, args.Size)>>20)*time.Second
	err := exchange(l, target, raft.RPC{Command: &copied, Reader: reader}, resp, timeout)
	// Ends the copying if the peer didn't read it all, and the peer's reading if it is still at it.
	reader.CloseWithError(errors.Join(ErrClosed, err))
	sender.Wait()
	return err
}

// Close ends the transport: requests in flight, from it and to it, fail with [ErrClosed], and its
// address is free again. It can be called more than once.
func (l *Local) Close() error {
	l.once.Do(func() {
		l.network.leave(l)
		close(l.closed)
	})
	return nil
}

// call sends a request with the usual deadline and copies the answer.
func call[R any](l *Local, target raft.ServerAddress, request any, answer *R) error {
	return exchange(l, target, raft.RPC{Command: request}, answer, l.network.options.Timeout)
}

// exchange hands a request to target's main loop and waits for the answer, both within timeout.
func exchange[R any](l *Local, target raft.ServerAddress, rpc raft.RPC, answer *R, timeout time.Duration) error {
	if l.isClosed() {
		return ErrClosed
	}
	peer, err := l.network.route(l.address, target)
	if err != nil {
		return err
	}
	answers := make(chan raft.RPCResponse, 1) // never blocks a peer that answers too late
	rpc.RespChan = answers
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()

	take, got := peer.consumer, raft.RPCResponse{}
	for waiting := true; waiting; {
		select {
		case take <- rpc:
			take = nil // taken; now only the answer is waited for
		case got = <-answers:
			waiting = false
		case <-deadline.C:
			return fmt.Errorf("request to %s: %w", target, ErrDeadline)
		case <-peer.closed:
			return fmt.Errorf("request to %s: %w", target, ErrClosed)
		case <-l.closed:
			return ErrClosed
		}
	}
	if _, err := l.network.route(target, l.address); err != nil {
		return fmt.Errorf("answer lost: %w", err)
	}
	if got.Error != nil {
		return got.Error
	}
	response, ok := got.Response.(*R)
	if !ok {
		return fmt.Errorf("request to %s: unexpected answer %T", target, got.Response)
	}
	*answer = *response
	return nil
}

func (l *Local) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// copyAppend copies a request with its entries. The header's bytes are made anew by Raft for each
// request and never changed; entries and their data are what lives on.
func copyAppend(args *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	copied := *args
	if len(args.Entries) == 0 {
		return &copied
	}
	size := 0
	for _, e := range args.Entries {
		size += len(e.Data) + len(e.Extensions)
	}
	entries, data := make([]raft.Log, len(args.Entries)), make([]byte, 0, size)
	copied.Entries = make([]*raft.Log, len(args.Entries))
	keep := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(data)
		data = append(data, b...)
		return data[from:len(data):len(data)]
	}
	for i, e := range args.Entries {
		entries[i] = *e
		entries[i].Data, entries[i].Extensions = keep(e.Data), keep(e.Extensions)
		copied.Entries[i] = &entries[i]
	}
	return &copied
}
