package replay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/origin"
)

// The columns of a log whose values are brought into normal form, and the one that the client's address
// may come from.
const (
	addressColumn   = "ip"
	hostColumn      = "host"
	forwardedColumn = "forwarded_for"
)

// rowShape says how the values of a line become the entries of a row.
type rowShape struct {
	names    []string // of the entries, sorted
	required []bool   // a row without it is bad
	columns  []string // to ask a reader for: the names, then forwarded_for and the cost where they matter

	forwarded, cost int // places among the columns, -1 for none
	prefix, trusted int
}

func newRowShape(names, required []string, cfg *Config) *rowShape {
	s := &rowShape{
		names: names, columns: slices.Clone(names), forwarded: -1, cost: -1,
		prefix: cfg.Prefix, trusted: cfg.Trusted,
	}
	for _, name := range names {
		s.required = append(s.required, slices.Contains(required, name))
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.ToLower(name) == addressColumn }) {
		s.forwarded = len(s.columns)
		s.columns = append(s.columns, forwardedColumn)
	}
	if cfg.CostColumn != "" {
		s.cost = len(s.columns)
		s.columns = append(s.columns, cfg.CostColumn)
	}
	return s
}

// optional are the columns that a log may lack: those that no row must have.
func (s *rowShape) optional() (names []string) {
	for i, name := range s.names {
		if !s.required[i] {
			names = append(names, name)
		}
	}
	if s.forwarded >= 0 {
		names = append(names, forwardedColumn)
	}
	return names
}

// badRow says why a row can't be decided.
type badRow struct{ reason, detail string }

// A row on its way through the sorter is
//
//	input uvarint, line uvarint, cost uvarint, then for each entry: length + 1 uvarint, value
//
// with 0 for an entry that isn't there.
func (s *rowShape) append(dst []byte, input int, line int64, values [][]byte) ([]byte, *badRow) {
	cost, bad := s.costOf(values)
	if bad != nil {
		return dst, bad
	}
	dst = binary.AppendUvarint(dst, uint64(input))
	dst = binary.AppendUvarint(dst, uint64(line))
	dst = binary.AppendUvarint(dst, cost)
	for i, name := range s.names {
		// One byte is enough for the length of nearly all values: they are written behind it, in
		// place, and moved where they turn out longer.
		at := len(dst)
		dst = append(dst, 0)
		out, ok := s.appendValue(dst, i, values)
		n := len(out) - at - 1
		switch {
		case !ok || n == 0:
			if s.required[i] {
				return dst, &badRow{"no " + name, fmt.Sprintf("no %s in it: %.60q", name, values[i])}
			}
			dst = out[:at+1]
			dst[at] = 0
		case n > keyspace.MaxValueLen:
			return dst, &badRow{"value too long", fmt.Sprintf("%s has %d bytes, at most %d are allowed", name, n, keyspace.MaxValueLen)}
		case n+1 < 0x80:
			dst = out
			dst[at] = byte(n + 1)
		default:
			dst = append(out, 0)
			copy(dst[at+2:], dst[at+1:len(dst)-1])
			binary.PutUvarint(dst[at:], uint64(n+1))
		}
	}
	return dst, nil
}

// appendValue appends an entry's value in its normal form.
func (s *rowShape) appendValue(dst []byte, i int, values [][]byte) (out []byte, ok bool) {
	switch strings.ToLower(s.names[i]) { // columns are found whatever their case
	case addressColumn:
		list, peer := values[s.forwarded], values[i]
		if list == nil && bytes.IndexByte(peer, ',') >= 0 { // a list in the address's own column
			list, peer = peer, nil
		}
		client, ok := origin.Client(list, peer, s.trusted)
		if !ok {
			return dst, false
		}
		return origin.AppendAddress(dst, client, s.prefix)
	case hostColumn:
		return origin.AppendHost(dst, values[i])
	}
	return append(dst, values[i]...), values[i] != nil
}

func (s *rowShape) costOf(values [][]byte) (uint64, *badRow) {
	if s.cost < 0 {
		return 1, nil
	}
	text := values[s.cost]
	cost, err := strconv.ParseUint(unsafe.String(unsafe.SliceData(text), len(text)), 10, 64)
	if err != nil || cost == 0 {
		return 0, &badRow{"cost", fmt.Sprintf("cost %.40q: want a whole number from 1", text)}
	}
	return cost, nil
}

// row is a row that came out of the sorter.
type row struct {
	input   int
	line    int64
	time    int64
	cost    uint64
	entries []keyspace.Entry // sorted by name; their values are views of the payload
}

// read reads what append wrote.
func (s *rowShape) read(r *row, time int64, payload []byte) {
	input, rest := uvarint(payload)
	line, rest := uvarint(rest)
	r.cost, rest = uvarint(rest)
	r.input, r.line, r.time = int(input), int64(line), time
	r.entries = r.entries[:0]
	for _, name := range s.names {
		var n uint64
		if n, rest = uvarint(rest); n > 0 {
			value := unsafe.String(unsafe.SliceData(rest), n-1)
			r.entries, rest = append(r.entries, keyspace.Entry{Name: name, Value: value}), rest[n-1:]
		}
	}
}

// uvarint reads a number that this process wrote.
func uvarint(b []byte) (uint64, []byte) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		panic("replay: a row that nobody wrote")
	}
	return v, b[n:]
}
