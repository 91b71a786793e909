package fsm

import (
	"encoding/binary"

	"github.com/quorate/quorate/internal/policy"
)

// grave is what is remembered of a quota whose policy was deleted: how its keys are kept, so that they are let go in
// their turn, and what a policy must be like to go on with them.
type grave struct {
	policy.Frame
	deleted int64  // decision time
	bytes   uint64 // logical ones
}

// graveBytes is what a deleted quota counts for in the memory bounds, beside the length of what is written of it.
const graveBytes = 512

func newGrave(f policy.Frame, deleted int64) *grave {
	return &grave{Frame: f, deleted: deleted, bytes: graveBytes + uint64(len(appendFrame(nil, &f)))}
}

// bury leaves of the quotas of r that have no policy any more what has to be remembered.
func (m *Machine) bury(r *roster) {
	for n := range r.quotas {
		q := &r.quotas[n]
		stays := q.policy >= 0 && int(q.policy) < len(r.numbers) && r.numbers[q.policy] == uint32(n)
		if q.name == "" || q.grave != nil || stays {
			continue
		}
		q.grave = newGrave(m.set.Policy(q.policy).Frame(), m.now)
		q.policy = -1
	}
}

// lapsed reports whether nothing names the quota any more and all that it ever admitted has left every window.
func (m *Machine) lapsed(q *quota) bool {
	return q.grave != nil && m.now-q.grave.deleted >= policy.TombstoneLife && m.tallies[q.number].named == 0
}

// forgetLapsed frees the numbers of what has lapsed.
func (m *Machine) forgetLapsed() {
	for n := range m.roster.quotas {
		if m.lapsed(&m.roster.quotas[n]) {
			m.install(m.reassign(m.set))
			return
		}
	}
}

// accountGrave adds to, or with a sign of -1 takes from, the logical bytes those of a deleted quota.
func (m *Machine) accountGrave(q *quota, sign int64) {
	if q.grave != nil {
		bytes := uint64(sign * int64(q.grave.bytes))
		m.bytes += bytes
		m.domainBytes[q.domain] += bytes
	}
}

// Tombstones lists the quotas that are deleted and remembered, by which the next set is judged.
func (m *Machine) Tombstones() (gone []policy.Tombstone) {
	for n := range m.roster.quotas {
		if q := &m.roster.quotas[n]; q.grave != nil && !m.lapsed(q) {
			gone = append(gone, policy.Tombstone{Frame: q.grave.Frame, Deleted: q.grave.deleted})
		}
	}
	return gone
}

// append writes what the roster says of a quota, as it stands in a snapshot and in the state hash: nothing but an empty
// name for a number that is free. What follows from the policy set isn't written.
func (q *quota) append(b []byte) []byte {
	b = appendText(b, q.name)
	if q.name == "" {
		return b
	}
	b = appendText(b, q.namespace)
	b = binary.AppendUvarint(b, uint64(q.domain))
	b = binary.AppendUvarint(b, uint64(q.policy+1))
	b = binary.AppendUvarint(b, uint64(len(q.held)))
	for _, h := range q.held {
		b = binary.AppendUvarint(b, h.most)
		b = binary.AppendUvarint(b, uint64(h.until))
	}
	if q.grave == nil {
		return b
	}
	b = binary.AppendUvarint(b, uint64(q.grave.deleted))
	b = appendFrame(b, &q.grave.Frame)
	for _, most := range q.debts {
		b = binary.AppendUvarint(b, most)
	}
	return b
}

// appendFrame writes a frame but for the names that are written elsewhere.
func appendFrame(b []byte, f *policy.Frame) []byte {
	b = binary.AppendUvarint(b, uint64(len(f.Limits)))
	for _, l := range f.Limits {
		b = appendText(b, l.Name)
		for _, v := range []uint64{uint64(l.Algorithm), uint64(l.Window), l.Refill, uint64(l.Precision)} {
			b = binary.AppendUvarint(b, v)
		}
	}
	for _, names := range [][]string{f.Key, f.PartitionBy} {
		b = binary.AppendUvarint(b, uint64(len(names)))
		for _, name := range names {
			b = appendText(b, name)
		}
	}
	b = binary.AppendUvarint(b, uint64(f.KeepHistory))
	return append(b, f.Refills[:]...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
