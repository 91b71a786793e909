package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Frame is what stays the same of a quota as long as its usage is remembered: everything that says which keys
// it has, where they live, and how what they have used is kept and let go. Policies of one quota that differ in
// nothing else can take each other's place at any moment. It is that of a normalized policy.
type Frame struct {
	Namespace, Quota string
	Domain           string
	Key              []string // none: one allowance for all
	PartitionBy      []string
	Limits           []Limit // with an Amount of 0, which may change
	KeepHistory      int64
	// Refills tells lists of overrides apart in which a key would regain its tokens otherwise; zero where no
	// override has a refill or period of its own.
	Refills [sha256.Size]byte
}

// Tombstone is what is left of a quota whose policy was deleted.
type Tombstone struct {
	Frame
	Deleted int64 // decision time
}

// Tombstones last.
const (
	// TombstoneLife is how long a deleted quota is remembered at least, in ns of decision time: afterwards
	// nothing that it admitted is in any window, and every bucket is full.
	TombstoneLife = MaxSpan
	// MaxTombstones bounds the quotas that are deleted and remembered.
	MaxTombstones = 20_000
)

// Frame returns the frame of a normalized policy.
func (p *Policy) Frame() Frame {
	f := Frame{
		Namespace: p.Namespace, Quota: p.Quota, Domain: p.Domain,
		Key: p.Key, PartitionBy: p.PartitionBy,
		Limits: slices.Clone(p.Limits), KeepHistory: p.KeepHistory,
		Refills: refills(p.Overrides),
	}
	for i := range f.Limits {
		f.Limits[i].Amount = 0
	}
	return f
}

// Equal reports whether usage that was kept under the one can go on under the other.
func (f *Frame) Equal(o *Frame) bool {
	return f.Namespace == o.Namespace && f.Quota == o.Quota && f.Domain == o.Domain &&
		slices.Equal(f.Key, o.Key) && slices.Equal(f.PartitionBy, o.PartitionBy) &&
		slices.Equal(f.Limits, o.Limits) && f.KeepHistory == o.KeepHistory && f.Refills == o.Refills
}

// refills identifies what overrides say of refills. Which override a key gets depends on all that stand before
// it, so once any has a refill or period the whole list counts: when each applies, in order, and what it says of
// refills, but not its amounts.
func refills(overrides []Override) (sum [sha256.Size]byte) {
	any := false
	var b []byte
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	for _, o := range overrides {
		b = binary.AppendUvarint(b, uint64(len(o.When)))
		for _, e := range o.When {
			text(e.Name)
			text(e.Value)
		}
		for _, a := range o.Amounts {
			if a.Refill == 0 && a.Period == 0 {
				continue
			}
			any = true
			b = append(b, 1)
			text(a.Limit)
			b = binary.AppendUvarint(b, a.Refill)
			b = binary.AppendUvarint(b, uint64(a.Period))
		}
		b = append(b, 0)
	}
	if !any {
		return sum
	}
	return sha256.Sum256(b)
}
