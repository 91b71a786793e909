package server

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

const (
	// revisionLen is the length of a policy's revision on the wire.
	revisionLen = 8
	// maxQuotaKeyLen is more than the longest quota key: namespace, quota name and sixteen entries.
	maxQuotaKeyLen = 32 << 10
)

// fault is what is wrong with a request, and where. It never holds a value.
type fault struct {
	field   string // as in descriptors[0].entries[1].name; empty: the request as a whole
	message string
}

func (f *fault) Error() string {
	if f.field == "" {
		return f.message
	}
	return f.field + ": " + f.message
}

// under puts the fault's field below another one.
func (f *fault) under(field string) *fault {
	f.field = strings.TrimSuffix(field+"."+f.field, ".")
	return f
}

func faultf(field, format string, args ...any) *fault {
	return &fault{field, fmt.Sprintf(format, args...)}
}

// newID makes a decision id.
func newID() (id fsm.ID) {
	_, _ = rand.Read(id[:]) // never fails: the process ends first
	return id
}

// read turns a check of the wire into r, which must be zero, and says what is wrong with it. domains names
// those that the policies know, for a check that leaves its domain out.
func read(r *partition.Request, m *quotav1.CheckRequest, domains func() []string) *fault {
	var f *fault
	if r.Domain, f = readDomain(m.GetDomain(), domains); f != nil {
		return f
	}
	n := len(m.GetDescriptors())
	if n < 1 || n > keyspace.MaxDescriptors {
		return faultf("descriptors", "has %d descriptors, 1 to %d are allowed", n, keyspace.MaxDescriptors)
	}
	r.Descriptors = make([]keyspace.Descriptor, n)
	for i, d := range m.GetDescriptors() {
		if r.Descriptors[i], f = readDescriptor(d); f != nil {
			return f.under(index("descriptors", i))
		}
	}
	if r.Cost = max(1, m.GetCost()); r.Cost > limit.MaxAmount {
		return faultf("cost", "is above %d", limit.MaxAmount)
	}
	if f := readID(r, m); f != nil {
		return f
	}
	r.Peek, r.To = m.GetPeek(), partition.AnyPartition
	if m.Partition != nil {
		if m.GetPartition() >= keyspace.Slots {
			return faultf("partition", "is %d, not below %d", m.GetPartition(), keyspace.Slots)
		}
		r.To = int32(m.GetPartition())
	}
	return readResolution(r, m.GetResolution())
}

// readDomain is the domain that a message names, or the only one there is if it names none.
func readDomain(name string, domains func() []string) (string, *fault) {
	if name == "" {
		return onlyOf(domains())
	}
	return name, domainFault(name)
}

// onlyOf gives the domain that an asker may leave out.
func onlyOf(domains []string) (string, *fault) {
	if len(domains) != 1 {
		return "", faultf("domain", "is missing; it may be left out only where there is one domain, and there are %d", len(domains))
	}
	return domains[0], nil
}

func domainFault(domain string) *fault {
	switch n := len(domain); {
	case n == 0:
		return &fault{"domain", "is empty"}
	case n > policy.MaxNameBytes:
		return faultf("domain", "has %d bytes, at most %d are allowed", n, policy.MaxNameBytes)
	}
	return nil
}

func index(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func readDescriptor(m *quotav1.Descriptor) (keyspace.Descriptor, *fault) {
	entries := make([]keyspace.Entry, len(m.GetEntries()))
	for i, e := range m.GetEntries() {
		entries[i] = keyspace.Entry{Name: e.GetName(), Value: string(e.GetValue())}
	}
	d, err := keyspace.NewDescriptor(entries)
	if err != nil {
		return nil, descriptorFault(m)
	}
	return d, nil
}

// descriptorFault finds again what package keyspace has refused, where the asker can see it: there the
// entries may have been sorted already.
func descriptorFault(m *quotav1.Descriptor) *fault {
	entries := m.GetEntries()
	if n := len(entries); n > keyspace.MaxEntries {
		return faultf("entries", "has %d entries, at most %d are allowed", n, keyspace.MaxEntries)
	}
	for i, e := range entries {
		if f := entryFault(e.GetName(), len(e.GetValue())); f != nil {
			return f.under(index("entries", i))
		}
		for j := range i {
			if entries[j].GetName() == e.GetName() {
				return faultf("name", "is that of entries[%d] too", j).under(index("entries", i))
			}
		}
	}
	return &fault{"entries", "are not a descriptor"}
}

func entryFault(name string, valueLen int) *fault {
	switch {
	case name == "":
		return &fault{"name", "is empty"}
	case len(name) > keyspace.MaxNameLen:
		return faultf("name", "has %d bytes, at most %d are allowed", len(name), keyspace.MaxNameLen)
	case valueLen > keyspace.MaxValueLen:
		return faultf("value", "has %d bytes, at most %d are allowed", valueLen, keyspace.MaxValueLen)
	}
	return nil
}

// readID takes the id and its fence. Without a fence the check counts as sent once, whoever made the id.
func readID(r *partition.Request, m *quotav1.CheckRequest) *fault {
	switch n := len(m.GetDecisionId()); n {
	case 0:
		r.ID = newID()
	case len(r.ID):
		copy(r.ID[:], m.GetDecisionId())
	default:
		return faultf("decision_id", "has %d bytes, none or %d are allowed", n, len(r.ID))
	}
	r.Unfenced = m.FenceNs == nil
	if r.Fence = m.GetFenceNs(); r.Fence < 0 {
		return &fault{"fence_ns", "is negative"}
	}
	return nil
}

func readResolution(r *partition.Request, m *quotav1.Resolution) *fault {
	if m == nil {
		return nil
	}
	if n := len(m.GetPolicies()); n > len(r.Descriptors) {
		return faultf("resolution.policies", "has %d policies for %d descriptors", n, len(r.Descriptors))
	}
	r.Asked = &partition.Resolution{
		Policies: make([]partition.Resolved, len(m.GetPolicies())),
		Version:  fsm.Version{Epoch: m.GetSetEpoch(), Number: m.GetSetVersion()},
	}
	last := -1
	for i, p := range m.GetPolicies() {
		if f := readResolved(&r.Asked.Policies[i], p, len(r.Descriptors), last); f != nil {
			return f.under(index("resolution.policies", i))
		}
		last = int(p.GetDescriptorIndex())
	}
	return nil
}

// readResolved reads one policy that the asker resolved to; last is the descriptor of the one before.
func readResolved(r *partition.Resolved, m *quotav1.ResolvedPolicy, descriptors, last int) *fault {
	at := int(m.GetDescriptorIndex())
	namespace, name, ok := strings.Cut(m.GetPolicy(), "/")
	switch {
	case at >= descriptors:
		return faultf("descriptor_index", "is %d; there are %d descriptors", at, descriptors)
	case at <= last:
		return &fault{"descriptor_index", "is not above the one before"}
	case !ok || namespace == "" || name == "" || len(m.GetPolicy()) > 2*policy.MaxNameBytes+1:
		return &fault{"policy", "is not namespace/name"}
	case len(m.GetRevision()) != revisionLen:
		return faultf("revision", "has %d bytes, not %d", len(m.GetRevision()), revisionLen)
	case len(m.GetKey()) > maxQuotaKeyLen:
		return faultf("key", "has %d bytes, at most %d are allowed", len(m.GetKey()), maxQuotaKeyLen)
	case m.GetPartition() >= keyspace.Slots:
		return faultf("partition", "is %d, not below %d", m.GetPartition(), keyspace.Slots)
	}
	*r = partition.Resolved{
		Descriptor: int32(at), Namespace: namespace, Name: name,
		Revision: binary.BigEndian.Uint64(m.GetRevision()), Key: m.GetKey(), Partition: uint16(m.GetPartition()),
	}
	return nil
}

// resolutionOf is the way back.
func resolutionOf(r *partition.Resolution) *quotav1.Resolution {
	m := &quotav1.Resolution{}
	if r == nil {
		return m
	}
	m.SetEpoch, m.SetVersion = r.Version.Epoch, r.Version.Number
	for _, p := range r.Policies {
		m.Policies = append(m.Policies, &quotav1.ResolvedPolicy{
			DescriptorIndex: uint32(p.Descriptor), Policy: p.Namespace + "/" + p.Name,
			Revision: binary.BigEndian.AppendUint64(nil, p.Revision), Key: p.Key, Partition: uint32(p.Partition),
		})
	}
	return m
}
