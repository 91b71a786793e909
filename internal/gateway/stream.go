package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
)

const (
	// maxChecks bounds the checks, and the answers, of one message of a stream.
	maxChecks = 1024
	// maxOpen bounds the checks of one stream that wait for their answer, or with it for the message that is
	// being sent. Beyond it the gateway stops reading, and gRPC's flow control holds the caller back.
	maxOpen = 4 * maxChecks
	// fieldOverhead is more than what a message spends on each answer beside the answer itself.
	fieldOverhead = 8
)

type checkStream = grpc.BidiStreamingServer[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]

// conversation is one check stream. One goroutine, receive, takes checks; each that may be asked gets one of its
// own, which waits for the answer and leaves it in ready; the handler's, run, sends what is there.
//
// The handler can't join the receiver: Recv is interrupted only by the handler's return, which ends the context
// that checks wait under as well. Server joins all of them.
type conversation struct {
	server *Server
	stream checkStream
	wake   chan struct{} // one place: there is something for run
	room   chan struct{} // one place: there may be room for receive
	gone   chan struct{} // closed when run returns

	mu      sync.Mutex
	open    map[uint64]struct{}     // tags whose answers are not on their way
	ready   []*quotav1.TaggedAnswer // not sent
	over    bool                    // nothing more is received
	cause   error                   // with over: what the stream ends with
	refuse  bool                    // the gateway is stopping
	returns bool                    // run is about to return: what is answered now has no reader
}

func newConversation(s *Server, stream checkStream) *conversation {
	return &conversation{
		server: s, stream: stream, open: map[uint64]struct{}{},
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// receive takes messages until there are no more.
func (c *conversation) receive() {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			c.end(err)
			return
		}
		id, err := c.server.identityOf(c.stream.Context())
		if err != nil {
			c.end(err)
			return
		}
		if n := len(m.GetChecks()); n < 1 || n > maxChecks {
			refused := c.server.refuse(frontGRPC, faultf("checks", "has %d checks, 1 to %d are allowed", n, maxChecks), "")
			c.end(statusOf(refused))
			return
		}
		if !c.awaitRoom(len(m.GetChecks())) || !c.take(id, m.GetChecks()) {
			return
		}
	}
}

// awaitRoom waits until n more checks may be open; false when the stream ends first.
func (c *conversation) awaitRoom(n int) bool {
	for {
		c.mu.Lock()
		fits := len(c.open)+n <= maxOpen
		c.mu.Unlock()
		if fits {
			return true
		}
		select {
		case <-c.room:
		case <-c.gone:
			return false
		}
	}
}

// take has the checks of a message answered; false when the stream takes no more.
func (c *conversation) take(id access.Identity, checks []*quotav1.TaggedCheck) bool {
	if !c.register(checks) {
		return false
	}
	for i, m := range checks {
		if m.Check == nil {
			m.Check = &quotav1.CheckRequest{}
		}
		if refused := c.examine(id, m, index("checks", i)); refused != nil {
			c.finish(m.GetTag(), refused)
			continue
		}
		c.server.streams.Go(func() {
			if !c.server.guard(frontGRPC, func() { c.ask(m) }) {
				c.breakOff(errDefect)
			}
		})
	}
	return true
}

// examine says why a check is not asked, nil if it is.
func (c *conversation) examine(id access.Identity, m *quotav1.TaggedCheck, place string) *outcome {
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	if refuse {
		c.server.metrics.refused.WithLabelValues(frontGRPC, refusedStopping).Inc()
		o := failed(quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN, "the gateway is stopping")
		return &o
	}
	if m.GetTimeoutNs() < 0 {
		return c.server.refuse(frontGRPC, &fault{"timeout_ns", "is negative"}, place)
	}
	return c.server.examine(id, m.GetCheck(), place+".check")
}

// ask asks one check, for as long as its caller will wait.
func (c *conversation) ask(m *quotav1.TaggedCheck) {
	timeout := time.Duration(m.GetTimeoutNs())
	if timeout == 0 || timeout > MaxTimeout {
		timeout = MaxTimeout
	}
	ctx, cancel := context.WithTimeout(c.stream.Context(), timeout)
	defer cancel()
	o := c.server.check(ctx, frontGRPC, m.GetCheck())
	c.finish(m.GetTag(), &o)
}

// register opens the tags of a message. A tag that is open already would make two answers one: the caller
// could take another check's allow for this one's, so the stream ends there.
func (c *conversation) register(checks []*quotav1.TaggedCheck) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.returns {
		return false
	}
	for i, m := range checks {
		if _, twice := c.open[m.GetTag()]; twice {
			for _, opened := range checks[:i] {
				delete(c.open, opened.GetTag())
			}
			f := faultf("tag", "is that of a check that is not answered yet")
			c.over, c.cause = true, statusOf(c.server.refuse(frontGRPC, f, index("checks", i)))
			notify(c.wake)
			return false
		}
		c.open[m.GetTag()] = struct{}{}
	}
	return true
}

// finish passes on what became of a check.
func (c *conversation) finish(tag uint64, o *outcome) {
	a := taggedOf(tag, o)
	c.mu.Lock()
	if !c.returns {
		c.ready = append(c.ready, a)
	}
	c.mu.Unlock()
	notify(c.wake)
}

func taggedOf(tag uint64, o *outcome) *quotav1.TaggedAnswer {
	if o.decided() {
		return &quotav1.TaggedAnswer{Tag: tag, Result: &quotav1.TaggedAnswer_Answer{Answer: o.answer}}
	}
	return &quotav1.TaggedAnswer{Tag: tag, Result: &quotav1.TaggedAnswer_Failure{Failure: failureOf(o)}}
}

// sizeOf is more than what an answer adds to a message.
func sizeOf(a *quotav1.TaggedAnswer) int { return proto.Size(a) + fieldOverhead }

func notify(place chan struct{}) {
	select {
	case place <- struct{}{}:
	default:
	}
}
