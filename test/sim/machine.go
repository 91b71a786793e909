package sim

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// machine is where a replica lives. Its disk and its clocks outlive its processes, of which it runs one after
// another.
type machine struct {
	w       *world
	id      string
	disk    *disk
	source  *source
	founded atomic.Bool // a process of it has run: nothing bootstraps again
	hurry   atomic.Bool // its next process comes at once
	starts  uint64

	mu      sync.Mutex
	running *process
}

func newMachine(w *world, id string, number uint64) *machine {
	ppm := int64(0)
	if w.o.Breaks.FastClock {
		ppm = 10_000
	}
	return &machine{w: w, id: id, disk: newDisk(w, id), source: newSource(w.begun, draw(w.seed, "clock", number), ppm)}
}

// live runs processes until the world ends.
func (m *machine) live() {
	for {
		m.starts++
		s := m.w.draw("start "+m.id, m.starts)
		p := newProcess(m)
		m.set(p)
		p.boot()
		select {
		case <-p.dead:
		case <-p.leave:
		case <-m.w.closing:
		}
		p.end()
		m.set(nil)
		select {
		case <-m.w.closing:
			return
		default:
		}
		pause := s.span(time.Millisecond, 400*time.Millisecond)
		if m.hurry.Swap(false) {
			pause /= 100
		}
		if !sleep(pause, m.w.closing) {
			return
		}
	}
}

func (m *machine) set(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = p
}

// process is the one that runs, nil if none does.
func (m *machine) process() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// group is the replica that runs, nil if none does.
func (m *machine) group() *partition.Group {
	if p := m.process(); p != nil && !p.died() {
		return p.group.Load()
	}
	return nil
}

// leader is the machine whose replica leads and answers; of two, the one of the later term.
func (w *world) leader() (found *machine) {
	term := uint64(0)
	for _, m := range w.machines {
		g := m.group()
		if g == nil {
			continue
		}
		s := g.Standing()
		if s.Leading && found != nil {
			w.count("looks at two leaders")
		}
		if s.Leading && s.Term > term {
			found, term = m, s.Term
		}
	}
	return found
}
