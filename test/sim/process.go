package sim

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// process is one life of a replica. When it is dead, its goroutines are still there until they are collected, but
// nothing that they do is seen: no message, no answer and no write passes.
type process struct {
	m     *machine
	dead  chan struct{} // closed when it dies
	leave chan struct{} // closed when it is told to stop in good order
	over  atomic.Bool
	once  sync.Once
	asked sync.Once
	// awaited are the questions that it has taken and not answered.
	awaited atomic.Int64

	clock   *clock.Accumulator
	cancel  context.CancelFunc
	ticking sync.WaitGroup
	stores  *partition.Stores
	link    atomic.Pointer[endpoint]
	group   atomic.Pointer[partition.Group]
}

func newProcess(m *machine) *process {
	p := &process{m: m, dead: make(chan struct{}), leave: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.clock = cancel, clock.New(m.source)
	p.ticking.Go(func() { p.clock.Run(ctx) })
	return p
}

func (p *process) died() bool { return p.over.Load() }

// crash ends the process at this very moment.
func (p *process) crash(why string) {
	p.once.Do(func() {
		p.over.Store(true)
		p.m.w.mark("%s ends: %s", p.m.id, why)
		close(p.dead)
		if e := p.link.Load(); e != nil {
			_ = e.Close() // never fails
		}
	})
}

// fail is what the product calls where it can't go on: the process ends, and with it the goroutine that says so.
func (p *process) fail(err error) {
	if !p.died() {
		p.m.w.failed(p.m, err)
	}
	p.crash(err.Error())
	p.gone()
}

// stop has it stop in good order.
func (p *process) stop() { p.asked.Do(func() { close(p.leave) }) }

// boot opens the replica. The process may die of it.
func (p *process) boot() {
	var opening sync.WaitGroup
	opening.Go(func() {
		if err := p.open(); err != nil && !p.died() {
			p.m.w.failed(p.m, err)
			p.crash(err.Error())
		}
	})
	opening.Wait()
}

func (p *process) open() (err error) {
	m := p.m
	disk := m.disk.open(p)
	p.stores, err = partition.OpenStoresOn(m.id, disk, shelf{disk}, partition.StoreOptions{
		Elapsed: p.clock.Elapsed, TimeOf: fsm.TimeOf, Fatal: p.fail, StuckAfter: stuck,
		SnapshotTime: func(s io.Reader) (int64, error) { return fsm.SnapshotTime(s) },
		Check:        func(entry []byte) error { _, err := fsm.ParseHeader(entry); return err },
	})
	if err != nil {
		return err
	}
	if _, err := p.stores.BeginStart(); err != nil {
		return err
	}
	if m.founded.Load() && !sleep(election+time.Millisecond, p.dead) {
		return errDead // no lease counts any more on what it answered before
	}
	link := m.w.net.join(m.id)
	p.link.Store(link)
	if p.died() {
		return errors.Join(errDead, link.Close())
	}
	g, err := partition.Open(partition.Config{
		ID: m.id, Replicas: names(), Bootstrap: !m.founded.Load(), Settings: &m.w.settings,
		Stores: p.stores, Transport: link, Clock: p.clock, Source: m.source,
		Log: p.logger(), Metrics: partition.NewMetrics(prometheus.NewRegistry()), Fatal: p.fail,
		Election: election, TickEvery: time.Second, CheckpointEvery: 1500 * time.Millisecond,
		EnqueueTimeout: 300 * time.Millisecond, GiveUp: time.Second, FirstRetry: 500 * time.Millisecond,
		LogBytes: m.w.manners.logBytes, Queue: 64,
	})
	if err != nil {
		return err
	}
	m.founded.Store(true)
	p.group.Store(g)
	m.w.mark("%s runs", m.id)
	return nil
}

func (p *process) logger() *slog.Logger {
	if os.Getenv("SIM_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", p.m.id)
}

// end collects what is left of the process, dead or alive.
func (p *process) end() {
	if p.died() {
		sleep(time.Millisecond, nil) // what is committed and not applied yet is applied now, unseen
	}
	hangs := time.AfterFunc(time.Minute, func() { panic("a process of " + p.m.id + " doesn't end within a minute") })
	defer hangs.Stop()
	var err error
	if g := p.group.Load(); g != nil {
		err = g.Close()
		drain(g)
	}
	p.crash("stopped")
	if p.stores != nil {
		err = errors.Join(err, p.stores.Close())
	}
	p.cancel()
	p.ticking.Wait()
	if err != nil {
		p.m.w.problem("%s does not stop: %v", p.m.id, err)
	}
}
