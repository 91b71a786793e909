package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// workload is what is asked: which keys, under which entry's name.
type workload struct {
	entry  string // the descriptor's
	family byte
	keys   int
	zipf   float64 // exponent; 0: uniform
	seed   uint64
}

// homes are the partitions of a workload's keys.
type homes []byte

func (h homes) of(key uint32) byte {
	if h == nil {
		return 0
	}
	return h[key]
}

// phase is one stretch of a workload. A closed loop has callers, who ask again when they are answered; an open
// one asks at its rate, whatever the answers do.
type phase struct {
	engine  *engine
	form    *form
	family  byte
	homes   homes
	tallies []*tally // by stream
	until   int64    // closed: no check is asked after that

	active atomic.Int64 // closed: callers; open: checks without their answer, and one for whoever asks
	done   chan struct{}

	keys  []func() uint32 // by stream, or of the pacer
	mu    sync.Mutex
	free  []uint32 // open: slots
	paced bool
}

const (
	domain       = "bench"
	checkTimeout = 5 * time.Second
	// drainWithin bounds the wait for the last answers.
	drainWithin = 15 * time.Second
)

func (e *engine) newPhase(w workload) *phase {
	p := &phase{engine: e, form: newForm(domain, w.entry, int64(checkTimeout)), family: w.family, done: make(chan struct{})}
	p.homes = e.routes.homesOf(w)
	for i := range e.talks {
		p.tallies = append(p.tallies, &tally{})
		p.keys = append(p.keys, w.draw(uint64(i)))
	}
	return p
}

// draw returns a source of keys; each stream has its own.
func (w workload) draw(stream uint64) func() uint32 {
	rng := rand.New(rand.NewPCG(w.seed, stream))
	if w.keys == 1 {
		return func() uint32 { return 0 }
	}
	if w.zipf > 0 {
		z := rand.NewZipf(rng, w.zipf, 1, uint64(w.keys-1))
		return func() uint32 { return uint32(z.Uint64()) }
	}
	return func() uint32 { return rng.Uint32N(uint32(w.keys)) }
}

// ask adds the check of a slot to the stream that its key leads to.
func (p *phase) ask(tag uint32, key uint32, due int64) {
	q := question{tag: tag, key: key, family: p.family, home: p.homes.of(key)}
	to := p.engine.byHome[q.home]
	t := to[int(tag)%len(to)]
	t.mu.Lock()
	t.gather(p, &q, due)
	t.mu.Unlock()
}

// flush sends what was added.
func (p *phase) flush() {
	for _, t := range p.engine.talks {
		t.flush()
	}
}

// answered lets callers ask anew, or gives slots back. It runs on the receiver of the stream.
func (p *phase) answered(stream int, list []reply, now int64) {
	switch {
	case p.paced:
		p.mu.Lock()
		for i := range list {
			p.free = append(p.free, list[i].tag)
		}
		p.mu.Unlock()
	case now < p.until:
		for i := range list {
			p.ask(list[i].tag, p.keys[stream](), now)
		}
		p.flush()
		return
	}
	p.leave(int64(len(list)))
}

func (p *phase) leave(n int64) {
	if p.active.Add(-n) == 0 {
		close(p.done)
	}
}

// closed runs a closed loop of that many callers for that long.
func (e *engine) closed(w workload, callers int, length time.Duration) (*measured, error) {
	if callers > maxInFlight {
		return nil, fmt.Errorf("%d callers, at most %d are there", callers, maxInFlight)
	}
	p := e.newPhase(w)
	first := w.draw(1 << 32)
	p.active.Store(int64(callers))
	e.phase.Store(p)
	begin := e.now()
	p.until = begin + int64(length)
	for tag := range uint32(callers) {
		p.ask(tag, first(), e.now())
		if tag%256 == 255 {
			p.flush()
		}
	}
	p.flush()
	return e.finish(p, begin, length)
}

// paceEvery is how often an open loop looks which checks are due. What waits for the look has waited.
const paceEvery = 500 * time.Microsecond

// open asks that many checks a second for that long. Latencies count from the moment at which a check was due,
// so a stall is charged to every check that it delayed.
func (e *engine) open(w workload, rate int, length time.Duration) (*measured, error) {
	p := e.newPhase(w)
	p.paced = true
	for tag := range uint32(maxInFlight) {
		p.free = append(p.free, tag)
	}
	p.active.Store(1)
	e.phase.Store(p)
	begin := e.now()
	p.pace(w.draw(1<<32), begin, rate, length)
	p.leave(1)
	return e.finish(p, begin, length)
}

// pace asks what is due until all of it is asked. It sleeps in the kernel: the runtime's timers are coarse.
func (p *phase) pace(key func() uint32, begin int64, rate int, length time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	total := int(float64(rate) * length.Seconds())
	var tags []uint32
	for asked := 0; asked < total; {
		now := p.engine.now()
		due := min(total, 1+int((now-begin)*int64(rate)/int64(time.Second)))
		p.mu.Lock()
		n := min(due-asked, len(p.free)) // without a place they wait, and stay due
		tags = append(tags[:0], p.free[len(p.free)-n:]...)
		p.free = p.free[:len(p.free)-n]
		p.mu.Unlock()
		p.active.Add(int64(n))
		for _, tag := range tags {
			p.ask(tag, key(), begin+int64(asked)*int64(time.Second)/int64(rate))
			asked++
		}
		if n > 0 {
			p.flush()
		}
		if p.engine.isDown() || now-begin > int64(length+drainWithin) {
			return
		}
		pause := unix.NsecToTimespec(int64(paceEvery))
		_ = unix.Nanosleep(&pause, nil) // cut short, it looks earlier
	}
}

// measured is what a phase came to.
type measured struct {
	tally
	seconds float64 // from the first question to the last answer
}

func (m *measured) decisions() uint64 { return m.allows + m.denies }

func (m *measured) perSecond(n uint64) float64 { return float64(n) / m.seconds }

// finish waits for the last answer.
func (e *engine) finish(p *phase, begin int64, length time.Duration) (*measured, error) {
	late := time.NewTimer(length + drainWithin)
	defer late.Stop()
	select {
	case <-p.done:
	case <-e.down:
		return nil, e.broken
	case <-late.C:
		return nil, fmt.Errorf("%d checks are without an answer %v after the last one was asked", p.active.Load(), drainWithin)
	}
	m := &measured{}
	for _, y := range p.tallies {
		m.merge(y)
	}
	m.seconds = float64(m.last-begin) / 1e9
	return m, nil
}
