package client

import (
	"encoding/binary"
	"slices"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// cluster is what genesis fixed. It never changes.
type cluster struct {
	id         [16]byte
	seed       keyspace.Seed
	slots      keyspace.Table
	partitions int
}

// home is the partition that answers for a domain what no policy matches.
func (c *cluster) home(domain string) uint32 { return uint32(c.slots[c.seed.Slot(domain, nil, nil)]) }

// policySet is a set that partitions enforce, prepared for resolving. It never changes.
type policySet struct {
	*policy.Compiled
	version   Version
	names     []string // "namespace/name" of each policy
	revisions [][]byte
}

func newPolicySet(v Version, canonical []byte) (*policySet, error) {
	parsed, err := policy.ParseCanonical(canonical)
	if err != nil {
		return nil, err
	}
	compiled, err := policy.Compile(parsed)
	if err != nil {
		return nil, err
	}
	s := &policySet{Compiled: compiled, version: v}
	for p := range int32(compiled.Policies()) {
		s.names = append(s.names, compiled.Policy(p).Namespace+"/"+compiled.Policy(p).Name)
		s.revisions = append(s.revisions, binary.BigEndian.AppendUint64(nil, compiled.Revision(p)))
	}
	return s, nil
}

// domainNames lists the domains that the set knows, in order.
func (s *policySet) domainNames() []string {
	names := make([]string, s.Domains())
	for i := range names {
		names[i] = s.DomainName(i)
	}
	return names
}

// plan says what a question comes to, and whom to ask.
type plan struct {
	resolution *quotav1.Resolution
	parts      []uint32 // ascending, at least one
	// set is what it was resolved under, and charges what it takes; without them the resolution is a leader's.
	set     *policySet
	charges []policy.Charge
}

// resolve resolves a question as its leader does, with the same code. The leader's own resolution counts.
func resolve(q *question, c *cluster, s *policySet) *plan {
	charges, _ := s.ResolveCheck(make([]policy.Charge, 0, len(q.descriptors)), q.domain, q.descriptors, q.cost)
	p := &plan{
		set: s, charges: charges,
		resolution: &quotav1.Resolution{SetEpoch: s.version.Epoch, SetVersion: s.version.Number},
	}
	if len(charges) > 0 {
		p.resolution.Policies = make([]*quotav1.ResolvedPolicy, len(charges))
		resolved := make([]quotav1.ResolvedPolicy, len(charges))
		for i := range charges {
			ch, r := &charges[i], &resolved[i]
			d := q.descriptors[ch.Descriptor]
			r.DescriptorIndex, r.Policy, r.Revision = uint32(ch.Descriptor), s.names[ch.Policy], s.revisions[ch.Policy]
			r.Key = appendQuotaKey(make([]byte, 0, 64), s.Policy(ch.Policy), d)
			r.Partition = uint32(c.slots[s.Slot(c.seed, ch.Policy, d)])
			p.resolution.Policies[i] = r
		}
	}
	p.parts = partsOf(p.resolution, q, c)
	return p
}

func appendQuotaKey(dst []byte, p *policy.Policy, d keyspace.Descriptor) []byte {
	var entries [keyspace.MaxEntries]keyspace.Entry
	key := keyspace.Descriptor(entries[:0])
	for _, name := range p.Key {
		value, _ := d.Get(name)
		key = append(key, keyspace.Entry{Name: name, Value: value})
	}
	return keyspace.AppendQuotaKey(dst, p.Namespace, p.Quota, key)
}

// partsOf lists the partitions of a resolution: what matches nothing goes to the partition of its domain.
func partsOf(r *quotav1.Resolution, q *question, c *cluster) []uint32 {
	if len(r.GetPolicies()) == 0 {
		return []uint32{c.home(q.domain)}
	}
	parts := make([]uint32, 0, len(r.GetPolicies()))
	for _, p := range r.GetPolicies() {
		if !slices.Contains(parts, p.GetPartition()) {
			parts = append(parts, p.GetPartition())
		}
	}
	slices.Sort(parts)
	return parts
}

// planOf is the plan of a leader that resolves the question otherwise; false if it makes no sense.
func planOf(stale *quotav1.StalePolicy, q *question, c *cluster) (*plan, bool) {
	r := stale.GetResolution()
	if r == nil {
		return nil, false
	}
	last := -1
	for _, p := range r.GetPolicies() {
		at := int(p.GetDescriptorIndex())
		if at <= last || at >= len(q.descriptors) || int(p.GetPartition()) >= c.partitions {
			return nil, false
		}
		last = at
	}
	return &plan{resolution: r, parts: partsOf(r, q, c)}, true
}

// size is no less than the bytes that the resolution takes on the wire.
func (p *plan) size() int {
	size := 2 * wireOverhead
	for _, r := range p.resolution.GetPolicies() {
		size += len(r.GetPolicy()) + len(r.GetRevision()) + len(r.GetKey()) + 6*wireOverhead
	}
	return size
}
