package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// maxSnapshotRequest bounds the request before a snapshot, in bytes: the members of a group.
const maxSnapshotRequest = 1 << 20

// shipment is a snapshot on its way to a peer.
type shipment struct {
	conn     *channel
	opt      *LinkOptions
	answered chan struct{} // closed when there is an answer, or none can come
	answer   []byte        // set before answered is closed, as is err
	err      error
}

// sendSnapshot streams a snapshot over a connection of its own and returns the encoded answer. With one
// connection each, TCP's flow control holds back one snapshot and nothing else.
func (r *Remote) sendSnapshot(p *peer, target raft.ServerAddress, args *raft.InstallSnapshotRequest, data io.Reader) ([]byte, error) {
	opt := &r.links.opt
	e := envelope{remaining: micros(opt.SnapshotStall), target: string(target)}
	request, err := encodeRequest(e, args, maxSnapshotRequest)
	if err != nil {
		return nil, err
	}
	defer request.giveBack()
	conn, err := r.links.dial(r.ctx, p, forSnapshot, r.conns)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	s := &shipment{conn: conn, opt: opt, answered: make(chan struct{})}
	var reader sync.WaitGroup
	reader.Go(s.await)
	defer reader.Wait()
	defer conn.hangUp()
	if err := s.send(r.group, request.bytes, data, args.Size); err != nil {
		return s.failed(err)
	}
	timer := time.NewTimer(scaled(opt.RestoreTimeout, args.Size))
	defer timer.Stop()
	select {
	case <-s.answered:
		if s.err != nil {
			return nil, broken(s.err)
		}
		return s.answer, nil
	case <-timer.C:
		return nil, ErrDeadline
	}
}

// await reads until the answer. The receiver pings all the while, so a silent one is gone.
func (s *shipment) await() {
	s.answer, s.err = s.readAnswer()
	close(s.answered)
	_ = s.conn.SetWriteDeadline(time.Unix(1, 0)) // ends what is being written, for nobody
}

func (s *shipment) readAnswer() ([]byte, error) {
	r := bufio.NewReader(s.conn)
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(s.opt.Silence)); err != nil {
			return nil, err
		}
		f, err := readFrame(r, maxSnapshotRequest)
		if err != nil {
			return nil, err
		}
		switch f.kind {
		case kindPing:
		case kindAnswer:
			message := make([]byte, f.length)
			_, err := io.ReadFull(r, message)
			return message, err
		default:
			return nil, errMalformed
		}
	}
}

// sourceError is one of the snapshot itself, and not of the connection.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

// errAnswered ends the sending to a peer that has answered already.
var errAnswered = errors.New("the peer answered before it had the whole snapshot")

// send writes the request, and the snapshot in chunks: exactly as much as was announced.
func (s *shipment) send(group uint32, request []byte, data io.Reader, size int64) error {
	out := &parcel{kind: kindRequest, group: group, id: 1, buffer: &buffer{request}}
	for sent := false; !sent; {
		f, part := out.cut()
		if err := s.write(append(f.appendTo(nil), part...)); err != nil {
			return err
		}
		sent = f.rest == 0
	}
	b := make([]byte, headerSize+maxFragment)
	for left := size; left > 0; {
		n := int(min(left, maxFragment))
		if _, err := io.ReadFull(data, b[headerSize:][:n]); err != nil {
			return sourceError{fmt.Errorf("read snapshot, %d of %d bytes: %w", size-left, size, err)}
		}
		frame{kind: kindChunk, length: uint32(n)}.appendTo(b[:0])
		if err := s.write(b[:headerSize+n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	if n, err := io.ReadFull(data, b[:1]); n > 0 {
		return sourceError{fmt.Errorf("snapshot is longer than %d bytes", size)}
	} else if !errors.Is(err, io.EOF) {
		return sourceError{fmt.Errorf("read the end of the snapshot: %w", err)}
	}
	return s.write(frame{kind: kindEnd}.appendTo(nil))
}

// write sends bytes unless the peer has answered, and fails when they don't move for SnapshotStall.
func (s *shipment) write(b []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.opt.SnapshotStall)); err != nil {
		return err
	}
	select { // after the deadline was set, which await takes away
	case <-s.answered:
		return errAnswered
	default:
	}
	_, err := s.conn.Write(b)
	return err
}

// failed returns the answer that ended the sending, or why there is none.
func (s *shipment) failed(err error) ([]byte, error) {
	var source sourceError
	if errors.As(err, &source) {
		text := err.Error()
		text = text[:min(len(text), maxErrorText)]
		_ = s.write(append(frame{kind: kindAbort, length: uint32(len(text))}.appendTo(nil), text...))
		return nil, source.error
	}
	select {
	case <-s.answered: // which is what ended the writing
		err = s.err
	default:
		s.conn.hangUp()
		<-s.answered
	}
	if s.err == nil {
		return s.answer, nil
	}
	return nil, broken(err)
}

// broken translates the error of a connection.
func broken(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: nothing moves", ErrDeadline)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}
