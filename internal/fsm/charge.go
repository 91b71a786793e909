package fsm

import "github.com/quorate/quorate/internal/limit"

// take charges one key.
func (m *Machine) take(p *part) {
	q := &m.roster.quotas[p.quota]
	fresh := !p.known
	if fresh {
		m.create(p, q)
	} else {
		m.evict(p.slot, p.hash, q)
	}
	if q.rolling() {
		m.record(p, q)
	}
	if q.count > 0 {
		m.chargeStates(p, q)
	}
	if fresh {
		m.file(p, q)
	}
}

func (m *Machine) create(p *part, q *quota) {
	p.slot, p.known = m.keys.create(p.hash, p.quota, q.count, p.charge.Key, q.rolling()), true
	for i := range q.count {
		m.sum += stateSum(p.hash, i, limit.State{})
	}
	m.sum += idleSum(p.hash, 0)
	m.enter(q, q.keyBytes(len(p.charge.Key)))
}

// file gives a new key its turn in the expiry queue.
func (m *Machine) file(p *part, q *quota) {
	d := due{second: second(q.deadline(m.keys.block(p.slot))), slot: p.slot}
	m.keys.expiry.push(d)
	m.sum += keySum(p.hash, d)
}

// record appends the event to the key's log.
func (m *Machine) record(p *part, q *quota) {
	l := m.keys.mutable(p.slot).log()
	e := limit.Event{Time: m.now, Cost: min(p.cost, limit.MaxAmount)} // only an unlimited amount admits more
	if q.precision > 0 {
		e = m.merged(l, p.hash, q, e)
	}
	if !m.covered(p, q) {
		m.forgetExcess(l, p.hash, q, e.Cost)
	}
	if !l.TryAppend(e.Time, e.Cost) {
		m.keys.logFor(p.slot, l.Need(e.Time, e.Cost)).Append(e.Time, e.Cost)
	}
	m.sum += eventSum(p.hash, e)
	m.account(q, eventBytes)
}

// merged takes back the last event if one grain holds both, and returns what stands
// for the two.
func (m *Machine) merged(l limit.Log, hash uint64, q *quota, e limit.Event) limit.Event {
	last, ok := l.Last()
	if !ok || !limit.Merges(last.Time, e.Time, q.precision) {
		return e
	}
	l.DropLast()
	m.sum -= eventSum(hash, last)
	m.account(q, -eventBytes)
	return last.Merged(e.Time, e.Cost)
}

// covered reports whether a finite amount, whose window is as long as the log is
// kept, has just admitted the part: then all that the log holds is within it.
func (m *Machine) covered(p *part, q *quota) bool {
	return q.covering >= 0 &&
		m.set.Spec(p.charge.Policy, int(q.covering), p.charge.Tier, p.charge.Override).Amount != limit.Unlimited
}

// forgetExcess forgets the oldest events that the key can never need once cost
// is appended. The log keeps a marker at the newest one forgotten.
func (m *Machine) forgetExcess(l limit.Log, hash uint64, q *quota, cost uint64) {
	for e, ok := l.Excess(q.largest, cost); ok; e, ok = l.Excess(q.largest, cost) {
		m.unmark(l, hash, q)
		l.Forget()
		m.sum += markerSum(hash, e.Time) - eventSum(hash, e)
	}
}

// unmark takes a marker out of the sums; the caller removes or replaces it.
func (m *Machine) unmark(l limit.Log, hash uint64, q *quota) {
	if t, ok := l.Marker(); ok {
		m.sum -= markerSum(hash, t)
		m.account(q, -eventBytes)
	}
}

func (m *Machine) chargeStates(p *part, q *quota) {
	b := m.keys.mutable(p.slot)
	var idle int64
	for l, i := range q.states {
		if i < 0 {
			continue
		}
		spec := m.set.Spec(p.charge.Policy, l, p.charge.Tier, p.charge.Override)
		old := b.state(int(i))
		now := spec.Charge(old, m.now, p.cost)
		if spec.Amount == limit.Unlimited {
			now = m.cut(q, now, max(q.debts[l], spec.Charge(old, m.now, 0).Used))
		}
		limit.PutState(b.stateAt(int(i)), now)
		m.sum += stateSum(p.hash, int(i), now) - stateSum(p.hash, int(i), old)
		idle = max(idle, spec.IdleAt(now))
	}
	m.sum += idleSum(p.hash, idle) - idleSum(p.hash, b.idle())
	b.setIdle(idle)
}

// cut is the state with a debt of at most most, to the fraction. That is the debt from
// before where it was more: under a larger capacity, which is owed all the same.
func (m *Machine) cut(q *quota, st limit.State, most uint64) limit.State {
	if st.Used > most {
		st.Used, st.Carry = most, 0
		m.tallies[q.number].cut = m.now
	}
	return st
}

// remember records the allow under the check's id, of the given hash.
func (m *Machine) remember(c *Check, a *Answer, hash uint64) {
	number := m.roster.numbers[a.Policy]
	r := record{
		id: c.ID, digest: halves(c.Digest), remaining: halves(a.Remaining),
		quotaAndLimit: number<<8 | uint32(a.Limit),
	}
	m.records.add(r, hash, m.now)
	m.sum += r.sum(m.now)
	m.enter(&m.roster.quotas[number], recordBytes)
}

func eventSum(hash uint64, e limit.Event) uint64 {
	return mix3(sumEvent, hash, uint64(e.Time), e.Cost)
}

func markerSum(hash uint64, t int64) uint64 { return mix3(sumMarker, hash, uint64(t), 0) }

func keySum(hash uint64, d due) uint64 {
	return mix3(sumKey, hash, uint64(d.second), uint64(d.slot))
}

// idleSum of a key without states is no term at all.
func idleSum(hash uint64, at int64) uint64 {
	if at == 0 {
		return 0
	}
	return mix3(sumIdle, hash, uint64(at), 0)
}

func stateSum(hash uint64, i int, s limit.State) uint64 {
	return mix(mix3(sumState+uint64(i), hash, s.Used, s.Carry), uint64(s.At))
}
