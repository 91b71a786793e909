package fsm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/quorate/quorate/internal/keyspace"
)

// Settings are what genesis fixes of a partition. Apply reads its bounds from
// here and not from a configuration, or replicas could disagree on a refusal.
type Settings struct {
	// Seed keys every hash of the cluster.
	Seed keyspace.Seed
	// Partition is this partition's number among Partitions.
	Partition, Partitions uint16
	// Epoch is minted anew by every rewind and part of every answer.
	Epoch uint64
	// Horizon is how long a decision record lives, in nanoseconds of decision time.
	Horizon int64
	// Bound and DomainBound limit the logical bytes of all state and of one domain's.
	Bound, DomainBound uint64
}

// Defaults of a partition's settings.
const (
	DefaultHorizon   int64  = 20e9
	DefaultNodeBound uint64 = 1 << 30
)

// BoundFor returns the share of a node's bound that one of its partitions has
// when every node hosts its part: nodeBound × nodes / (partitions × replicas).
func BoundFor(nodeBound uint64, nodes, partitions, replicas int) uint64 {
	return nodeBound * uint64(nodes) / uint64(partitions*replicas)
}

// Validate says what is wrong with s.
func (s Settings) Validate() error {
	switch {
	case s.Partitions == 0 || s.Partition >= s.Partitions || int(s.Partitions) > keyspace.Slots:
		return fmt.Errorf("partition %d of %d: want 1 to %d partitions, numbered from 0", s.Partition, s.Partitions, keyspace.Slots)
	case s.Horizon < 2 || s.Horizon > 3600e9:
		return fmt.Errorf("retry horizon %d ns: want more than nothing and at most an hour", s.Horizon)
	case s.Bound == 0 || s.DomainBound == 0 || s.DomainBound > s.Bound || s.Bound > math.MaxInt64:
		return fmt.Errorf("bounds of %d bytes in all and %d a domain: want both positive, the first the larger", s.Bound, s.DomainBound)
	}
	return nil
}

const settingsBytes = 16 + 2 + 2 + 8 + 8 + 8 + 8

func (s Settings) append(b []byte) []byte {
	b = append(b, s.Seed[:]...)
	b = binary.LittleEndian.AppendUint16(b, s.Partition)
	b = binary.LittleEndian.AppendUint16(b, s.Partitions)
	b = binary.LittleEndian.AppendUint64(b, s.Epoch)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Horizon))
	b = binary.LittleEndian.AppendUint64(b, s.Bound)
	return binary.LittleEndian.AppendUint64(b, s.DomainBound)
}

func (s Settings) sum() uint64 {
	h := uint64(s.Partition)<<16 | uint64(s.Partitions)
	for _, w := range []uint64{leWord(s.Seed[:]), leWord(s.Seed[8:]), s.Epoch, uint64(s.Horizon), s.Bound, s.DomainBound} {
		h = mix(h, w)
	}
	return h
}

func parseSettings(b []byte) (Settings, error) {
	if len(b) != settingsBytes {
		return Settings{}, fmt.Errorf("%w: settings of %d bytes", ErrDamaged, len(b))
	}
	var s Settings
	copy(s.Seed[:], b)
	s.Partition = binary.LittleEndian.Uint16(b[16:])
	s.Partitions = binary.LittleEndian.Uint16(b[18:])
	s.Epoch = binary.LittleEndian.Uint64(b[20:])
	s.Horizon = int64(binary.LittleEndian.Uint64(b[28:]))
	s.Bound = binary.LittleEndian.Uint64(b[36:])
	s.DomainBound = binary.LittleEndian.Uint64(b[44:])
	if err := s.Validate(); err != nil {
		return Settings{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return s, nil
}

// SettingsEntry fixes a partition's settings; the first one in its log counts.
func SettingsEntry(h Header, s Settings) []byte {
	h.Kind = KindSettings
	return seal(s.append(make([]byte, headerBytes, headerBytes+settingsBytes)), h)
}
