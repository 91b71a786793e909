package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What apply does with an entry, and which kinds of entries there are, may change only with the level of behaviour, or
// replicas of one log would differ by their software. A partition's level is part of its state, raised by an entry of its
// log, which its leader proposes once all members have said that they have the new one.
const (
	// FirstLevel is a partition's at genesis, and the one of software that says none.
	FirstLevel uint64 = 1
	// NewestLevel is the newest one that this software has.
	NewestLevel uint64 = 1
)

// Option says how a machine differs from others.
type Option func(*Machine)

// UpTo has a machine know the levels up to newest in the place of [NewestLevel].
func UpTo(newest uint64) Option { return func(m *Machine) { m.newest = newest } }

// ErrLevel says that an entry or a snapshot is of a level that this software doesn't have. It is no damage; but a
// replica that goes on regardless would be another than those that have the level, so it stops.
var ErrLevel = errors.New("a later version of the software wrote it")

// Level is the level of the partition.
func (m *Machine) Level() uint64 { return m.level }

const levelBytes = 8

// LevelEntry raises the level of the partition.
func LevelEntry(h Header, level uint64) []byte {
	h.Kind = KindLevel
	e := make([]byte, headerBytes, headerBytes+levelBytes)
	return seal(binary.LittleEndian.AppendUint64(e, level), h)
}

// LevelOf returns the level that an entry raises its partition to; false: it doesn't.
func LevelOf(e []byte) (level uint64, raises bool) {
	if len(e) != headerBytes+levelBytes || e[0] != entryVersion || Kind(e[1]) != KindLevel {
		return 0, false
	}
	return binary.LittleEndian.Uint64(e[headerBytes:]), true
}

func (m *Machine) applyLevel(body []byte, a *Applied) error {
	if len(body) != levelBytes {
		return fmt.Errorf("%w: a level of %d bytes", ErrDamaged, len(body))
	}
	switch level := binary.LittleEndian.Uint64(body); {
	case level > m.newest:
		return m.lacks(level)
	case level <= m.level:
		a.Refusal = RefusedLevel
	default:
		m.level = level
	}
	return nil
}

func (m *Machine) lacks(level uint64) error {
	return fmt.Errorf("level %d, and this version has level %d: %w", level, m.newest, ErrLevel)
}
