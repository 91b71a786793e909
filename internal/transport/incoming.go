package transport

import (
	"bufio"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// incoming is the accepting end of a link: it takes a peer's requests, and answers each of them.
type incoming struct {
	line

	// The reading goroutine's own.
	parts map[uint32]*assembly // messages that are not complete, by group
	desks map[uint32]*desk     // by group

	clerks sync.WaitGroup
}

// maxParts bounds the groups that a peer sends messages of at once.
const maxParts = 4096

// maxAnswers bounds the answers that a peer may leave unread, in bytes. They are about a hundred each.
const maxAnswers = 4 << 20

// desk is where one peer's requests wait for one replica. Its clerk hands them over one by one, so that
// a replica that is stuck holds up nobody else.
type desk struct {
	remote   *Remote
	requests chan request // closed by the reading goroutine
	bytes    atomic.Int64 // of the requests that wait, and of the one that is being served
}

// request is one that was read and found to be for us.
type request struct {
	id       uint64
	op       op
	size     int64 // bytes
	command  any
	deadline time.Time
}

func newIncoming(p *peer, conn *channel) *incoming {
	most := limits{messages: 4 * p.links.opt.QueueMessages, bytes: maxAnswers, total: maxAnswers}
	return &incoming{line: newLine(p, conn, most), parts: map[uint32]*assembly{}, desks: map[uint32]*desk{}}
}

// run serves the link until it is cut, and says why it was.
func (in *incoming) run() error {
	defer in.clerks.Wait()
	defer func() {
		for _, d := range in.desks {
			close(d.requests)
		}
	}()
	return in.line.run(nil, in.take)
}

// take reads a ping or a part of a request. It never waits for a replica.
func (in *incoming) take(f frame, r *bufio.Reader) error {
	switch f.kind {
	case kindPing:
		in.box.signal(kindPong)
		return nil
	case kindRequest:
		return in.takePart(f, r)
	}
	return errMalformed
}

func (in *incoming) takePart(f frame, r *bufio.Reader) error {
	part := in.parts[f.group]
	if part == nil {
		if len(in.parts) >= maxParts {
			return fmt.Errorf("messages of more than %d groups at once: %w", maxParts, errMalformed)
		}
		// What is for nobody here is not kept.
		part = &assembly{skip: in.peer.links.remote(f.group) == nil}
		in.parts[f.group] = part
	}
	complete, err := part.take(f, r)
	if err != nil || !complete {
		return err
	}
	delete(in.parts, f.group)
	if part.skip {
		in.peer.stray.Add(1)
		return in.answer(f.group, f.id, encodeStatus(statusAbsent, ""))
	}
	return in.accept(f.group, f.id, part.bytes)
}

// accept puts a request on its replica's desk, or answers why not.
func (in *incoming) accept(group uint32, id uint64, message []byte) error {
	envelope, command, err := decodeRequest(message)
	if err != nil || envelope.op == opInstall {
		return fmt.Errorf("request: %w", errMalformed)
	}
	remote := in.peer.links.remote(group)
	if refused := in.peer.links.judge(in.peer, remote, envelope.target, command); refused != 0 {
		return in.answer(group, id, encodeStatus(refused, ""))
	}
	deadline := time.Now().Add(time.Duration(envelope.remaining) * time.Microsecond)
	if !in.desk(remote).put(request{id, envelope.op, int64(len(message)), command, deadline}, in.peer.links.opt.QueueBytes) {
		in.peer.busy.Add(1)
		return in.answer(group, id, encodeStatus(statusBusy, ""))
	}
	return nil
}

// put adds a request unless there are too many, or too many bytes of them. A single one always fits.
func (d *desk) put(r request, most int) bool {
	if waiting := d.bytes.Load(); waiting > 0 && waiting+r.size > int64(most) {
		return false
	}
	d.bytes.Add(r.size) // before the clerk can take it away
	select {
	case d.requests <- r:
		return true
	default:
		d.bytes.Add(-r.size)
		return false
	}
}

// desk returns the desk of a replica, with a clerk. One that closed and was opened again has a new one.
func (in *incoming) desk(remote *Remote) *desk {
	d := in.desks[remote.group]
	if d != nil && d.remote == remote {
		return d
	}
	if d != nil {
		close(d.requests)
	}
	d = &desk{remote: remote, requests: make(chan request, in.peer.links.opt.QueueMessages)}
	in.desks[remote.group] = d
	in.clerks.Go(func() { in.serve(d) })
	return d
}

// serve is a clerk's work.
func (in *incoming) serve(d *desk) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for r := range d.requests {
		timer.Reset(time.Until(r.deadline))
		answer := in.handOver(d.remote, r, timer.C)
		d.bytes.Add(-r.size)
		if answer == nil {
			continue
		}
		if err := in.answer(d.remote.group, r.id, answer); err != nil {
			in.cut(err)
		}
	}
}

// handOver gives a request to the replica's main loop and waits for the answer. It returns nil when
// there is nothing to say: the sender has given up, or the link is cut.
func (in *incoming) handOver(remote *Remote, r request, deadline <-chan time.Time) *buffer {
	if !time.Now().Before(r.deadline) {
		return nil
	}
	answers := make(chan raft.RPCResponse, 1) // never blocks a replica that answers too late
	take := remote.consumer
	for {
		select {
		case take <- raft.RPC{Command: r.command, RespChan: answers}:
			take = nil // taken; now only the answer is waited for
		case got := <-answers:
			return encodeAnswer(r.op, got.Response, got.Error)
		case <-deadline:
			return nil
		case <-remote.closed():
			return encodeStatus(statusClosed, "")
		case <-in.done:
			return nil
		}
	}
}

// answer queues an answer. It fails only where a peer sends requests and doesn't read what they bring:
// an honest one has few requests at a time, and so have their answers.
func (in *incoming) answer(group uint32, id uint64, answer *buffer) error {
	err := in.box.push(&parcel{kind: kindAnswer, group: group, id: id, buffer: answer})
	if err != nil {
		answer.giveBack()
		return fmt.Errorf("answers are not read: %w", err)
	}
	return nil
}
