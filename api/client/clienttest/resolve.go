package clienttest

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// resolve gives the check that the state machine decides, or what needs no state: no match, or another
// resolution than the asker's.
func (r *resolver) resolve(a *ask) (*fsm.Check, *quotav1.Answer, *quotav1.Failure) {
	charges, outcome := r.set.ResolveCheck(nil, a.domain, a.descriptors, a.cost)
	if outcome == policy.UnknownDomain {
		return nil, refusal(quotav1.Reason_REASON_UNKNOWN_DOMAIN), nil
	}
	domain, _ := r.set.Domain(a.domain)
	if name, missing := r.set.Missing(domain, a.descriptors); missing {
		return nil, nil, invalid("domain " + a.domain + " requires entry " + name)
	}
	if f := r.differs(a, charges); f != nil {
		return nil, nil, f
	}
	if outcome != policy.Matched && r.slots[r.seed.Slot(a.domain, nil, nil)] != r.partition {
		return nil, nil, r.stale(a, charges)
	}
	switch outcome {
	case policy.NoMatchAllow:
		return nil, &quotav1.Answer{Decision: quotav1.Decision_DECISION_ALLOW, Reason: quotav1.Reason_REASON_NO_MATCH_ALLOWED}, nil
	case policy.NoMatchDeny:
		return nil, refusal(quotav1.Reason_REASON_NO_POLICY), nil
	}
	check, whole := r.build(a, int32(domain), charges)
	switch {
	case len(check.Charges) == 0:
		return nil, nil, r.stale(a, charges)
	case !whole && !a.explicit:
		return nil, nil, failure(quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED)
	}
	return check, nil, nil
}

// build takes up those charges that are this partition's, and reports whether those are all.
func (r *resolver) build(a *ask, domain int32, charges []policy.Charge) (*fsm.Check, bool) {
	check := &fsm.Check{Domain: domain}
	var decided []keyspace.Descriptor
	for _, ch := range charges {
		d := a.descriptors[ch.Descriptor]
		slot := r.set.Slot(r.seed, ch.Policy, d)
		if r.slots[slot] != r.partition {
			continue
		}
		decided = append(decided, d)
		check.Charges = append(check.Charges, fsm.Charge{
			Policy: ch.Policy, Tier: ch.Tier, Override: ch.Override, Slot: slot, Cost: ch.Cost,
			Key: r.set.AppendKey(nil, ch.Policy, d),
		})
	}
	check.Digest = r.seed.Digest(a.domain, a.cost, decided)
	return check, len(decided) == len(charges)
}

// differs is what an asker gets that resolved the check otherwise.
func (r *resolver) differs(a *ask, charges []policy.Charge) *quotav1.Failure {
	if a.asked == nil {
		return nil
	}
	ours := r.resolution(a, charges)
	if proto.Equal(&quotav1.Resolution{Policies: ours.GetPolicies()}, &quotav1.Resolution{Policies: a.asked.GetPolicies()}) {
		return nil
	}
	if r.version.Before(fsm.Version{Epoch: a.asked.GetSetEpoch(), Number: a.asked.GetSetVersion()}) {
		return failure(quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING)
	}
	return r.stale(a, charges)
}

func (r *resolver) stale(a *ask, charges []policy.Charge) *quotav1.Failure {
	f := failure(quotav1.FailureReason_FAILURE_REASON_STALE_POLICY)
	f.Detail = &quotav1.Failure_StalePolicy{StalePolicy: &quotav1.StalePolicy{
		Resolution: r.resolution(a, charges), SetVersion: r.version.Number,
	}}
	return f
}

func (r *resolver) resolution(a *ask, charges []policy.Charge) *quotav1.Resolution {
	m := &quotav1.Resolution{SetEpoch: r.version.Epoch, SetVersion: r.version.Number}
	for _, ch := range charges {
		p, d := r.set.Policy(ch.Policy), a.descriptors[ch.Descriptor]
		var key keyspace.Descriptor
		for _, name := range p.Key {
			value, _ := d.Get(name)
			key = append(key, keyspace.Entry{Name: name, Value: value})
		}
		m.Policies = append(m.Policies, &quotav1.ResolvedPolicy{
			DescriptorIndex: uint32(ch.Descriptor), Policy: p.Namespace + "/" + p.Name,
			Revision:  binary.BigEndian.AppendUint64(nil, r.set.Revision(ch.Policy)),
			Key:       keyspace.AppendQuotaKey(nil, p.Namespace, p.Quota, key),
			Partition: uint32(r.slots[r.set.Slot(r.seed, ch.Policy, d)]),
		})
	}
	return m
}
