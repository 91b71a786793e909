package transport

import (
	"bufio"
	"fmt"
	"sync"
	"time"
)

// line is what either end of a link has: a connection for frames, and what waits to be written to it.
type line struct {
	peer *peer
	conn *channel
	box  *outbox
	done chan struct{} // closed by cut, once

	once sync.Once
	why  error // it was cut; set before done is closed
}

func newLine(p *peer, conn *channel, most limits) line {
	return line{peer: p, conn: conn, box: newOutbox(most), done: make(chan struct{})}
}

// cut breaks the connection, and with it everything in flight. The first reason counts.
func (l *line) cut(why error) {
	l.once.Do(func() {
		l.why = why
		close(l.done)
		l.conn.hangUp()
	})
}

// broken reports whether the line was cut.
func (l *line) broken() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// run writes what is queued and hands each frame's header to take, which reads its payload, until the
// line is cut: by either side, or because nothing came or went for too long.
func (l *line) run(pings <-chan time.Time, take func(frame, *bufio.Reader) error) error {
	opt := &l.peer.links.opt
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := l.box.write(l.conn, opt.Silence, pings, l.done); err != nil {
			l.cut(fmt.Errorf("write: %w", err))
		}
	})
	l.cut(fmt.Errorf("read: %w", l.read(opt, take)))
	writer.Wait()
	return l.why
}

// read returns only with an error.
func (l *line) read(opt *LinkOptions, take func(frame, *bufio.Reader) error) error {
	r := bufio.NewReaderSize(l.conn, maxFragment)
	for {
		// For a whole frame: one that trickles in is as useless as silence.
		if err := l.conn.SetReadDeadline(time.Now().Add(opt.Silence)); err != nil {
			return err
		}
		f, err := readFrame(r, opt.MaxMessage)
		if err != nil {
			return err
		}
		if err := take(f, r); err != nil {
			return err
		}
	}
}
