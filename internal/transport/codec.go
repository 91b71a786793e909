package transport

import (
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// op is what a request asks for.
type op = uint8

const (
	opAppend op = iota + 1
	opVote
	opPreVote
	opTimeoutNow
	opInstall
)

// status is how a request ended.
type status = uint8

const (
	statusOK       status = iota + 1 // the answer follows
	statusError                      // Raft answered with an error, whose text follows
	statusAbsent                     // no such replica is on the node
	statusClosed                     // the replica closed meanwhile
	statusBusy                       // too many requests wait for it
	statusImpostor                   // the request claims another node's replica
)

// maxErrorText bounds the text of a peer's error, in bytes.
const maxErrorText = 1 << 10

// remark is an error that a peer's Raft answered with: its text is all that crosses.
type remark string

func (r remark) Error() string { return string(r) }

// envelope is what goes before a request.
type envelope struct {
	op op
	// remaining is how long the sender still waits, in microseconds.
	remaining uint32
	// target is the server id that the request is for.
	target string
}

func (c *coder) envelope(e *envelope) {
	c.u8(&e.op)
	c.u32(&e.remaining)
	c.text(&e.target)
}

// micros returns a duration as whole microseconds, cut to what the wire holds.
func micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), math.MaxUint32))
}

// newRequest returns a blank request of an op; nil if there is no such op.
func newRequest(o op) any {
	switch o {
	case opAppend:
		return new(raft.AppendEntriesRequest)
	case opVote:
		return new(raft.RequestVoteRequest)
	case opPreVote:
		return new(raft.RequestPreVoteRequest)
	case opTimeoutNow:
		return new(raft.TimeoutNowRequest)
	case opInstall:
		return new(raft.InstallSnapshotRequest)
	}
	return nil
}

// message walks a request or an answer, and returns the op that it belongs to; 0 for anything else.
func (c *coder) message(m any) op {
	switch m := m.(type) {
	case *raft.AppendEntriesRequest:
		c.appendRequest(m)
		return opAppend
	case *raft.AppendEntriesResponse:
		c.appendAnswer(m)
		return opAppend
	case *raft.RequestVoteRequest:
		c.voteRequest(m)
		return opVote
	case *raft.RequestVoteResponse:
		c.voteAnswer(m)
		return opVote
	case *raft.RequestPreVoteRequest:
		c.preVoteRequest(m)
		return opPreVote
	case *raft.RequestPreVoteResponse:
		c.preVoteAnswer(m)
		return opPreVote
	case *raft.TimeoutNowRequest:
		c.header(&m.RPCHeader)
		return opTimeoutNow
	case *raft.TimeoutNowResponse:
		c.header(&m.RPCHeader)
		return opTimeoutNow
	case *raft.InstallSnapshotRequest:
		c.installRequest(m)
		return opInstall
	case *raft.InstallSnapshotResponse:
		c.installAnswer(m)
		return opInstall
	}
	return 0
}

func (c *coder) header(h *raft.RPCHeader) {
	signed(c, &h.ProtocolVersion)
	c.blob(&h.ID)
	c.blob(&h.Addr)
}

func (c *coder) appendRequest(m *raft.AppendEntriesRequest) {
	c.header(&m.RPCHeader)
	c.u64(&m.Term)
	c.blob(&m.Leader) //nolint:staticcheck // deprecated, and still sent by the library
	c.u64(&m.PrevLogEntry)
	c.u64(&m.PrevLogTerm)
	c.u64(&m.LeaderCommitIndex)
	c.logs(&m.Entries)
}

func (c *coder) appendAnswer(m *raft.AppendEntriesResponse) {
	c.header(&m.RPCHeader)
	c.u64(&m.Term)
	c.u64(&m.LastLog)
	c.flag(&m.Success)
	c.flag(&m.NoRetryBackoff)
}

func (c *coder) voteRequest(m *raft.RequestVoteRequest) {
	c.header(&m.RPCHeader)
	c.u64(&m.Term)
	c.blob(&m.Candidate) //nolint:staticcheck // as Leader above
	c.u64(&m.LastLogIndex)
	c.u64(&m.LastLogTerm)
	c.flag(&m.LeadershipTransfer)
}

func (c *coder) voteAnswer(m *raft.RequestVoteResponse) {
	c.header(&m.RPCHeader)
	c.u64(&m.Term)
	c.blob(&m.Peers)
	c.flag(&m.Granted)
}

func (c *coder) preVoteRequest(m *raft.RequestPreVoteRequest) {
	c.header(&m.RPCHeader)
	c.u64(&m.Term)
	c.u64(&m.LastLogIndex)
	c.u64(&m.LastLogTerm)
}

func (c *coder) preVoteAnswer(m *raft.RequestPreVoteResponse) {
	c.header(&m.RPCHeader)
	c.u64(&m.Term)
	c.flag(&m.Granted)
}

func (c *coder) installRequest(m *raft.InstallSnapshotRequest) {
	c.header(&m.RPCHeader)
	signed(c, &m.SnapshotVersion)
	c.u64(&m.Term)
	c.blob(&m.Leader)
	c.u64(&m.LastLogIndex)
	c.u64(&m.LastLogTerm)
	c.blob(&m.Peers)
	c.blob(&m.Configuration)
	c.u64(&m.ConfigurationIndex)
	signed(c, &m.Size)
}

func (c *coder) installAnswer(m *raft.InstallSnapshotResponse) {
	c.header(&m.RPCHeader)
	c.u64(&m.Term)
	c.flag(&m.Success)
}

// encodeRequest writes an envelope and its request into a buffer, whose op the request decides. The
// bytes share no memory with it. More than limit bytes give [ErrTooLarge].
func encodeRequest(e envelope, request any, limit int) (*buffer, error) {
	measure := coder{mode: measuring}
	e.op = measure.message(request)
	measure.envelope(&e)
	if measure.size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, measure.size, limit)
	}
	out := takeBuffer(measure.size)
	write := coder{mode: writing, bytes: out.bytes}
	write.envelope(&e)
	write.message(request)
	out.bytes = write.bytes
	return out, nil
}

// decodeRequest reads what encodeRequest wrote. The request lies within message.
func decodeRequest(message []byte) (envelope, any, error) {
	var e envelope
	c := coder{mode: reading, bytes: message}
	c.envelope(&e)
	request := newRequest(e.op)
	if request == nil {
		return envelope{}, nil, errMalformed
	}
	c.message(request)
	if err := c.finish(); err != nil {
		return envelope{}, nil, err
	}
	return e, request, nil
}

// encodeAnswer writes what Raft answered to a request of op o, never more than a frame holds.
func encodeAnswer(o op, answer any, err error) *buffer {
	c := coder{mode: measuring}
	switch {
	case err != nil:
		return encodeStatus(statusError, err.Error())
	case c.message(answer) != o || c.size >= maxFragment:
		return encodeStatus(statusError, fmt.Sprintf("unexpected answer %T", answer))
	}
	out := takeBuffer(1 + c.size)
	c = coder{mode: writing, bytes: append(out.bytes, statusOK)}
	c.message(answer)
	out.bytes = c.bytes
	return out
}

// encodeStatus writes an answer that is not Raft's, or its error's text.
func encodeStatus(s status, text string) *buffer {
	out := takeBuffer(1 + maxErrorText)
	out.bytes = append(append(out.bytes, s), text[:min(len(text), maxErrorText)]...)
	return out
}

// decodeAnswer reads an answer into one of the op's type, or gives the error that came instead. The
// answer lies within message.
func decodeAnswer(message []byte, answer any) error {
	if len(message) == 0 {
		return errMalformed
	}
	switch s, rest := message[0], message[1:]; s {
	case statusOK:
		c := coder{mode: reading, bytes: rest}
		c.message(answer)
		return c.finish()
	case statusError:
		return remark(rest)
	case statusAbsent:
		return fmt.Errorf("%w: no such replica is on its node", ErrUnreachable)
	case statusClosed:
		return ErrClosed
	case statusBusy:
		return ErrBusy
	case statusImpostor:
		return ErrImpostor
	}
	return errMalformed
}
