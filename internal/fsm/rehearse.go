package fsm

// rehearsalReclaims is how many keys a rehearsed check reclaims: more than it can add,
// and charges pay for the turns of keys that stay.
const rehearsalReclaims = 2

// Rehearse decides a check at time now, or at Now if that is later, as a batch of it
// alone would, and charges what it allows. It is for a machine that no log feeds, such
// as one that replays history: the check needs no id, fence or slot, and none is
// remembered. It panics where the check names places that the set doesn't have.
func (m *Machine) Rehearse(now int64, c *Check) Answer {
	m.now = max(m.now, now)
	m.reclaim(rehearsalReclaims + len(c.Charges))
	keys := m.scratch.ahead.keys[:len(c.Charges)]
	for i := range c.Charges {
		keys[i] = m.keys.hash(m.roster.numbers[c.Charges[i].Policy], c.Charges[i].Key)
	}
	var a Answer
	m.admit(&a, c, keys)
	return a
}
