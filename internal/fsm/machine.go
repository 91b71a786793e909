package fsm

import (
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// Machine is the state of one partition: a pure function of the entries that it
// applied. It isn't safe for concurrent use; reads may run beside each other.
type Machine struct {
	settings Settings
	formed   bool // settings are in force
	slots    keyspace.Table

	level  uint64 // of behaviour
	newest uint64 // that this software has

	index uint64 // of the last entry
	term  uint64 // whose first entry has been applied
	now   int64

	version   Version
	canonical []byte
	setHash   [32]byte
	set       *policy.Compiled // nil until the first set

	roster      roster
	tallies     []tally  // by quota
	domainBytes []uint64 // by domain
	bytes       uint64

	keys    *keys
	records *records

	sum        uint64
	checkpoint Checkpoint

	scratch scratch
}

// scratch is what applying a batch needs over and over.
type scratch struct {
	check   Check
	batch   batch
	parts   [MaxCharges]part
	ahead   ahead
	answers [MaxChecks]Answer
}

// New returns the machine of an empty log.
func New(options ...Option) *Machine {
	m := &Machine{level: FirstLevel, newest: NewestLevel}
	for _, o := range options {
		o(m)
	}
	return m
}

// Apply applies one entry of the log. An error means damage, or a level that this software doesn't have: the replica
// must stop.
func (m *Machine) Apply(index, term uint64, entry []byte) (Applied, error) {
	h, err := ParseHeader(entry)
	if err != nil {
		return Applied{}, err
	}
	m.index = index
	a := Applied{Header: h, Index: index}
	if !m.accepts(h, term) {
		a.Refusal = RefusedTerm
		return a, nil
	}
	m.now = max(m.now, h.Time)
	body := entry[headerBytes:]
	switch h.Kind {
	case KindFirst:
		m.term = term
	case KindSettings:
		err = m.applySettings(body, &a)
	case KindPolicies:
		err = m.applyPolicies(body, &a)
	case KindCheckpoint:
		err = m.applyCheckpoint(body, &a)
	case KindBatch:
		err = m.applyBatch(body, &a)
	case KindTick:
		m.reclaim(tickReclaims)
	case KindLevel:
		err = m.applyLevel(body, &a)
	}
	return a, err
}

// accepts reports whether h's stamp means anything in the term under which the
// entry got into the log: it counts from that term's first entry, which must
// have been applied.
func (m *Machine) accepts(h Header, term uint64) bool {
	return h.Term == term && (h.Kind == KindFirst || m.term == term)
}

func (m *Machine) applySettings(body []byte, a *Applied) error {
	s, err := parseSettings(body)
	if err != nil {
		return err
	}
	if m.formed {
		if s != m.settings {
			a.Refusal = RefusedSettings
		}
		return nil
	}
	m.form(s)
	return nil
}

func (m *Machine) form(s Settings) {
	m.settings, m.formed = s, true
	m.slots = keyspace.EvenTable(int(s.Partitions))
	m.keys = newKeys(s.Seed)
	m.records = newRecords(s.Seed, m.domainOf)
}

// applyCheckpoint compares the proposer's previous checkpoint with this
// replica's own, then notes the hash of the state that this entry leaves.
func (m *Machine) applyCheckpoint(body []byte, a *Applied) error {
	theirs, err := parseCheckpoint(body)
	if err != nil {
		return err
	}
	a.Diverged = theirs.Index == m.checkpoint.Index && theirs.Hash != m.checkpoint.Hash
	m.forgetLapsed()
	m.checkpoint = Checkpoint{}
	m.checkpoint = Checkpoint{Index: m.index, Hash: m.StateHash()}
	return nil
}

func (m *Machine) applyBatch(body []byte, a *Applied) error {
	b, c := &m.scratch.batch, &m.scratch.check
	if err := b.open(body); err != nil {
		return err
	}
	if m.set == nil || b.version != m.version {
		a.Refusal = RefusedVersion
		return nil
	}
	m.reclaim(batchReclaims + len(b.charges)/chargeBytes)
	a.Answers = m.scratch.answers[:b.count]
	m.scratch.ahead.batch = *b
	var ids, keys []uint64 // hashes of the next checks' ids and keys
	for i := 0; b.next(c); i++ {
		if len(ids) == 0 {
			ids, keys = m.scratch.ahead.look(m)
		}
		if err := m.verify(c); err != nil {
			return err
		}
		m.decide(&a.Answers[i], c, ids[0], keys)
		ids, keys = ids[1:], keys[len(c.Charges):]
	}
	return nil
}

// StateHash identifies the state: replicas that applied the same entries agree
// on it, whether they replayed all of them or started from a snapshot.
func (m *Machine) StateHash() uint64 {
	h := m.sum
	for _, w := range []uint64{
		m.index, m.term, uint64(m.now), m.version.Epoch, m.version.Number, leWord(m.setHash[:]),
		m.bytes, m.checkpoint.Index, m.checkpoint.Hash, m.settings.sum(),
	} {
		h = mix(h, w)
	}
	for i := range m.roster.quotas {
		h = mix3(h, m.roster.quotas[i].sum, m.tallies[i].named, uint64(m.tallies[i].cut))
	}
	for i, name := range m.roster.domains {
		h = mix3(h, uint64(castagnoli([]byte(name))), m.domainBytes[i], uint64(i))
	}
	if m.formed {
		h = mix3(h, m.records.rows.head, m.records.rows.tail, uint64(m.keys.live)<<32|uint64(m.keys.free))
	}
	if m.level > FirstLevel { // at the first one it is what it was before there were levels
		h = mix(h, m.level)
	}
	return h
}
