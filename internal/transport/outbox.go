package transport

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"time"
)

// outbox holds what waits to be written to one connection: a lane for each group, which take turns
// frame by frame, so that a group with much to send delays the others by one frame each.
type outbox struct {
	limits limits
	woken  chan struct{} // there is something to write

	mu           sync.Mutex
	lanes        map[uint32]*lane
	first, last  *lane // of those that have something to send, in turn
	pings, pongs int
	bytes        int
}

// limits bound what waits: messages and bytes of a lane, and bytes of all lanes together. A single
// message always fits.
type limits struct{ messages, bytes, total int }

// lane is the queue of one group. It is there as long as something waits in it, or it is in turn.
type lane struct {
	group   uint32
	waiting []*parcel
	bytes   int
	next    *lane
	inTurn  bool
}

// parcel is one message on its way out. It belongs to the outbox once it was pushed.
type parcel struct {
	kind   kind
	group  uint32
	id     uint64
	buffer *buffer
	sent   int // of its bytes; changed under the outbox's mutex
}

func newOutbox(l limits) *outbox {
	return &outbox{limits: l, woken: make(chan struct{}, 1), lanes: map[uint32]*lane{}}
}

// push queues a message, or gives [ErrBusy] if its group has too much waiting.
func (o *outbox) push(p *parcel) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, size := o.lanes[p.group], len(p.buffer.bytes)
	if o.bytes > 0 && o.bytes+size > o.limits.total || l != nil && l.full(size, o.limits) {
		return ErrBusy
	}
	if l == nil {
		l = &lane{group: p.group}
		o.lanes[p.group] = l
	}
	l.waiting = append(l.waiting, p)
	l.bytes += size
	o.bytes += size
	if !l.inTurn {
		o.enqueue(l)
	}
	o.wake()
	return nil
}

// drop takes a message back whose answer nobody waits for, unless a part of it was written: that one
// must go on, since its length was announced.
func (o *outbox) drop(p *parcel) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lanes[p.group]
	if l == nil || p.sent > 0 {
		return
	}
	at := slices.Index(l.waiting, p)
	if at < 0 {
		return
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	o.account(l, p)
	p.buffer.giveBack()
}

// signal queues a ping or a pong, which go before everything else.
func (o *outbox) signal(k kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k == kindPing {
		o.pings++
	} else {
		o.pongs = min(o.pongs+1, 1) // one says all
	}
	o.wake()
}

// queued returns how many bytes wait.
func (o *outbox) queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes
}

// next returns the frame whose turn it is, its payload, and the parcel if this is its end. The payload
// stays valid until the parcel's buffer is given back.
func (o *outbox) next() (f frame, payload []byte, ended *parcel, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.pings > 0:
		o.pings--
		return frame{kind: kindPing}, nil, nil, true
	case o.pongs > 0:
		o.pongs--
		return frame{kind: kindPong}, nil, nil, true
	}
	for o.first != nil {
		l := o.dequeue()
		if len(l.waiting) == 0 { // they were dropped
			delete(o.lanes, l.group)
			continue
		}
		p := l.waiting[0]
		f, payload = p.cut()
		if f.rest == 0 {
			ended = p
			l.waiting = slices.Delete(l.waiting, 0, 1)
			o.account(l, p)
		}
		if len(l.waiting) > 0 {
			o.enqueue(l)
		} else {
			delete(o.lanes, l.group)
		}
		return f, payload, ended, true
	}
	return frame{}, nil, nil, false
}

// cut takes the next frame off a message.
func (p *parcel) cut() (frame, []byte) {
	rest := p.buffer.bytes[p.sent:]
	n := min(len(rest), maxFragment)
	p.sent += n
	return frame{kind: p.kind, group: p.group, id: p.id, length: uint32(n), rest: uint32(len(rest) - n)}, rest[:n]
}

// full reports whether a message of size bytes is too much for the lane.
func (l *lane) full(size int, most limits) bool {
	n := len(l.waiting)
	return n >= most.messages || n > 0 && l.bytes+size > most.bytes
}

func (o *outbox) enqueue(l *lane) {
	if o.last == nil {
		o.first = l
	} else {
		o.last.next = l
	}
	o.last, l.next, l.inTurn = l, nil, true
}

func (o *outbox) dequeue() *lane {
	l := o.first
	if o.first = l.next; o.first == nil {
		o.last = nil
	}
	l.next, l.inTurn = nil, false
	return l
}

// account takes a message out of the sums.
func (o *outbox) account(l *lane, p *parcel) {
	l.bytes -= len(p.buffer.bytes)
	o.bytes -= len(p.buffer.bytes)
}

func (o *outbox) wake() {
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

// write sends what is queued until done is closed or an error occurs. It gathers as long as something
// waits and flushes when nothing does, so a lone message is not delayed and many share a write. Each
// write has patience to get on. With pings, a channel that ticks, it sends one a tick.
func (o *outbox) write(conn net.Conn, patience time.Duration, pings <-chan time.Time, done <-chan struct{}) error {
	w := bufio.NewWriterSize(conn, headerSize+maxFragment)
	var header [headerSize]byte
	for {
		select { // also while there is so much to send that it never waits below
		case <-pings:
			o.signal(kindPing)
		default:
		}
		f, payload, ended, ok := o.next()
		if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if ok {
			_, _ = w.Write(f.appendTo(header[:0])) // the error stays, and Flush gives it
			_, err := w.Write(payload)
			if ended != nil {
				ended.buffer.giveBack()
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		select {
		case <-o.woken:
		case <-pings:
			o.signal(kindPing)
		case <-done:
			return nil
		}
	}
}
