package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// peer is a node that this one has to do with: the link to it, which this node dials, and the link
// from it. A request waits for a first connection and fails at once while the peer is known to be away.
type peer struct {
	links *Links
	node  string

	sent, received              atomic.Uint64 // bytes
	connects                    atomic.Uint64
	busy, late, impostor, stray atomic.Uint64 // requests and answers

	mu      sync.Mutex
	out     *outgoing // the link to it; nil: not connected
	in      *incoming // the link from it
	tended  bool      // a goroutine keeps the link to it
	away    bool      // the last attempt failed, or what it brought didn't last
	lastErr error
	since   int64         // when the link to it came or went, by Now
	wanted  int64         // when it was asked for last, by Now
	changed chan struct{} // closed and replaced whenever out or away changes
}

func newPeer(l *Links, node string) *peer {
	now := l.opt.Now()
	return &peer{links: l, node: node, since: now, wanted: now, changed: make(chan struct{})}
}

// link returns the link to the peer, and sees to it that there is one soon.
func (p *peer) link(deadline <-chan time.Time, closed <-chan struct{}) (*outgoing, error) {
	for {
		out, changed, err := p.current()
		if out != nil || err != nil {
			return out, err
		}
		select {
		case <-changed:
		case <-deadline:
			return nil, ErrDeadline
		case <-closed:
			return nil, ErrClosed
		}
	}
}

func (p *peer) current() (*outgoing, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = p.links.opt.Now()
	if !p.tended {
		if !p.links.start(p.tend) {
			return nil, nil, ErrClosed
		}
		p.tended = true
	}
	if p.away {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnreachable, p.lastErr)
	}
	if p.out != nil && p.out.broken() {
		return nil, p.changed, nil // tend is about to notice
	}
	return p.out, p.changed, nil
}

// tend keeps the link to the peer until nobody wants it or the links close. A link that had lasted is
// dialled anew at once, others after a while that grows.
func (p *peer) tend() {
	opt, ctx := &p.links.opt, p.links.ctx
	wait := opt.BackoffMin
	for ctx.Err() == nil && !p.retire() {
		lasted, err := p.connect()
		if lasted {
			p.down(err, false)
			wait = opt.BackoffMin
			continue
		}
		p.down(err, true)
		pause(ctx, wait/2+rand.N(wait/2+1))
		wait = min(2*wait, opt.BackoffMax)
	}
}

// connect dials, and serves the link until it is cut.
func (p *peer) connect() (lasted bool, why error) {
	conn, err := p.links.dial(p.links.ctx, p, forRequests, p.links.conns)
	if err != nil {
		return false, err
	}
	out := newOutgoing(p, conn)
	begun := p.up(out)
	err = out.run()
	return p.links.opt.Now()-begun >= int64(p.links.opt.BackoffMax), err
}

func (p *peer) up(out *outgoing) (now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connects.Add(1)
	p.out, p.away, p.since = out, false, p.links.opt.Now()
	p.announce()
	p.links.opt.Log.Info("link up", "peer", p.node)
	return p.since
}

func (p *peer) down(err error, away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil {
		p.since = p.links.opt.Now()
	}
	if p.out != nil || !p.away {
		p.links.opt.Log.Info("link down", "peer", p.node, "error", err)
	}
	p.out, p.away, p.lastErr = nil, away, err
	p.announce()
}

func (p *peer) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// errIdle says that a link was closed because nobody used it.
var errIdle = errors.New("nobody uses the link")

// idle reports whether nobody wanted the link for long.
func (p *peer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idleLocked()
}

func (p *peer) idleLocked() bool {
	return p.links.opt.Now()-p.wanted >= int64(p.links.opt.IdleAfter)
}

// retire ends the tending of a link that is idle. The next request begins it anew.
func (p *peer) retire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.idleLocked() {
		return false
	}
	p.tended, p.away = false, false
	return true
}

// accept makes a connection the link from the peer. The newest one counts: a peer keeps one, and dials
// anew when it knows that the older one is broken, which this end may not know yet.
func (p *peer) accept(conn *channel) {
	in := newIncoming(p, conn)
	if old := p.swapIn(in); old != nil {
		old.cut(errReplaced)
	}
	why := in.run()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in == in {
		p.in = nil
	}
	p.links.opt.Log.Debug("link from peer down", "peer", p.node, "error", why)
}

var errReplaced = errors.New("replaced by a newer connection")

func (p *peer) swapIn(in *incoming) (old *incoming) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, p.in = p.in, in
	return old
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// PeerState is what is known of a peer node, for status and metrics. Counts run since New.
type PeerState struct {
	Node string
	// Connected says that the link to the peer is up, Accepted that the one from it is.
	Connected, Accepted bool
	// Since is how long Connected has been what it is.
	Since time.Duration
	// LastError is why the link to it was down last; nil if it never was.
	LastError error
	// Connects counts how often the link to it came up.
	Connects uint64
	// Sent and Received are bytes of all connections with it, snapshots and TLS included.
	Sent, Received uint64
	// Queued is how many bytes of requests wait to be sent.
	Queued int
	// Busy counts requests that were refused because too many waited, here or there; Late answers that
	// came after their deadline.
	Busy, Late uint64
	// Impostor counts its requests that claimed to come from another node's replica, Stray those that
	// were for a replica that isn't here.
	Impostor, Stray uint64
}

func (p *peer) state() PeerState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PeerState{
		Node: p.node, Connected: p.out != nil, Accepted: p.in != nil,
		Since: time.Duration(p.links.opt.Now() - p.since), LastError: p.lastErr,
		Connects: p.connects.Load(), Sent: p.sent.Load(), Received: p.received.Load(),
		Busy: p.busy.Load(), Late: p.late.Load(), Impostor: p.impostor.Load(), Stray: p.stray.Load(),
	}
	if p.out != nil {
		s.Queued = p.out.box.queued()
	}
	return s
}
