package client

import (
	"fmt"
	"strconv"

	"google.golang.org/grpc/codes"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// question is a check as the client sends it: within all bounds, and holding nothing of its caller's memory,
// which may change as soon as the call returns, while a copy is still being sent.
type question struct {
	domain      string
	descriptors []keyspace.Descriptor
	wire        []*quotav1.Descriptor
	cost        uint64
	id          [16]byte
	made        bool // the client made the id
	size        int  // no fewer bytes than it takes on the wire, without its resolution
}

// wireOverhead is more than what a message spends on each of its parts beside the bytes in it.
const wireOverhead = 12

// readQuestion copies a check, or says what is wrong with it. The domain may be left empty here.
func readQuestion(m *quotav1.CheckRequest) (*question, *Unavailable) {
	if bad := foreign(m); bad != nil {
		return nil, bad
	}
	q := &question{domain: m.GetDomain(), cost: max(1, m.GetCost()), size: len(m.GetDomain()) + 16*wireOverhead}
	switch n := len(m.GetDecisionId()); {
	case n == 0:
		q.id, q.made = newID(), true
	case n == len(q.id):
		copy(q.id[:], m.GetDecisionId())
	default:
		return nil, badInput("decision_id", "has %d bytes, none or %d are allowed", n, len(q.id))
	}
	switch {
	case len(q.domain) > policy.MaxNameBytes:
		return nil, badInput("domain", "has %d bytes, at most %d are allowed", len(q.domain), policy.MaxNameBytes)
	case q.cost > limit.MaxAmount:
		return nil, badInput("cost", "is above %d", limit.MaxAmount)
	}
	return q, q.copyDescriptors(m.GetDescriptors())
}

// foreign refuses what the client fills in itself: nothing is accepted and ignored.
func foreign(m *quotav1.CheckRequest) *Unavailable {
	field := ""
	switch {
	case m == nil:
		return badInput("", "there is no check")
	case m.FenceNs != nil:
		field = "fence_ns"
	case m.Resolution != nil:
		field = "resolution"
	case m.Partition != nil:
		field = "partition"
	case m.Peek:
		field = "peek"
	default:
		return nil
	}
	return badInput(field, "is for whoever asks the nodes, which the client does")
}

// copyDescriptors copies all names and values into two blocks, one of strings for resolving and one of bytes
// for the wire.
func (q *question) copyDescriptors(from []*quotav1.Descriptor) *Unavailable {
	if n := len(from); n < 1 || n > keyspace.MaxDescriptors {
		return badInput("descriptors", "has %d descriptors, 1 to %d are allowed", n, keyspace.MaxDescriptors)
	}
	entries, bytes := 0, 0
	for i, d := range from {
		if bad := descriptorFault(d); bad != nil {
			return bad.under(index("descriptors", i))
		}
		entries += len(d.GetEntries())
		for _, e := range d.GetEntries() {
			bytes += len(e.GetValue())
			q.size += len(e.GetName()) + wireOverhead
		}
	}
	q.size += bytes + (entries+len(from))*wireOverhead
	c := copier{
		values: make([]byte, 0, bytes), entries: make([]quotav1.Entry, entries), pointers: make([]*quotav1.Entry, entries),
		plain: make([]keyspace.Entry, entries),
	}
	for _, d := range from {
		for _, e := range d.GetEntries() {
			c.values = append(c.values, e.GetValue()...)
		}
	}
	c.text = string(c.values)
	q.descriptors, q.wire = make([]keyspace.Descriptor, len(from)), make([]*quotav1.Descriptor, len(from))
	for i, d := range from {
		q.wire[i] = &quotav1.Descriptor{}
		q.wire[i].Entries, q.descriptors[i] = c.copy(d.GetEntries())
	}
	return nil
}

// copier hands out parts of the two blocks.
type copier struct {
	values   []byte
	text     string
	entries  []quotav1.Entry
	pointers []*quotav1.Entry
	plain    []keyspace.Entry
}

func (c *copier) copy(from []*quotav1.Entry) ([]*quotav1.Entry, keyspace.Descriptor) {
	n := len(from)
	wire, plain := c.pointers[:n:n], c.plain[:n:n]
	for i, e := range from {
		size := len(e.GetValue())
		c.entries[i].Name, c.entries[i].Value = e.GetName(), c.values[:size:size]
		wire[i] = &c.entries[i]
		plain[i] = keyspace.Entry{Name: e.GetName(), Value: c.text[:size]}
		c.values, c.text = c.values[size:], c.text[size:]
	}
	c.entries, c.pointers, c.plain = c.entries[n:], c.pointers[n:], c.plain[n:]
	keyspace.SortEntries(plain)
	return wire, plain
}

// descriptorFault says what package keyspace would refuse, in the fields of the message.
func descriptorFault(d *quotav1.Descriptor) *Unavailable {
	entries := d.GetEntries()
	if n := len(entries); n > keyspace.MaxEntries {
		return badInput("entries", "has %d entries, at most %d are allowed", n, keyspace.MaxEntries)
	}
	for i, e := range entries {
		name := e.GetName()
		switch {
		case name == "":
			return badInput(index("entries", i)+".name", "is empty")
		case len(name) > keyspace.MaxNameLen:
			return badInput(index("entries", i)+".name", "has %d bytes, at most %d are allowed", len(name), keyspace.MaxNameLen)
		case len(e.GetValue()) > keyspace.MaxValueLen:
			return badInput(index("entries", i)+".value", "has %d bytes, at most %d are allowed", len(e.GetValue()), keyspace.MaxValueLen)
		}
		for j := range i {
			if entries[j].GetName() == name {
				return badInput(index("entries", i)+".name", "is that of entries[%d] too", j)
			}
		}
	}
	return nil
}

func index(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// badInput says what is wrong with a field. It never holds a value.
func badInput(field, format string, args ...any) *Unavailable {
	message := fmt.Sprintf(format, args...)
	if field != "" {
		message = field + ": " + message
	}
	return &Unavailable{
		Code: codes.InvalidArgument, Reason: quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, Message: message,
	}
}

// under puts the field that is spoken of below another one.
func (u *Unavailable) under(field string) *Unavailable {
	u.Message = field + "." + u.Message
	return u
}
