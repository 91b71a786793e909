package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// Config says what a Node is. Zero values take the defaults named beside them.
type Config struct {
	Name string // a DNS label
	Zone string
	// Dir is the node's own folder; made if it isn't there.
	Dir string
	// Nodes are the initial nodes of the cluster, this one included.
	Nodes []Address
	// Partitions, Replication and Memory count at genesis only, where all initial nodes have to ask for the
	// same; later ones that differ are refused. As many partitions as nodes; three replicas of each; 1 GiB of
	// logical bytes a node.
	Partitions  int
	Replication int
	Memory      uint64
	// LogBytes is partition.Config's.
	LogBytes uint64

	// Links accepts the connections of other nodes' replicas. It is the Node's, whatever Open returns.
	Links net.Listener
	// Keeper holds the node's certificate. Nil: no certificates, for nodes on one machine.
	Keeper *access.Keeper
	// DialLink opens plain TCP to a node's links. Nil: to the address in Nodes.
	DialLink func(ctx context.Context, node string) (net.Conn, error)

	Log      *slog.Logger
	Registry prometheus.Registerer
	// Source is the clocks; nil: the kernel's.
	Source clock.Source
	Timing Timing
	// Level is the newest level of behaviour that this software has; 0: fsm.NewestLevel. Others are for tests.
	Level uint64
}

// Timing sets periods; zero values are partition.Config's defaults, or those named beside them.
type Timing struct {
	// Election is the same on all nodes, or one that differs doesn't run. 1 s.
	Election  time.Duration
	TickEvery time.Duration
	// Balance is how long a replica has to be fit to lead before it gets to, where it is the one that leads if
	// it can: whoever has only just come back may soon go again. 5 s.
	Balance time.Duration
	// Compare is the least time over which clocks are compared. 10 s.
	Compare time.Duration
}

// Address is where a node is found.
type Address struct {
	Name  string
	Links string // host:port, of other nodes' replicas
	GRPC  string // host:port, of checks and everything else
}

// Node is one node of a cluster. It is safe for concurrent use.
type Node struct {
	cfg     Config
	log     *slog.Logger
	source  clock.Source
	clock   *clock.Accumulator
	metrics *partition.Metrics
	disk    *disk
	run     uint64 // of this process, for its starts
	opened  int64  // monotonic
	peers   []*peer
	routes  *routes
	sets    *sets

	phase   atomic.Pointer[phase]
	hosting atomic.Pointer[hosting] // nil until the node has its genesis
	founds  sync.Mutex              // one founding step of the disk at a time
	failed  chan error
	leaving atomic.Bool // a stop has begun

	ticking, working task
	once             sync.Once
}

// phase is how far a node has come.
type phase struct {
	state  string // in a word, as status tells it
	detail string
}

// The states of a node.
const (
	founding = "founding"
	starting = "starting"
	up       = "up"
	awaiting = "awaiting replacement"
)

// Open takes the node's folder and begins, in the background, to find or found its cluster. It returns without
// waiting for anybody. An error is one of this node's disk or configuration.
func Open(cfg Config) (_ *Node, err error) {
	cfg.setDefaults()
	n := &Node{cfg: cfg, log: cfg.Log.With("node", cfg.Name), run: 1 + rand.Uint64N(1<<63), failed: make(chan error, 1), source: cfg.Source}
	defer func() {
		if err != nil {
			err = errors.Join(err, cfg.Links.Close())
		}
	}()
	if n.source == nil {
		system, err := clock.NewSystem()
		if err != nil {
			return nil, err
		}
		n.source = system
	}
	if n.disk, err = openDisk(cfg.Dir, cfg.Name); err != nil {
		return nil, err
	}
	if err := n.fits(); err != nil {
		return nil, errors.Join(err, n.disk.close())
	}
	n.opened = n.source.Monotonic()
	n.clock, n.metrics = clock.New(n.source), partition.NewMetrics(cfg.Registry)
	n.phase.Store(&phase{state: starting})
	n.routes, n.sets = newRoutes(n.address), newSets()
	if err := n.openPeers(); err != nil {
		return nil, errors.Join(err, n.disk.close())
	}
	n.register(cfg.Registry)
	n.ticking.start(n.clock.Run)
	n.working.start(n.work)
	return n, nil
}

func (c *Config) setDefaults() {
	if c.Partitions == 0 {
		c.Partitions = len(c.Nodes)
	}
	if c.Replication == 0 {
		c.Replication = 3
	}
	if c.Memory == 0 {
		c.Memory = fsm.DefaultNodeBound
	}
	if c.Level == 0 {
		c.Level = fsm.NewestLevel
	}
	if c.Timing.Election == 0 {
		c.Timing.Election = time.Second
	}
	if c.Timing.Balance == 0 {
		c.Timing.Balance = 5 * time.Second
	}
	if c.DialLink == nil {
		c.DialLink = c.dialLink
	}
}

func (c *Config) dialLink(ctx context.Context, node string) (net.Conn, error) {
	for _, a := range c.Nodes {
		if a.Name == node {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", a.Links)
		}
	}
	return nil, fmt.Errorf("node %q is not in the configuration", node)
}

// fits refuses a configuration that isn't that of the cluster that the disk is of.
func (n *Node) fits() error {
	if !slices.ContainsFunc(n.cfg.Nodes, func(a Address) bool { return a.Name == n.cfg.Name }) {
		return fmt.Errorf("node %q is none of the initial nodes of the configuration", n.cfg.Name)
	}
	if n.cfg.Replication > len(n.cfg.Nodes) {
		return fmt.Errorf("%d replicas of each partition need as many nodes; there are %d", n.cfg.Replication, len(n.cfg.Nodes))
	}
	g := n.disk.genesis
	if g == nil {
		return nil
	}
	var names []string
	for _, m := range g.Nodes {
		names = append(names, nameOf(m.ID))
	}
	fixed := description{name: "the genesis document", nodes: names, partitions: len(g.Groups), replication: len(g.Groups[0]), memory: g.Memory}
	if err := fixed.agree(n.describe()); err != nil {
		return fmt.Errorf("what genesis fixed can't be changed: %w", err)
	}
	return nil
}

// describe says what this node's disk and configuration say.
func (n *Node) describe() description {
	n.founds.Lock()
	defer n.founds.Unlock()
	d := description{
		name: n.cfg.Name, id: n.disk.identity.ServerID(), zone: n.cfg.Zone, genesis: n.disk.genesis, founded: n.disk.founded,
		partitions: n.cfg.Partitions, replication: n.cfg.Replication, memory: n.cfg.Memory,
	}
	for _, a := range n.cfg.Nodes {
		d.nodes = append(d.nodes, a.Name)
	}
	slices.Sort(d.nodes)
	return d
}

// address is where a node answers checks.
func (n *Node) address(node string) string {
	for _, a := range n.cfg.Nodes {
		if a.Name == node {
			return a.GRPC
		}
	}
	return ""
}

// task is a goroutine that ends when it is told to.
type task struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (t *task) start(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.done.Go(func() { run(ctx) })
}

func (t *task) stop() {
	if t.cancel != nil {
		t.cancel()
		t.done.Wait()
	}
}

// work is all that a node does by itself, until Close.
func (n *Node) work(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range n.peers {
		all.Go(func() { n.listenTo(ctx, p) })
	}
	all.Go(func() { n.watchOwn(ctx) })
	all.Go(func() { n.spreadPolicies(ctx) })
	all.Go(func() { n.spreadLeaders(ctx) })
	all.Go(func() { n.compareClocks(ctx) })
	all.Go(func() {
		if err := n.begin(ctx); err != nil && ctx.Err() == nil {
			n.fail(err)
		}
	})
	all.Wait()
}

// Failed yields the first error after which the process must end.
func (n *Node) Failed() <-chan error { return n.failed }

func (n *Node) fail(err error) {
	select {
	case n.failed <- err:
	default:
	}
}

// Monotonic reads the clock of deadlines.
func (n *Node) Monotonic() int64 { return n.source.Monotonic() }

// handOverWithin bounds how long a stop waits for others to take over what this node leads.
const handOverWithin = 3 * time.Second

// Close hands over what the node leads and stops everything. It can be called more than once.
func (n *Node) Close() (err error) {
	n.once.Do(func() {
		n.HandOver()
		n.working.stop()
		err = n.closeHosting()
		for _, p := range n.peers {
			err = errors.Join(err, p.conn.Close())
		}
		n.ticking.stop()
		err = errors.Join(err, n.disk.notes.flush(), n.disk.close())
	})
	return err
}

// closeHosting stops the replicas, tells peers how they ended, and closes links and disks.
func (n *Node) closeHosting() error {
	h := n.hosting.Load()
	if h == nil {
		if err := n.cfg.Links.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
	var errs []error
	for _, r := range h.replicas {
		errs = append(errs, r.stop())
	}
	n.tellEnd(h)
	for _, r := range h.replicas {
		errs = append(errs, r.close())
	}
	return errors.Join(append(errs, h.links.Close())...)
}
