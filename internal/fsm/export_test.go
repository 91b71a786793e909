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
