package fsm

import (
	"math"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// has reports whether a quota has the number.
func (r *roster) has(number uint64) bool {
	return number < uint64(len(r.quotas)) && r.quotas[number].name != ""
}

// readRoster reads who is who under the set that was read before.
func (f *frameReader) readRoster(m *Machine) {
	r := roster{domains: f.readDomains(), numbers: make([]uint32, m.set.Policies())}
	m.domainBytes = make([]uint64, len(r.domains))
	for i := range r.numbers {
		r.numbers[i] = unnamed
	}
	live := 0
	n := f.uvarint()
	for range n {
		q := f.readQuota(m, &r, uint32(len(r.quotas)))
		cut := int64(f.u64())
		if f.err != nil || cut < neverCut || cut > m.now {
			f.fail("quota %d was cut at %d", len(r.quotas), cut)
			return
		}
		if q.name != "" && q.grave == nil {
			r.numbers[q.policy] = q.number
			live++
		}
		r.quotas = append(r.quotas, q)
		m.tallies = append(m.tallies, tally{cut: cut})
	}
	m.roster = r.finish(m.set)
	if f.err == nil && (live != m.set.Policies() || len(m.tallies) != len(m.roster.quotas) || len(m.domainBytes) != len(m.roster.domains)) {
		f.fail("%d quotas for %d policies", live, m.set.Policies())
		return
	}
	for n := range m.roster.quotas {
		m.accountGrave(&m.roster.quotas[n], 1)
	}
}

// unnamed is no quota's number.
const unnamed = math.MaxUint32

func (f *frameReader) readDomains() (names []string) {
	seen := map[string]bool{}
	n := f.uvarint()
	for range n {
		name := f.text()
		if f.err != nil || seen[name] {
			f.fail("domain %q stands twice", name)
			return nil
		}
		seen[name] = name != ""
		names = append(names, name)
	}
	return names
}

// readQuota reads what append wrote of a quota, by its number.
func (f *frameReader) readQuota(m *Machine, r *roster, number uint32) (q quota) {
	name := f.text()
	if f.err != nil || name == "" {
		return q
	}
	q.number, q.name, q.namespace = number, name, f.text()
	domain, place, holds := f.uvarint(), f.uvarint(), f.uvarint()
	if f.err != nil || domain >= uint64(len(r.domains)) || r.domains[domain] == "" || place > uint64(m.set.Policies()) || holds > policy.MaxLimits {
		f.fail("quota %q is in domain %d, at place %d, with %d holds", name, domain, place, holds)
		return quota{}
	}
	q.domain, q.policy = int32(domain), int32(place)-1
	for range holds {
		q.held = append(q.held, hold{f.uvarint(), int64(f.uvarint())})
	}
	limits := 0
	if q.policy < 0 {
		limits = f.readGrave(m, r, &q)
	} else {
		limits = f.match(m, r, &q)
	}
	if f.err == nil && len(q.held) > 0 && len(q.held) != limits {
		f.fail("quota %q has %d limits and %d holds", name, limits, len(q.held))
	}
	return q
}

// match fills in what the policy of a quota says of it; no other may have named the policy.
func (f *frameReader) match(m *Machine, r *roster, q *quota) (limits int) {
	p := m.set.Policy(q.policy)
	if p.Namespace != q.namespace || p.Quota != q.name || p.Domain != r.domains[q.domain] || r.numbers[q.policy] != unnamed {
		f.fail("quota %q isn't that of policy %d", q.name, q.policy)
		return 0
	}
	frame, held := p.Frame(), q.held
	q.frame, q.held = newFrame(&frame), nil
	*q = q.under(m.set, q.policy, m.now, neverCut)
	q.held = held // also those whose time has passed
	return len(q.states)
}

// readGrave reads what is remembered of a deleted quota.
func (f *frameReader) readGrave(m *Machine, r *roster, q *quota) (limits int) {
	deleted := int64(f.uvarint())
	frame := f.readFrame()
	frame.Namespace, frame.Quota, frame.Domain = q.namespace, q.name, r.domains[q.domain]
	if f.err != nil || deleted < 0 || deleted > m.now {
		f.fail("quota %q was deleted at %d", q.name, deleted)
		return 0
	}
	q.frame, q.grave = newFrame(&frame), newGrave(frame, deleted)
	for range frame.Limits {
		q.debts = append(q.debts, f.uvarint())
	}
	return len(frame.Limits)
}

// readFrame reads what appendFrame wrote. It need not be one that a valid policy has; what a machine does with it must
// be sound all the same.
func (f *frameReader) readFrame() (frame policy.Frame) {
	n := f.uvarint()
	if n == 0 || n > policy.MaxLimits {
		f.fail("a frame of %d limits", n)
		return frame
	}
	rolls := false
	for range n {
		l := policy.Limit{Name: f.text(), Algorithm: limit.Algorithm(min(f.uvarint(), math.MaxUint8)), Window: f.span(), Refill: f.uvarint(), Precision: f.span()}
		if l.Algorithm < limit.RollingWindow || l.Algorithm > limit.FixedWindow || l.Window == 0 {
			f.fail("a frame with a limit of %v", l.Algorithm)
			return frame
		}
		rolls = rolls || l.Algorithm == limit.RollingWindow
		frame.Limits = append(frame.Limits, l)
	}
	frame.Key, frame.PartitionBy = f.names(), append([]string{}, f.names()...)
	frame.KeepHistory = f.span()
	f.raw(frame.Refills[:])
	if rolls != (frame.KeepHistory > 0) {
		f.fail("a frame that keeps %d ns of history", frame.KeepHistory)
	}
	return frame
}

// names reads a list of names.
func (f *frameReader) names() (names []string) {
	n := f.uvarint()
	for range n {
		if f.err != nil {
			return nil
		}
		names = append(names, f.text())
	}
	return names
}

// span reads a length of time that a policy may ask for.
func (f *frameReader) span() int64 {
	n := f.uvarint()
	if n > uint64(policy.MaxSpan) {
		f.fail("a length of %d ns", n)
		return 0
	}
	return int64(n)
}

// text reads a name.
func (f *frameReader) text() string {
	n := f.uvarint()
	if n > policy.MaxNameBytes {
		f.fail("a name of %d bytes", n)
		return ""
	}
	return string(f.bytes(n))
}
