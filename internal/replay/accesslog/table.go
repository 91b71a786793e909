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
	o         *Options
	format    string
	delimiter byte
	header    [][]byte // nil where there is none

	names  []string // of the columns; nil behind a header that names too little
	clocks string   // the name that the column of times last had
	time   int      // that column, and
	date   int      // that of its date, -1 where the time has it
	wanted []int    // columns, -1 for those that aren't there
	width  int      // how many values a row has

	cells   [][]byte
	scratch []byte // of cells with quotes in them
	joined  []byte // a row of several lines
	probe   []byte // the end of one
	clock   []byte // date and time
}

// newTable looks for a header in the first line.
func newTable(format string, head [][]byte, o *Options, r *Reader) (*table, error) {
	t := &table{o: o, format: format, delimiter: '\t'}
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
	return t, t.bind(t.namesOf(first, r), len(first))
}

// bind finds the columns of rows with so many values by their names.
func (t *table) bind(names []string, width int) (err error) {
	t.names, t.width = nil, width
	find := func(name string) int { return slices.Index(names, normalName(name)) }
	if t.wanted, err = bind(t.format, names, t.o, find); err != nil {
		return err
	}
	if err := t.findTime(names); err != nil {
		return err
	}
	used := append(slices.Clone(t.o.Columns), names[t.time])
	if t.date >= 0 {
		used = append(used, names[t.date])
	}
	for _, name := range used {
		if first := find(name); first >= 0 && slices.Contains(names[first+1:], names[first]) {
			return fmt.Errorf("two columns of the %s file are named %s", t.format, plain(name))
		}
	}
	t.names, t.clocks = names, names[t.time]
	return nil
}

// normalName is how names of columns are compared.
func normalName(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "_")
}

// namesOf returns the names of the columns: those of Options, else those of a header, else their numbers. A
// first line is a header unless it holds a time. Where Options name the columns, it must also hold a name
// that is sought.
func (t *table) namesOf(first [][]byte, r *Reader) (names []string) {
	sought := append(slices.Clone(t.o.Columns), t.o.TimeColumn)
	sought = append(append(sought, t.o.Names...), usualTimes...)
	header, times := false, holdTime(first, r)
	for _, cell := range first {
		name := normalName(string(cell))
		names = append(names, name)
		header = header || name != "" && slices.ContainsFunc(sought, func(s string) bool { return normalName(s) == name })
	}
	isHeader := header && !times
	if isHeader {
		t.header = first
	}
	switch {
	case len(t.o.Names) > 0:
		names = names[:0]
		for _, name := range t.o.Names {
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

// holdTime tells whether one of the values is a time, or would be one with a zone, or on another date.
func holdTime(cells [][]byte, r *Reader) bool {
	probe := timeReader{zone: r.times.zone} // of any unit, and what it sees is no unit of the log
	return slices.ContainsFunc(cells, func(cell []byte) bool {
		_, err := probe.read(cell)
		return !errors.Is(err, errNoTime)
	})
}

func (t *table) findTime(names []string) error {
	o, candidates := t.o, usualTimes
	t.time, t.date = -1, -1
	if o.TimeColumn != "" {
		candidates = []string{normalName(o.TimeColumn)}
	}
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

func (t *table) places() []int { return t.wanted }

func (t *table) parse(line []byte, r *Reader) *Fault {
	cells, state := t.split(line)
	if state == cellOpen {
		t.joined = append(t.joined[:0], line...)
		line = t.joined // reading on takes the other away
		cells, state = t.join(r)
	}
	if state != cellDone {
		return fault("quotes", "a quote that nothing closes, or something behind one or beside a line break: %s", excerpt(line))
	}
	f := t.record(cells, line, r)
	switch {
	case f == nil || t.header == nil:
		return f
	case len(t.o.Names) == 0 && t.isHeader(cells, r):
		return t.rename(cells)
	case slices.EqualFunc(cells, t.header, bytes.Equal):
		return headerLine
	}
	return f
}

// record reads a row into the reader's record.
func (t *table) record(cells [][]byte, line []byte, r *Reader) *Fault {
	switch n := len(cells); {
	case t.names == nil:
		return fault("columns", "the header before it names too little: %s", excerpt(line))
	case n < t.width || n > t.width && slices.ContainsFunc(cells[t.width:], func(c []byte) bool { return len(c) > 0 }):
		return fault("columns", "%d values, the header or first row has %d: %s", n, t.width, excerpt(line))
	}
	text := cells[t.time]
	if t.date >= 0 && len(text) > 2 && text[2] == ':' { // else it is a whole one, beside the date
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

// isHeader tells whether a row that is no record is another file's header, put behind this one: it names
// the column of times, and holds none.
func (t *table) isHeader(cells [][]byte, r *Reader) bool {
	return slices.ContainsFunc(cells, func(c []byte) bool { return normalName(string(c)) == t.clocks }) && !holdTime(cells, r)
}

// rename goes by another header from here on. Behind one that names too little no row is read until the
// next.
func (t *table) rename(cells [][]byte) *Fault {
	names := make([]string, len(cells))
	for i, cell := range cells {
		names[i] = normalName(string(cell))
	}
	if err := t.bind(names, len(names)); err != nil {
		return fault("columns", "%v", err)
	}
	return headerLine
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
			if hasLineEnd(cell) { // of two rows
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
