package transport_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

// memNet connects nodes within a test, and a bubble, as TCP would. It can lose what is sent without a
// word, refuse connections, and cut those that are there.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	muted     map[[2]string]bool // from, to
	refused   map[string]bool    // nodes that nobody gets through to
	dials     map[string]int     // by node
	open      map[*memConn]struct{}
}

func newMemNet() *memNet {
	return &memNet{
		listeners: map[string]*memListener{}, muted: map[[2]string]bool{}, refused: map[string]bool{},
		dials: map[string]int{}, open: map[*memConn]struct{}{},
	}
}

type memListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *memListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// memConn is one end of a connection between two nodes.
type memConn struct {
	net.Conn
	net      *memNet
	from, to string
}

func (c *memConn) Write(b []byte) (int, error) {
	c.net.mu.Lock()
	muted := c.net.muted[[2]string{c.from, c.to}]
	c.net.mu.Unlock()
	if muted {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *memConn) Close() error {
	c.net.mu.Lock()
	delete(c.net.open, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// listen makes a listener the one of a node. The one before is closed.
func (n *memNet) listen(node string) *memListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.listeners[node]; old != nil {
		old.Close()
	}
	n.listeners[node] = &memListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	return n.listeners[node]
}

// dialFrom returns how a node dials others.
func (n *memNet) dialFrom(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		n.mu.Lock()
		n.dials[to]++
		l, refused := n.listeners[to], n.refused[to] || n.refused[from]
		n.mu.Unlock()
		if l == nil || refused {
			return nil, errors.New("connection refused")
		}
		a, b := memPipe()
		here, there := &memConn{a, n, from, to}, &memConn{b, n, to, from}
		n.mu.Lock()
		n.open[here], n.open[there] = struct{}{}, struct{}{}
		n.mu.Unlock()
		select {
		case l.conns <- there:
			return here, nil
		case <-l.closed:
			return nil, errors.New("connection refused")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// mute loses what from sends to to from now on.
func (n *memNet) mute(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted[[2]string{from, to}] = true
}

// cut breaks every connection of a node; it can connect again unless refuse was called.
func (n *memNet) cut(node string) {
	n.mu.Lock()
	var ends []*memConn
	for c := range n.open {
		if c.from == node || c.to == node {
			ends = append(ends, c)
		}
	}
	n.mu.Unlock()
	for _, c := range ends {
		c.Close()
	}
}

// refuse keeps a node from connecting and being connected to.
func (n *memNet) refuse(node string, yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[node] = yes
}

// heal undoes every fault but cuts.
func (n *memNet) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.muted)
	clear(n.refused)
}

func (n *memNet) dialled(node string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[node]
}

var cluster = [16]byte{'c', 'l', 'u', 's', 't', 'e', 'r'}

// server returns the id of a node's replica.
func server(node string) raft.ServerID { return raft.ServerID(node + "-00000000000000aa") }

// address is the same, as Raft wants it elsewhere.
func address(node string) raft.ServerAddress { return raft.ServerAddress(server(node)) }

// node returns a node's links over n, with options changed by with.
func (n *memNet) node(t *testing.T, name string, with ...func(*transport.LinkOptions)) *transport.Links {
	t.Helper()
	o := transport.LinkOptions{
		Self: name, Cluster: cluster, Listener: n.listen(name), Dial: n.dialFrom(name),
		Now: func() int64 { return time.Now().UnixNano() },
	}
	for _, f := range with {
		f(&o)
	}
	l, err := transport.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// replica opens the transport of a node's replica.
func replica(t *testing.T, l *transport.Links, node string, group uint32) *transport.Remote {
	t.Helper()
	r, err := l.Group(group, server(node), locate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// locate finds the nodes of addresses that server made.
func locate(a raft.ServerAddress) (string, bool) {
	if len(a) <= 17 {
		return "", false
	}
	return string(a[:len(a)-17]), true
}

// linked is a pair of nodes, n1 and n2, with a replica of group 1 each.
type linked struct {
	net    *memNet
	l1, l2 *transport.Links
	r1, r2 *transport.Remote
}

func link(t *testing.T, with ...func(*transport.LinkOptions)) *linked {
	t.Helper()
	p := &linked{net: newMemNet()}
	p.l1, p.l2 = p.net.node(t, "n1", with...), p.net.node(t, "n2", with...)
	p.r1, p.r2 = replica(t, p.l1, "n1", 1), replica(t, p.l2, "n2", 1)
	return p
}
