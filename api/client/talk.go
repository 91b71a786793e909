package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

const (
	// maxChecks bounds the checks of a message.
	maxChecks = 1024
	// maxMessage bounds its bytes, with room for what else is in it.
	maxMessage = 1<<20 - 4<<10
	// maxOpen bounds the checks of a stream that are not answered: a node reads no further either.
	maxOpen = 4 * maxChecks
)

// What has become of an attempt.
const (
	queued    = iota
	sent      // or about to be: whether it arrives is not known
	withdrawn // its caller was gone before it was sent
)

// attempt is one send of a check to one node.
type attempt struct {
	state    atomic.Uint32
	check    *quotav1.CheckRequest // never changed once it is here: a copy may still be on its way
	size     int
	deadline time.Time
	tagged   quotav1.TaggedCheck
	done     chan result // one place, and one result
}

// result is what came of an attempt: an answer of the node, or an error of the way to it.
type result struct {
	tagged *quotav1.TaggedAnswer
	err    error
	sent   bool // with err: the node may have it
}

func newAttempt(check *quotav1.CheckRequest, size int, deadline time.Time) *attempt {
	return &attempt{check: check, size: size, deadline: deadline, done: make(chan result, 1)}
}

func (a *attempt) finish(r result) { a.done <- r }

// leave withdraws the attempt and reports whether that was in time: then it is never sent.
func (a *attempt) leave() bool { return a.state.CompareAndSwap(queued, withdrawn) }

func (a *attempt) left() bool { return a.state.Load() == withdrawn }

// take marks the attempt as sent, if its caller still waits and has time left.
func (a *attempt) take(tag uint64, now time.Time) bool {
	remaining := a.deadline.Sub(now)
	if remaining <= 0 || !a.state.CompareAndSwap(queued, sent) {
		return false
	}
	a.tagged.Tag, a.tagged.Check, a.tagged.TimeoutNs = tag, a.check, int64(remaining)
	return true
}

type checkStream = grpc.BidiStreamingClient[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]

// talk is one stream and what is open on it.
type talk struct {
	stream checkStream
	room   chan struct{} // one place: fewer checks are open than were
	over   chan struct{} // closed when nothing more is received
	cause  error         // with over

	mu   sync.Mutex
	open map[uint64]*attempt
	tag  uint64 // the newest
}

func newTalk(stream checkStream) *talk {
	return &talk{
		stream: stream, open: map[uint64]*attempt{},
		room: make(chan struct{}, 1), over: make(chan struct{}),
	}
}

// send sends what gathers until the stream breaks, whose reason the receiver hears, or ctx ends.
func (t *talk) send(ctx context.Context, l *link) {
	for {
		for m := t.gather(l); m != nil; m = t.gather(l) {
			if t.stream.Send(m) != nil {
				return
			}
		}
		select {
		case <-l.wake:
		case <-t.room:
		case <-t.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// gather makes a message of what is queued, as much as its bounds and the node's allow; nil: there is
// nothing, or no room.
func (t *talk) gather(l *link) *quotav1.CheckStreamRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	most := min(maxChecks, maxOpen-len(t.open))
	if most <= 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var m *quotav1.CheckStreamRequest
	bytes, taken, now := 0, 0, time.Now()
	for _, a := range l.queue {
		if m != nil && (len(m.Checks) == most || bytes+a.size > maxMessage) {
			break
		}
		taken++
		if !a.take(t.tag+1, now) {
			continue
		}
		t.tag++
		t.open[t.tag] = a
		bytes += a.size
		if m == nil {
			m = &quotav1.CheckStreamRequest{Checks: make([]*quotav1.TaggedCheck, 0, min(most, len(l.queue)))}
		}
		m.Checks = append(m.Checks, &a.tagged)
	}
	rest := copy(l.queue, l.queue[taken:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	return m
}

// receive hands answers to those who wait, until the stream ends.
func (t *talk) receive() {
	t.cause = t.receiveAll()
	close(t.over)
}

func (t *talk) receiveAll() error {
	var ready []*attempt
	for {
		m, err := t.stream.Recv()
		if err != nil {
			return err
		}
		if ready, err = t.close(ready[:0], m.GetAnswers()); err != nil {
			return err
		}
		for i, a := range ready {
			a.finish(result{tagged: m.Answers[i]})
		}
		clear(ready)
		notify(t.room)
	}
}

// close takes the attempts that are answered out of those that are open. A tag that isn't open is a defect
// of the node, by which one check's answer could be taken for another's: then nothing of the message counts.
func (t *talk) close(ready []*attempt, answers []*quotav1.TaggedAnswer) ([]*attempt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range answers {
		a := t.open[m.GetTag()]
		if a == nil {
			for i, a := range ready {
				t.open[answers[i].GetTag()] = a
			}
			return nil, fmt.Errorf("the node answers tag %d, which isn't open", m.GetTag())
		}
		delete(t.open, m.GetTag())
		ready = append(ready, a)
	}
	return ready, nil
}

// lose ends all that is open, after the stream: nobody knows what has become of it.
func (t *talk) lose() (lost int) {
	t.mu.Lock()
	open := t.open
	t.open = nil
	t.mu.Unlock()
	for _, a := range open {
		a.finish(result{err: t.cause, sent: true})
	}
	return len(open)
}
