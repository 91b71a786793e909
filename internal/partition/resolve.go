package partition

import (
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// resolver resolves calls under one policy set. The leader's own resolution
// counts; what an asker resolved is only compared with it.
type resolver struct {
	set      *policy.Compiled
	version  fsm.Version
	settings fsm.Settings
	slots    *keyspace.Table
	charges  []policy.Charge // scratch
}

// resolverOf the machine's set and settings, which must be there.
func resolverOf(m *fsm.Machine) resolver {
	set, version := m.Set()
	settings, _ := m.Settings()
	return resolver{set: set, version: version, settings: settings, slots: m.Slots()}
}

// resolve fills in c.check, or finishes the resolution with an outcome that
// needs no state: a bad check, no match, a difference from the asker's.
func (r *resolver) resolve(c *Call) (Outcome, bool) {
	if c.To != AnyPartition && c.To != int32(r.settings.Partition) {
		return Outcome{Result: NotLeader}, true
	}
	charges, outcome := r.set.ResolveCheck(r.charges[:0], c.Domain, c.Descriptors, c.Cost)
	r.charges = charges
	if c.Asked != nil && r.version.Before(c.Asked.Version) && !r.agrees(c, charges) {
		return Outcome{Result: Pending}, true // before anything is denied by a set that is on its way out
	}
	if outcome == policy.UnknownDomain {
		return Outcome{Result: UnknownDomain}, true
	}
	domain, _ := r.set.Domain(c.Domain)
	if name, missing := r.set.Missing(domain, c.Descriptors); missing {
		return Outcome{Result: Invalid, Detail: "domain " + c.Domain + " requires entry " + name}, true
	}
	if c.Asked != nil && !r.agrees(c, charges) {
		return r.stale(c, charges), true
	}
	if outcome != policy.Matched && r.slots[r.settings.Seed.Slot(c.Domain, nil, nil)] != r.settings.Partition {
		return r.stale(c, charges), true // a check that matches nothing is the domain's partition's
	}
	switch outcome {
	case policy.NoMatchAllow:
		return Outcome{Result: NoMatchAllowed}, true
	case policy.NoMatchDeny:
		return Outcome{Result: NoPolicy}, true
	}
	return r.build(c, int32(domain), charges)
}

// stale sends the asker back with this leader's resolution, by which it can tell whom to ask.
func (r *resolver) stale(c *Call, charges []policy.Charge) Outcome {
	return Outcome{Result: StalePolicy, Resolution: r.resolution(c, charges)}
}

// build makes the check that goes into the log, of those charges that are this partition's.
func (r *resolver) build(c *Call, domain int32, charges []policy.Charge) (Outcome, bool) {
	c.check = fsm.Check{ID: c.ID, Fence: c.Fence, Domain: domain, Charges: make([]fsm.Charge, 0, len(charges))}
	keys := make([]byte, 0, 32*len(charges))
	decided := make([]keyspace.Descriptor, 0, len(charges))
	for _, ch := range charges {
		d := c.Descriptors[ch.Descriptor]
		slot := r.set.Slot(r.settings.Seed, ch.Policy, d)
		if r.slots[slot] != r.settings.Partition {
			continue
		}
		from := len(keys)
		keys = r.set.AppendKey(keys, ch.Policy, d)
		c.check.Charges = append(c.check.Charges, fsm.Charge{
			Policy: ch.Policy, Tier: ch.Tier, Override: ch.Override, Slot: slot, Cost: ch.Cost,
			Key: keys[from:len(keys):len(keys)],
		})
		decided = append(decided, d)
	}
	switch {
	case len(decided) == 0:
		return r.stale(c, charges), true
	case len(decided) < len(charges) && (c.To == AnyPartition || c.Asked == nil):
		// Whoever doesn't show that it knows of the other half may take this one's allow for the whole.
		return Outcome{Result: NotSupported, Detail: SeveralPartitions}, true
	}
	c.check.Digest = r.settings.Seed.Digest(c.Domain, c.Cost, decided)
	c.size, c.version = fsm.CheckSize(&c.check), r.version
	return Outcome{}, false
}

// SeveralPartitions tells why a check over several partitions is not decided for an asker that names none.
const SeveralPartitions = "its keys live in several partitions, which this asker can't ask one after another: " +
	"ask through a gateway, or choose partitionBy so that they share one"

func (r *resolver) agrees(c *Call, charges []policy.Charge) bool {
	if len(c.Asked.Policies) != len(charges) {
		return false
	}
	for i, ch := range charges {
		if !c.Asked.Policies[i].equal(r.resolved(c, ch)) {
			return false
		}
	}
	return true
}

func (r *resolver) resolution(c *Call, charges []policy.Charge) *Resolution {
	res := &Resolution{Version: r.version}
	for _, ch := range charges {
		res.Policies = append(res.Policies, r.resolved(c, ch))
	}
	return res
}

func (r *resolver) resolved(c *Call, ch policy.Charge) Resolved {
	p, d := r.set.Policy(ch.Policy), c.Descriptors[ch.Descriptor]
	key := make(keyspace.Descriptor, 0, len(p.Key))
	for _, name := range p.Key {
		value, _ := d.Get(name)
		key = append(key, keyspace.Entry{Name: name, Value: value})
	}
	return Resolved{
		Descriptor: ch.Descriptor, Namespace: p.Namespace, Name: p.Name, Revision: r.set.Revision(ch.Policy),
		Key:       keyspace.AppendQuotaKey(nil, p.Namespace, p.Quota, key),
		Partition: r.slots[r.set.Slot(r.settings.Seed, ch.Policy, d)],
	}
}
