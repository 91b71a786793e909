package accesslog

import (
	"bytes"
	"errors"
	"slices"
)

// extendedNames are the columns of W3C's extended format by the names that people ask for.
var extendedNames = map[string][]string{
	"ip":            {"c-ip"},
	"forwarded_for": {"x-forwarded-for", "cs(x-forwarded-for)"},
	"host":          {"x-host-header", "cs(host)", "cs-host"},
	"method":        {"cs-method"},
	"path":          {"cs-uri-stem"},
	"status":        {"sc-status"},
	"user_agent":    {"cs(user-agent)"},
	"user":          {"cs-username"},
	"referer":       {"cs(referer)"},
	"bytes":         {"sc-bytes"},
}

// extended is the parser of W3C's extended format, as CloudFront writes it: #Fields names the columns, and
// may do so anew at any line. Date and time are UTC.
type extended struct {
	o          *Options
	names      []string
	date, time int
	wanted     []int
	cells      [][]byte
	clock      []byte
	scratch    []byte
}

func newExtended(head [][]byte, o *Options) (*extended, error) {
	e := &extended{o: o, date: -1, time: -1}
	for _, line := range head {
		if fields, ok := bytes.CutPrefix(line, []byte("#Fields:")); ok {
			return e, e.setNames(fields)
		}
	}
	return nil, errors.New("no #Fields line names the columns")
}

// setNames reads a #Fields line. After one that names too little no line is read until the next.
func (e *extended) setNames(fields []byte) (err error) {
	defer func() {
		if err != nil {
			e.names = nil
		}
	}()
	e.names = nil
	for _, name := range bytes.Fields(fields) {
		e.names = append(e.names, string(bytes.ToLower(name)))
	}
	e.date, e.time = slices.Index(e.names, "date"), slices.Index(e.names, "time")
	if e.date < 0 || e.time < 0 {
		return &ColumnError{Format: formatCloudFront, Missing: []string{"date", "time"}, There: e.names}
	}
	e.wanted, err = bind(formatCloudFront, e.names, e.o, func(name string) int {
		for _, n := range append(slices.Clone(extendedNames[name]), normalName(name)) {
			if at := slices.Index(e.names, n); at >= 0 {
				return at
			}
		}
		return -1
	})
	return err
}

func (e *extended) places() []int { return e.wanted }

func (e *extended) parse(line []byte, r *Reader) *Fault {
	if line[0] == '#' {
		if fields, ok := bytes.CutPrefix(line, []byte("#Fields:")); ok {
			if err := e.setNames(fields); err != nil {
				return fault("columns", "%v", err)
			}
		}
		return headerLine
	}
	if e.names == nil {
		return fault("columns", "the #Fields line before it names too little: %s", excerpt(line))
	}
	e.split(line)
	if len(e.cells) != len(e.names) {
		return fault("columns", "%d values, #Fields names %d: %s", len(e.cells), len(e.names), excerpt(line))
	}
	e.clock = append(append(append(e.clock[:0], e.cells[e.date]...), 'T'), e.cells[e.time]...)
	e.clock = append(e.clock, 'Z')
	at, err := r.times.readISO(e.clock)
	if err != nil {
		return fault("time", "%v: %s", err, excerpt(e.clock))
	}
	r.record.Time = at
	e.scratch = e.scratch[:0]
	for i, column := range e.wanted {
		r.record.Values[i] = nil
		if column < 0 || absent(e.cells[column]) {
			continue
		}
		r.record.Values[i] = e.cells[column]
		if e.o.Columns[i] == "user_agent" { // it is encoded once or twice, by the kind of log
			r.record.Values[i] = e.decode(e.decode(e.cells[column]))
		}
	}
	return nil
}

// split takes a line apart at its tabs or, where it has none, at its spaces.
func (e *extended) split(line []byte) {
	e.cells = e.cells[:0]
	if bytes.IndexByte(line, '\t') < 0 {
		e.cells = append(e.cells, bytes.Fields(line)...)
		return
	}
	for len(e.cells) < maxColumns {
		cell, rest, more := bytes.Cut(line, []byte{'\t'})
		e.cells = append(e.cells, cell)
		if !more {
			return
		}
		line = rest
	}
}

// decode takes percent-encoding off, once.
func (e *extended) decode(text []byte) []byte {
	if bytes.IndexByte(text, '%') < 0 {
		return text
	}
	begin := len(e.scratch)
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if high, low := hexValue(text[i+1]), hexValue(text[i+2]); high >= 0 && low >= 0 {
				e.scratch = append(e.scratch, byte(high<<4|low))
				i += 2
				continue
			}
		}
		e.scratch = append(e.scratch, text[i])
	}
	return e.scratch[begin:]
}
