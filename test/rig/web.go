package rig

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Web stands between the nodes of one cluster: each finds the others behind addresses of the web's own, which
// carries bytes and can do harm to them, apart for each pair and direction. Clients and tools go past it.
type Web struct {
	lanes map[[2]string]*Lane
	real  map[string]string    // addresses of nodes by those that stand for them
	fake  map[[2]string]string // the other way about, by who dials and whom

	mu     sync.Mutex
	wires  map[*wire]bool // connections that are open
	count  int            // of connections accepted, ever
	closed bool
	doing  sync.WaitGroup
}

// NewWeb returns one for one cluster.
func NewWeb() *Web {
	w := &Web{lanes: map[[2]string]*Lane{}, real: map[string]string{}, fake: map[[2]string]string{}, wires: map[*wire]bool{}}
	for _, from := range Names() {
		for _, to := range Others(from) {
			w.lanes[[2]string{from, to}] = &Lane{}
		}
	}
	return w
}

// Lane is what one node says to another, whoever of them has dialled.
type Lane struct {
	swallow atomic.Bool
	delay   atomic.Int64 // ns
	rate    atomic.Int64 // bytes a second; 0: no bound

	cut     atomic.Int64
	late    atomic.Int64
	carried atomic.Int64
}

// Lane is the one from a node to another.
func (w *Web) Lane(from, to string) *Lane { return w.lanes[[2]string{from, to}] }

// Swallow loses all bytes from now on, also on connections that are opened later.
func (l *Lane) Swallow() { l.swallow.Store(true) }

// Slow holds every byte for so long, and lets no more than rate bytes a second through; 0: as many as come.
func (l *Lane) Slow(delay time.Duration, rate int64) {
	l.delay.Store(int64(delay))
	l.rate.Store(rate)
}

// mend ends all harm.
func (l *Lane) mend() {
	l.swallow.Store(false)
	l.Slow(0, 0)
}

// Tally is what has come of the bytes of lanes.
type Tally struct {
	Cut     int64 // swallowed
	Late    int64 // delivered after a newer connection was there
	Carried int64
	Links   int // connections, ever
}

// Minus is the difference.
func (y Tally) Minus(o Tally) Tally {
	return Tally{y.Cut - o.Cut, y.Late - o.Late, y.Carried - o.Carried, y.Links - o.Links}
}

// Tally adds up all lanes.
func (w *Web) Tally() (y Tally) {
	for _, l := range w.lanes {
		y.Cut += l.cut.Load()
		y.Late += l.late.Load()
		y.Carried += l.carried.Load()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	y.Links = w.count
	return y
}

// Cut loses what the one node says to the other.
func (w *Web) Cut(from, to string) { w.Lane(from, to).Swallow() }

// Isolate cuts a node off from all others, both ways.
func (w *Web) Isolate(name string) {
	for _, other := range Others(name) {
		w.Cut(name, other)
		w.Cut(other, name)
	}
}

// Mend ends all harm. Connections that have lost bytes end: what follows would make no sense.
func (w *Web) Mend() {
	for _, l := range w.lanes {
		l.mend()
	}
	for _, c := range w.open() {
		if c.torn.Load() {
			c.end()
		}
	}
}

// Break ends all connections between two nodes, towards whoever dialled. Towards the other end they stay open for
// so long, and what was under way is delivered: beside what the dialler says on a new connection, and behind it.
func (w *Web) Break(one, other string, keep time.Duration) {
	for _, c := range w.open() {
		if c.between(one, other) {
			c.drop(keep)
		}
	}
}

func (w *Web) open() (list []*wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.wires {
		list = append(list, c)
	}
	return list
}

// weave begins to listen for the nodes of a cluster. It ends with the test.
func (w *Web) weave(t testing.TB, n *Nodes) {
	t.Cleanup(w.close) // once nobody listens any more
	for _, from := range Names() {
		for _, to := range Others(from) {
			w.listen(t, from, to, n.Links[to])
			w.listen(t, from, to, n.GRPC[to])
		}
	}
}

func (w *Web) listen(t testing.TB, from, to, target string) {
	listener, err := net.Listen("tcp", FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	w.real[listener.Addr().String()] = target
	w.fake[[2]string{from, target}] = listener.Addr().String()
	w.doing.Go(func() { w.accept(listener, from, to, target) })
	t.Cleanup(func() { _ = listener.Close() })
}

// address is where a node finds what another one answers at target.
func (w *Web) address(from, target string) string { return w.fake[[2]string{from, target}] }

// dialBehind dials a node itself, also by the address that stands for it.
func (w *Web) dialBehind(ctx context.Context, address string) (net.Conn, error) {
	if target, fake := w.real[address]; fake {
		address = target
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func (w *Web) accept(listener net.Listener, from, to, target string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		w.doing.Go(func() { w.carry(conn, from, to, target) })
	}
}

// dialWithin bounds how long a node that is dialled may take.
const dialWithin = 5 * time.Second

func (w *Web) carry(dialler net.Conn, from, to, target string) {
	dialled, err := net.DialTimeout("tcp", target, dialWithin)
	if err != nil {
		reset(dialler)
		return
	}
	c := &wire{web: w, from: from, to: to, target: target, dialler: dialler, dialled: dialled}
	if !w.enter(c) {
		c.end()
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { c.pump(dialler, dialled, w.Lane(from, to)) })
	pumps.Go(func() { c.pump(dialled, dialler, w.Lane(to, from)) })
	pumps.Wait()
	c.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wires, c)
}

func (w *Web) enter(c *wire) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.count++
	c.number = w.count
	w.wires[c] = true
	return true
}

// newer reports whether there is a newer connection of the same kind.
func (w *Web) newer(c *wire) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for o := range w.wires {
		if o.from == c.from && o.target == c.target && o.number > c.number {
			return true
		}
	}
	return false
}

// close ends everything.
func (w *Web) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	for _, c := range w.open() {
		c.end()
	}
	w.doing.Wait()
}
