package gateway

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

// Names that a query and a body use for themselves. An entry of such a name can be sent in a body only.
const (
	domainField = "domain"
	costField   = "cost"
)

// question is a check as it came over HTTP, not held to the bounds of a check yet.
type question struct {
	domain      string
	named       bool // the domain was named
	cost        uint64
	descriptors [][]keyspace.Entry
	query       bool // it came as a query, with its only descriptor
}

// badInput is a fault with the status that tells of it.
type badInput struct {
	*fault
	status int
}

func bad(f *fault) *badInput { return &badInput{f, http.StatusBadRequest} }

// parseQuery reads a query: every parameter is an entry of the one descriptor, but for domain and cost.
func parseQuery(raw string) (question, *badInput) {
	q := question{cost: 1, query: true}
	var entries []keyspace.Entry
	seen := map[string]bool{}
	if strings.Contains(raw, ";") {
		return q, bad(&fault{"query", "has a ';', which some take for '&'; in a value it is written %3B"})
	}
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, f := parsePair(pair)
		switch {
		case f != nil:
			return q, bad(f)
		case seen[name]:
			return q, bad(&fault{parameter(name), "is given twice"})
		case len(seen) == keyspace.MaxEntries+2:
			return q, bad(faultf("query", "has more than %d entries", keyspace.MaxEntries))
		}
		seen[name] = true
		switch name {
		case domainField:
			q.domain, q.named = value, true
		case costField:
			if q.cost, f = parseCost(value); f != nil {
				return q, bad(f)
			}
		default:
			entries = append(entries, keyspace.Entry{Name: name, Value: value})
		}
	}
	q.descriptors = [][]keyspace.Entry{entries}
	return q, nil
}

// parsePair reads one parameter. Its value is bytes; its name is text, and other names are none that a policy or the
// wire to the nodes could have.
func parsePair(pair string) (name, value string, f *fault) {
	name, value, _ = strings.Cut(pair, "=")
	name, err := url.QueryUnescape(name)
	switch {
	case err != nil:
		return "", "", &fault{"query", "has a parameter name with a broken percent-encoding"}
	case !utf8.ValidString(name):
		return "", "", &fault{"query", "has a parameter name that is not UTF-8"}
	}
	if value, err = url.QueryUnescape(value); err != nil {
		return "", "", &fault{parameter(name), "has a broken percent-encoding"}
	}
	return name, value, nil
}

func parameter(name string) string { return "parameter " + quote(name) }

// quote quotes a name that a caller chose, the front of it if it is long, in characters that any log and
// terminal can take.
func quote(name string) string {
	if len(name) > keyspace.MaxNameLen {
		return strconv.QuoteToASCII(name[:keyspace.MaxNameLen]) + "..."
	}
	return strconv.QuoteToASCII(name)
}

// parseCost reads a cost as it has to be written: digits. What a cost of 0 would mean (a free look) is
// Inspect's, and less than 0 would be a refund for whoever asks.
func parseCost(s string) (uint64, *fault) {
	cost, err := strconv.ParseUint(s, 10, 64)
	if err != nil || cost < 1 || cost > limit.MaxAmount {
		return 0, faultf(costField, "is not a whole number from 1 to %d", limit.MaxAmount)
	}
	return cost, nil
}

// check holds the question's descriptors to the bounds of a check, and is what to ask.
func (q *question) check(domain string) (*quotav1.CheckRequest, *badInput) {
	m := &quotav1.CheckRequest{Domain: domain, Cost: q.cost, Descriptors: make([]*quotav1.Descriptor, len(q.descriptors))}
	for i, entries := range q.descriptors {
		d, err := keyspace.NewDescriptor(entries)
		if err != nil {
			return nil, bad(&fault{q.place(i), err.Error()})
		}
		m.Descriptors[i] = messageOf(d)
	}
	return m, nil
}

func messageOf(d keyspace.Descriptor) *quotav1.Descriptor {
	m := &quotav1.Descriptor{Entries: make([]*quotav1.Entry, len(d))}
	for i, e := range d {
		m.Entries[i] = &quotav1.Entry{Name: e.Name, Value: []byte(e.Value)}
	}
	return m
}

func (q *question) place(descriptor int) string {
	if q.query {
		return "query"
	}
	return index("descriptors", descriptor)
}
