package fsm

import (
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// Set returns the policy set in force, nil before the first, with its version.
func (m *Machine) Set() (*policy.Compiled, Version) { return m.set, m.version }

// SetHash is the content hash of the set in force.
func (m *Machine) SetHash() [32]byte { return m.setHash }

// Settings returns the settings in force, false before genesis.
func (m *Machine) Settings() (Settings, bool) { return m.settings, m.formed }

// Now is the decision time of the last entry.
func (m *Machine) Now() int64 { return m.now }

// Term is the newest term whose first entry has been applied.
func (m *Machine) Term() uint64 { return m.term }

// Index is the log index of the last entry.
func (m *Machine) Index() uint64 { return m.index }

// LastCheckpoint is this replica's newest checkpoint.
func (m *Machine) LastCheckpoint() Checkpoint { return m.checkpoint }

// Owns reports whether the slot is this partition's.
func (m *Machine) Owns(slot uint16) bool {
	return int(slot) < len(m.slots) && m.slots[slot] == m.settings.Partition
}

// Memory is how much the state uses, in logical bytes and in things.
type Memory struct {
	Bytes, Bound uint64
	Keys         int
	Records      int
}

// Slots is the slot table of the cluster.
func (m *Machine) Slots() *keyspace.Table { return &m.slots }

// Memory says how much of its bounds the state uses.
func (m *Machine) Memory() Memory {
	if !m.formed {
		return Memory{}
	}
	return Memory{Bytes: m.bytes, Bound: m.settings.Bound, Keys: m.keys.live, Records: int(m.records.rows.len())}
}

// Recall answers a check whose id has an allow: with that allow, or, for another
// digest, with a conflict. It reads only. It knows nothing of a check that names what
// the set in force doesn't have, as one that was resolved under another may.
func (m *Machine) Recall(c *Check) (a Answer, ok bool) {
	if m.verify(c) != nil {
		return a, false
	}
	ok = m.recall(&a, c, m.records.hash(m.roster.within[c.Domain], &c.ID))
	return a, ok
}

// Refuse answers a check that the applied state shows can't be admitted at time
// now, which is not before Now: a denial, or no room. Later entries only add
// usage, so a denial holds until its At, or until the set changes. It reads only
// and is safe beside other reads.
func (m *Machine) Refuse(c *Check, now int64) (Answer, bool) {
	parts := make([]part, len(c.Charges))
	var hashes [MaxCharges]uint64
	for i := range c.Charges {
		hashes[i] = m.keys.hash(m.roster.numbers[c.Charges[i].Policy], c.Charges[i].Key)
	}
	m.gather(c, parts, hashes[:])
	var a Answer
	m.weigh(&a, parts, now)
	switch {
	case a.Verdict == VerdictDeny:
		return a, true
	case !m.due(now) && !m.roomFor(parts):
		return Answer{Verdict: VerdictMemory, Time: now}, true
	}
	return Answer{}, false
}

// Use is what a key has used of one limit.
type Use struct {
	Limit int32
	Spec  limit.Spec
	// Used and Left are whole units; Left is limit.Unlimited for an unlimited amount.
	Used, Left uint64
	// FullAt is the decision time from which all of it is available, nothing
	// else being admitted.
	FullAt int64
}

// Inspect appends to dst what the charge's key has used of each limit of its
// policy at time now. It reads only.
func (m *Machine) Inspect(dst []Use, ch *Charge, now int64) []Use {
	number := m.roster.numbers[ch.Policy]
	q := &m.roster.quotas[number]
	p := part{hash: m.keys.hash(number, ch.Key)}
	p.slot, p.known = m.keys.find(p.hash, number, ch.Key)
	for l := range q.states {
		spec := m.set.Spec(ch.Policy, l, ch.Tier, ch.Override)
		u := m.usage(&p, q, l)
		dst = append(dst, use(q, spec, u, int32(l), now))
	}
	return dst
}

func use(q *quota, spec limit.Spec, u limit.Usage, l int32, now int64) Use {
	finite := spec
	finite.Amount = min(spec.Amount, limit.MaxAmount) // even where all is admitted it is counted
	d := finite.Peek(u, now, 0)
	x := Use{Limit: l, Spec: spec, Used: finite.Amount - d.Remaining, FullAt: spec.FullAt(u, now)}
	if q.held != nil {
		d = q.restrain(d, finite, int(l), u, now, 0)
	}
	x.Left = d.Remaining
	if spec.Algorithm == limit.RollingWindow {
		x.Used = u.Log.Used(now - spec.Window)
	}
	if spec.Amount == limit.Unlimited {
		x.Left = limit.Unlimited
	}
	return x
}
