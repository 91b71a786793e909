package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/quorate/quorate/internal/limit"
)

// Kind says what an entry does.
type Kind uint8

// The kinds of entries. Their values are on disks and never change.
const (
	KindSettings   Kind = 1 // genesis: what this partition is
	KindPolicies   Kind = 2 // switch to a policy set
	KindFirst      Kind = 3 // the first entry of a term: its decision time
	KindTick       Kind = 4 // decision time alone, and a turn of the reclaimer
	KindCheckpoint Kind = 5 // note the state hash here, compare the one before
	KindBatch      Kind = 6 // checks, sealed together
	KindLevel      Kind = 7 // raise the level of behaviour; none before all members have the new one
)

// Header begins every entry.
type Header struct {
	Kind Kind
	// Time is the decision time in nanoseconds that the entry was stamped with.
	Time int64
	// Term is the term whose first entry the stamp counts from. Under any other
	// term the stamp means nothing, and apply refuses the entry whole.
	Term uint64
	// Seq is the proposer's own number for the entry, by which it finds who waits.
	Seq uint64
}

// An entry is a 32-byte header and a body, little endian:
//
//	0  version u8   1 kind u8   2 zero u16   4 CRC32C u32 of all other bytes
//	8  time i64    16 term u64    24 seq u64    32 body
const (
	entryVersion = 1
	headerBytes  = 32
)

// ErrDamaged is wrapped by every error about bytes that no replica ever wrote.
// A replica that meets it stops: what it would answer is anybody's guess.
var ErrDamaged = errors.New("damaged entry")

func castagnoliTable() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, castagnoliTable()) }

// checksum covers the kind too: one flipped bit there would make a batch a tick.
func checksum(e []byte) uint32 {
	return crc32.Update(castagnoli(e[:4]), castagnoliTable(), e[8:])
}

// seal fills the header of e, whose body is in place behind it.
func seal(e []byte, h Header) []byte {
	e[0], e[1], e[2], e[3] = entryVersion, byte(h.Kind), 0, 0
	binary.LittleEndian.PutUint64(e[8:], uint64(h.Time))
	binary.LittleEndian.PutUint64(e[16:], h.Term)
	binary.LittleEndian.PutUint64(e[24:], h.Seq)
	binary.LittleEndian.PutUint32(e[4:], checksum(e))
	return e
}

// ParseHeader verifies an entry's checksum and version and returns its header.
func ParseHeader(e []byte) (Header, error) {
	if len(e) < headerBytes {
		return Header{}, fmt.Errorf("%w: %d bytes, shorter than a header", ErrDamaged, len(e))
	}
	if e[0] != entryVersion {
		return Header{}, fmt.Errorf("%w: version %d, this software reads %d", ErrDamaged, e[0], entryVersion)
	}
	if got, want := checksum(e), binary.LittleEndian.Uint32(e[4:]); got != want {
		return Header{}, fmt.Errorf("%w: checksum %08x, written as %08x", ErrDamaged, got, want)
	}
	h := Header{
		Kind: Kind(e[1]),
		Time: int64(binary.LittleEndian.Uint64(e[8:])),
		Term: binary.LittleEndian.Uint64(e[16:]),
		Seq:  binary.LittleEndian.Uint64(e[24:]),
	}
	if h.Kind < KindSettings || h.Kind > KindLevel || h.Time < 0 || h.Time == limit.Never || e[2] != 0 || e[3] != 0 {
		return Header{}, fmt.Errorf("%w: kind %d at time %d", ErrDamaged, h.Kind, h.Time)
	}
	if bare := h.Kind == KindFirst || h.Kind == KindTick; bare && len(e) > headerBytes {
		return Header{}, fmt.Errorf("%w: %d bytes behind an entry without a body", ErrDamaged, len(e)-headerBytes)
	}
	return h, nil
}

// TimeOf returns the decision time that an entry, logged in term, carries. One
// stamped in another term carries none: apply refuses it, whatever its stamp says.
func TimeOf(e []byte, term uint64) (int64, bool) {
	if len(e) < headerBytes || e[0] != entryVersion || binary.LittleEndian.Uint64(e[16:]) != term {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(e[8:])), true
}

// First returns the first entry of a term.
func First(h Header) []byte { return bare(h, KindFirst) }

// Tick returns an entry that carries only time.
func Tick(h Header) []byte { return bare(h, KindTick) }

func bare(h Header, k Kind) []byte {
	h.Kind = k
	return seal(make([]byte, headerBytes), h)
}

// Checkpoint is a state hash at an index of the log.
type Checkpoint struct {
	Index uint64
	Hash  uint64
}

// CheckpointEntry asks every replica to note its state hash, and carries the
// proposer's previous checkpoint for them to compare with their own.
func CheckpointEntry(h Header, previous Checkpoint) []byte {
	h.Kind = KindCheckpoint
	e := make([]byte, headerBytes, headerBytes+16)
	e = binary.LittleEndian.AppendUint64(e, previous.Index)
	e = binary.LittleEndian.AppendUint64(e, previous.Hash)
	return seal(e, h)
}

func parseCheckpoint(body []byte) (Checkpoint, error) {
	if len(body) != 16 {
		return Checkpoint{}, fmt.Errorf("%w: a checkpoint of %d bytes", ErrDamaged, len(body))
	}
	return Checkpoint{
		Index: binary.LittleEndian.Uint64(body),
		Hash:  binary.LittleEndian.Uint64(body[8:]),
	}, nil
}

// Version orders policy sets: within an epoch by number; a rewind mints a new
// epoch.
type Version struct {
	Epoch  uint64
	Number uint64
}

// Before orders versions.
func (v Version) Before(o Version) bool {
	return v.Epoch < o.Epoch || v.Epoch == o.Epoch && v.Number < o.Number
}
