package transport_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

// loopback is a set of nodes over real TCP.
type loopback struct {
	mu        sync.Mutex
	addresses map[string]string
}

func (l *loopback) dial(ctx context.Context, node string) (net.Conn, error) {
	l.mu.Lock()
	at := l.addresses[node]
	l.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", at)
}

// node starts a node's links; a nil authority means no TLS.
func (l *loopback) node(t testing.TB, name string, a *authority) *transport.Links {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.addresses[name] = listener.Addr().String()
	l.mu.Unlock()
	o := transport.LinkOptions{Self: name, Cluster: cluster, Listener: listener, Dial: l.dial}
	if a != nil {
		a.secure(a.certify(t, name))(&o)
	}
	links, err := transport.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return links
}

// tally is a state machine that counts what it applied, and says so.
type tally struct {
	mu      sync.Mutex
	bytes   int
	changed chan struct{} // closed and replaced at each change
}

func newTally() *tally { return &tally{changed: make(chan struct{})} }

func (c *tally) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until so many bytes were applied.
func (c *tally) await(t *testing.T, want int) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		got, changed := c.bytes, c.changed
		c.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("applied %d bytes of %d", got, want)
		}
	}
}

func (c *tally) Apply(l *raft.Log) any { c.set(func() { c.bytes += len(l.Data) }); return nil }

func (c *tally) Snapshot() (raft.FSMSnapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tallied(c.bytes), nil
}

func (c *tally) Restore(r io.ReadCloser) error {
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	c.set(func() { c.bytes = int(n) })
	return err
}

// tallied is a snapshot as long as what it counts.
type tallied int

func (n tallied) Persist(s raft.SnapshotSink) error {
	if _, err := s.Write(make([]byte, n)); err != nil {
		return err
	}
	return s.Close()
}

func (tallied) Release() {}

// Three replicas over real TCP and TLS: they elect, commit entries of all sizes, one of them is lost
// and its successor gets all of it as a snapshot. Afterwards no goroutine is left.
func TestRaftOverTCPAndTLS(t *testing.T) {
	before := runtime.NumGoroutine()
	net, a := &loopback{addresses: map[string]string{}}, newAuthority(t)
	links, rafts, machines := map[string]*transport.Links{}, map[string]*raft.Raft{}, map[string]*tally{}
	start := func(node string) {
		links[node], machines[node] = net.node(t, node, a), newTally()
		r, err := links[node].Group(7, server(node), locate)
		if err != nil {
			t.Fatal(err)
		}
		rafts[node] = startRaft(t, node, r, machines[node])
	}
	stop := func(node string) {
		if err := rafts[node].Shutdown().Error(); err != nil {
			t.Error(err)
		}
		if err := links[node].Close(); err != nil {
			t.Error(err)
		}
	}
	for _, node := range members {
		start(node)
	}
	leader := awaitLeader(t, rafts)
	total := 0
	for _, size := range []int{1, 100, 64 << 10, 1 << 20, 3 << 20} {
		if err := rafts[leader].Apply(make([]byte, size), 5*time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		total += size
	}
	for _, node := range members {
		machines[node].await(t, total)
	}
	if err := rafts[leader].ReloadConfig(raft.ReloadableConfig{
		TrailingLogs: 0, SnapshotInterval: time.Hour, SnapshotThreshold: 1 << 20,
		HeartbeatTimeout: time.Second, ElectionTimeout: time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	if err := rafts[leader].Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	lost := others(leader)[0]
	stop(lost)
	start(lost)
	machines[lost].await(t, total)
	for _, node := range members {
		stop(node)
	}
	for until := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(until) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, now %d:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// awaitLeader waits for the first leadership.
func awaitLeader(t *testing.T, rafts map[string]*raft.Raft) string {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case <-rafts["a"].LeaderCh():
		case <-rafts["b"].LeaderCh():
		case <-rafts["c"].LeaderCh():
		case <-timeout:
			t.Fatal("no leader within 20 s")
		}
		for node, r := range rafts {
			if r.State() == raft.Leader {
				return node
			}
		}
	}
}

// BenchmarkLinks measures round trips over one link on the loopback interface: with so many groups, each
// of which has one request in flight as Raft does.
func BenchmarkLinks(b *testing.B) {
	for _, secure := range []bool{true, false} {
		for _, size := range []int{0, 1 << 10, 256 << 10} {
			for _, groups := range []int{1, 16} {
				name := fmt.Sprintf("TLS=%v/bytes=%d/groups=%d", secure, size, groups)
				b.Run(name, func(b *testing.B) { benchmarkLinks(b, secure, size, groups) })
			}
		}
	}
}

func benchmarkLinks(b *testing.B, secure bool, size, groups int) {
	n := &loopback{addresses: map[string]string{}}
	var a *authority
	if secure {
		a = newAuthority(b)
	}
	l1, l2 := n.node(b, "n1", a), n.node(b, "n2", a)
	done := make(chan struct{})
	var loops, callers sync.WaitGroup
	rounds := make(chan struct{}, b.N)
	for range b.N {
		rounds <- struct{}{}
	}
	close(rounds)
	senders := make([]*transport.Remote, groups)
	for g := range groups {
		r1, err1 := l1.Group(uint32(g), server("n1"), locate)
		r2, err2 := l2.Group(uint32(g), server("n2"), locate)
		if err1 != nil || err2 != nil {
			b.Fatal(err1, err2)
		}
		senders[g] = r1
		if err := serveOne(&loops, r2, done, r1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.SetBytes(int64(size))
	b.ResetTimer()
	for _, r := range senders {
		callers.Go(func() {
			req := &raft.AppendEntriesRequest{RPCHeader: from(r), Term: 1, Entries: []*raft.Log{{Data: make([]byte, size)}}}
			if size == 0 {
				req.Entries = nil
			}
			for range rounds {
				if err := r.AppendEntries(server("n2"), address("n2"), req, new(raft.AppendEntriesResponse)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "round-trips/s")
	close(done)
	loops.Wait()
	l1.Close()
	l2.Close()
}

// serveOne answers requests until done, and proves it with a first one.
func serveOne(loops *sync.WaitGroup, to *transport.Remote, done <-chan struct{}, by *transport.Remote) error {
	loops.Go(func() {
		for {
			select {
			case rpc := <-to.Consumer():
				rpc.Respond(success(rpc))
			case <-done:
				return
			}
		}
	})
	return heartbeat(by, address("n2"), 1)
}
