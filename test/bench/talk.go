package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// mostChecks is how many checks a message may hold.
const mostChecks = 1024

// slot is a caller, or the place of a check that nobody waits with: what a tag stands for.
type slot struct {
	since atomic.Int64 // when the check was due; 0: none is open
}

// talk is one CheckStream. Whoever has a check for it adds it to the message that waits; sender sends what has
// gathered, as one message, and receiver takes the answers. No timer holds a lone check back.
type talk struct {
	engine *engine
	index  int
	stream grpc.ClientStream
	cancel context.CancelFunc

	mu    sync.Mutex
	ids   ids
	ready []*[]byte // full messages
	open  *[]byte   // the one that gathers
	count int       // its checks
	wake  chan struct{}
	done  sync.WaitGroup
}

// openTalk opens a stream and begins to send and receive.
func openTalk(e *engine, index int, conn *grpc.ClientConn) (*talk, error) {
	ctx, cancel := context.WithCancel(context.Background())
	desc := &grpc.StreamDesc{StreamName: "CheckStream", ServerStreams: true, ClientStreams: true}
	s, err := conn.NewStream(ctx, desc, quotav1.Quota_CheckStream_FullMethodName, grpc.ForceCodecV2(rawCodec{&e.pool}))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open a check stream: %w", err)
	}
	t := &talk{engine: e, index: index, stream: s, cancel: cancel, wake: make(chan struct{}, 1)}
	t.ids = ids{run: e.run ^ mix(uint64(index)), next: uint64(index) << 48}
	t.done.Go(func() { t.engine.brokenBy(t.send(ctx)) })
	t.done.Go(func() { t.engine.brokenBy(t.receive(ctx)) })
	return t, nil
}

func (t *talk) close() {
	t.cancel()
	t.done.Wait()
}

// gather adds a question to the message that waits. The mutex is held; flush sends it.
func (t *talk) gather(p *phase, q *question, due int64) {
	if t.open == nil {
		t.open = t.engine.pool.Get(0)
	}
	t.ids.put(&q.id)
	t.engine.slots[q.tag].since.Store(due)
	*t.open = p.form.append(*t.open, q)
	if t.count++; t.count == t.engine.perMessage {
		t.ready, t.open, t.count = append(t.ready, t.open), nil, 0
	}
}

func (t *talk) flush() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// send sends what gathers until the context ends.
func (t *talk) send(ctx context.Context) error {
	var out []*[]byte
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return nil
		}
		t.mu.Lock()
		out = append(out[:0], t.ready...)
		t.ready = t.ready[:0]
		if t.open != nil {
			out = append(out, t.open)
			t.open, t.count = nil, 0
		}
		t.mu.Unlock()
		for _, m := range out {
			t.engine.sent.Add(1)
			if err := t.stream.SendMsg(m); err != nil && !errors.Is(err, io.EOF) { // EOF: the receiver hears why
				return fmt.Errorf("send checks: %w", err)
			}
		}
	}
}

// receive takes answers until the stream ends.
func (t *talk) receive(ctx context.Context) error {
	var in replies
	for {
		if err := t.stream.RecvMsg(&in); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("receive answers: %w", err)
		}
		t.engine.received.Add(1)
		if err := t.engine.take(t.index, &in, t.engine.now()); err != nil {
			return err
		}
	}
}

// now is a monotonic reading that is never 0.
func (e *engine) now() int64 { return 1 + int64(time.Since(e.begin)) }
