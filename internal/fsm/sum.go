package fsm

import "math/bits"

// The state hash is the sum of one term per thing that the state holds: a key,
// an event, a marker, a bucket's or counter's state, a decision record. A change
// adds a term or takes one away, so keeping the sum costs a few nanoseconds per
// change, and it doesn't matter where a thing is stored or in which order the
// sum is taken. It finds replicas that differ by accident; it is no defence
// against a liar.
//
// Terms of different kinds begin with different constants, or an event could
// stand in for a record.
const (
	sumKey    = 0x9e3779b97f4a7c15
	sumEvent  = 0xbf58476d1ce4e5b9
	sumMarker = 0x94d049bb133111eb
	sumState  = 0xd6e8feb86659fd93
	sumRecord = 0xa0761d6478bd642f
	sumIdle   = 0xe7037ed1a0b428db
)

// mix folds two words into one by a 128-bit product, as wyhash does.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x8ebc6af09c88c6e3, b^0x589965cc75374cc3)
	return hi ^ lo
}

func mix3(kind, a, b, c uint64) uint64 { return mix(mix(kind^a, b), c^kind) }
