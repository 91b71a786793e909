package operator_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// gate is a way to the API server that can be shut, and whose connections can be made deaf.
type gate struct {
	address string
	target  string
	shut    atomic.Bool // nobody gets through

	mu    sync.Mutex
	conns map[*passage]bool
}

// passage is one connection.
type passage struct {
	in, out net.Conn
	deaf    atomic.Bool // what comes from the server is dropped, without a word
}

func newGate(t *testing.T, target string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{address: l.Addr().String(), target: target, conns: map[*passage]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { g.pass(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.close(true)
		running.Wait()
	})
	return g
}

func (g *gate) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", g.target)
	if err != nil {
		return
	}
	defer out.Close()
	p := &passage{in: in, out: out}
	g.mu.Lock()
	g.conns[p] = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, p)
	}()
	if g.shut.Load() {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(writer{p}, out) // until either side ends
		in.Close()
	})
	_, _ = io.Copy(out, in)
	out.Close()
	back.Wait()
}

// writer writes to whoever asked, unless that one is to hear nothing.
type writer struct{ *passage }

func (w writer) Write(b []byte) (int, error) {
	if w.deaf.Load() {
		return len(b), nil
	}
	return w.in.Write(b)
}

// close ends all connections; shut: there will be no others.
func (g *gate) close(shut bool) {
	g.shut.Store(shut)
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.conns {
		p.in.Close()
		p.out.Close()
	}
}

func (g *gate) open() { g.shut.Store(false) }

// deafen makes the connections that there are carry nothing from the server any more, and returns how many.
func (g *gate) deafen() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.conns {
		p.deaf.Store(true)
	}
	return len(g.conns)
}
