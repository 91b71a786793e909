package sim

import (
	"fmt"
	"maps"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/test/sim/exact"
)

// Report is what came of a run.
type Report struct {
	Seed     uint64
	Problems []string
	Counts   Counts
	Trace    []byte
	// Crashed: the process that ran it ended, which proves nothing.
	Crashed bool
}

// Counts say how often what happened.
type Counts map[string]int

// Add counts another run's with these.
func (c Counts) Add(o Counts) {
	for what, n := range o {
		c[what] += n
	}
}

// world is one run.
type world struct {
	t        *testing.T
	o        Options
	seed     uint64
	begun    time.Time
	manners  manners
	settings fsm.Settings
	trace    *trace // nil: nobody reads it
	net      *network
	machines []*machine
	clients  clients
	order    *exact.Run // nil: goroutines run as they like
	history  history
	quiet    atomic.Bool
	undoing  sync.WaitGroup
	ending   chan struct{} // closed when the trouble ends
	closing  chan struct{} // closed when machines are to stop

	mu       sync.Mutex
	counts   Counts
	problems []string
	failures int
	hashes   map[uint64]string // by entry
}

// names of the machines, which are also the server ids of their replicas.
func names() []string { return []string{"a", "b", "c"} }

// Run runs a seed.
func Run(t *testing.T, o Options) Report {
	t.Helper()
	// The library draws its timeouts from the global source, which heeds a seed only under randseednop=0.
	rand.Seed(int64(o.Seed)) //nolint:staticcheck // there is no other way to seed what the library draws from
	var order *exact.Run
	if runtime.GOMAXPROCS(0) == 1 {
		var err error
		if order, err = exact.Begin(); err != nil {
			t.Fatal(err)
		}
	}
	var w *world
	synctest.Test(t, func(t *testing.T) {
		if order != nil {
			order.Seed(o.Seed)
		}
		w = newWorld(t, o, order)
		w.run()
	})
	if order != nil {
		if err := order.End(); err != nil {
			w.problem("%v", err)
		}
	}
	w.check()
	report := Report{Seed: o.Seed, Problems: w.problems, Counts: w.counts}
	if w.trace != nil {
		report.Trace = w.trace.bytes()
	}
	return report
}

func newWorld(t *testing.T, o Options, order *exact.Run) *world {
	w := &world{
		t: t, o: o, seed: o.Seed, order: order, begun: time.Now(), manners: mannersOf(o),
		ending: make(chan struct{}), closing: make(chan struct{}), counts: Counts{}, hashes: map[uint64]string{},
	}
	w.settings = fsm.Settings{
		Seed: keyspace.Seed{1, 2, 3}, Partitions: 1, Epoch: 1, Horizon: int64(w.manners.horizon), Bound: 1 << 26, DomainBound: 1 << 26,
	}
	if o.Trace {
		w.trace = &trace{begun: w.begun, order: order}
	}
	w.net = newNetwork(w)
	for i, id := range names() {
		w.machines = append(w.machines, newMachine(w, id, uint64(i)))
	}
	return w
}

func (w *world) run() {
	var machines, people sync.WaitGroup
	for _, m := range w.machines {
		machines.Go(m.live)
	}
	if w.form() {
		for _, c := range w.people() {
			people.Go(c.live)
		}
		people.Go(w.watch)
		w.bother()
		close(w.ending)
		w.calm()
		people.Wait()
		w.judge()
	}
	w.quiet.Store(true)
	close(w.closing)
	machines.Wait()
}

// now is the world's time.
func (w *world) now() int64 { return int64(time.Since(w.begun)) }

// troubled says whether things go wrong.
func (w *world) troubled() bool {
	select {
	case <-w.ending:
		return false
	default:
		return !w.quiet.Load()
	}
}

// draw begins the stream of an occasion.
func (w *world) draw(what string, numbers ...uint64) *stream {
	s := draw(w.seed, what, numbers...)
	w.order.Renew(s.x)
	return s
}

func (w *world) count(what string) { w.countMany(what, 1) }

func (w *world) countMany(what string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what] += n
}

func (w *world) mark(format string, values ...any) {
	if w.trace != nil {
		w.trace.add(format, values...)
	}
}

// problem is a promise that was broken.
func (w *world) problem(format string, values ...any) {
	what := fmt.Sprintf(format, values...)
	w.mark("problem: %s", what)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, what)
}

// sleep passes the world's time, or less if done comes first.
func sleep(d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

// String lists all counts.
func (c Counts) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%10d  %s\n", c[what], what)
	}
	return b.String()
}
