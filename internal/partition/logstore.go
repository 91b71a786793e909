package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/clock"
)

// compactEntries is how many entries one transaction of a compaction deletes. The library deletes
// all of them in one, and appends wait for seconds meanwhile.
const compactEntries = 1024

// disk is what raft-boltdb offers; tests put faults in between.
type disk interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// logStore is the log of one replica. It adds to the library's store:
//
//   - a checksum over each whole entry, index, term and type included, kept in the entry's extensions
//     on disk and verified on every read: bbolt protects only its own two meta pages;
//   - the decision time of the newest entry, and when it was stored (clock.Held);
//   - compaction in small transactions.
//
// Every error ends the stores (diskGuard). Raft's main loop appends and truncates; its snapshot and
// replication goroutines compact and read beside it.
type logStore struct {
	disk      disk
	snapshots raft.SnapshotStore // the bare one, to look things up
	guard     *diskGuard
	elapsed   func() int64
	timeOf    func([]byte, uint64) (int64, bool)
	snapTime  func(io.Reader) (int64, error)
	check     func([]byte) error
	appended  func(time.Duration) // nil: nobody asks
	keepFrom  func() uint64       // the first entry that no compaction takes; nil: none

	mu   sync.Mutex // orders changes of held
	held clock.Held
	base position // of the entry behind which the log begins, where a snapshot ends with it
}

// position is an entry's place in all logs that hold it.
type position struct{ index, term uint64 }

func (s *logStore) beginsBehind(index, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = position{index, term}
}

var (
	_ raft.LogStore          = (*logStore)(nil)
	_ raft.MonotonicLogStore = (*logStore)(nil)
)

// IsMonotonic says what the inner store says; bbolt tolerates the gap that a snapshot leaves.
func (s *logStore) IsMonotonic() bool {
	m, ok := s.disk.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// FirstIndex implements raft.LogStore.
func (s *logStore) FirstIndex() (index uint64, err error) {
	err = s.guard.do("read first index", nil, func() (err error) { index, err = s.disk.FirstIndex(); return err })
	return index, err
}

// LastIndex implements raft.LogStore.
func (s *logStore) LastIndex() (index uint64, err error) {
	err = s.guard.do("read last index", nil, func() (err error) { index, err = s.disk.LastIndex(); return err })
	return index, err
}

// GetLog implements raft.LogStore. An index that was compacted away, or is yet to come, gives
// raft.ErrLogNotFound and is no failure. Of the entry behind which the log begins, the last of a snapshot, the term is
// known: whoever asks for it wants to know whether what a leader sends joins on. The library looks for it here only, and
// a follower that didn't find it would refuse what comes next and be sent the same snapshot, again and again, by
// a leader that has missed its first answer.
func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	err := s.guard.do("read entry", raft.ErrLogNotFound, func() error { return s.get(index, l) })
	if !errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if index != s.base.index || index < 2 { // a leader sends the first entry without a look at one before
		return err
	}
	*l = raft.Log{Index: index, Term: s.base.term, Type: raft.LogNoop}
	return nil
}

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	// Raft keeps its entries in its cache and sends them on, so the checksums go to copies.
	copies, sealed := make([]raft.Log, len(logs)), make([]*raft.Log, len(logs))
	for i, l := range logs {
		copies[i] = *l
		copies[i].Extensions = sealEntry(l)
		sealed[i] = &copies[i]
	}
	begun := s.elapsed()
	if err := s.guard.do("append entries", nil, func() error { return s.disk.StoreLogs(sealed) }); err != nil {
		return err
	}
	if s.appended != nil {
		s.appended(time.Duration(s.elapsed() - begun))
	}
	for i := len(logs) - 1; i >= 0; i-- {
		if at, ok := s.entryTime(logs[i]); ok {
			// The reading comes after the entry is stored: what passed since counts, and no more.
			s.setHeld(at)
			break
		}
	}
	return nil
}

// DeleteRange implements raft.LogStore. It compacts from below in small steps, each of which leaves a
// shorter log should power fail after it. What reaches the end is a truncation, and goes in one step,
// also where it takes all: half of it would leave a hole, in the log or between it and its snapshot.
// Anything else would leave one too, and is refused.
func (s *logStore) DeleteRange(low, high uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	switch {
	case first == 0 || high < first || low > last:
		return nil
	case high >= last:
		return s.truncate(low, high, last)
	case low <= first:
		return s.compact(s.spared(high))
	}
	return s.guard.fail(fmt.Errorf("delete entries %d to %d of %d to %d: would leave a hole", low, high, first, last))
}

// truncate deletes what reaches the end of the log. What takes its place comes later, in a transaction of its own, and
// others may have seen what goes: that it was held is noted first, or a crash in between would look like an old copy.
func (s *logStore) truncate(low, high, last uint64) error {
	if err := s.guard.do("note what is truncated", nil, func() error { return s.noteHighest(last) }); err != nil {
		return err
	}
	if err := s.guard.do("truncate log", nil, func() error { return s.disk.DeleteRange(low, high) }); err != nil {
		return err
	}
	return s.readBackHeld()
}

func (s *logStore) noteHighest(last uint64) error {
	var l raft.Log
	if err := s.get(last, &l); err != nil {
		return err
	}
	stable := stableStore{disk: s.disk, guard: s.guard}
	before, err := stable.highest()
	if err != nil {
		return err
	}
	return stable.setHighest(before.Later(Start{Term: l.Term, Index: last}))
}

// spared is how far a compaction may go: a follower may have begun to need what it was to take.
func (s *logStore) spared(high uint64) uint64 {
	if s.keepFrom == nil {
		return high
	}
	return min(high, s.keepFrom()-1)
}

// compact deletes from below up to high. It asks for the first index each time, because a snapshot
// that was installed leaves a gap that may be millions wide.
func (s *logStore) compact(high uint64) error {
	for {
		first, err := s.FirstIndex()
		if err != nil || first == 0 || first > high {
			return err
		}
		upTo := min(high, first+compactEntries-1)
		err = s.guard.do("compact log", nil, func() error { return s.disk.DeleteRange(first, upTo) })
		if err != nil {
			return err
		}
	}
}

// Held returns the decision time of the newest entry that this replica holds, in log order.
func (s *logStore) Held() clock.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *logStore) setHeld(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = clock.Held{Time: at, At: s.elapsed()}
}

// rebase has the newest entry count as held from a reading of the accumulator on, not from when it was stored.
func (s *logStore) rebase(elapsed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.At = max(s.held.At, elapsed)
}

// readBackHeld is readBack, guarded.
func (s *logStore) readBackHeld() error {
	return s.guard.do("read back the newest decision time", nil, s.readBack)
}

// readBack sets held from what is on disk: the newest entry that carries a time, above the newest
// snapshot; else that snapshot's. It counts as held from now on only. After a truncation that gives
// away the time for which the remaining entry was held, and must: the truncated entry's time never
// happened, and when the remaining one was stored isn't known any more.
func (s *logStore) readBack() error {
	snapshot, err := newestSnapshot(s.snapshots)
	if err != nil {
		return err
	}
	first, err := s.disk.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.disk.LastIndex()
	if err != nil {
		return err
	}
	for index := last; index > 0 && index >= first && index > snapshot.Index; index-- {
		var l raft.Log
		if err := s.get(index, &l); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		if at, ok := s.entryTime(&l); ok {
			s.setHeld(at)
			return nil
		}
	}
	at, err := s.snapshotTime(snapshot)
	if err != nil {
		return err
	}
	s.setHeld(at)
	return nil
}

// snapshotTime returns the decision time of a snapshot's state; 0 where there is none.
func (s *logStore) snapshotTime(meta raft.SnapshotMeta) (at int64, err error) {
	if meta.ID == "" {
		return 0, nil
	}
	_, r, err := s.snapshots.Open(meta.ID)
	if err != nil {
		return 0, fmt.Errorf("open snapshot %s: %w", meta.ID, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if at, err = s.snapTime(r); err != nil {
		return 0, fmt.Errorf("decision time of snapshot %s: %w", meta.ID, err)
	}
	return at, nil
}

// entryTime returns the decision time that an entry of ours carries. Raft's own entries carry none,
// nor does one that got into the log of another term than it was stamped in: apply refuses it, so the
// partition's time never was what it says. To go on from it would count an outage, or more.
func (s *logStore) entryTime(l *raft.Log) (int64, bool) {
	if l.Type != raft.LogCommand {
		return 0, false
	}
	return s.timeOf(l.Data, l.Term)
}

// get reads and verifies one entry, unguarded.
func (s *logStore) get(index uint64, l *raft.Log) error {
	*l = raft.Log{} // the decoder leaves alone what the bytes don't name
	if err := s.disk.GetLog(index, l); err != nil {
		return err
	}
	if l.Index != index || !openEntry(l) {
		return fmt.Errorf("%w: entry %d", ErrDamaged, index)
	}
	if l.Type == raft.LogCommand && s.check != nil {
		if err := s.check(l.Data); err != nil {
			return fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err)
		}
	}
	return nil
}

// sealEntry returns the extensions to store with an entry: its own, and the checksum of all of it.
func sealEntry(l *raft.Log) []byte {
	sealed := make([]byte, len(l.Extensions), len(l.Extensions)+4)
	copy(sealed, l.Extensions)
	return binary.LittleEndian.AppendUint32(sealed, entrySum(l, l.Extensions))
}

// openEntry takes the checksum off a stored entry and verifies it.
func openEntry(l *raft.Log) bool {
	n := len(l.Extensions) - 4
	if n < 0 {
		return false
	}
	sum := binary.LittleEndian.Uint32(l.Extensions[n:])
	l.Extensions = l.Extensions[:n:n]
	if n == 0 {
		l.Extensions = nil
	}
	return sum == entrySum(l, l.Extensions)
}

// entrySum is the CRC32C of what makes an entry. AppendedAt is left out: it decides nothing, and its
// encoding may lose precision.
func entrySum(l *raft.Log, extensions []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var head [25]byte
	binary.LittleEndian.PutUint64(head[:], l.Index)
	binary.LittleEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	binary.LittleEndian.PutUint64(head[17:], uint64(len(l.Data)))
	sum := crc32.Update(0, table, head[:])
	return crc32.Update(crc32.Update(sum, table, l.Data), table, extensions)
}
