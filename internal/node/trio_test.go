package node_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/server"
)

// trio is a cluster of real nodes over real sockets, in one process.
type trio struct {
	t          *testing.T
	dir        string
	partitions int
	timing     node.Timing
	names      []string
	sources    map[string]clock.Source // of those whose clocks aren't the kernel's
	levels     map[string]uint64       // of those whose software's isn't the newest
	links      map[string]string       // addresses, the same for as long as the trio lives
	grpc       map[string]string

	mu    sync.Mutex
	nodes map[string]*member
	cut   map[[2]string]bool
	conns map[[2]string][]net.Conn
}

// member is one running node with its server.
type member struct {
	*node.Node
	server   *server.Server
	registry *prometheus.Registry
}

func newTrio(t *testing.T, options ...func(*trio)) *trio {
	t.Helper()
	tr := &trio{
		t: t, dir: t.TempDir(), names: []string{"n1", "n2", "n3"}, links: map[string]string{}, grpc: map[string]string{},
		nodes: map[string]*member{}, cut: map[[2]string]bool{}, conns: map[[2]string][]net.Conn{},
		timing: node.Timing{Election: 300 * time.Millisecond, Balance: time.Hour},
	}
	for _, o := range options {
		o(tr)
	}
	for _, name := range tr.names {
		tr.links[name], tr.grpc[name] = freeAddress(), freeAddress()
	}
	t.Cleanup(func() {
		for _, name := range tr.names {
			tr.stop(name)
		}
	})
	return tr
}

// ports hands out each port once.
var ports atomic.Int32

// freeAddress is one of this process's own, which no other process and no connection gets by chance: a node that
// starts again finds its address free.
func freeAddress() string {
	const first = 10_000 // below those that connections get
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff, first+ports.Add(1))
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (tr *trio) config(name string) node.Config {
	cfg := node.Config{
		Name: name, Dir: filepath.Join(tr.dir, name), Partitions: tr.partitions, Timing: tr.timing,
		Links: listen(tr.t, tr.links[name]), Log: logger(), Registry: prometheus.NewRegistry(), Source: tr.sources[name], Level: tr.levels[name],
		DialLink: func(ctx context.Context, to string) (net.Conn, error) { return tr.dial(ctx, name, to) },
	}
	for _, n := range tr.names {
		cfg.Nodes = append(cfg.Nodes, node.Address{Name: n, Links: tr.links[n], GRPC: tr.grpc[n]})
	}
	return cfg
}

func logger() *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// start starts nodes, all if none is named.
func (tr *trio) start(names ...string) {
	tr.t.Helper()
	if len(names) == 0 {
		names = tr.names
	}
	for _, name := range names {
		if err := tr.tryStart(tr.config(name)); err != nil {
			tr.t.Fatalf("start %s: %v", name, err)
		}
	}
}

func (tr *trio) tryStart(cfg node.Config) error {
	n, err := node.Open(cfg)
	if err != nil {
		return err
	}
	m := &member{Node: n, registry: cfg.Registry.(*prometheus.Registry)}
	m.server = server.New(server.Config{
		Decider: n, Cluster: n, Member: n, Domains: n.Domains, Monotonic: n.Monotonic, Ready: n.Ready, Alive: n.Alive,
		Log: cfg.Log, Registry: cfg.Registry.(*prometheus.Registry),
	})
	m.server.Start(server.Listeners{GRPC: listen(tr.t, tr.grpc[cfg.Name]), Ops: listen(tr.t, "127.0.0.1:0")})
	tr.mu.Lock()
	tr.nodes[cfg.Name] = m
	tr.mu.Unlock()
	return nil
}

// stop stops a node in good order.
func (tr *trio) stop(name string) {
	tr.t.Helper()
	tr.mu.Lock()
	m := tr.nodes[name]
	delete(tr.nodes, name)
	tr.mu.Unlock()
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := errors.Join(m.Close(), ignoreDeadline(m.server.Stop(ctx))); err != nil {
		tr.t.Errorf("stop %s: %v", name, err)
	}
}

// ignoreDeadline: other nodes' watches end when they are broken off.
func ignoreDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (tr *trio) node(name string) *member {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.nodes[name]
}

func (tr *trio) running() (all []*member) {
	for _, name := range tr.names {
		if m := tr.node(name); m != nil {
			all = append(all, m)
		}
	}
	return all
}

// dial opens a link that can be cut.
func (tr *trio) dial(ctx context.Context, from, to string) (net.Conn, error) {
	tr.mu.Lock()
	cut := tr.cut[[2]string{from, to}]
	tr.mu.Unlock()
	if cut {
		return nil, errors.New("cut")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", tr.links[to])
	if err != nil {
		return nil, err
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.cut[[2]string{from, to}] {
		return nil, errors.Join(errors.New("cut"), c.Close())
	}
	tr.conns[[2]string{from, to}] = append(tr.conns[[2]string{from, to}], c)
	return c, nil
}

// isolate cuts all links of a node.
func (tr *trio) isolate(name string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, other := range tr.names {
		for _, way := range [][2]string{{name, other}, {other, name}} {
			tr.cut[way] = true
			for _, c := range tr.conns[way] {
				_ = c.Close()
			}
			tr.conns[way] = nil
		}
	}
}

func (tr *trio) heal() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	clear(tr.cut)
}

// patience bounds every wait.
const patience = 30 * time.Second

// until looks until done says so.
func (tr *trio) until(what string, done func() bool) {
	tr.t.Helper()
	for end := time.After(patience); !done(); {
		select {
		case <-end:
			for _, m := range tr.running() {
				state, detail := m.State()
				tr.t.Logf("%s: %s %s\n%v", m.ID(), state, detail, m.Status())
			}
			tr.t.Fatalf("waited %v for %s", patience, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ready waits until every node knows a leader for every partition.
func (tr *trio) ready() *trio {
	tr.t.Helper()
	tr.until("leaders", func() bool {
		for _, m := range tr.running() {
			if !m.Leading() {
				return false
			}
		}
		return true
	})
	return tr
}

// apply orders a set with whoever orders, and waits until all partitions enforce it.
func (tr *trio) apply(set policy.Set) {
	tr.t.Helper()
	tr.until("the policies in force", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, m := range tr.running() {
			r, err := m.Apply(ctx, set, nil, false)
			if err == nil && r.GetVersion().GetNumber() > 0 {
				for _, p := range r.GetPartitions() {
					if p.GetVersion().GetNumber() != r.GetVersion().GetNumber() {
						return false
					}
				}
				return true
			}
			var elsewhere *partition.NotLeaderError
			if err != nil && !errors.As(err, &elsewhere) {
				tr.t.Log(err)
			}
		}
		return false
	})
}

// everywhere waits until every node has seen the policies in force.
func (tr *trio) everywhere() {
	tr.t.Helper()
	for _, m := range tr.running() {
		tr.until("the policies at "+m.ID(), func() bool {
			canonical, _, _ := m.Policies()
			return canonical != nil
		})
	}
}

// threePerMinute is a set with one policy: three per 60 s and principal.
func threePerMinute() policy.Set {
	return policy.Set{Policies: []policy.Policy{{
		Name: "conversions", Domain: "video", Key: []string{"principal"},
		Limits: []policy.Limit{{Name: "per-minute", Algorithm: limit.RollingWindow, Amount: 3, Window: 60e9}},
	}}}
}

func principal(name string) keyspace.Descriptor {
	d, err := keyspace.NewDescriptor([]keyspace.Entry{{Name: "principal", Value: name}})
	if err != nil {
		panic(err)
	}
	return d
}

// ask sends one check to a node and waits for its outcome.
func (m *member) ask(t *testing.T, name string) partition.Outcome {
	t.Helper()
	return m.askAs(t, newID(), name)
}

// askAs is ask under an id.
func (m *member) askAs(t *testing.T, id fsm.ID, name string) partition.Outcome {
	t.Helper()
	done := make(chan partition.Outcome, 1)
	m.Submit(&partition.Call{
		Request: partition.Request{
			Domain: "video", Descriptors: []keyspace.Descriptor{principal(name)}, Cost: 1, ID: id, Unfenced: true, To: partition.AnyPartition,
		},
		Done: func(c *partition.Call) { done <- c.Outcome },
	})
	select {
	case o := <-done:
		return o
	case <-time.After(patience):
		t.Fatal("no answer")
		panic("unreachable")
	}
}

func newID() (id fsm.ID) {
	_, _ = rand.Read(id[:])
	return id
}

// want asks the nodes in turn until one decides: under one id, by which an allow whose answer was lost is found.
func (tr *trio) want(name string, results ...partition.Result) {
	tr.t.Helper()
	for i, r := range results {
		var o partition.Outcome
		id := newID()
		tr.until("a decision", func() bool {
			for _, m := range tr.running() {
				if o = m.askAs(tr.t, id, name); o.Result <= partition.UnknownDomain {
					return true
				}
			}
			return false
		})
		if o.Result != r {
			tr.t.Fatalf("check %d of %s: result %d, want %d (%+v)", i+1, name, o.Result, r, o)
		}
	}
}

var fourth = []partition.Result{partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied}

func TestThreeAreAllowedAndTheFourthIsDenied(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	for i := range 6 { // over all partitions
		tr.want(fmt.Sprint("u", i), fourth...)
	}
}

func descriptors(name string) []keyspace.Descriptor { return []keyspace.Descriptor{principal(name)} }
