package fsm

import (
	"slices"

	"github.com/quorate/quorate/internal/limit"
)

// LogOf is what the machine keeps of the rolling log of the check's first key.
func (m *Machine) LogOf(c *Check) (events []limit.Event, marker int64, marked bool) {
	ch := &c.Charges[0]
	slot, ok := m.keys.find(m.keys.hash(uint32(ch.Policy), ch.Key), uint32(ch.Policy), ch.Key)
	if !ok {
		return nil, 0, false
	}
	l := m.keys.block(slot).log()
	marker, marked = l.Marker()
	return slices.Collect(l.Events()), marker, marked
}

// NumberOf is the number of the quota that the check's first charge goes to.
func (m *Machine) NumberOf(c *Check) uint32 { return m.roster.numbers[c.Charges[0].Policy] }

// BlockBytes is what the segments of all key blocks take.
func (m *Machine) BlockBytes() (n int) {
	for _, c := range m.keys.blocks.classes {
		for _, s := range c.segs {
			n += len(s.bytes)
		}
	}
	return n
}

// WrittenSegments counts the segments of the key tables that were written to since
// the last snapshot.
func (m *Machine) WrittenSegments() (n int) {
	k := m.keys
	for _, c := range k.blocks.classes {
		for _, s := range c.segs {
			n += written(s.gen, k.blocks.gen)
		}
	}
	for _, s := range k.slots.segs {
		n += written(s.gen, k.slots.gen)
	}
	for _, s := range k.expiry.heap.segs {
		n += written(s.gen, k.expiry.heap.gen)
	}
	return n
}

func written(gen, now uint32) int {
	if gen == now {
		return 1
	}
	return 0
}
