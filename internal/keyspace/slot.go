package keyspace

import "fmt"

// Slots is the number of slots that a cluster's keys are spread over. It is a power of two and never changes.
const Slots = 4096

// What a hash is of, written first, so that no input of one kind is an input of another.
const (
	kindSlot       = 1
	kindDigest     = 2
	kindDescriptor = 3
)

// Slot returns where the keys live whose domain is this and whose descriptors have d's values for names:
// a policy's partitionBy, sorted. No names means one slot for the whole domain, which is also where a check
// that matches no policy is answered. A missing entry counts as empty.
func (s Seed) Slot(domain string, d Descriptor, names []string) uint16 {
	h := s.newHash()
	h.writeByte(kindSlot)
	h.writePart(domain)
	for _, name := range names {
		value, _ := d.Get(name)
		h.writePart(name)
		h.writePart(value)
	}
	return uint16(h.sum() % Slots)
}

// Table says which partition owns each slot. It is fixed at genesis.
type Table [Slots]uint16

// EvenTable returns the table that gives each of the partitions 0..partitions-1 one run of neighbouring
// slots, their lengths differing by one at most. It panics unless 1 <= partitions <= Slots: settings are
// checked where they are read.
func EvenTable(partitions int) Table {
	if partitions < 1 || partitions > Slots {
		panic(fmt.Sprintf("keyspace: %d partitions, not in 1..%d", partitions, Slots))
	}
	var t Table
	for slot := range t {
		t[slot] = uint16(slot * partitions / Slots)
	}
	return t
}
