package transport_test

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// memPipe returns the two ends of a connection that holds a few bytes on its way, as TCP does: a write
// doesn't wait for the reader until so many are there.
func memPipe() (a, b net.Conn) {
	there, back := newStream(), newStream()
	return &memEnd{in: back, out: there}, &memEnd{in: there, out: back}
}

const onTheWay = 64 << 10

type memEnd struct {
	in, out *stream
}

func (e *memEnd) Read(b []byte) (int, error)         { return e.in.read(b) }
func (e *memEnd) Write(b []byte) (int, error)        { return e.out.write(b) }
func (e *memEnd) LocalAddr() net.Addr                { return &net.UnixAddr{Name: "memory"} }
func (e *memEnd) RemoteAddr() net.Addr               { return e.LocalAddr() }
func (e *memEnd) SetReadDeadline(t time.Time) error  { return e.in.reading.set(e.in, t) }
func (e *memEnd) SetWriteDeadline(t time.Time) error { return e.out.writing.set(e.out, t) }
func (e *memEnd) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}

// Close lets the other end read what was written, and nothing more.
func (e *memEnd) Close() error {
	e.in.close(&e.in.readerGone)
	e.out.close(&e.out.writerGone)
	return nil
}

// stream is one direction.
type stream struct {
	mu                     sync.Mutex
	changed                *sync.Cond
	bytes                  []byte
	readerGone, writerGone bool
	reading, writing       deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func newStream() *stream {
	s := new(stream)
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (d *deadline) set(s *stream, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.at = at; !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), s.changed.Broadcast)
	}
	s.changed.Broadcast()
	return nil
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (s *stream) close(end *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*end = true
	s.changed.Broadcast()
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerGone:
			return 0, net.ErrClosed
		case s.reading.over():
			return 0, os.ErrDeadlineExceeded
		case len(s.bytes) > 0:
			n := copy(b, s.bytes)
			s.bytes = s.bytes[n:]
			s.changed.Broadcast()
			return n, nil
		case s.writerGone:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.writerGone:
			return n, net.ErrClosed
		case s.readerGone:
			return n, io.ErrClosedPipe
		case s.writing.over():
			return n, os.ErrDeadlineExceeded
		}
		part := b[n:min(len(b), n+onTheWay-len(s.bytes))]
		s.bytes = append(s.bytes, part...)
		s.changed.Broadcast()
		if n += len(part); n == len(b) {
			return n, nil
		}
		s.changed.Wait()
	}
}
