package sim

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/quorate/quorate/internal/partition"
)

var (
	errDead = errors.New("the process has ended")
	errDisk = errors.New("input/output error")
)

// disk is a machine's. It outlives the processes that write to it.
type disk struct {
	w  *world
	id string

	mu       sync.Mutex
	calls    uint64
	current  *image // as the page cache has it
	synced   *image // as it is after a loss of power
	unsynced []transaction
	shots    shots
	slow     time.Duration // at most so much more for each write
	refused  error         // every write fails so
	hangs    bool
}

func newDisk(w *world, id string) *disk {
	return &disk{w: w, id: id, current: newImage(), synced: newImage()}
}

// losePower forgets what was not synced.
func (d *disk) losePower(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.w.draw("loss "+d.id, n)
	if len(d.unsynced) > 0 {
		d.w.count("losses amid a write")
	}
	left, torn := afterLoss(d.synced, d.unsynced, s, d.w.o.Breaks)
	d.w.countMany("torn writes", torn)
	d.current, d.synced, d.unsynced = left, left.clone(), nil
	d.shots.losePower(d, s)
}

// troubles says of each call how often in a million the process dies in it, and how often it fails.
type troubles struct{ dies, fails int }

// troublesOf makes rare calls dangerous, so that a process dies in each kind of call about equally often.
func troublesOf(call string) troubles {
	switch call {
	case "StoreLogs":
		return troubles{2_500, 100}
	case "GetLog":
		return troubles{150, 10}
	case "FirstIndex", "LastIndex":
		return troubles{1_000, 80}
	case "Set":
		return troubles{8_000, 500}
	case "Get":
		return troubles{3_000, 300}
	case "DeleteRange":
		return troubles{30_000, 1_000}
	case "snapshot Create", "snapshot Close", "snapshot Open":
		return troubles{20_000, 1_000}
	default: // snapshot Write, List, Cancel
		return troubles{6_000, 300}
	}
}

// handle is a process's way to its machine's disk. When the process is dead nothing passes it any more.
type handle struct {
	*disk
	p    *process
	turn chan struct{} // bolt's lock of writers
}

var _ partition.Disk = (*handle)(nil) // and no raft.MonotonicLogStore, as raft-boltdb is none

// open is what a process does first. It syncs the folders, so names that an earlier one has left there stay.
func (d *disk) open(p *process) *handle {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.shots.finished {
		f.synced = f.synced || !d.w.o.Breaks.IgnoreSync
	}
	return &handle{disk: d, p: p, turn: make(chan struct{}, 1)}
}

// moment is when in a call the process dies.
type moment int

const (
	never    moment = iota
	before          // nothing is written
	amid            // pages are
	unsynced        // all is, and not synced
	after           // all is synced, and nobody told
)

// meet is what happens at the beginning of a call: it may be the last of the process, or fail.
func (h *handle) meet(call string) (when moment, s *stream, err error) {
	if h.p.died() {
		return never, nil, h.die()
	}
	h.mu.Lock()
	h.calls++
	number, refused := h.calls, h.refused
	h.mu.Unlock()
	s = h.w.draw("store "+h.id, number)
	if h.w.trace != nil {
		h.w.trace.add("%s disk %d %s", h.id, number, call)
	}
	if refused != nil && isWrite(call) {
		h.w.count("writes refused")
		return never, s, refused
	}
	if !h.w.troubled() || h.w.o.Leases {
		return never, s, nil
	}
	t := troublesOf(call)
	if s.in(t.fails) {
		h.w.count("errors of " + call)
		return never, s, errDisk
	}
	if s.in(t.dies) {
		when = moment(1 + s.below(4))
		h.w.count("deaths in " + call)
	}
	return when, s, h.reach(when, before, s)
}

func isWrite(call string) bool {
	return call == "StoreLogs" || call == "Set" || call == "DeleteRange"
}

// reach ends the process if this is the moment: this one alone, or with all others for want of power.
func (h *handle) reach(when, now moment, s *stream) error {
	if when == now && when != never {
		if s.in(250_000) || h.w.o.Power && s.in(600_000) {
			h.w.count("losses within a call")
			h.w.losePower(s)
		}
		h.p.crash("in a call of the store")
	}
	if h.p.died() {
		return h.die()
	}
	return nil
}

// die ends the goroutine whose process is dead, or fails its call: as the disk lets nothing pass any more, that does
// no harm either.
func (h *handle) die() error {
	h.p.gone()
	return errDead
}

// gone ends this goroutine, unless somebody would wait for it for ever: for the library's snapshot goroutine, who asked
// for a snapshot; for one that writes a snapshot that is sent, who watches its progress; for one that applies entries,
// who proposed the next ones.
func (p *process) gone() {
	if !onStack(".runSnapshots", ").Write", "partition.(*Group)", ").Apply") {
		runtime.Goexit()
	}
}

func onStack(names ...string) bool {
	var counters [64]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters[:])])
	for {
		frame, more := frames.Next()
		for _, name := range names {
			if strings.Contains(frame.Function, name) {
				return true
			}
		}
		if !more {
			return false
		}
	}
}

// read is a call that writes nothing.
func (h *handle) read(call string, do func(*image) error) error {
	when, s, err := h.meet(call)
	if err != nil {
		return err
	}
	h.mu.Lock()
	err = do(h.current)
	h.mu.Unlock()
	if late := h.reach(when, when, s); late != nil {
		return late
	}
	return err
}

// write is a transaction: its pages, a sync, its meta page, a sync.
func (h *handle) write(call string, t transaction) error {
	when, s, err := h.meet(call)
	if err != nil {
		return err
	}
	select {
	case h.turn <- struct{}{}:
	case <-h.p.dead:
		return h.die()
	}
	if err := h.pause(s); err != nil { // pages and their sync
		return err
	}
	if err := h.reach(when, amid, s); err != nil {
		return err
	}
	h.commit(t)
	if err := h.reach(when, unsynced, s); err != nil {
		return err
	}
	if err := h.pause(s); err != nil { // the meta page's sync
		return err
	}
	h.sync()
	if err := h.reach(when, after, s); err != nil {
		return err
	}
	<-h.turn
	return nil
}

// mostUnsynced is how many transactions a disk that ignores syncs keeps in its cache.
const mostUnsynced = 32

// commit writes the meta page: from then on readers see the transaction, and so does a process that comes after.
func (h *handle) commit(t transaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.p.died() {
		return
	}
	for _, p := range t.pages {
		h.current.write(p)
	}
	h.unsynced = append(h.unsynced, t)
}

// sync makes durable what was written to the file so far, also by a process before.
func (h *handle) sync() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.p.died() {
		return
	}
	keep := 0
	if b := h.w.o.Breaks; b.IgnoreSync || b.LoseNewest {
		keep = mostUnsynced
	}
	for len(h.unsynced) > keep {
		for _, p := range h.unsynced[0].pages {
			h.synced.write(p)
		}
		h.unsynced = h.unsynced[1:]
	}
}

// pause is the time of one sync. A disk that hangs doesn't come back before its process has ended.
func (h *handle) pause(s *stream) error {
	h.mu.Lock()
	slow, hangs := h.slow, h.hangs
	h.mu.Unlock()
	if hangs {
		h.w.count("writes that hung")
		<-h.p.dead
		return h.die()
	}
	took := time.NewTimer(s.span(100*time.Microsecond, h.w.manners.sync) + time.Duration(s.next()%uint64(slow+1)))
	defer took.Stop()
	select {
	case <-took.C:
	case <-h.p.dead:
		return h.die()
	}
	if h.p.died() {
		return h.die()
	}
	return nil
}

// FirstIndex implements raft.LogStore.
func (h *handle) FirstIndex() (index uint64, err error) {
	err = h.read("FirstIndex", func(m *image) error { index = m.first; return nil })
	return index, err
}

// LastIndex implements raft.LogStore.
func (h *handle) LastIndex() (index uint64, err error) {
	err = h.read("LastIndex", func(m *image) error { index = m.last; return nil })
	return index, err
}

// GetLog implements raft.LogStore.
func (h *handle) GetLog(index uint64, l *raft.Log) error {
	return h.read("GetLog", func(m *image) error {
		entry := m.entries[index]
		if entry == nil {
			return raft.ErrLogNotFound
		}
		*l = *entry
		return nil
	})
}

// StoreLog implements raft.LogStore.
func (h *handle) StoreLog(l *raft.Log) error { return h.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (h *handle) StoreLogs(logs []*raft.Log) error {
	var t transaction
	for _, l := range logs {
		entry := *l
		t.pages = append(t.pages, &page{entry: &entry})
	}
	return h.write("StoreLogs", t)
}

// DeleteRange implements raft.LogStore.
func (h *handle) DeleteRange(low, high uint64) error {
	return h.write("DeleteRange", transaction{pages: []*page{{low: low, high: high}}})
}

// Set implements raft.StableStore.
func (h *handle) Set(key, value []byte) error {
	return h.write("Set", transaction{pages: []*page{{key: string(key), value: append([]byte(nil), value...)}}})
}

// Get implements raft.StableStore.
func (h *handle) Get(key []byte) (value []byte, err error) {
	err = h.read("Get", func(m *image) error {
		held, ok := m.stable[string(key)]
		if !ok {
			return raftboltdb.ErrKeyNotFound
		}
		value = held
		return nil
	})
	return value, err
}

// SetUint64 and GetUint64 aren't called: the product seals numbers as bytes.
func (h *handle) SetUint64([]byte, uint64) error { return errors.ErrUnsupported }

// GetUint64 implements raft.StableStore.
func (h *handle) GetUint64([]byte) (uint64, error) { return 0, errors.ErrUnsupported }

// Close implements io.Closer.
func (h *handle) Close() error { return nil }
