package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// The first term, under which the founding configuration is logged, and the key under which Raft
// keeps its current one.
const (
	foundingTerm   = 1
	currentTermKey = "CurrentTerm"
)

// stableStore keeps Raft's term and vote, each with a checksum: a vote that is read back as another
// one elects two leaders in one term. Every error ends the stores, but for a key that isn't there,
// which Raft knows by the inner store's own error text.
type stableStore struct {
	disk  disk
	guard *diskGuard
}

var _ raft.StableStore = (*stableStore)(nil)

// Set implements raft.StableStore.
func (s *stableStore) Set(key, value []byte) error {
	sealed := sealValue(key, value)
	return s.guard.do("write vote or term", nil, func() error { return s.disk.Set(key, sealed) })
}

// Get implements raft.StableStore.
func (s *stableStore) Get(key []byte) (value []byte, err error) {
	err = s.guard.do("read vote or term", raftboltdb.ErrKeyNotFound, func() (err error) { value, err = s.get(key); return err })
	return value, err
}

// SetUint64 implements raft.StableStore.
func (s *stableStore) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (s *stableStore) GetUint64(key []byte) (value uint64, err error) {
	err = s.guard.do("read vote or term", raftboltdb.ErrKeyNotFound, func() (err error) {
		value, err = s.getUint64(string(key))
		return err
	})
	return value, err
}

// get reads and verifies one value, unguarded.
func (s *stableStore) get(key []byte) ([]byte, error) {
	sealed, err := s.disk.Get(key)
	if err != nil {
		return nil, err
	}
	n := len(sealed) - 4
	if n < 0 || binary.LittleEndian.Uint32(sealed[n:]) != valueSum(key, sealed[:n]) {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, key)
	}
	return sealed[:n:n], nil
}

func (s *stableStore) getUint64(key string) (uint64, error) {
	value, err := s.get([]byte(key))
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// highestKey is where the newest entry is noted that was ever truncated, unguarded.
const highestKey = "HighestTruncated"

func (s *stableStore) highest() (Start, error) {
	value, err := s.get([]byte(highestKey))
	switch {
	case errors.Is(err, raftboltdb.ErrKeyNotFound):
		return Start{}, nil
	case err != nil:
		return Start{}, err
	case len(value) != 16:
		return Start{}, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, highestKey, len(value))
	}
	return Start{Term: binary.BigEndian.Uint64(value), Index: binary.BigEndian.Uint64(value[8:])}, nil
}

func (s *stableStore) setHighest(held Start) error {
	value := binary.BigEndian.AppendUint64(nil, held.Term)
	value = binary.BigEndian.AppendUint64(value, held.Index)
	return s.disk.Set([]byte(highestKey), sealValue([]byte(highestKey), value))
}

// sealValue is a value with its checksum.
func sealValue(key, value []byte) []byte {
	sealed := append(append(make([]byte, 0, len(value)+4), value...), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(sealed[len(value):], valueSum(key, value))
	return sealed
}

// valueSum is the CRC32C of a key and its value.
func valueSum(key, value []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Update(0, table, key), table, value)
}
