package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// idLen is the length of a decision id.
const idLen = 16

// fault is what is wrong with a request, and where. It never holds a value.
type fault struct {
	field   string // as in descriptors[0].entries[1].name; empty: the request as a whole
	message string
}

// Error is the field and what is wrong with it.
func (f *fault) Error() string {
	if f.field == "" {
		return f.message
	}
	return f.field + ": " + f.message
}

// under puts the fault's field below another one; empty: it stays where it is.
func (f *fault) under(field string) *fault {
	if field != "" {
		f.field = strings.TrimSuffix(field+"."+f.field, ".")
	}
	return f
}

func faultf(field, format string, args ...any) *fault {
	return &fault{field, fmt.Sprintf(format, args...)}
}

// refusal is what bad input comes to.
func refusal(f *fault) outcome {
	return failed(quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, f.Error())
}

func index(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// onlyOf gives the domain that a caller may leave out.
func onlyOf(domains []string) (string, *fault) {
	if len(domains) != 1 {
		return "", faultf(domainField, "is missing; it may be left out only where there is one domain, and there are %d", len(domains))
	}
	return domains[0], nil
}

func domainFault(domain string) *fault {
	switch n := len(domain); {
	case n == 0:
		return &fault{domainField, "is empty"}
	case n > policy.MaxNameBytes:
		return faultf(domainField, "has %d bytes, at most %d are allowed", n, policy.MaxNameBytes)
	case !utf8.ValidString(domain): // which the wire to the nodes can't carry
		return &fault{domainField, "is not UTF-8"}
	}
	return nil
}

// checkFault says what of a check over gRPC, but for its domain, is not within the contract, or is the
// gateway's own to say.
func checkFault(m *quotav1.CheckRequest) *fault {
	n := len(m.GetDescriptors())
	if n < 1 || n > keyspace.MaxDescriptors {
		return faultf("descriptors", "has %d descriptors, 1 to %d are allowed", n, keyspace.MaxDescriptors)
	}
	for i, d := range m.GetDescriptors() {
		if f := descriptorFault(d); f != nil {
			return f.under(index("descriptors", i))
		}
	}
	if m.GetCost() > limit.MaxAmount {
		return faultf(costField, "is above %d", limit.MaxAmount)
	}
	if n := len(m.GetDecisionId()); n != 0 && n != idLen {
		return faultf("decision_id", "has %d bytes, none or %d are allowed", n, idLen)
	}
	return ownFault(m)
}

// ownFault refuses what a gateway says to nodes by itself. Taking it from a caller could only be wrong, and
// leaving it out would be to ignore it.
func ownFault(m *quotav1.CheckRequest) *fault {
	const own = "is not for a gateway's callers: the gateway does this itself"
	switch {
	case m.FenceNs != nil:
		return &fault{"fence_ns", own}
	case m.GetResolution() != nil:
		return &fault{"resolution", own}
	case m.Partition != nil:
		return &fault{"partition", own}
	case m.GetPeek():
		return &fault{"peek", own + "; Inspect says what is left"}
	}
	return nil
}

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
	return nil
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
