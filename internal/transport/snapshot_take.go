package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// arrival is a snapshot that a peer sends. Raft reads it through a pipe.
type arrival struct {
	peer *peer
	conn *channel
	from *bufio.Reader

	group   uint32
	id      uint64
	request *raft.InstallSnapshotRequest
	within  time.Duration // how long it may wait to be taken

	pipe *io.PipeReader
	into *io.PipeWriter
	gone chan struct{} // closed when the sender says no more, and hears no more
}

var (
	errStopped = errors.New("nobody reads the snapshot any more")
	errNewer   = errors.New("the peer sends a newer snapshot")
)

// takeSnapshot receives what the sender's shipment sends, and answers it.
func (p *peer) takeSnapshot(conn *channel) {
	a := &arrival{peer: p, conn: conn, from: bufio.NewReaderSize(conn, maxFragment), gone: make(chan struct{})}
	a.pipe, a.into = io.Pipe()
	target, err := a.readRequest()
	if err != nil {
		p.links.opt.Log.Warn("snapshot refused", "peer", p.node, "error", err)
		return
	}
	var copier sync.WaitGroup
	copier.Go(a.copy)
	defer copier.Wait()
	defer conn.hangUp()
	answer := a.receive(p.links.remote(a.group), target)
	a.pipe.CloseWithError(errStopped)
	if answer == nil {
		return
	}
	f := frame{kind: kindAnswer, group: a.group, id: a.id, length: uint32(len(answer.bytes))}
	if a.write(append(f.appendTo(nil), answer.bytes...)) != nil {
		return
	}
	// Closing at once, with chunks unread, could take the answer away from the sender.
	timer := time.NewTimer(p.links.opt.Silence)
	defer timer.Stop()
	select {
	case <-a.gone:
	case <-timer.C:
	}
}

// readRequest reads what goes before the chunks, and returns the server id that it is for.
func (a *arrival) readRequest() (target string, err error) {
	if err := a.conn.SetReadDeadline(time.Now().Add(a.peer.links.opt.HelloTimeout)); err != nil {
		return "", err
	}
	var message assembly
	for complete := false; !complete; {
		f, err := readFrame(a.from, maxSnapshotRequest)
		if err != nil {
			return "", err
		}
		if f.kind != kindRequest || message.open && f.group != a.group {
			return "", errMalformed
		}
		a.group, a.id = f.group, f.id
		if complete, err = message.take(f, a.from); err != nil {
			return "", err
		}
	}
	e, command, err := decodeRequest(message.bytes)
	if err != nil {
		return "", err
	}
	request, ok := command.(*raft.InstallSnapshotRequest)
	if !ok || request.Size < 0 {
		return "", errMalformed
	}
	a.request, a.within = request, time.Duration(e.remaining)*time.Microsecond
	return e.target, nil
}

// receive hands the request over and waits for the answer; nil if there is nobody to answer.
func (a *arrival) receive(r *Remote, target string) *buffer {
	if refused := a.peer.links.judge(a.peer, r, target, a.request); refused != 0 {
		return encodeStatus(refused, "")
	}
	r.arrive(a)
	defer r.depart(a)
	untaken := time.NewTimer(a.within)
	defer untaken.Stop()
	pings := time.NewTicker(a.peer.links.opt.PingEvery)
	defer pings.Stop()
	answers := make(chan raft.RPCResponse, 1) // never blocks a replica that answers too late
	take := r.consumer
	for {
		select {
		case take <- raft.RPC{Command: a.request, Reader: a.pipe, RespChan: answers}:
			take = nil
			untaken.Stop()
		case got := <-answers:
			return encodeAnswer(opInstall, got.Response, got.Error)
		case <-untaken.C:
			return encodeStatus(statusBusy, "")
		case <-r.closed():
			return encodeStatus(statusClosed, "")
		case <-a.gone:
			return nil
		case <-pings.C: // says that somebody is at it
			if a.write(frame{kind: kindPing}.appendTo(nil)) != nil {
				return nil
			}
		}
	}
}

func (a *arrival) write(b []byte) error {
	if err := a.conn.SetWriteDeadline(time.Now().Add(a.peer.links.opt.Silence)); err != nil {
		return err
	}
	_, err := a.conn.Write(b)
	return err
}

// copy feeds the pipe. When Raft needs no more it reads on, so that the sender sees the answer.
func (a *arrival) copy() {
	defer close(a.gone)
	err := a.chunks()
	a.into.CloseWithError(err) // nil reads as the end
	if err == nil || errors.Is(err, errStopped) {
		if a.conn.SetReadDeadline(time.Time{}) == nil {
			_, _ = io.Copy(io.Discard, a.from)
		}
	}
}

// chunks copies exactly as much as was announced.
func (a *arrival) chunks() error {
	left := a.request.Size
	b := make([]byte, maxFragment)
	for {
		if err := a.conn.SetReadDeadline(time.Now().Add(a.peer.links.opt.SnapshotStall)); err != nil {
			return err
		}
		f, err := readFrame(a.from, maxSnapshotRequest)
		if err != nil {
			return noEOF(err)
		}
		if _, err := io.ReadFull(a.from, b[:f.length]); err != nil {
			return noEOF(err)
		}
		switch {
		case f.kind == kindEnd && left == 0:
			return nil
		case f.kind == kindAbort:
			return remark(b[:f.length])
		case f.kind != kindChunk || int64(f.length) > left:
			return fmt.Errorf("snapshot of %d bytes, %d left: %w", a.request.Size, left, errMalformed)
		}
		left -= int64(f.length)
		if _, err := a.into.Write(b[:f.length]); err != nil {
			return err
		}
	}
}

// noEOF keeps a connection that ended from looking like the end of a snapshot.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// arrive makes a snapshot the one that a peer sends to this replica. The newest one counts: its sender
// has given up the one before, which Raft may still be reading, and which fails now.
func (r *Remote) arrive(a *arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.arrives[a.peer.node]; old != nil {
		old.pipe.CloseWithError(errNewer)
		old.into.CloseWithError(errNewer)
		old.conn.hangUp()
	}
	r.arrives[a.peer.node] = a
}

func (r *Remote) depart(a *arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.arrives[a.peer.node] == a {
		delete(r.arrives, a.peer.node)
	}
}
