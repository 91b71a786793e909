package node

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/transport"
)

// Timing sets a partition's periods; zero values are partition.Config's defaults.
type Timing struct {
	Election  time.Duration
	TickEvery time.Duration
}

// Config says what a Cluster is.
type Config struct {
	// Dir holds a folder per replica.
	Dir string
	// Set is the policy set, in force from genesis on.
	Set      policy.Set
	Log      *slog.Logger
	Registry *prometheus.Registry
	// Source is the clocks; nil: the kernel's.
	Source clock.Source
	Timing Timing
	// Network, if not nil, is one that tests cut.
	Network *transport.Network
}

// Cluster is three replicas of one partition in this process.
type Cluster struct {
	dir      string
	set      *policy.Compiled
	setHash  [32]byte
	source   clock.Source
	log      *slog.Logger
	replicas []*replica
	infos    []ReplicaInfo
	failed   chan error
	leader   atomic.Int32 // index of the replica that led when last looked at

	establishing task
	ticking      task
	once         sync.Once
}

// ReplicaInfo says what became of a replica at start.
type ReplicaInfo struct {
	Name string
	ID   string // empty while it has none
	// Awaiting: its disk is missing, blank or damaged in a cluster that was at work,
	// so it stays out until it is replaced.
	Awaiting bool
}

// Names are the replicas of a Cluster, and their folders.
func Names() []string { return []string{"n1", "n2", "n3"} }

// Open starts the replicas that may start and returns without waiting for a leader.
func Open(cfg Config) (*Cluster, error) {
	set, err := policy.Compile(cfg.Set)
	if err != nil {
		return nil, err
	}
	source := cfg.Source
	if source == nil {
		system, err := clock.NewSystem()
		if err != nil {
			return nil, err
		}
		source = system
	}
	network := cfg.Network
	if network == nil {
		network = transport.NewNetwork(transport.Options{})
	}
	c := &Cluster{dir: cfg.Dir, set: set, setHash: cfg.Set.Hash(), source: source, log: cfg.Log, failed: make(chan error, 1)}
	sh := shared{
		dir: cfg.Dir, network: network, clock: clock.New(source), source: source,
		metrics: partition.NewMetrics(cfg.Registry), log: cfg.Log, fatal: c.fail, timing: cfg.Timing,
	}
	c.register(cfg.Registry)
	c.ticking.start(sh.clock.Run)
	if err := c.start(sh); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.establishing.start(c.establish)
	return c, nil
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

// start finds out which replicas may start, finishes a genesis, and starts them.
func (c *Cluster) start(sh shared) error {
	states, err := inspect(sh.dir)
	if err != nil {
		return err
	}
	plan, err := partition.PlanStart(states)
	if err != nil {
		return err
	}
	if sh.genesis, err = found(sh.dir, plan); err != nil {
		return err
	}
	for _, name := range plan.Start {
		r, err := openReplica(sh, name)
		if err == nil && !sh.genesis.Names(r.id) {
			err = errors.Join(fmt.Errorf("%w: %s", partition.ErrForeignReplica, r.id), r.close())
		}
		switch {
		case err == nil:
			c.replicas = append(c.replicas, r)
		case plan.Bootstrap || errors.Is(err, partition.ErrLocked):
			return err
		default: // the others may still be a majority
			c.await(name, err)
		}
	}
	for _, a := range plan.Awaiting {
		c.await(a.Name, a.Why)
	}
	if len(c.replicas) == 0 {
		return errNoneOpened
	}
	return c.run(sh, plan.Bootstrap)
}

var errNoneOpened = errors.New("no replica's disk can be opened")

// inspect looks into every replica's folder. One that can't be read is damaged; one
// that another process has open is none of ours.
func inspect(dir string) (states []partition.State, err error) {
	for _, name := range Names() {
		state, err := partition.Inspect(dir, name)
		if errors.Is(err, partition.ErrLocked) {
			return nil, err
		}
		if err != nil {
			state = partition.State{Name: name, Condition: partition.Damaged, Damage: err}
		}
		states = append(states, state)
	}
	return states, nil
}

// run starts what has been opened. Of a new cluster every replica has its founding
// entry before the first one runs: one that came later would look like a lost disk.
func (c *Cluster) run(sh shared, bootstrap bool) error {
	if bootstrap {
		if err := c.bootstrap(sh); err != nil {
			return err
		}
	}
	if err := c.begin(); err != nil {
		return err
	}
	opened := c.replicas
	c.replicas = nil
	for i, r := range opened {
		err := r.run(sh)
		if err != nil && bootstrap {
			for _, rest := range opened[i:] {
				err = errors.Join(err, rest.close())
			}
			return err
		}
		if err != nil { // a snapshot that can't be read, say: one lost disk
			c.await(r.name, errors.Join(err, r.close()))
			continue
		}
		c.replicas = append(c.replicas, r)
		c.infos = append(c.infos, ReplicaInfo{Name: r.name, ID: r.id})
	}
	if len(c.replicas) == 0 {
		return errNoneOpened
	}
	slices.SortFunc(c.infos, func(a, b ReplicaInfo) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// bootstrap writes the founding entries, then notes everywhere that they are there.
func (c *Cluster) bootstrap(sh shared) error {
	for _, r := range c.replicas {
		if err := r.stores.Bootstrap(sh.genesis); err != nil {
			return fmt.Errorf("found replica %s: %w", r.name, err)
		}
	}
	for _, r := range c.replicas {
		if err := partition.MarkFounded(sh.dir, r.name); err != nil {
			return fmt.Errorf("found replica %s: %w", r.name, err)
		}
	}
	return nil
}

// begin gives every replica that starts its next start number, then has all of them
// note all, so that a copy of a disk from before this start is known for one.
func (c *Cluster) begin() error {
	seen := map[string]partition.Start{}
	for _, r := range c.replicas {
		start, err := r.stores.BeginStart()
		if err != nil {
			return fmt.Errorf("start replica %s: %w", r.name, err)
		}
		seen[r.id] = start
	}
	return c.note(seen)
}

// note has every replica's folder know how the replicas were last seen.
func (c *Cluster) note(seen map[string]partition.Start) error {
	for _, r := range c.replicas {
		if err := partition.NotePeers(c.dir, r.name, seen); err != nil {
			return fmt.Errorf("note the replicas' starts at %s: %w", r.name, err)
		}
	}
	return nil
}

// await leaves a replica out.
func (c *Cluster) await(name string, why error) {
	c.log.Error("awaiting replacement", "node", name, "error", why)
	c.infos = append(c.infos, ReplicaInfo{Name: name, Awaiting: true})
}

// found writes identities and the genesis document to every folder before any
// replica starts, or returns the document that is there.
func found(dir string, plan partition.StartPlan) (partition.Genesis, error) {
	if !plan.Bootstrap {
		return *plan.Genesis, nil
	}
	var ids []string
	for _, name := range plan.Start {
		identity, _, err := partition.OpenIdentity(dir, name)
		if err != nil {
			return partition.Genesis{}, fmt.Errorf("open replica %s: %w", name, err)
		}
		ids = append(ids, identity.ServerID())
	}
	genesis := partition.NewGenesis(1, ids)
	if plan.Genesis != nil {
		genesis = *plan.Genesis
	}
	for _, name := range plan.Start {
		if err := partition.WriteGenesis(dir, name, genesis); err != nil {
			return genesis, err
		}
	}
	return genesis, nil
}

// establish brings the policy set into force once a leader answers. It ends when
// that is so, or when another set turns out to be in force.
func (c *Cluster) establish(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if g := c.leading(); g != nil {
			err := c.establishAt(ctx, g)
			if errors.Is(err, partition.ErrOtherSet) {
				c.fail(err)
			}
			if err == nil || errors.Is(err, partition.ErrOtherSet) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Cluster) establishAt(ctx context.Context, g *partition.Group) error {
	s := g.Status()
	switch {
	case !s.Formed:
		return errNotYet
	case s.HasSet && s.SetHash != c.setHash:
		return c.otherSet(s)
	case s.HasSet:
		return nil
	}
	return g.SetPolicies(ctx, fsm.Version{Epoch: 1, Number: 1}, c.set.Set())
}

var errNotYet = errors.New("the partition has no settings yet")

func (c *Cluster) otherSet(s partition.Status) error {
	return fmt.Errorf("%w: in force is %s, asked for is %s",
		partition.ErrOtherSet, hex.EncodeToString(s.SetHash[:6]), hex.EncodeToString(c.setHash[:6]))
}

// Ready waits until a leader answers and the set is in force. It fails with
// partition.ErrOtherSet, wrapped, if another one is.
func (c *Cluster) Ready(ctx context.Context) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if g := c.leading(); g != nil {
			if s := g.Status(); s.HasSet && s.SetHash == c.setHash {
				return nil
			} else if s.HasSet {
				return c.otherSet(s)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no leader answers: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// leading returns the replica that leads and answers, nil if none does.
func (c *Cluster) leading() *partition.Group {
	n := len(c.replicas)
	first := int(c.leader.Load())
	for i := range n {
		if at := (first + i) % n; c.replicas[at].leads() {
			c.leader.Store(int32(at))
			return c.replicas[at].group
		}
	}
	return nil
}

// Leading reports whether a leader answers.
func (c *Cluster) Leading() bool { return c.leading() != nil }

// Submit hands calls to the leader; without one they end as unavailable.
func (c *Cluster) Submit(calls ...*partition.Call) { c.route().Submit(calls...) }

// Inspect asks the leader what a descriptor's key has used.
func (c *Cluster) Inspect(domain string, d keyspace.Descriptor) partition.Inspection {
	return c.route().Inspect(domain, d)
}

// route returns the leader, or any replica to say that there is none.
func (c *Cluster) route() *partition.Group {
	if g := c.leading(); g != nil {
		return g
	}
	return c.replicas[0].group
}

// Domains names the domains of the policy set, in order.
func (c *Cluster) Domains() (names []string) {
	for i := range c.set.Domains() {
		names = append(names, c.set.DomainName(i))
	}
	return names
}

// Replicas says what became of each replica.
func (c *Cluster) Replicas() []ReplicaInfo { return c.infos }

// Statuses reports where each running replica stands.
func (c *Cluster) Statuses() (all []partition.Status) {
	for _, r := range c.replicas {
		all = append(all, r.group.Status())
	}
	return all
}

// Monotonic reads the clock of deadlines.
func (c *Cluster) Monotonic() int64 { return c.source.Monotonic() }

// Failed yields the first error after which the process must end.
func (c *Cluster) Failed() <-chan error { return c.failed }

func (c *Cluster) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// leaderFirst orders the replicas for closing: a leader that is gone complains of
// no follower that is.
func (c *Cluster) leaderFirst() []*replica {
	c.leading()
	n := int(c.leader.Load())
	if n >= len(c.replicas) {
		return c.replicas
	}
	return append(append([]*replica{c.replicas[n]}, c.replicas[:n]...), c.replicas[n+1:]...)
}

// Close stops everything. It can be called more than once.
func (c *Cluster) Close() error {
	var err error
	c.once.Do(func() {
		c.establishing.stop()
		replicas := c.leaderFirst()
		for _, r := range replicas {
			err = errors.Join(err, r.stop())
		}
		err = errors.Join(err, c.noteStop())
		for _, r := range replicas {
			err = errors.Join(err, r.close())
		}
		c.ticking.stop()
	})
	return err
}

// noteStop notes the newest entries of what ran and has stopped. A store that failed
// tells nothing anymore.
func (c *Cluster) noteStop() error {
	seen := map[string]partition.Start{}
	for _, r := range c.replicas {
		if start, err := r.stores.Seen(); err == nil {
			seen[r.id] = start
		}
	}
	return c.note(seen)
}
