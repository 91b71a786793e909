package fsm

import (
	"fmt"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// part is one charge of the check at hand, found in the state.
type part struct {
	charge *Charge
	quota  uint32
	hash   uint64
	slot   uint32
	known  bool   // the key is in the table
	cost   uint64 // all that the check takes from this key
	first  int    // the first charge that names the same key; it alone is recorded
}

// verify refuses numbers that no leader can have written.
func (m *Machine) verify(c *Check) error {
	if c.Domain < 0 || int(c.Domain) >= len(m.roster.within) {
		return fmt.Errorf("%w: a check of domain %d of %d", ErrDamaged, c.Domain, len(m.roster.within))
	}
	for i := range c.Charges {
		if ch := &c.Charges[i]; !m.sound(ch, m.roster.within[c.Domain]) {
			return fmt.Errorf("%w: policy %d, tier %d, override %d, cost %d", ErrDamaged, ch.Policy, ch.Tier, ch.Override, ch.Cost)
		}
	}
	return nil
}

func (m *Machine) sound(ch *Charge, domain int32) bool {
	if ch.Policy < 0 || int(ch.Policy) >= len(m.roster.numbers) || m.domainOf(m.roster.numbers[ch.Policy]) != domain {
		return false
	}
	p := m.set.Policy(ch.Policy)
	return ch.Tier >= -1 && int(ch.Tier) < len(p.Tiers) &&
		ch.Override >= -1 && int(ch.Override) < len(p.Overrides) &&
		ch.Cost > 0 && ch.Cost <= policy.TooMuch
}

// decide decides one check, of whose id and keys the hashes are given, and records it
// if it is allowed.
func (m *Machine) decide(a *Answer, c *Check, id uint64, keys []uint64) {
	if m.recall(a, c, id) {
		return
	}
	for i := range c.Charges {
		if !m.Owns(c.Charges[i].Slot) {
			*a = Answer{Verdict: VerdictNotOwned, Time: m.now}
			return
		}
	}
	// A fence is a time that was logged, so one in the future is a lie; believed,
	// it would let a copy through after the id's allow has been forgotten. So
	// would one so far below zero that the difference overflows.
	if c.Fence < 0 || c.Fence > m.now || m.now-c.Fence > m.settings.Horizon/2 {
		*a = Answer{Verdict: VerdictStaleTime, Time: m.now}
		return
	}
	if m.admit(a, c, keys) {
		m.remember(c, a, id)
	}
}

// admit charges what a check takes, if all limits have room for it.
func (m *Machine) admit(a *Answer, c *Check, keys []uint64) bool {
	parts := m.scratch.parts[:len(c.Charges)]
	m.gather(c, parts, keys)
	tightest := m.weigh(a, parts, m.now)
	if a.Verdict != VerdictAllow {
		return false
	}
	if !m.makeRoom(parts) {
		*a = Answer{Verdict: VerdictMemory, Time: m.now}
		return false
	}
	for i := range parts {
		if parts[i].first == i {
			m.take(&parts[i])
		}
	}
	a.FullAt = m.fullAfter(tightest, a.Limit)
	return true
}

// fullAfter is fullAt for what has just been admitted: of a rolling window that is
// the newest event, so when it has left there is nothing else.
func (m *Machine) fullAfter(p *part, l int32) int64 {
	spec := m.set.Spec(p.charge.Policy, int(l), p.charge.Tier, p.charge.Override)
	if spec.Algorithm == limit.RollingWindow && spec.Amount != limit.Unlimited {
		return after(m.now, spec.Window)
	}
	return m.fullAt(p, l, m.now)
}

// fullAt returns when all of a limit is available again to the part's key.
func (m *Machine) fullAt(p *part, l int32, now int64) int64 {
	q := &m.roster.quotas[p.quota]
	spec := m.set.Spec(p.charge.Policy, int(l), p.charge.Tier, p.charge.Override)
	if !p.known { // an earlier part has only just created the key
		p.slot, p.known = m.keys.find(p.hash, p.quota, p.charge.Key)
	}
	return spec.FullAt(m.usage(p, q, int(l)), now)
}

// recall answers a check whose id, of the given hash, has an allow.
func (m *Machine) recall(a *Answer, c *Check, hash uint64) bool {
	n, ok := m.records.find(hash, m.roster.within[c.Domain], &c.ID)
	if !ok {
		return false
	}
	r := m.records.rows.at(n)
	if whole(r.digest) != c.Digest {
		*a = Answer{Verdict: VerdictConflict, Time: m.now}
		return true
	}
	*a = Answer{Verdict: VerdictAllow, Replayed: true, Time: m.records.time(n), At: m.now, Policy: -1}
	q := &m.roster.quotas[r.quota()]
	ch, amount := m.measuring(c, q.policy, r.limit(), whole(r.remaining))
	if ch == nil {
		return true
	}
	p := part{charge: ch, quota: r.quota(), hash: m.keys.hash(r.quota(), ch.Key)}
	a.Policy, a.Limit, a.Amount, a.Unlimited = q.policy, r.limit(), amount, amount == limit.Unlimited
	a.Remaining = min(whole(r.remaining), amount)
	a.FullAt = m.fullAt(&p, a.Limit, m.now)
	return true
}

// measuring finds the charge that a replayed allow speaks of, and its amount. Several of
// the policy may have different amounts, and their order may be another than it was: it is
// one with the least amount that holds what remained. Under a later set none may hold it,
// then it is one with the largest; there may be none at all, or none that is unlimited as
// the one recorded was, or finite.
func (m *Machine) measuring(c *Check, place, l int32, remained uint64) (found *Charge, amount uint64) {
	for i := range c.Charges {
		ch := &c.Charges[i]
		if ch.Policy != place {
			continue
		}
		this := m.set.Spec(ch.Policy, int(l), ch.Tier, ch.Override).Amount
		if (this == limit.Unlimited) != (remained == limit.Unlimited) {
			continue
		}
		if found == nil || this >= remained && (this < amount || amount < remained) || this < remained && this > amount {
			found, amount = ch, this
		}
	}
	return found, amount
}

// gather finds each charge's key, by its hash, and sums what the check takes from it.
func (m *Machine) gather(c *Check, parts []part, hashes []uint64) {
	for i := range parts {
		ch := &c.Charges[i]
		p := &parts[i]
		*p = part{charge: ch, quota: m.roster.numbers[ch.Policy]}
		p.hash = hashes[i]
		p.slot, p.known = m.keys.find(p.hash, p.quota, ch.Key)
		for !p.sameKey(&parts[p.first]) {
			p.first++
		}
		o := &parts[p.first]
		o.cost = policy.AddCosts(o.cost, ch.Cost)
	}
	for i := range parts {
		parts[i].cost = parts[parts[i].first].cost
	}
}

func (p *part) sameKey(o *part) bool {
	return p.hash == o.hash && p.quota == o.quota && string(p.charge.Key) == string(o.charge.Key)
}

// weigh asks every limit of every part at the time now: denied if any denies, for as
// long as the last of them; allowed with what the tightest leaves. It returns the part
// whose limit the answer speaks of, and changes nothing.
func (m *Machine) weigh(a *Answer, parts []part, now int64) (tightest *part) {
	*a = Answer{Time: now}
	for i := range parts {
		p := &parts[i]
		q := &m.roster.quotas[p.quota]
		for l := range q.states {
			spec := m.set.Spec(p.charge.Policy, l, p.charge.Tier, p.charge.Override)
			u := m.usage(p, q, l)
			d := spec.Peek(u, now, p.cost)
			if q.held != nil {
				d = q.restrain(d, spec, l, u, now, p.cost)
			}
			if a.hear(spec, p, int32(l), d) {
				tightest = p
			}
		}
	}
	if a.Verdict == VerdictDeny {
		a.FullAt = m.fullAt(tightest, a.Limit, now)
	}
	return tightest
}

// usage is what the state knows of a part's key under limit l.
func (m *Machine) usage(p *part, q *quota, l int) limit.Usage {
	u := limit.Usage{KnownSince: q.known}
	if !p.known {
		return u
	}
	b := m.keys.block(p.slot)
	if i := q.states[l]; i >= 0 {
		u.State = b.state(int(i))
	} else {
		u.Log = b.log()
	}
	return u
}

// hear takes one limit's decision in, and reports whether it is the one to speak of.
func (a *Answer) hear(spec limit.Spec, p *part, l int32, d limit.Decision) bool {
	switch {
	case d.Allowed && a.Verdict == VerdictDeny:
		return false
	case d.Allowed && a.Verdict == VerdictAllow && d.Remaining >= a.Remaining:
		return false
	case !d.Allowed && a.Verdict == VerdictDeny && d.At <= a.At:
		return false
	}
	a.Verdict, a.Exceeds = VerdictAllow, false
	if !d.Allowed {
		a.Verdict, a.Exceeds = VerdictDeny, p.cost > spec.Amount
	}
	a.Policy, a.Limit, a.Amount = p.charge.Policy, l, spec.Amount
	a.Unlimited = spec.Amount == limit.Unlimited
	a.Remaining, a.At = d.Remaining, d.At
	return true
}

// makeRoom reports whether the bounds leave room for an allow, if need be after
// reclaiming keys whose turn has come.
func (m *Machine) makeRoom(parts []part) bool {
	for budget := roomReclaims; !m.roomFor(parts); budget-- {
		if budget == 0 || !m.keyDue(m.now) {
			return false
		}
		m.reclaimFirst()
		m.find(parts) // the key that went may have been one of them
	}
	return true
}

// roomFor reports whether what an allow would add stays within the bounds.
func (m *Machine) roomFor(parts []part) bool {
	need, fresh := uint64(recordBytes), 0
	for i := range parts {
		p := &parts[i]
		if p.first != i {
			continue
		}
		need += 2 * eventBytes // an event, and the marker that it may leave
		if !p.known {
			need += m.roster.quotas[p.quota].keyBytes(len(p.charge.Key))
			fresh++
		}
	}
	inDomain := m.domainBytes[m.domainOf(parts[0].quota)]
	return m.bytes+need <= m.settings.Bound && inDomain+need <= m.settings.DomainBound &&
		m.keys.live+fresh <= maxKeys
}

func (m *Machine) find(parts []part) {
	for i := range parts {
		p := &parts[i]
		p.slot, p.known = m.keys.find(p.hash, p.quota, p.charge.Key)
	}
}
