package fsm

// Reclaiming is part of applying entries, in bounded portions: what no longer
// counts goes when an entry says so, on every replica alike, and no entry pays
// for more than a few milliseconds of it. A batch reclaims more than it can add, a
// key per charge; and a key that was used since it was filed, and so takes a turn
// without going, has a charge that paid for that turn.
const (
	batchReclaims = 64
	tickReclaims  = 16384
	// roomReclaims is tried before a check is refused for want of memory.
	roomReclaims = 64
)

// Due reports whether state waits to be reclaimed, so that an idle leader logs
// ticks until none does.
func (m *Machine) Due() bool {
	return m.formed && m.due(m.now)
}

// due reports whether there would be something to reclaim at the time now.
func (m *Machine) due(now int64) bool {
	oldest, ok := m.records.oldest()
	return m.keyDue(now) || ok && now-oldest > m.settings.Horizon
}

func (m *Machine) keyDue(now int64) bool {
	return m.keys.expiry.len() > 0 && int64(m.keys.expiry.first().second)*1e9 <= now
}

// reclaim takes up to budget keys whose turn has come.
func (m *Machine) reclaim(budget int) {
	if !m.formed {
		return
	}
	m.expireRecords(budget)
	for ; budget > 0 && m.keyDue(m.now); budget-- {
		m.reclaimFirst()
	}
}

// reclaimFirst forgets the key whose turn it is, or, where it has been used
// since it was filed, drops what has left every window and files it anew.
func (m *Machine) reclaimFirst() {
	d := m.keys.expiry.first()
	b := m.keys.block(d.slot)
	q := &m.roster.quotas[b.quota()]
	hash := m.keys.hash(b.quota(), b.key())
	m.evict(d.slot, hash, q)
	at := q.deadline(m.keys.block(d.slot))
	m.sum -= keySum(hash, d)
	if at > m.now {
		if q.rolling() {
			m.keys.fit(d.slot)
		}
		d.second = second(at)
		m.keys.expiry.refile(d)
		m.sum += keySum(hash, d)
		return
	}
	m.forgetStates(m.keys.block(d.slot), hash)
	m.leave(q, q.keyBytes(b.keyLen()))
	m.keys.removeFirst()
}

func (m *Machine) forgetStates(b block, hash uint64) {
	for i := range b.states() {
		m.sum -= stateSum(hash, i, b.state(i))
	}
	m.sum -= idleSum(hash, b.idle())
}

// evict drops the events that no window of the key's quota reaches any more.
func (m *Machine) evict(slot uint32, hash uint64, q *quota) {
	if !q.rolling() {
		return
	}
	cutoff := m.now - q.retention
	l := m.keys.block(slot).log()
	marker, marked := l.Marker()
	first, some := l.First()
	if !(marked && marker <= cutoff) && !(some && first.Time <= cutoff) {
		return
	}
	l = m.keys.mutable(slot).log()
	m.unmark(l, hash, q) // older than any event
	l.ClearMarker()
	for ; some && first.Time <= cutoff; first, some = l.First() {
		l.DropFirst()
		m.sum -= eventSum(hash, first)
		m.account(q, -eventBytes)
	}
}

// expireRecords forgets up to budget decision records older than the horizon.
func (m *Machine) expireRecords(budget int) {
	var hashes []uint64
	for ; budget > 0; budget-- {
		t, ok := m.records.oldest()
		if !ok || m.now-t <= m.settings.Horizon {
			return
		}
		if len(hashes) == 0 {
			hashes = m.scratch.ahead.lookOldest(m, budget)
		}
		r := m.records.rows.at(m.records.rows.head)
		m.sum -= r.sum(t)
		m.leave(&m.roster.quotas[r.quota()], recordBytes)
		m.records.drop(hashes[0])
		hashes = hashes[1:]
	}
}
