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
	settings fsm.Settings
	slots    *keyspace.Table
	charges  []policy.Charge // scratch
}

// resolve fills in c.check, or finishes the resolution with an outcome that
// needs no state: a bad check, no match, a difference from the asker's.
func (r *resolver) resolve(c *Call) (Outcome, bool) {
	charges, outcome := r.set.ResolveCheck(r.charges[:0], c.Domain, c.Descriptors, c.Cost)
	r.charges = charges
	if outcome == policy.UnknownDomain {
		return Outcome{Result: UnknownDomain}, true
	}
	domain, _ := r.set.Domain(c.Domain)
	if name, missing := r.set.Missing(domain, c.Descriptors); missing {
		return Outcome{Result: Invalid, Detail: "domain " + c.Domain + " requires entry " + name}, true
	}
	if c.Asked != nil && !r.agrees(c, charges) {
		return Outcome{Result: StalePolicy, Resolution: r.resolution(c, charges)}, true
	}
	switch outcome {
	case policy.NoMatchAllow:
		return Outcome{Result: NoMatchAllowed}, true
	case policy.NoMatchDeny:
		return Outcome{Result: NoPolicy}, true
	}
	return r.build(c, int32(domain), charges)
}

// build makes the check that goes into the log.
func (r *resolver) build(c *Call, domain int32, charges []policy.Charge) (Outcome, bool) {
	c.check = fsm.Check{ID: c.ID, Fence: c.Fence, Domain: domain, Charges: make([]fsm.Charge, 0, len(charges))}
	keys := make([]byte, 0, 32*len(charges))
	decided := make([]keyspace.Descriptor, 0, len(charges))
	for _, ch := range charges {
		d := c.Descriptors[ch.Descriptor]
		slot := r.set.Slot(r.settings.Seed, ch.Policy, d)
		if r.slots[slot] != r.settings.Partition {
			return Outcome{Result: NotSupported, Detail: "a check over several partitions is not supported yet: choose partitionBy so that its keys share one"}, true
		}
		from := len(keys)
		keys = r.set.AppendKey(keys, ch.Policy, d)
		c.check.Charges = append(c.check.Charges, fsm.Charge{
			Policy: ch.Policy, Tier: ch.Tier, Override: ch.Override, Slot: slot, Cost: ch.Cost,
			Key: keys[from:len(keys):len(keys)],
		})
		decided = append(decided, d)
	}
	c.check.Digest = r.settings.Seed.Digest(c.Domain, c.Cost, decided)
	c.size = fsm.CheckSize(&c.check)
	return Outcome{}, false
}

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
	res := &Resolution{}
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
