package partition

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/transport"
)

// Config says what a Group is made of. Zero durations and counts take the
// defaults named beside them.
type Config struct {
	// ID is this replica's server id: its name and its disk's incarnation.
	ID string
	// Replicas are the server ids of those that vote, and their addresses.
	Replicas []string
	// Bootstrap writes the founding entry if it isn't there: at genesis.
	Bootstrap bool
	// Settings, if not nil, are logged by the first leader of a new partition.
	Settings *fsm.Settings
	// Newest is the newest level of behaviour that this replica has. fsm.NewestLevel.
	Newest uint64
	// Said is the newest level that the member of that server id has said, lately and in this life of its process; 0: it
	// hasn't. The partition is raised to what all members have. Nil: nobody says anything, and it never is.
	Said func(id string) uint64

	Stores    *Stores
	Transport Transport
	Clock     *clock.Accumulator
	Source    clock.Source
	Log       *slog.Logger
	Metrics   *Metrics
	// Fatal is called once when this replica can't go on; it should end the process.
	Fatal func(error)

	// Queue bounds the calls that wait to be sealed, and the copies of ids in flight
	// that wait with them. 8,192 of each.
	Queue int
	// InFlight is how many batches may be in the log's hands at once. 2: the
	// leader's write of one overlaps the followers' write of the other.
	InFlight int
	// Gather is how many checks must wait for their batch to go out while another one is in the log's hands; fewer
	// wait for that one to land, and for a rest of up to 5 ms where it took longer than it needs (pace). An entry costs
	// the same work for one check as for a hundred, so more leaves the processors to others; less, and a few checks wait
	// for half an entry less. 64.
	Gather int
	// Election is Raft's heartbeat and election timeout. Long enough for a slow
	// fdatasync of a follower, since heartbeats queue behind it. 1 s.
	Election time.Duration
	// Lease is how long a majority's answer lets the leader answer from memory;
	// at most Election. Half of it.
	Lease time.Duration
	// TickEvery bounds how long a leader logs nothing, and so what an outage can
	// cost beside its own length: less than 5 s. 4 s.
	TickEvery time.Duration
	// ReclaimEvery is TickEvery while state waits to be reclaimed. 50 ms.
	ReclaimEvery time.Duration
	// CheckpointEvery is how often replicas compare state hashes. 60 s.
	CheckpointEvery time.Duration
	// EnqueueTimeout bounds the wait for Raft's main loop. 1 s.
	EnqueueTimeout time.Duration
	// GiveUp is when the outcome of an entry counts as unknown. 5 s.
	GiveUp time.Duration
	// StalledAfter is how long a leader may get nothing applied until it hands over; twice as long, and its
	// process ends. More than the largest request takes on a slow link. 20 s.
	StalledAfter time.Duration
	// FirstRetry is when a first entry or settings are tried again. 2 s.
	FirstRetry time.Duration
	// LogBytes is how much the log may weigh before it is compacted to half of that: more, and a
	// restart takes longer; less, and followers that were away need a snapshot sooner. For followers
	// that are catching up a leader's may weigh four times as much. 64 MiB.
	LogBytes uint64
}

// Transport is what a Group needs of its links.
type Transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
	OnAck(transport.Acks)
}

func (c *Config) setDefaults() {
	setDefault(&c.Newest, fsm.NewestLevel)
	setDefault(&c.Queue, 8192)
	setDefault(&c.InFlight, 2)
	setDefault(&c.Gather, 64)
	setDefault(&c.Election, time.Second)
	setDefault(&c.Lease, c.Election/2)
	setDefault(&c.TickEvery, 4*time.Second)
	setDefault(&c.ReclaimEvery, 50*time.Millisecond)
	setDefault(&c.CheckpointEvery, time.Minute)
	setDefault(&c.EnqueueTimeout, time.Second)
	setDefault(&c.GiveUp, 5*time.Second)
	setDefault(&c.StalledAfter, 20*time.Second)
	setDefault(&c.FirstRetry, 2*time.Second)
	setDefault(&c.LogBytes, 64<<20)
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Group is one replica of a partition.
type Group struct {
	cfg     Config
	log     *slog.Logger
	metrics *Metrics
	source  clock.Source
	clock   *clock.Accumulator
	stores  *Stores
	machine *fsm.Replicated
	raft    *raft.Raft
	lease   *clock.Lease

	followers *followers

	lead    atomic.Pointer[leadership]
	gaps    atomic.Uint64 // of the accumulator, seen by the leader
	landed  atomic.Uint64 // flights that landed, ever
	began   atomic.Int64  // monotonic; when the newest apply began
	ended   atomic.Int64  // and when the newest that is over ended
	latency mean
	closing atomic.Bool

	proposed     atomic.Int64 // monotonic; of the last proposal
	checkpointed atomic.Int64
	firstDue     int64 // run's own: when to try a first entry again
	formationDue int64 // and settings
	raiseDue     int64 // and when to look whether the level may be raised

	doubted      atomic.Bool // the process's clock runs too fast to lead
	transferring atomic.Bool
	unleased     atomic.Pointer[unleased]
	refusedSince atomic.Int64 // monotonic; of entries during a handover; 0: none lately
	ticked       atomic.Int64 // monotonic; run's last round

	compacting atomic.Bool
	compactDue atomic.Int64 // monotonic; not before, after one that gained too little

	mu       sync.Mutex
	rebased  int64 // elapsed; what came before counts for no stamp, as the clock was doubted until then
	seq      uint64
	queue    *queue
	inFlight map[idKey]*Call    // queued or in a flight
	joined   int                // calls that joined those
	flights  map[uint64]*flight // by their entry's number
	batches  int                // flights that carry calls
	late     []*Call            // missed their deadline in the queue
	pace     pace
	resting  bool // few calls wait for rested
	rested   *time.Timer

	woken   chan struct{}
	quit    chan struct{}
	loop    sync.WaitGroup
	futures futures
}

// Open starts a replica. It has no folder lock of its own: Stores holds it.
func Open(cfg Config) (*Group, error) {
	cfg.setDefaults()
	if cfg.Lease > cfg.Election {
		return nil, fmt.Errorf("a lease of %v outlives the election timeout of %v", cfg.Lease, cfg.Election)
	}
	g := &Group{
		cfg: cfg, log: cfg.Log, metrics: cfg.Metrics, source: cfg.Source, clock: cfg.Clock, stores: cfg.Stores,
		queue: newQueue(cfg.Queue), inFlight: map[idKey]*Call{}, flights: map[uint64]*flight{},
		woken: make(chan struct{}, 1), quit: make(chan struct{}), futures: newFutures(),
		lease: clock.NewLease(cfg.Source, cfg.Lease, cfg.ID, cfg.Replicas),
	}
	g.rested = time.AfterFunc(longestRest, g.goOn) // and again after each entry that says so
	g.followers = newFollowers(cfg.Source.Monotonic, silentAfter*cfg.Election)
	g.stores.log.keepFrom = g.keepFrom
	g.machine = fsm.Replicate(g.applied, cfg.Fatal, fsm.UpTo(cfg.Newest))
	cfg.Transport.OnAck(transport.Acks{
		Now: cfg.Source.Monotonic, MaxAge: int64(cfg.Lease),
		Acked: func(peer raft.ServerID, term uint64, sentAt int64) { g.lease.Ack(string(peer), term, sentAt) },
	})
	r, err := openRaft(cfg, timed{g.machine, cfg.Source.Monotonic, &g.began, &g.ended}, g.followers)
	if err != nil {
		return nil, err
	}
	g.raft = r
	now := cfg.Source.Monotonic()
	g.proposed.Store(now)
	g.checkpointed.Store(now)
	g.ticked.Store(now)
	g.loop.Go(g.run)
	g.loop.Go(g.watchProgress)
	return g, nil
}

// roundEvery is how often run looks around when nothing wakes it.
const roundEvery = 20 * time.Millisecond

// run watches, tends and seals until Close.
func (g *Group) run() {
	ticker := time.NewTicker(roundEvery)
	defer ticker.Stop()
	for {
		select {
		case <-g.quit:
			return
		case <-ticker.C:
			g.ticked.Store(g.source.Monotonic())
			g.observe()
			g.expire()
			g.tend()
			g.compact()
		case <-g.raft.LeaderCh():
			g.observe()
			g.tend()
		case <-g.woken:
		}
		g.sequence()
	}
}

// wake makes run look for something to seal.
func (g *Group) wake() {
	select {
	case g.woken <- struct{}{}:
	default:
	}
}

// Close takes no more calls, ends what waits, and stops the replica and its links.
// The stores stay the caller's.
func (g *Group) Close() error {
	if g.closing.Swap(true) {
		return nil
	}
	close(g.quit)
	g.loop.Wait()
	g.rested.Stop()
	g.expire() // tells those who were late in the last round
	g.stepDown(Stopping)
	// Before Raft's shutdown: what it has committed and not yet applied then, it never
	// speaks of again. A leader that has lost its majority gives up by its own lease;
	// the bound is for one whose disk hangs, which only the end of the process helps.
	g.futures.await(g.cfg.GiveUp)
	err := g.stopRaft()
	g.mu.Lock()
	var left []uint64
	for seq := range g.flights {
		left = append(left, seq)
	}
	g.mu.Unlock()
	for _, seq := range left {
		g.settle(seq, raft.ErrRaftShutdown)
	}
	if err != nil {
		return fmt.Errorf("stop raft: %w", err)
	}
	return nil
}

// stopGrace is how long requests in flight may take to end by themselves.
const stopGrace = 250 * time.Millisecond

// stopRaft ends Raft's goroutines, then its links. Where they wait for a peer that
// hangs, whose deadline is seconds and a snapshot's minutes, the links go first.
func (g *Group) stopRaft() error {
	down := g.raft.Shutdown()
	hangs := time.AfterFunc(stopGrace, func() {
		if err := g.cfg.Transport.Close(); err != nil {
			g.log.Warn("close links", "error", err)
		}
	})
	defer hangs.Stop()
	return down.Error()
}

// Status is a look at one replica.
type Status struct {
	ID      string
	State   string // Raft's: Leader, Follower, Candidate, Shutdown
	Leader  string // id, empty if unknown
	Term    uint64
	Ready   bool // leads, and answers
	Applied uint64
	// Lag is how many entries are committed, as far as it knows, and not applied here.
	Lag      uint64
	LogBytes uint64
	Formed   bool // settings are in force
	HasSet   bool
	SetHash  [32]byte
	Version  fsm.Version
	Level    uint64 // of behaviour
	Now      int64  // decision time of the last entry applied
	Hash     uint64
	Memory   fsm.Memory
}

// Status reports where this replica stands.
func (g *Group) Status() Status {
	s := Status{ID: g.cfg.ID, State: g.raft.State().String(), Leader: g.leaderID(), Term: g.raft.CurrentTerm()}
	s.Ready, s.LogBytes = g.Leading(), g.stores.LogBytes()
	if committed, handed := g.raft.CommitIndex(), g.raft.AppliedIndex(); committed > handed {
		s.Lag = committed - handed
	}
	g.machine.Read(func(m *fsm.Machine) {
		set, version := m.Set()
		_, s.Formed = m.Settings()
		s.HasSet, s.SetHash, s.Version = set != nil, m.SetHash(), version
		s.Applied, s.Now, s.Memory, s.Hash, s.Level = m.Index(), m.Now(), m.Memory(), m.StateHash(), m.Level()
	})
	return s
}

func (g *Group) leaderID() string {
	_, id := g.raft.LeaderWithID()
	return string(id)
}

// Policies returns the policy set in force, nil before the first.
func (g *Group) Policies() (set *policy.Compiled) {
	g.machine.Read(func(m *fsm.Machine) { set, _ = m.Set() })
	return set
}

// Leads reports whether this replica leads, whether or not it answers yet.
func (g *Group) Leads() bool { return g.lead.Load() != nil }

// Leading reports whether this replica leads and answers.
func (g *Group) Leading() bool {
	lead := g.lead.Load()
	return lead != nil && lead.ready
}
