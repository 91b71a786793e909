package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// usualTimes are the names that a column of times usually has, as normalName writes them; those that may
// also be a duration come last, and request_time, which nearly always is one, is none of them.
var usualTimes = []string{
	"@timestamp", "timestamp", "ts", "datetime", "date_time", "time_iso8601", "time_local", "event_time",
	"eventtime", "start_time", "created_at", "time", "date", "t",
}

// maxColumns is how many columns a table may have.
const maxColumns = 4096

// table is the parser of CSV and TSV: RFC 4180, with quotes that matter only where a value begins with
// one, and spaces around values that have none ignored.
type table struct {
	format    string
	delimiter byte
	time      int   // column of the time, and
	date      int   // of its date, -1 where the time has it
	wanted    []int // columns, -1 for those that aren't there
	least     int   // how many columns a row must have for its time
	header    [][]byte

	cells   [][]byte
	scratch []byte // of cells with quotes in them
	joined  []byte // a row of several lines
	probe   []byte // the end of one
	clock   []byte // date and time
}

// newTable looks for a header among the first lines.
func newTable(format string, head [][]byte, o *Options, r *Reader) (*table, error) {
	t := &table{format: format, delimiter: '\t', date: -1}
	var first [][]byte
	if len(head) > 0 {
		if format == formatCSV {
			t.delimiter = delimiterOf(head[0])
		}
		cells, _ := t.split(head[0])
		for _, c := range cells {
			first = append(first, bytes.Clone(c))
		}
	}
	names := t.names(first, o, r)
	find := func(name string) int { return slices.Index(names, normalName(name)) }
	var err error
	if t.wanted, err = bind(format, names, o, find); err != nil {
		return nil, err
	}
	if err := t.findTime(names, o); err != nil {
		return nil, err
	}
	for _, name := range append(slices.Clone(o.Columns), names[t.time]) {
		if first := find(name); first >= 0 && slices.Contains(names[first+1:], names[first]) {
			return nil, fmt.Errorf("two columns of the %s file are named %s", format, name)
		}
	}
	return t, nil
}

// normalName is how names of columns are compared.
func normalName(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "_")
}

// names returns the names of the columns: those of Options, else those of a header, else their numbers. A
// first line is a header unless it holds a time. Where Options name the columns, it must also hold a name
// that is sought.
func (t *table) names(first [][]byte, o *Options, r *Reader) (names []string) {
	sought := append(slices.Clone(o.Columns), o.TimeColumn)
	sought = append(append(sought, o.Names...), usualTimes...)
	header, times := false, false
	probe := timeReader{zone: r.times.zone} // of any unit, and what it sees is no unit of the log
	for _, cell := range first {
		name := normalName(string(cell))
		names = append(names, name)
		header = header || name != "" && slices.ContainsFunc(sought, func(s string) bool { return normalName(s) == name })
		if _, err := probe.read(cell); !errors.Is(err, errNoTime) {
			times = true // or would be one with a zone, or another date
		}
	}
	isHeader := header && !times
	if isHeader {
		t.header = first
	}
	switch {
	case len(o.Names) > 0:
		names = names[:0]
		for _, name := range o.Names {
			names = append(names, normalName(name))
		}
	case !isHeader && times:
		for i := range names {
			names[i] = strconv.Itoa(i + 1)
		}
	case !isHeader:
		t.header = first // names that nobody asked for are a header all the same
	}
	return names
}

func (t *table) findTime(names []string, o *Options) error {
	candidates := usualTimes
	if o.TimeColumn != "" {
		candidates = []string{normalName(o.TimeColumn)}
	}
	t.time = -1
	for _, name := range candidates {
		if t.time = slices.Index(names, name); t.time >= 0 {
			break
		}
	}
	if t.time < 0 && o.TimeColumn == "" && slices.Contains(names, "1") {
		t.time = 0 // without a header the time comes first
	}
	if t.time < 0 {
		missing := o.TimeColumn
		if missing == "" {
			missing = "of times (--time-column)"
		}
		return &ColumnError{Format: t.format, Missing: []string{missing}, There: names}
	}
	if date := slices.Index(names, "date"); names[t.time] == "time" && date >= 0 {
		t.date = date
	}
	t.least = max(t.time, t.date) + 1
	return nil
}

// delimiterOf is the separator that the line has most of, outside of quotes.
func delimiterOf(line []byte) byte {
	best, most := byte(','), 0
	for _, c := range []byte{',', '\t', ';', '|'} {
		n, quoted := 0, false
		for _, b := range line {
			if b == '"' {
				quoted = !quoted
			} else if b == c && !quoted {
				n++
			}
		}
		if n > most {
			best, most = c, n
		}
	}
	return best
}

func (t *table) parse(line []byte, r *Reader) *Fault {
	cells, state := t.split(line)
	if state == cellOpen {
		t.joined = append(t.joined[:0], line...)
		line = t.joined // reading on takes the other away
		cells, state = t.join(r)
	}
	switch {
	case state != cellDone:
		return fault("quotes", "a quote that nothing closes, or something behind one or beside a line break: %s", excerpt(line))
	case t.header != nil && slices.EqualFunc(cells, t.header, bytes.Equal):
		return headerLine
	case len(cells) < t.least:
		return fault("columns", "%d columns, the time is in column %d: %s", len(cells), t.least, excerpt(line))
	}
	text := cells[t.time]
	if t.date >= 0 {
		t.clock = append(append(append(t.clock[:0], cells[t.date]...), ' '), text...)
		text = t.clock
	}
	at, err := r.times.read(text)
	if err != nil {
		return fault("time", "%v: %s", err, excerpt(text))
	}
	r.record.Time = at
	for i, column := range t.wanted {
		r.record.Values[i] = nil
		if column >= 0 && column < len(cells) && len(cells[column]) > 0 {
			r.record.Values[i] = cells[column]
		}
	}
	return nil
}

// cellState says how a row's last cell ended.
type cellState uint8

const (
	cellDone cellState = iota
	cellOpen           // in the middle of a quoted value
	cellBad            // with something behind a closing quote, or a line break that no quotes are around
)

// split takes a row apart.
func (t *table) split(line []byte) (cells [][]byte, state cellState) {
	t.cells, t.scratch = t.cells[:0], t.scratch[:0]
	for {
		var cell []byte
		start := bytes.TrimLeft(line, " ")
		if len(start) > 0 && start[0] == '"' {
			if cell, line, state = t.quoted(start); state != cellDone {
				return nil, state
			}
		} else {
			at := bytes.IndexByte(line, t.delimiter)
			if at < 0 {
				at = len(line)
			}
			cell, line = bytes.Trim(line[:at], " "), line[at:]
			if bytes.IndexByte(cell, '\r') >= 0 { // of two rows, in a file with line ends of several kinds
				return nil, cellBad
			}
		}
		t.cells = append(t.cells, cell)
		if len(line) == 0 {
			return t.cells, cellDone
		}
		if len(t.cells) == maxColumns {
			return nil, cellBad
		}
		line = line[1:] // the delimiter
	}
}

// quoted reads a value between quotes; rest begins with the delimiter behind it.
func (t *table) quoted(line []byte) (cell, rest []byte, state cellState) {
	begin := len(t.scratch)
	line = line[1:]
	for {
		at := bytes.IndexByte(line, '"')
		if at < 0 {
			return nil, nil, cellOpen
		}
		if at+1 < len(line) && line[at+1] == '"' { // a quote in the value
			t.scratch = append(t.scratch, line[:at+1]...)
			line = line[at+2:]
			continue
		}
		cell, rest = line[:at], bytes.TrimLeft(line[at+1:], " ")
		if len(t.scratch) > begin {
			t.scratch = append(t.scratch, cell...)
			cell = t.scratch[begin:]
		}
		if len(rest) > 0 && rest[0] != t.delimiter {
			return nil, nil, cellBad
		}
		return cell, rest, cellDone
	}
}

// maxJoined is how many lines one row may have.
const maxJoined = 1000

// join reads on where a value of the line in joined has line breaks in it. Where no quote closes it, that
// line is bad and the others are read again, each for itself.
func (t *table) join(r *Reader) (cells [][]byte, state cellState) {
	var more []pushed
	for len(more) < maxJoined && len(t.joined) < r.lines.max {
		next, err := r.lines.next()
		if errors.Is(err, errTooLong) {
			more = append(more, pushed{err: err})
			break
		} else if err != nil { // which the next read says again
			break
		}
		more = append(more, pushed{line: bytes.Clone(next)})
		t.joined = append(append(t.joined, '\n'), next...)
		if bytes.IndexByte(next, '"') < 0 {
			continue
		}
		// Whether the value ends here shows without what came before: that is looked at once, not with
		// each line.
		t.probe = append(append(t.probe[:0], '"'), next...)
		if _, state = t.split(t.probe); state == cellOpen {
			continue
		}
		if cells, state = t.split(t.joined); state == cellDone {
			return cells, state
		}
		break
	}
	r.lines.push(more)
	return nil, cellBad
}
