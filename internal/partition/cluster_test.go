package partition_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/transport"
)

// cluster is three replicas of one partition. In a bubble elections and timeouts
// cost no real time, and a goroutine that is left behind fails the test.
type cluster struct {
	t        testing.TB
	dir      string
	origin   time.Time
	network  *transport.Network
	names    []string // server ids of the replicas
	settings fsm.Settings
	set      policy.Set
	replicas []*replica
	files    bool // logs are files, not memory
	tune     func(*partition.Config)
	storing  func(*replica, *partition.StoreOptions)

	mu    sync.Mutex
	sent  []*sent
	drawn uint64 // ids
}

// replica is one of them. Its disk and its clock outlive its process.
type replica struct {
	cluster  *cluster
	id       string
	clock    *skewed
	disk     *shelf
	registry *prometheus.Registry
	metrics  *partition.Metrics

	mu       sync.Mutex
	fatals   []error
	stopping chan struct{} // closed when Raft is to end

	group  atomic.Pointer[partition.Group] // nil while stopped
	stores *partition.Stores
	link   *transport.Local
	cancel context.CancelFunc
	ticker sync.WaitGroup
}

// inBubble runs a test of three replicas on a bubble's time. Whatever it sent
// must have been answered, exactly once, when the replicas have stopped.
func inBubble(t *testing.T, test func(cl *cluster), options ...func(*cluster)) {
	t.Helper()
	inNewBubble(t, t.TempDir(), func(cl *cluster) { cl.adopt(); test(cl) }, options...)
}

// inNewBubble is inBubble before the policy set is in force.
func inNewBubble(t *testing.T, dir string, test func(cl *cluster), options ...func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster(t, dir, options...)
		for _, r := range cl.replicas {
			r.start()
		}
		defer cl.finish()
		test(cl)
	})
}

// pass lets d of the bubble's time go by.
func pass(d time.Duration) { time.Sleep(d) }

func newCluster(t testing.TB, dir string, options ...func(*cluster)) *cluster {
	cl := &cluster{
		t: t, dir: dir, origin: time.Now(), network: transport.NewNetwork(transport.Options{}),
		names: []string{"a", "b", "c"}, set: policies(),
	}
	cl.settings = fsm.Settings{
		Seed: keyspace.Seed{1, 2, 3}, Partitions: 1, Epoch: 1, Horizon: fsm.DefaultHorizon, Bound: 1 << 30, DomainBound: 1 << 30,
	}
	for _, o := range options {
		o(cl)
	}
	for _, id := range cl.names {
		r := &replica{cluster: cl, id: id, clock: &skewed{origin: cl.origin}, registry: prometheus.NewRegistry()}
		r.metrics = partition.NewMetrics(r.registry)
		r.disk = &shelf{InmemStore: raft.NewInmemStore()}
		cl.replicas = append(cl.replicas, r)
	}
	return cl
}

// onFiles keeps logs in files.
func onFiles(cl *cluster) { cl.files = true }

func tuned(f func(*partition.Config)) func(*cluster) { return func(cl *cluster) { cl.tune = f } }

// policies is what the tests' partition enforces.
func policies() policy.Set {
	byPrincipal := func(domain string, l ...policy.Limit) policy.Policy {
		return policy.Policy{Name: domain, Domain: domain, Key: []string{"principal"}, Limits: l}
	}
	per := func(n uint64, w time.Duration) policy.Limit {
		return policy.Limit{Name: "per-" + w.String(), Algorithm: limit.RollingWindow, Amount: n, Window: int64(w)}
	}
	return policy.Set{
		Policies: []policy.Policy{
			byPrincipal("three", per(3, time.Minute)),
			byPrincipal("many", per(60, time.Minute)),
			byPrincipal("open", per(100_000, time.Minute)),
			byPrincipal("other", per(100_000, time.Minute)),
			// All events of a key count in the second limit for as long as a test lasts.
			byPrincipal("counted", per(4, 3*time.Second), per(100_000, time.Hour)),
		},
		Domains: []policy.Domain{
			{Name: "open", OnNoMatchAllow: true},
			{Name: "strict", OnNoMatchAllow: true, Required: []string{"tenant"}},
		},
	}
}

// start starts the replica's process.
func (r *replica) start() {
	cl := r.cluster
	folder := filepath.Join(cl.dir, r.id)
	r.must(os.MkdirAll(folder, 0o700))
	accumulator := clock.New(r.clock)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.mu.Lock()
	r.stopping, r.fatals = make(chan struct{}), nil
	r.mu.Unlock()
	r.ticker.Go(func() { accumulator.Run(ctx) })
	o := partition.StoreOptions{
		Elapsed: accumulator.Elapsed, TimeOf: fsm.TimeOf, Fatal: r.fatal, Appended: r.metrics.Appended,
		SnapshotTime: func(s io.Reader) (int64, error) { return fsm.SnapshotTime(s) },
		Check:        func(entry []byte) error { _, err := fsm.ParseHeader(entry); return err },
	}
	o.Wrap(func(d partition.Disk) partition.Disk {
		r.disk.file, r.disk.onFile = d, cl.files
		return r.disk
	})
	if cl.storing != nil {
		cl.storing(r, &o)
	}
	var err error
	r.stores, err = partition.OpenStores(folder, o)
	r.must(err)
	r.stores.Snapshots = &unhurried{SnapshotStore: r.stores.Snapshots, turn: make(chan struct{}, 1)}
	r.link, err = cl.network.Join(r.id)
	r.must(err)
	cfg := partition.Config{
		ID: r.id, Replicas: cl.names, Bootstrap: true, Settings: &cl.settings,
		Stores: r.stores, Transport: &link{Local: r.link, closing: r.stopping}, Clock: accumulator, Source: r.clock,
		Log: slog.New(slog.DiscardHandler), Metrics: r.metrics, Fatal: r.fatal,
	}
	if os.Getenv("TRACE") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", r.id)
	}
	if cl.tune != nil {
		cl.tune(&cfg)
	}
	g, err := partition.Open(cfg)
	r.must(err)
	r.group.Store(g)
}

// stop ends the replica's process.
func (r *replica) stop() {
	g := r.group.Swap(nil)
	if g == nil {
		return
	}
	hangs := time.AfterFunc(time.Minute, func() { panic("replica " + r.id + " does not stop within a minute") })
	r.must(errors.Join(g.Close(), r.link.Close(), r.stores.Close()))
	hangs.Stop()
	r.cancel()
	r.ticker.Wait()
}

func (r *replica) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("replica %s: %v", r.id, err))
	}
}

func (r *replica) fatal(err error) {
	r.mu.Lock()
	r.fatals = append(r.fatals, err)
	stopping := r.stopping
	r.mu.Unlock()
	if strings.Contains(err.Error(), restartToDiscard) {
		<-stopping // the process ends here; Raft, going on, would panic
	}
}

// restartToDiscard is how a replica ends whose log contradicts a snapshot that it
// was sent: the next start discards that log.
const restartToDiscard = "restart to discard"

// ends returns what ended the replica.
func (r *replica) ends() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fatals
}

// restartIfEnded does what a supervisor does for a process that ended itself.
func (r *replica) restartIfEnded() {
	ends := r.ends()
	if len(ends) == 0 {
		return
	}
	if !strings.Contains(ends[0].Error(), restartToDiscard) {
		panic(ends[0])
	}
	r.stop()
	r.start()
}

// finish stops all replicas and looks whether every call was answered once.
func (cl *cluster) finish() {
	cl.t.Helper()
	for _, r := range cl.replicas {
		r.stop()
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for i, s := range cl.sent {
		if n := s.answers.Load(); n != 1 {
			cl.t.Errorf("call %d of %d (%s, id %x) was answered %d times", i+1, len(cl.sent), s.Domain, s.ID[:4], n)
			return
		}
	}
}

// adopt waits for a leader and brings the policy set into force.
func (cl *cluster) adopt() {
	cl.t.Helper()
	for range 3 {
		r := cl.leader()
		for !r.group.Load().Status().Formed {
			pass(time.Millisecond)
		}
		if r.group.Load().SetPolicies(context.Background(), fsm.Version{Epoch: 1, Number: 1}, cl.set) == nil {
			return
		}
	}
	cl.t.Fatal("the policy set did not come into force")
}

// leader waits for a replica that answers.
func (cl *cluster) leader(among ...*replica) *replica {
	cl.t.Helper()
	if among == nil {
		among = cl.replicas
	}
	for range 6000 {
		if r := leading(among); r != nil {
			return r
		}
		pass(10 * time.Millisecond)
	}
	cl.t.Fatal("no leader within a minute")
	return nil
}

// leading returns the replica that answers; of two, the one of the later term.
func leading(among []*replica) (found *replica) {
	term := uint64(0)
	for _, r := range among {
		g := r.group.Load()
		if g == nil {
			continue
		}
		if s := g.Status(); s.Ready && s.State == "Leader" && s.Term > term {
			found, term = r, s.Term
		}
	}
	return found
}

// others returns the replicas but r.
func (cl *cluster) others(r *replica) (rest []*replica) {
	for _, o := range cl.replicas {
		if o != r {
			rest = append(rest, o)
		}
	}
	return rest
}

func (cl *cluster) isolate(r *replica) { cl.network.Isolate(raft.ServerAddress(r.id)) }

func (cl *cluster) cut(from, to *replica) {
	cl.network.Cut(raft.ServerAddress(from.id), raft.ServerAddress(to.id))
}

// now is the bubble's time since the cluster began.
func (cl *cluster) now() int64 { return int64(time.Since(cl.origin)) }

// sent is a call on its way.
type sent struct {
	*partition.Call
	cluster *cluster
	done    chan struct{}
	answers atomic.Int32
	begun   int64 // the bubble's time
	ended   int64
}

// request returns a check of one principal, with an id of its own.
func (cl *cluster) request(domain, principal string) partition.Request {
	cl.mu.Lock()
	cl.drawn++
	var id fsm.ID
	binary.BigEndian.PutUint64(id[8:], cl.drawn)
	cl.mu.Unlock()
	return partition.Request{Domain: domain, Descriptors: []keyspace.Descriptor{principalIs(principal)}, Cost: 1, ID: id, Unfenced: true}
}

func principalIs(name string) keyspace.Descriptor { return descriptor("principal", name) }

func descriptor(pairs ...string) keyspace.Descriptor {
	var entries []keyspace.Entry
	for i := 0; i < len(pairs); i += 2 {
		entries = append(entries, keyspace.Entry{Name: pairs[i], Value: pairs[i+1]})
	}
	d, err := keyspace.NewDescriptor(entries)
	if err != nil {
		panic(err)
	}
	return d
}

func (cl *cluster) call(q partition.Request) *sent {
	s := &sent{cluster: cl, done: make(chan struct{}), begun: cl.now()}
	s.Call = &partition.Call{Request: q, Done: func(*partition.Call) {
		s.ended = cl.now()
		if s.answers.Add(1) == 1 {
			close(s.done)
		}
	}}
	cl.mu.Lock()
	cl.sent = append(cl.sent, s)
	cl.mu.Unlock()
	return s
}

// submit hands requests to the replica, all at once.
func (r *replica) submit(qs ...partition.Request) (all []*sent) {
	calls := make([]*partition.Call, 0, len(qs))
	for _, q := range qs {
		s := r.cluster.call(q)
		all, calls = append(all, s), append(calls, s.Call)
	}
	if g := r.group.Load(); g != nil {
		g.Submit(calls...)
		return all
	}
	for _, c := range calls { // nobody is there
		c.Outcome = partition.Outcome{Result: partition.NotLeader}
		c.Done(c)
	}
	return all
}

// wait returns the answer.
func (s *sent) wait() partition.Outcome {
	s.cluster.t.Helper()
	select {
	case <-s.done:
		return s.Outcome
	case <-time.After(time.Minute):
		s.cluster.t.Fatalf("no answer within a minute (id %x)", s.ID)
		return partition.Outcome{}
	}
}

// ask sends a request and waits for the answer.
func (r *replica) ask(q partition.Request) partition.Outcome {
	r.cluster.t.Helper()
	return r.submit(q)[0].wait()
}

// want asks, once for each result, for one of a principal.
func (r *replica) want(domain, principal string, results ...partition.Result) {
	r.cluster.t.Helper()
	for i, want := range results {
		if o := r.ask(r.cluster.request(domain, principal)); o.Result != want {
			r.cluster.t.Fatalf("check %d of %s in %s: %s, want %s", i+1, principal, domain, name(o.Result), name(want))
		}
	}
}

// used is how much of its n-th limit a principal has used.
func (r *replica) used(domain, principal string, n int) uint64 {
	r.cluster.t.Helper()
	in := r.group.Load().Inspect(domain, principalIs(principal))
	if in.Result != partition.Allowed {
		r.cluster.t.Fatalf("inspect %s in %s: %s", principal, domain, name(in.Result))
	}
	return in.Uses[n].Used
}

// name says what a result is called in metrics.
func name(r partition.Result) string {
	labels := partition.LabelsOf(r)
	return labels[0] + "/" + labels[1]
}

// tally counts answers by result.
func tally(all []*sent) map[string]int {
	counts := map[string]int{}
	for _, s := range all {
		counts[name(s.wait().Result)]++
	}
	return counts
}

// same waits until all running replicas have applied the same entries, and
// fails the test if they differ.
func (cl *cluster) same() {
	cl.t.Helper()
	for range 1000 {
		var all []partition.Status
		for _, r := range cl.replicas {
			if g := r.group.Load(); g != nil {
				all = append(all, g.Status())
			}
		}
		equal := true
		for _, s := range all {
			equal = equal && s.Applied == all[0].Applied
		}
		if !equal {
			pass(20 * time.Millisecond)
			continue
		}
		for _, s := range all {
			if s.Hash != all[0].Hash {
				cl.t.Fatalf("at entry %d replica %s has state %x and %s has %x", s.Applied, s.ID, s.Hash, all[0].ID, all[0].Hash)
			}
		}
		return
	}
	for _, r := range cl.replicas {
		if g := r.group.Load(); g != nil {
			cl.t.Logf("%+v, ended with %v", g.Status(), r.ends())
		}
	}
	cl.t.Fatal("the replicas did not come to the same entry within 20 s")
}
