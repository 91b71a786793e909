package fsm

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// Replicated is a Machine that hashicorp/raft drives.
//
// Raft calls Apply, Snapshot and Restore from one goroutine; Read may be called
// from any. A machine that met damage applies nothing more and is never read
// again: what it would say is anybody's guess. So it is with one that met a
// level that it doesn't know.
type Replicated struct {
	options []Option

	mu     sync.RWMutex
	m      *Machine
	broken error

	applied func(Applied)
	fatal   func(error)
}

// Replicate returns an empty machine for raft. After each entry applied is
// called, in order; fatal is called once, with the first damage, and should end
// the process. Both run on raft's goroutine and outside the lock.
func Replicate(applied func(Applied), fatal func(error), options ...Option) *Replicated {
	return &Replicated{m: New(options...), options: options, applied: applied, fatal: fatal}
}

// Read calls f with the machine, beside other reads. f must not keep it. It
// reports false, without calling f, if the machine is broken.
func (r *Replicated) Read(f func(*Machine)) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.broken != nil {
		return false
	}
	f(r.m)
	return true
}

// Apply implements raft.FSM. Its result is nil: whoever waits for an entry is
// woken by applied, which also runs where a future never resolves.
func (r *Replicated) Apply(l *raft.Log) any {
	a, ok, damage := r.apply(l)
	switch {
	case ok:
		r.applied(a)
	case damage != nil:
		r.fatal(damage)
	}
	return nil
}

func (r *Replicated) apply(l *raft.Log) (a Applied, ok bool, damage error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return Applied{}, false, nil
	}
	a, err := r.m.Apply(l.Index, l.Term, l.Data)
	if err == nil && a.Diverged {
		err = ErrDiverged
	}
	if err != nil {
		r.broken = fmt.Errorf("apply entry %d of term %d: %w", l.Index, l.Term, err)
	}
	return a, err == nil, r.broken
}

// ErrDiverged says that this replica's state differs from the one that the
// leader had at the same index.
var ErrDiverged = errors.New("state differs from the leader's at the last checkpoint")

// Snapshot implements raft.FSM.
func (r *Replicated) Snapshot() (raft.FSMSnapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return nil, fmt.Errorf("snapshot: %w", r.broken)
	}
	return persister{r.m.Snapshot()}, nil
}

type persister struct{ s *Snapshot }

// Persist is part of [raft.FSMSnapshot]. It ends the sink, or cancels it.
func (p persister) Persist(sink raft.SnapshotSink) error {
	if _, err := p.s.WriteTo(sink); err != nil {
		_ = sink.Cancel() // the write's error says more
		return fmt.Errorf("write snapshot: %w", err)
	}
	return sink.Close()
}

// Release is part of [raft.FSMSnapshot]. The snapshot shares what it holds and has nothing to give back.
func (persister) Release() {}

// Restore implements raft.FSM: the new state replaces the old one whole, or not
// at all. An older state than the one here is refused: it would take answers back.
func (r *Replicated) Restore(snapshot io.ReadCloser) error {
	defer func() { _ = snapshot.Close() }() // it was read to its end, or the error says why not
	m, err := Restore(snapshot, r.options...)
	if errors.Is(err, ErrLevel) {
		r.stop(err)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.index < r.m.index {
		return fmt.Errorf("%w: it ends at entry %d, entry %d is applied", ErrSnapshot, m.index, r.m.index)
	}
	r.m = m
	return nil
}

// stop ends a machine that was sent a snapshot of a level that it doesn't know: it
// would be sent it again and again.
func (r *Replicated) stop(why error) {
	r.mu.Lock()
	first := r.broken == nil
	if first {
		r.broken = why
	}
	r.mu.Unlock()
	if first {
		r.fatal(why)
	}
}
