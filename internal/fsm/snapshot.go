package fsm

import (
	"io"
	"slices"

	"github.com/quorate/quorate/internal/limit"
)

// A snapshot is eight bytes of magic with the version in the last, then frames:
// length u32, CRC32C u32, so many bytes. The frames' bytes make one stream; a
// frame of no bytes ends it. The stream holds the machine's fields, then its
// tables in the order of their rows, and last the state hash, which whoever
// restores must arrive at by counting everything anew.
//
// Above the first level the version is another, and the level comes first in the stream: at the first one, software from
// before there were levels reads what this one writes.
const (
	// SnapshotHead is how a snapshot of the newest version begins that this software reads; the last byte is the version.
	SnapshotHead    = "QUORATE\x03"
	snapshotMagic   = "QUORATE\x02"
	snapshotTrailer = 0x51554f52415445
)

// Snapshot is the state as it was; the machine that it was taken from goes on.
type Snapshot struct{ m Machine }

// Snapshot freezes the state, in microseconds whatever its size. Applies go on
// at once; the first to touch a segment of a table copies it.
func (m *Machine) Snapshot() *Snapshot {
	s := &Snapshot{m: *m}
	s.m.scratch = scratch{}
	if m.formed {
		s.m.keys, s.m.records = m.keys.freeze(), m.records.freeze()
		s.m.tallies, s.m.domainBytes = slices.Clone(m.tallies), slices.Clone(m.domainBytes)
	}
	return s
}

// StateHash is the hash of the state that the snapshot holds.
func (s *Snapshot) StateHash() uint64 { return s.m.StateHash() }

// Now is the decision time of the state that the snapshot holds.
func (s *Snapshot) Now() int64 { return s.m.now }

// WriteTo streams the snapshot to w.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	f := &frameWriter{w: w}
	m := &s.m
	m.writeHead(f)
	m.writeFields(f)
	if m.formed {
		m.keys.write(f, m.roster.quotas)
		m.records.write(f)
	}
	f.u64(m.StateHash())
	f.u64(snapshotTrailer)
	f.close()
	return f.written, f.err
}

func (m *Machine) writeHead(f *frameWriter) {
	if m.level == FirstLevel {
		f.out([]byte(snapshotMagic))
		return
	}
	f.out([]byte(SnapshotHead))
	f.u64(m.level)
}

func (k *keys) freeze() *keys {
	return &keys{
		seed: k.seed, slots: k.slots.freeze(), free: k.free, live: k.live,
		blocks: k.blocks.freeze(), expiry: expiry{heap: k.expiry.heap.freeze()},
	}
}

func (r *records) freeze() *records {
	return &records{rows: r.rows.freeze(), stamps: r.stamps.freeze(), seed: r.seed}
}

func (m *Machine) writeFields(f *frameWriter) {
	f.u64(m.index)
	f.u64(m.term)
	f.u64(uint64(m.now))
	f.u64(m.checkpoint.Index)
	f.u64(m.checkpoint.Hash)
	f.flag(m.formed)
	if !m.formed {
		return
	}
	f.raw(m.settings.append(nil))
	f.flag(m.set != nil)
	if m.set == nil {
		return
	}
	f.u64(m.version.Epoch)
	f.u64(m.version.Number)
	f.uvarint(uint64(len(m.canonical)))
	f.raw(m.canonical)
	f.uvarint(uint64(len(m.roster.domains)))
	for _, name := range m.roster.domains {
		f.raw(appendText(nil, name))
	}
	f.uvarint(uint64(len(m.roster.quotas)))
	for n := range m.roster.quotas {
		f.raw(m.roster.quotas[n].append(nil))
		f.u64(uint64(m.tallies[n].cut))
	}
}

func (k *keys) write(f *frameWriter, quotas []quota) {
	f.uvarint(uint64(k.slots.len()))
	f.uvarint(uint64(k.free))
	for slot := range k.slots.len() {
		ref := *k.slots.at(slot)
		if ref.class() == freeClass {
			f.flag(false)
			f.uvarint(uint64(ref.number()))
			continue
		}
		f.flag(true)
		b := block(k.blocks.read(ref))
		writeBlock(f, b, quotas[b.quota()].rolling())
	}
	f.uvarint(uint64(k.expiry.len()))
	for i := range k.expiry.heap.len() {
		d := *k.expiry.heap.at(i)
		f.uvarint(uint64(d.second))
		f.uvarint(uint64(d.slot))
	}
}

func (r *records) write(f *frameWriter) {
	f.u64(r.rows.head)
	f.u64(r.rows.tail)
	for i := r.rows.head; i < r.rows.tail; i++ {
		rec := r.rows.at(i)
		f.raw(rec.id[:])
		f.u64(whole(rec.digest))
		f.u64(whole(rec.remaining))
		f.uvarint(uint64(rec.quotaAndLimit))
	}
	f.uvarint(r.stamps.len())
	for i := r.stamps.head; i < r.stamps.tail; i++ {
		s := r.stamps.at(i)
		f.u64(s.first)
		f.u64(uint64(s.time))
	}
}

// writeBlock writes what a key is and has used; not how its block is laid out.
func writeBlock(f *frameWriter, b block, rolling bool) {
	f.uvarint(uint64(b.quota()))
	f.uvarint(uint64(b.keyLen()))
	f.raw(b.key())
	if b.states() > 0 {
		f.u64(uint64(b.idle()))
	}
	for i := range b.states() {
		f.raw(b.stateAt(i))
	}
	if rolling {
		writeLog(f, b.log())
	}
}

// writeLog writes the marker + 1, or 0 for none, then of each event the time
// since the one before + 1 and the cost, then 0.
func writeLog(f *frameWriter, l limit.Log) {
	if t, ok := l.Marker(); ok {
		f.uvarint(uint64(t) + 1)
	} else {
		f.uvarint(0)
	}
	before := int64(0)
	for e := range l.Events() {
		f.uvarint(uint64(e.Time-before) + 1)
		f.uvarint(e.Cost)
		before = e.Time
	}
	f.uvarint(0)
}
