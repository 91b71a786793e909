package partition_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/transport"
)

// link tells of its closing, which a Group does when it has told Raft to end.
type link struct {
	*transport.Local
	once    sync.Once
	closing chan struct{}
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.closing) })
	return l.Local.Close()
}

// unhurried begins no two snapshots in one millisecond, as a disk doesn't: the
// library names them by it.
type unhurried struct {
	raft.SnapshotStore
	turn chan struct{}
}

func (u *unhurried) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (raft.SnapshotSink, error) {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	pass(time.Millisecond)
	return u.SnapshotStore.Create(v, index, term, c, ci, t)
}

// shelf is a replica's log and votes in memory. It survives the process, and
// can be made slow or fail. (Files go through it too.)
type shelf struct {
	*raft.InmemStore
	file   partition.Disk
	onFile bool
	delay  atomic.Int64 // of each append
	broken atomic.Pointer[error]
}

func (s *shelf) inner() partition.Disk {
	if s.onFile {
		return s.file
	}
	return memory{s.InmemStore}
}

type memory struct{ *raft.InmemStore }

func (memory) Close() error { return nil }

// Get knows nothing of a missing key's error that the stores can tell from others.
func (m memory) Get(key []byte) ([]byte, error) {
	v, err := m.InmemStore.Get(key)
	if err != nil {
		return nil, raftboltdb.ErrKeyNotFound
	}
	return v, nil
}

func (s *shelf) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *shelf) StoreLogs(logs []*raft.Log) error {
	if d := s.delay.Load(); d > 0 {
		pass(time.Duration(d))
	}
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return s.inner().StoreLogs(logs)
}

func (s *shelf) FirstIndex() (uint64, error)        { return s.inner().FirstIndex() }
func (s *shelf) LastIndex() (uint64, error)         { return s.inner().LastIndex() }
func (s *shelf) GetLog(i uint64, l *raft.Log) error { return s.inner().GetLog(i, l) }
func (s *shelf) DeleteRange(low, high uint64) error { return s.inner().DeleteRange(low, high) }
func (s *shelf) Set(k, v []byte) error              { return s.inner().Set(k, v) }
func (s *shelf) Get(k []byte) ([]byte, error)       { return s.inner().Get(k) }
func (s *shelf) SetUint64(k []byte, v uint64) error { return s.inner().SetUint64(k, v) }
func (s *shelf) GetUint64(k []byte) (uint64, error) { return s.inner().GetUint64(k) }
func (s *shelf) Close() error                       { return s.file.Close() }
func (s *shelf) slow(d time.Duration)               { s.delay.Store(int64(d)) }
func (s *shelf) fail(err error)                     { s.broken.Store(&err) }

// skewed is a source of both clocks that follows the bubble's time until told
// otherwise.
type skewed struct {
	origin time.Time

	mu     sync.Mutex
	base   int64 // true time from which on it runs as it does
	value  int64 // what it showed then
	ppm    int64 // how much faster than true time
	frozen bool
}

func (s *skewed) Monotonic() int64 { return s.read() }
func (s *skewed) Raw() int64       { return s.read() }

func (s *skewed) read() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen {
		return s.value
	}
	return s.at(int64(time.Since(s.origin)))
}

func (s *skewed) at(truly int64) int64 {
	d := truly - s.base
	return s.value + d + d/1e6*s.ppm
}

// jump moves both clocks by d, as a resumed machine sees them.
func (s *skewed) jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rebase()
	s.value += int64(d)
}

// run makes them faster than true time by ppm.
func (s *skewed) run(ppm int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rebase()
	s.ppm = ppm
}

func (s *skewed) rebase() {
	truly := int64(time.Since(s.origin))
	s.base, s.value = truly, s.at(truly)
}

// seeds runs a test once per seed. SEED=n repeats one. The schedule of a test is
// its seed's; when Raft elects whom is not.
func seeds(t *testing.T, n int, test func(t *testing.T, rng *rand.Rand)) {
	from := time.Now().UnixNano() & 0xffffff
	if s := os.Getenv("SEED"); s != "" {
		one, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		from, n = one, 1
	}
	for i := range n {
		seed := from + int64(i)
		t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) {
			test(t, rand.New(rand.NewPCG(uint64(seed), 0)))
		})
	}
}
