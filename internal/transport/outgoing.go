package transport

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// outgoing is the dialling end of a link: it sends requests and matches the answers to them.
type outgoing struct {
	line

	mu      sync.Mutex
	newest  uint64 // id of a request
	pending map[uint64]pending
}

// pending is a request whose answer is awaited.
type pending struct {
	group uint32
	reply chan []byte // takes one answer without blocking
}

func newOutgoing(p *peer, conn *channel) *outgoing {
	opt := &p.links.opt
	most := limits{messages: opt.QueueMessages, bytes: opt.QueueBytes, total: math.MaxInt}
	return &outgoing{line: newLine(p, conn, most), pending: map[uint64]pending{}}
}

// run serves the link until it is cut, and says why it was.
func (o *outgoing) run() error {
	pings := time.NewTicker(o.peer.links.opt.PingEvery)
	defer pings.Stop()
	return o.line.run(pings.C, o.take)
}

// ask sends a request of a group and returns the encoded answer. It fails at once when the link is cut,
// when closed is, and after deadline.
func (o *outgoing) ask(group uint32, request *buffer, deadline <-chan time.Time, closed <-chan struct{}) ([]byte, error) {
	reply := make(chan []byte, 1)
	o.mu.Lock()
	o.newest++
	id := o.newest
	o.pending[id] = pending{group, reply}
	o.mu.Unlock()
	defer o.forget(id)

	p := &parcel{kind: kindRequest, group: group, id: id, buffer: request}
	if err := o.box.push(p); err != nil {
		o.peer.busy.Add(1)
		request.giveBack()
		return nil, err
	}
	select {
	case message := <-reply:
		return message, nil
	case <-deadline:
		o.box.drop(p)
		return nil, ErrDeadline
	case <-closed:
		o.box.drop(p)
		return nil, ErrClosed
	case <-o.done:
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, o.why)
	}
}

func (o *outgoing) forget(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pending, id)
}

// take reads an answer or a pong.
func (o *outgoing) take(f frame, r *bufio.Reader) error {
	switch f.kind {
	case kindPong:
		if o.peer.idle() {
			return errIdle
		}
		return nil
	case kindAnswer:
		message := make([]byte, f.length)
		if _, err := io.ReadFull(r, message); err != nil {
			return err
		}
		return o.deliver(f, message)
	}
	return errMalformed
}

// deliver gives an answer to whom it is for. One that comes too late is dropped; one to a request that
// was never made cuts the link.
func (o *outgoing) deliver(f frame, message []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, awaited := o.pending[f.id]
	switch {
	case f.id == 0 || f.id > o.newest, awaited && p.group != f.group:
		return fmt.Errorf("answer to a request that was never made: %w", errMalformed)
	case !awaited:
		o.peer.late.Add(1)
		return nil
	}
	delete(o.pending, f.id)
	p.reply <- message
	return nil
}
