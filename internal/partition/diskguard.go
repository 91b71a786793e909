package partition

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

var (
	// ErrStuckDisk says that a call of the store took longer than the bound.
	ErrStuckDisk = errors.New("disk is stuck")
	// ErrDamaged says that a store holds what no replica ever wrote.
	ErrDamaged = errors.New("store is damaged")
	// ErrStoresClosed says that the stores were closed in good order.
	ErrStoresClosed = errors.New("stores are closed")
)

// diskGuard stands before every call of a replica's stores. The first error of any of them, or a
// call that hangs, is the last: it is reported once and every call from then on fails with it. A
// disk that failed once may report success the next time for what it lost, so nothing is tried
// again; the process ends and the other replicas elect.
type diskGuard struct {
	folder  string
	elapsed func() int64 // of the accumulator, so that a frozen process doesn't take itself for a stuck disk
	bound   int64
	fatal   func(error)

	forgives bool // only in a test: errors end nothing, as without a guard

	mu      sync.Mutex
	failed  error
	closed  bool
	number  uint64
	pending map[uint64]pendingCall

	stop   chan struct{} // closed by close, once
	looker sync.WaitGroup
}

// pendingCall is one call of the store that hasn't returned.
type pendingCall struct {
	what  string
	begun int64
}

func newDiskGuard(folder string, o StoreOptions) *diskGuard {
	g := &diskGuard{
		folder: folder, elapsed: o.Elapsed, bound: int64(o.StuckAfter), fatal: o.Fatal,
		pending: map[uint64]pendingCall{}, stop: make(chan struct{}),
	}
	g.looker.Go(func() { g.watch(o.StuckAfter / 10) })
	return g
}

// do runs one call of the store. An error that pass accepts is an answer, not a failure.
func (g *diskGuard) do(what string, pass error, call func() error) error {
	number, err := g.begin(what)
	if err != nil {
		return err
	}
	err = protect(call)
	switch refused := g.end(number); {
	case refused != nil:
		return refused
	case err == nil || pass != nil && errors.Is(err, pass):
		return err
	}
	return g.fail(fmt.Errorf("%s: %w", what, err))
}

// begin notes a call, or refuses it.
func (g *diskGuard) begin(what string) (uint64, error) {
	now := g.elapsed()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refusal(); err != nil {
		return 0, err
	}
	g.number++
	g.pending[g.number] = pendingCall{what: what, begun: now}
	return g.number, nil
}

// end forgets a call. What it brought doesn't count if the stores failed meanwhile: it may have been
// the stuck one.
func (g *diskGuard) end(number uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pending, number)
	return g.refusal()
}

func (g *diskGuard) refusal() error {
	if g.failed != nil {
		return g.failed
	}
	if g.closed {
		return ErrStoresClosed
	}
	return nil
}

// fail makes err the end of the stores, unless they have ended already, and returns what ended them.
func (g *diskGuard) fail(err error) error {
	g.mu.Lock()
	if refused := g.refusal(); refused != nil {
		g.mu.Unlock()
		return refused
	}
	err = fmt.Errorf("replica %s: %w", g.folder, err)
	if g.forgives {
		g.mu.Unlock()
		return err
	}
	g.failed = err
	g.mu.Unlock()
	g.fatal(err) // outside the lock: it may look at the stores, and it may not return
	return err
}

// watch looks for calls that hang.
func (g *diskGuard) watch(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-ticker.C:
			if call, stuck := g.stuck(); stuck {
				_ = g.fail(fmt.Errorf("%s: %w", call.what, ErrStuckDisk))
				return
			}
		}
	}
}

func (g *diskGuard) stuck() (pendingCall, bool) {
	now := g.elapsed()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, call := range g.pending {
		if now-call.begun > g.bound {
			return call, true
		}
	}
	return pendingCall{}, false
}

// close refuses all calls from now on. It reports whether it is the first to do so.
func (g *diskGuard) close() bool {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	if first {
		close(g.stop)
		g.looker.Wait()
	}
	return first
}

// protect turns a panic of the store into an error. bbolt panics on pages that make no sense, and a
// read error of a mapped file arrives as a memory fault.
func protect(call func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return call()
}
