package server

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/partition"
)

const (
	// maxChecks bounds the checks, and the answers, of one message of a stream.
	maxChecks = 1024
	// maxOpen bounds the checks of one stream that wait for their answer, or with it for the message that is
	// being sent. Beyond it the node stops reading, and gRPC's flow control holds the asker back.
	maxOpen = 4 * maxChecks
	// fieldOverhead is more than what a message spends on each answer beside the answer itself.
	fieldOverhead = 8
)

type checkStream = grpc.BidiStreamingServer[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]

// conversation is one check stream. One goroutine, receive, takes checks and submits them; the handler's
// own, run, sends what is done. In between stand the decider's threads, which only append to ready: they
// must never wait for a network.
//
// The receiver can't be joined by the handler: Recv is interrupted only by the handler's return. Server
// joins it.
type conversation struct {
	server *Server
	stream checkStream
	asker  access.Identity
	wake   chan struct{} // one place: there is something for run
	room   chan struct{} // one place: there may be room for receive
	gone   chan struct{} // closed when run returns

	mu      sync.Mutex
	open    map[uint64]struct{} // tags whose answers are not on their way
	ready   []*pending          // done and not sent
	over    bool                // nothing more is received
	cause   error               // with over: what the stream ends with
	refuse  bool                // the node is stopping
	returns bool                // run is about to return: what is done now has no reader
}

// pending is one check of a stream on its way.
type pending struct {
	partition.Call
	talk    *conversation
	tag     uint64
	refused *quotav1.Failure // of what is never submitted
}

func newConversation(s *Server, stream checkStream, asker access.Identity) *conversation {
	return &conversation{
		server: s, stream: stream, asker: asker, open: map[uint64]struct{}{},
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// run sends answers until all that was received is answered, or the stream breaks.
func (c *conversation) run() error {
	c.server.metrics.streams.Inc()
	defer c.server.metrics.streams.Dec()
	c.server.streams.Go(func() {
		if !c.server.guard(c.receive) {
			c.breakOff(errDefect)
		}
	})
	defer close(c.gone)
	stopping := c.server.stopping.Done()
	for {
		select {
		case <-c.wake:
		case <-stopping:
			stopping = nil
			c.stop()
		case <-c.stream.Context().Done():
			c.leave()
			return status.FromContextError(c.stream.Context().Err()).Err()
		}
		if err := c.flush(); err != nil {
			c.leave()
			return err
		}
		if finished, err := c.finished(); finished {
			return err
		}
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
		if n := len(m.GetChecks()); n < 1 || n > maxChecks {
			c.end(statusOf(refusal(faultf("checks", "has %d checks, 1 to %d are allowed", n, maxChecks))))
			return
		}
		if !c.awaitRoom(len(m.GetChecks())) || !c.take(m.GetChecks()) {
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

// take submits the checks of a message, all at once; false when the stream takes no more.
func (c *conversation) take(checks []*quotav1.TaggedCheck) bool {
	if !c.register(checks) {
		return false
	}
	came := c.server.cfg.Monotonic()
	batch := make([]pending, len(checks))
	calls := make([]*partition.Call, 0, len(checks))
	for i, m := range checks {
		p := &batch[i]
		p.talk, p.tag = c, m.GetTag()
		if p.refused = c.admit(&p.Request, m, i); p.refused != nil {
			c.finish(p)
			continue
		}
		p.Deadline = deadline(came, time.Duration(m.GetTimeoutNs()))
		p.Done = p.done
		calls = append(calls, &p.Call)
	}
	if len(calls) > 0 {
		c.submit(calls)
	}
	return true
}

// admit reads the check at that place of a message; what is wrong with it, or that the asker has no right to
// it, is the check's own failure.
func (c *conversation) admit(r *partition.Request, m *quotav1.TaggedCheck, place int) *quotav1.Failure {
	if f := readTagged(r, m, c.server.cfg.Domains); f != nil {
		return refusal(f.under(index("checks", place)))
	}
	if !c.asker.MayCheck(r.Domain) {
		return c.server.forbidden(index("checks", place) + ".check." + mayNotCheck)
	}
	return nil
}

func readTagged(r *partition.Request, m *quotav1.TaggedCheck, domains func() []string) *fault {
	if m.GetTimeoutNs() < 0 {
		return &fault{"timeout_ns", "is negative"}
	}
	if f := read(r, m.GetCheck(), domains); f != nil {
		return f.under("check")
	}
	return nil
}

// submit hands calls on, unless the node is stopping.
func (c *conversation) submit(calls []*partition.Call) {
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	if !refuse {
		c.server.cfg.Decider.Submit(calls...)
		return
	}
	for _, call := range calls {
		call.Outcome = partition.Outcome{Result: partition.Stopping}
		call.Done(call)
	}
}

// register opens the tags of a message. A tag that is open already would make two answers one: the asker
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
			f := faultf("tag", "is that of a check that is not answered yet").under(index("checks", i))
			c.over, c.cause = true, statusOf(refusal(f))
			notify(c.wake)
			return false
		}
		c.open[m.GetTag()] = struct{}{}
	}
	return true
}

func (p *pending) done(*partition.Call) { p.talk.finish(p) }

// finish passes on what is done. It runs on the decider's threads and never waits.
func (c *conversation) finish(p *pending) {
	c.mu.Lock()
	if !c.returns {
		c.ready = append(c.ready, p)
	}
	c.mu.Unlock()
	notify(c.wake)
}

// end says that nothing more is received, and why; nil: the asker has no more questions.
func (c *conversation) end(cause error) {
	c.mu.Lock()
	if !c.over {
		c.over, c.cause = true, cause
	}
	c.mu.Unlock()
	notify(c.wake)
}

// breakOff ends the stream without waiting for what is open: a defect may have kept it from being asked.
func (c *conversation) breakOff(cause error) {
	c.mu.Lock()
	clear(c.open)
	c.over, c.cause = true, cause
	c.mu.Unlock()
	notify(c.wake)
}

// stop lets what is in flight be answered, and nothing else.
func (c *conversation) stop() {
	c.mu.Lock()
	c.refuse = true
	c.mu.Unlock()
}

func (c *conversation) leave() {
	c.mu.Lock()
	c.returns = true
	c.mu.Unlock()
}

// flush sends all that is done: what gathers while one message is on its way makes the next one, so that
// no timer is needed to make messages large.
func (c *conversation) flush() error {
	for {
		c.mu.Lock()
		ready := c.ready
		c.ready = nil
		c.mu.Unlock()
		if len(ready) == 0 {
			return nil
		}
		if err := c.send(ready); err != nil {
			return err
		}
	}
}

// send sends answers in as few messages as the bounds allow.
func (c *conversation) send(ready []*pending) error {
	m, size := &quotav1.CheckStreamResponse{}, 0
	for _, p := range ready {
		a := p.answer()
		n := proto.Size(a) + fieldOverhead
		if len(m.Answers) > 0 && (len(m.Answers) == maxChecks || size+n > maxMessage) {
			if err := c.sendOne(m); err != nil {
				return err
			}
			m, size = &quotav1.CheckStreamResponse{}, 0
		}
		m.Answers = append(m.Answers, a)
		size += n
	}
	return c.sendOne(m)
}

// sendOne closes the tags of a message before it goes: the asker may use them again as soon as it has it.
func (c *conversation) sendOne(m *quotav1.CheckStreamResponse) error {
	c.mu.Lock()
	for _, a := range m.Answers {
		delete(c.open, a.Tag)
	}
	c.mu.Unlock()
	err := c.stream.Send(m)
	notify(c.room)
	return err
}

func (p *pending) answer() *quotav1.TaggedAnswer {
	if p.refused != nil {
		return failed(p.tag, p.refused)
	}
	if !meaningOf(p.Result).decided() {
		return failed(p.tag, p.talk.server.failureOf(&p.Outcome))
	}
	return taggedOf(p.tag, &p.Call)
}

// finished reports whether run may return, and with what.
func (c *conversation) finished() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) > 0 || !c.over && !c.refuse {
		return false, nil
	}
	c.returns = true
	if c.refuse && !c.over {
		return true, status.Error(codes.Unavailable, meaningOf(partition.Stopping).message)
	}
	return true, c.cause
}

func notify(place chan struct{}) {
	select {
	case place <- struct{}{}:
	default:
	}
}
