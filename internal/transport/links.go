package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

var (
	// ErrBusy says that too many requests wait, here or at the peer.
	ErrBusy = errors.New("too many requests wait")
	// ErrTooLarge says that a request is longer than MaxMessage. It can never be sent.
	ErrTooLarge = errors.New("request too large")
	// ErrImpostor says that a request claims to come from another node's replica than the one it comes
	// from. The peer has not acted on it.
	ErrImpostor = errors.New("sender is not who the request says")
)

// Links connect the replicas of this node to those of others. They are safe for concurrent use.
type Links struct {
	opt    LinkOptions
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	conns  *conns
	knocks chan struct{} // one for each connection that has not said hello yet

	refused  atomic.Uint64
	reported atomic.Int64 // when a refusal was logged last, by Now

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // grows only while not closed
	peers   map[string]*peer
	remotes map[uint32]*Remote
}

const (
	// maxKnocks bounds the connections that have not said hello yet: strangers cost no more than this.
	maxKnocks = 128
	// maxPeers bounds the nodes that are remembered.
	maxPeers = 1024
)

// New starts to accept connections. The options' listener belongs to the links even if they are refused.
func New(o LinkOptions) (*Links, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		if o.Listener != nil {
			err = errors.Join(err, o.Listener.Close())
		}
		return nil, fmt.Errorf("links of node: %w", err)
	}
	l := &Links{
		opt: o, conns: newConns(), knocks: make(chan struct{}, maxKnocks),
		peers: map[string]*peer{}, remotes: map[uint32]*Remote{},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.reported.Store(o.Now() - int64(reportEvery))
	l.start(l.listen)
	l.start(l.verify)
	return l, nil
}

// start runs f in a goroutine that Close waits for; false if the links are closed.
func (l *Links) start(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.running.Go(f)
	return true
}

// listen accepts connections until Close.
func (l *Links) listen() {
	wait := l.opt.BackoffMin
	for {
		conn, err := l.opt.Listener.Accept()
		switch {
		case l.ctx.Err() != nil:
			if err == nil {
				hangUp(conn)
			}
			return
		case err != nil: // out of file descriptors, say
			l.opt.Log.Error("accept connections", "error", err)
			pause(l.ctx, wait)
			wait = min(2*wait, l.opt.BackoffMax)
			continue
		}
		wait = l.opt.BackoffMin
		select {
		case l.knocks <- struct{}{}:
			if !l.start(func() { l.serve(conn) }) {
				hangUp(conn)
			}
		default:
			hangUp(conn)
			l.refuse(conn, errors.New("too many connections that have not said hello"))
		}
	}
}

// verify looks at all open connections until Close.
func (l *Links) verify() {
	ticker := time.NewTicker(l.opt.VerifyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
		l.mu.Lock()
		remotes := slices.Collect(maps.Values(l.remotes))
		l.mu.Unlock()
		all := []*conns{l.conns}
		for _, r := range remotes {
			all = append(all, r.conns)
		}
		for _, c := range all {
			c.verify(func(node string, err error) {
				l.opt.Log.Info("connection closed: its certificate counts no longer", "peer", node, "error", err)
			})
		}
	}
}

// serve does with an accepted connection what its hello says.
func (l *Links) serve(conn net.Conn) {
	c, h, err := l.greeted(conn)
	<-l.knocks
	if err != nil {
		l.refuse(conn, err)
		return
	}
	defer c.hangUp()
	p := l.peer(h.from)
	if p == nil {
		l.refuse(conn, fmt.Errorf("more than %d nodes", maxPeers))
		return
	}
	c.plain.belongTo(p)
	if h.purpose == forSnapshot {
		p.takeSnapshot(c)
	} else {
		p.accept(c)
	}
}

func (l *Links) greeted(conn net.Conn) (*channel, hello, error) {
	c, err := l.open(conn, l.conns)
	if err != nil {
		return nil, hello{}, err
	}
	h, err := l.welcome(c)
	if err != nil {
		c.hangUp()
	}
	return c, h, err
}

// reportEvery keeps strangers from filling the log.
const reportEvery = time.Second

// refuse counts a connection that was not accepted, and logs it unless another one was just now.
func (l *Links) refuse(conn net.Conn, err error) {
	if l.ctx.Err() != nil {
		return
	}
	l.refused.Add(1)
	if l.mayReport() {
		l.opt.Log.Warn("connection refused", "from", conn.RemoteAddr().String(), "error", err)
	}
}

func (l *Links) mayReport() bool {
	now, last := l.opt.Now(), l.reported.Load()
	return now-last >= int64(reportEvery) && l.reported.CompareAndSwap(last, now)
}

// peer returns what is known of a node; nil if there are too many.
func (l *Links) peer(node string) *peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[node]
	if p == nil && len(l.peers) < maxPeers {
		p = newPeer(l, node)
		l.peers[node] = p
	}
	return p
}

// Group opens the transport of a replica of this node: one of group id, whose server id is self, this
// node's name and its disk's incarnation. NodeOf finds the node that hosts an address; it runs on
// Raft's goroutines, concurrently. A group can have one replica here at a time; a second one gives
// [ErrTaken], and [ErrClosed] comes after Close.
func (l *Links) Group(id uint32, self raft.ServerID, nodeOfAddress func(raft.ServerAddress) (node string, ok bool)) (*Remote, error) {
	if nodeOf(string(self)) != l.opt.Self {
		return nil, fmt.Errorf("replica %s is not one of node %s", self, l.opt.Self)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.remotes[id] != nil:
		return nil, fmt.Errorf("group %d: %w", id, ErrTaken)
	}
	r := newRemote(l, id, self, nodeOfAddress)
	l.remotes[id] = r
	return r, nil
}

// Join is [Links.Group] where every server id names its node: the node's name, a hyphen and the incarnation of
// its disk.
func (l *Links) Join(group uint32, self string) (*Remote, error) {
	return l.Group(group, raft.ServerID(self), func(address raft.ServerAddress) (string, bool) {
		node := nodeOf(string(address))
		return node, node != ""
	})
}

// remote returns the replica of a group that is here, or nil.
func (l *Links) remote(group uint32) *Remote {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remotes[group]
}

// leave frees the group of a replica that closes.
func (l *Links) leave(r *Remote) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remotes[r.group] == r {
		delete(l.remotes, r.group)
	}
}

// Peers returns the state of every node that this one had to do with, by name.
func (l *Links) Peers() []PeerState {
	l.mu.Lock()
	peers := slices.Collect(maps.Values(l.peers))
	l.mu.Unlock()
	slices.SortFunc(peers, func(a, b *peer) int { return cmp.Compare(a.node, b.node) })
	states := make([]PeerState, len(peers))
	for i, p := range peers {
		states[i] = p.state()
	}
	return states
}

// Refused counts the connections that were not accepted: strangers, other clusters, wrong names.
func (l *Links) Refused() uint64 { return l.refused.Load() }

// Close ends all links, and every transport of [Links.Group]; what is in flight fails. It returns when
// every goroutine of the links has ended, and can be called more than once.
func (l *Links) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	remotes := slices.Collect(maps.Values(l.remotes))
	l.mu.Unlock()
	var err error
	if first {
		l.cancel()
		err = l.opt.Listener.Close()
		for _, r := range remotes {
			r.end()
		}
		l.conns.closeAll()
	}
	l.running.Wait()
	return err
}
