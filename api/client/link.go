package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

const (
	// windowBytes lets a stream, and connBytes a connection, carry as much as is ever under way, so that it
	// is bounds on checks that hold anybody back.
	windowBytes = 4 << 20
	connBytes   = 8 << 20
	bufferBytes = 128 << 10

	// pingAfter and pingWait find nodes that are gone without a word. A node takes no more pings than that.
	pingAfter = 10 * time.Second
	pingWait  = 5 * time.Second

	// maxLinks bounds the nodes that are connected at once.
	maxLinks = 256
)

var (
	errClosed       = errors.New("the client is closed")
	errTooManyNodes = errors.New("too many nodes are connected")
)

func dialOptions(c *Config) []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(connBytes),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithDisableRetry(), // an outcome that is not known is not gRPC's to repeat
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWait, PermitWithoutStream: true}),
		grpc.WithConnectParams(connecting()),
	}
	if c.Dialer != nil {
		options = append(options, grpc.WithContextDialer(c.Dialer))
	}
	return options
}

// connecting says how nodes are dialled. The library's own pauses grow to two minutes: so long a node that comes back
// would count as gone. Each attempt looks the address's name up anew.
func connecting() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: time.Second,
	}
}

// links holds one link for each node, by address.
type links struct {
	client  *Client
	context context.Context // ends with the client
	running sync.WaitGroup

	mu     sync.Mutex
	byAddr map[string]*link
	closed bool
}

// to returns the link to a node, and makes it at the first use.
func (s *links) to(address string) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.byAddr[address]; l != nil {
		return l, nil
	}
	switch {
	case s.closed:
		return nil, errClosed
	case len(s.byAddr) >= maxLinks:
		if s.retire(); len(s.byAddr) >= maxLinks {
			return nil, errTooManyNodes
		}
	}
	conn, err := dial(address, s.client.cfg.TLS, dialOptions(&s.client.cfg)...)
	if err != nil {
		return nil, err
	}
	l := newLink(s.client, address, conn)
	ctx, cancel := context.WithCancel(s.context)
	l.cancel = cancel
	s.running.Go(func() { l.run(ctx) })
	s.byAddr[address] = l
	return l, nil
}

// retire ends the links to nodes that nothing leads to any longer.
func (s *links) retire() {
	current := s.client.nodes()
	for address, l := range s.byAddr {
		if !slices.Contains(current, address) {
			delete(s.byAddr, address)
			l.cancel()
		}
	}
}

// close ends all links and waits for their goroutines.
func (s *links) close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.byAddr {
		l.cancel()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// link is the way to one node: a connection, and on it one stream that carries all checks to that node.
//
// Checks gather while a message is on its way to the transport, and go together in the next one; no timer
// delays a lone check. One goroutine, run, opens the stream and sends; another receives for as long as the
// stream lives.
type link struct {
	client  *Client
	address string
	conn    *grpc.ClientConn
	quota   quotav1.QuotaClient
	routing quotav1.RoutingClient
	cancel  context.CancelFunc
	wake    chan struct{} // one place: there is something for run

	mu     sync.Mutex
	queue  []*attempt // not sent
	purge  int        // queue length at which those whose callers have left are dropped
	closed bool       // nothing is taken
}

func newLink(c *Client, address string, conn *grpc.ClientConn) *link {
	return &link{
		client: c, address: address, conn: conn,
		quota: quotav1.NewQuotaClient(conn), routing: quotav1.NewRoutingClient(conn),
		wake: make(chan struct{}, 1), purge: firstPurge,
	}
}

// firstPurge is a queue's length from which it is looked through for attempts that nobody waits for.
const firstPurge = 1024

// put queues an attempt; its result comes on its channel.
func (l *link) put(a *attempt) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		a.finish(result{err: errClosed})
		return
	}
	if len(l.queue) >= l.purge {
		l.queue = slices.DeleteFunc(l.queue, (*attempt).left)
		l.purge = max(firstPurge, 2*len(l.queue))
	}
	l.queue = append(l.queue, a)
	l.mu.Unlock()
	notify(l.wake)
}

// run keeps a stream open while there is something to send, and ends with ctx.
func (l *link) run(ctx context.Context) {
	defer func() { _ = l.conn.Close() }() // whatever was in flight is lost either way
	for {
		select {
		case <-l.wake:
			l.converse(ctx)
		case <-ctx.Done():
			l.refuse(errClosed, true)
			return
		}
	}
}

// converse opens a stream and sends what is queued, until it breaks or ctx ends. What could not be sent
// because no stream opened is provably not sent.
func (l *link) converse(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.quota.CheckStream(ctx)
	if err != nil {
		l.refuse(err, false)
		return
	}
	t := newTalk(stream)
	received := make(chan struct{})
	go func() {
		defer close(received)
		t.receive()
	}()
	t.send(ctx, l)
	cancel()
	<-received
	if lost := t.lose(); lost > 0 {
		l.client.log.Warn("a stream broke with checks open; their outcomes are unknown", "address", l.address, "checks", lost, "error", t.cause)
	}
	l.client.metrics.broken.Inc()
	notify(l.wake) // for what is queued: it is sent on another stream
}

// refuse ends all that is queued: it was not sent.
func (l *link) refuse(err error, forGood bool) {
	l.mu.Lock()
	queue := l.queue
	l.queue, l.closed = nil, l.closed || forGood
	l.mu.Unlock()
	for _, a := range queue {
		a.finish(result{err: err})
	}
}

func notify(place chan struct{}) {
	select {
	case place <- struct{}{}:
	default:
	}
}
