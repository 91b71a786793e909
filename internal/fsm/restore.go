package fsm

import (
	"crypto/sha256"
	"io"
	"math"

	"github.com/quorate/quorate/internal/limit"
)

// Restore reads what Snapshot.WriteTo wrote. It counts the state hash and the
// logical bytes anew from what it reads and fails, wrapping ErrSnapshot, unless
// they come out as written; wrapping ErrLevel, too, if they are of a level that
// the machine doesn't know.
func Restore(r io.Reader, options ...Option) (*Machine, error) {
	f := &frameReader{r: r}
	m := New(options...)
	if m.level = f.readHead(); m.level > m.newest {
		f.fail("%w", m.lacks(m.level))
	}
	if f.err != nil {
		return nil, f.err
	}
	f.readFields(m)
	if m.formed {
		f.readKeys(m)
		f.readRecords(m)
	}
	hash, trailer := f.u64(), f.u64()
	f.end()
	if f.err == nil && trailer != snapshotTrailer {
		f.fail("its end is %x", trailer)
	}
	if f.err == nil && hash != m.StateHash() {
		f.fail("state hash %016x, written as %016x", m.StateHash(), hash)
	}
	if f.err != nil {
		return nil, f.err
	}
	return m, nil
}

func (f *frameReader) readFields(m *Machine) {
	m.index, m.term, m.now = f.u64(), f.u64(), int64(f.u64())
	if m.now < 0 || m.now == limit.Never {
		f.fail("taken at %d", m.now)
	}
	m.checkpoint = Checkpoint{Index: f.u64(), Hash: f.u64()}
	if !f.flag() || f.err != nil {
		return
	}
	s, err := parseSettings(f.bytes(settingsBytes))
	if err != nil {
		f.fail("%w", err)
		return
	}
	m.form(s)
	if !f.flag() || f.err != nil {
		return
	}
	f.readSet(m)
}

func (f *frameReader) readSet(m *Machine) {
	v := Version{Epoch: f.u64(), Number: f.u64()}
	canonical := f.bytes(f.uvarint())
	if f.err != nil {
		return
	}
	set, err := compile(canonical)
	if err != nil {
		f.fail("its policy set %x: %w", sha256.Sum256(canonical), err)
		return
	}
	m.enforce(v, canonical, set)
	f.readRoster(m)
}

func (f *frameReader) readKeys(m *Machine) {
	k := m.keys
	n := f.uvarint()
	k.free = uint32(f.uvarint())
	if n > maxKeys {
		f.fail("%d keys", n)
	}
	hashes := make(map[uint32]uint64)
	for slot := range uint32(n) {
		if f.err != nil {
			return
		}
		if !f.flag() {
			k.slots.push(makeRef(freeClass, uint32(f.uvarint())&refNumberMask))
			continue
		}
		hashes[slot] = f.readBlock(m, slot)
	}
	if f.err == nil && !k.chained() {
		f.fail("its free slots are no chain")
	}
	f.readExpiry(m, hashes)
}

// chained reports whether the chain of free slots holds each of them once.
func (k *keys) chained() bool {
	next, n := k.free, k.slots.len()
	for range n - uint32(k.live) {
		if next == 0 || next > n || k.slots.at(next-1).class() != freeClass {
			return false
		}
		next = k.slots.at(next - 1).number()
	}
	return next == 0 // a chain that came back to where it was never gets here
}

// readExpiry files every key where the writer had filed it.
func (f *frameReader) readExpiry(m *Machine, hashes map[uint32]uint64) {
	n := f.uvarint()
	for range n {
		second, slot := f.uvarint(), f.uvarint()
		hash, ok := hashes[uint32(slot)]
		if f.err != nil || !ok || slot > maxKeys || second > math.MaxUint32 {
			f.fail("slot %d in the expiry queue", slot)
			return
		}
		delete(hashes, uint32(slot))
		d := due{second: uint32(second), slot: uint32(slot)}
		m.keys.expiry.push(d)
		m.sum += keySum(hash, d)
	}
	if len(hashes) > 0 {
		f.fail("%d keys miss in the expiry queue", len(hashes))
	}
}

// readBlock reads a key into the next slot and returns its hash.
func (f *frameReader) readBlock(m *Machine, slot uint32) uint64 {
	number, keyLen := f.uvarint(), f.uvarint()
	if f.err != nil || !m.roster.has(number) || keyLen > math.MaxUint16 {
		f.fail("a key of quota %d with %d bytes", number, keyLen)
		return 0
	}
	q := &m.roster.quotas[number]
	key := f.bytes(keyLen)
	hash := m.keys.hash(uint32(number), key)
	if _, twice := m.keys.find(hash, uint32(number), key); twice {
		f.fail("a key of quota %d stands twice", number)
		return 0
	}
	b := m.keys.place(hash, uint32(number), q.count, key, q.rolling())
	m.enter(q, q.keyBytes(len(key)))
	if q.count > 0 {
		b.setIdle(int64(f.u64()))
		m.sum += idleSum(hash, b.idle())
	}
	for i := range q.count {
		f.raw(b.stateAt(i))
		m.sum += stateSum(hash, i, b.state(i))
	}
	if q.rolling() {
		f.readLog(m, slot, hash, q)
	}
	return hash
}

func (f *frameReader) readLog(m *Machine, slot uint32, hash uint64, q *quota) {
	t := int64(0)
	if mark := f.uvarint(); mark > 0 {
		if mark > uint64(m.now)+1 {
			f.fail("a marker at %d", mark-1)
			return
		}
		t = int64(mark - 1)
		m.keys.logFor(slot, limit.LogHeader+limit.MarkSize).Mark(t)
		m.sum += markerSum(hash, t)
		m.account(q, eventBytes)
	}
	at := int64(0)
	for f.err == nil {
		delta := f.uvarint()
		if delta == 0 {
			return
		}
		e := limit.Event{Time: at + int64(delta-1), Cost: f.uvarint()}
		if e.Time < max(at, t) || e.Time > m.now || e.Cost == 0 || e.Cost > limit.MaxAmount || m.keys.block(slot).log().Units() > math.MaxUint64-e.Cost {
			f.fail("an event of %d units at %d", e.Cost, e.Time)
			return
		}
		m.keys.logFor(slot, m.keys.block(slot).log().Need(e.Time, e.Cost)).Append(e.Time, e.Cost)
		m.sum += eventSum(hash, e)
		m.account(q, eventBytes)
		at = e.Time
	}
}

func (f *frameReader) readRecords(m *Machine) {
	r := m.records
	head, tail := f.u64(), f.u64()
	r.rows.head, r.rows.tail = head, head
	if tail < head || tail-head > math.MaxUint32 || tail > math.MaxInt64 {
		f.fail("records %d to %d", head, tail)
	}
	for range tail - head {
		rec := f.readRecord()
		if f.err == nil && (!m.roster.has(uint64(rec.quota())) || int(rec.limit()) >= len(m.roster.quotas[rec.quota()].states)) {
			f.fail("a record of quota %d, limit %d", rec.quota(), rec.limit())
		}
		if f.err != nil {
			return
		}
		r.rows.push(rec)
	}
	f.readStamps(r, m.now)
	for i := head; i < tail && f.err == nil; i++ {
		rec := r.rows.at(i)
		hash := r.hashAt(i)
		if _, twice := r.find(hash, m.domainOf(rec.quota()), (*ID)(&rec.id)); twice {
			f.fail("a decision id stands twice")
			return
		}
		r.byID.insert(hash, uint32(i))
		m.sum += rec.sum(r.time(i))
		m.enter(&m.roster.quotas[rec.quota()], recordBytes)
	}
}

func (f *frameReader) readRecord() record {
	var rec record
	f.raw(rec.id[:])
	rec.digest, rec.remaining = halves(f.u64()), halves(f.u64())
	rec.quotaAndLimit = uint32(f.uvarint())
	return rec
}

// readStamps reads the times of the records, which must cover them in order and
// not lie behind now.
func (f *frameReader) readStamps(r *records, now int64) {
	n := f.uvarint()
	next, before := r.rows.head, int64(-1)
	for i := range n {
		s := stamp{first: f.u64(), time: int64(f.u64())}
		if f.err != nil || s.time <= before || s.time > now || i > 0 && s.first < next || i == 0 && s.first > next || s.first >= r.rows.tail {
			f.fail("record times out of order")
			return
		}
		r.stamps.push(s)
		next, before = max(s.first, r.rows.head)+1, s.time
	}
	if (n == 0) != (r.rows.len() == 0) {
		f.fail("%d times for %d records", n, r.rows.len())
	}
}

// SnapshotTime reads the decision time of the state that a snapshot holds, from
// its beginning.
func SnapshotTime(r io.Reader) (int64, error) {
	f := &frameReader{r: r}
	f.readHead()
	f.u64() // index
	f.u64() // term
	now := int64(f.u64())
	return now, f.err
}

// SnapshotLevel reads the level of the state that a snapshot holds, from its
// beginning.
func SnapshotLevel(r io.Reader) (uint64, error) {
	f := &frameReader{r: r}
	level := f.readHead()
	return level, f.err
}

// readHead reads what comes before the fields: the version of the snapshot, and
// the level of its state.
func (f *frameReader) readHead() (level uint64) {
	var magic [len(snapshotMagic)]byte
	_, err := io.ReadFull(f.r, magic[:])
	switch {
	case err == nil && string(magic[:]) == snapshotMagic:
		return FirstLevel
	case err == nil && string(magic[:]) == SnapshotHead:
		if level = f.u64(); level <= FirstLevel {
			f.fail("its level is %d", level)
		}
		return level
	}
	f.fail("it begins with %q, this software reads %q and %q", magic, snapshotMagic, SnapshotHead)
	return 0
}
