package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Reader reads the records of one log. It is for one goroutine.
type Reader struct {
	lines   *lines
	parser  parser
	format  string
	columns []string // that are wanted
	times   timeReader
	record  Record
	counts  Counts
	fault   func(Fault)
}

// parser reads one line into the reader's record. A line that is no record gives a Fault without its
// line, or errHeader.
type parser interface {
	parse(line []byte, r *Reader) *Fault
	// places are those of the wanted columns, -1 for one that isn't there; nil where each line may have
	// others.
	places() []int
}

// headerLine is what parse returns for a line that is a header or a comment.
var headerLine = &Fault{Reason: "header"}

// NewReader finds out the log's format, if the options don't say, and returns a reader of it. Whoever
// wants to know hears of bad lines by fault. It returns a *ColumnError where a wanted column is not there.
func NewReader(in io.Reader, o Options, fault func(Fault)) (*Reader, error) {
	l, err := openLines(in, o.MaxLine)
	if err != nil {
		return nil, err
	}
	r := &Reader{lines: l, format: o.Format, columns: o.Columns, times: timeReader{unit: o.Unit, zone: o.Zone}, fault: fault}
	r.record.Values = make([][]byte, len(o.Columns))
	head, ended := r.peek()
	if len(head) == 0 && ended { // nobody can tell what it would have been, and there is nothing to lack
		r.format, r.parser = formatEmpty, nothing{}
		return r, nil
	}
	if r.format == "" || r.format == "auto" {
		r.format = detect(head)
	}
	switch r.format {
	case formatCSV, formatTSV:
		r.parser, err = newTable(r.format, head, &o, r)
	case formatJSON:
		r.parser, err = newObjects(&o)
	case formatCloudFront:
		r.parser, err = newExtended(head, &o)
	default:
		if layouts[r.format] == nil {
			return nil, fmt.Errorf("unknown format %q", r.format)
		}
		r.parser, err = newWeblog(r.format, &o)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// headLines is how many lines a format is found out from, among the first maxHead.
const (
	headLines = 20
	maxHead   = 1000
)

// nothing is the parser of a log without a line.
type nothing struct{}

func (nothing) places() []int { return nil }

func (nothing) parse(line []byte, _ *Reader) *Fault {
	return fault("columns", "a line in a log that had none: %s", excerpt(line))
}

// peek returns the first lines that are not blank, which are read again afterwards, and whether the log
// ends behind them. What can't be read is for Next to say.
func (r *Reader) peek() (head [][]byte, ended bool) {
	var seen []pushed
	for len(head) < headLines && len(seen) < maxHead {
		line, err := r.lines.next()
		if err != nil && !errors.Is(err, errTooLong) {
			ended = errors.Is(err, io.EOF)
			break
		}
		if err != nil { // there is a line, though nobody sees it
			head = append(head, nil)
		}
		line = bytes.Clone(line)
		seen = append(seen, pushed{line, err})
		if len(bytes.TrimSpace(line)) > 0 {
			head = append(head, line)
		}
	}
	r.lines.push(seen)
	return slices.DeleteFunc(head, func(line []byte) bool { return line == nil }), ended && len(head) == 0
}

// Format is the log's format.
func (r *Reader) Format() string { return r.format }

// Absent names the wanted columns that the log doesn't have, as far as its header or its format tells.
func (r *Reader) Absent() (columns []string) {
	for i, at := range r.parser.places() {
		if at < 0 {
			columns = append(columns, r.columns[i])
		}
	}
	return columns
}

// Counts are the lines read so far.
func (r *Reader) Counts() Counts { return r.counts }

// Next reads the next record, whose values are good until the next call. It returns io.EOF at the end, and
// any other error where the log can't be read on; the counts still add up then.
func (r *Reader) Next(rec *Record) error {
	for {
		line, err := r.lines.next()
		number := r.lines.number
		switch {
		case errors.Is(err, errTooLong):
			r.bad(number, &Fault{Reason: "too long", Detail: fmt.Sprintf("a line of more than %d bytes", r.lines.max)})
			continue
		case err != nil:
			return err
		case len(bytes.TrimSpace(line)) == 0:
			r.counts.Lines++
			r.counts.Blank++
			continue
		}
		f := r.parser.parse(line, r)
		switch f {
		case nil:
			r.counts.Lines++
			r.record.Line = number
			*rec = r.record
			return nil
		case headerLine:
			r.counts.Lines++
			r.counts.Header++
		default:
			r.bad(number, f)
		}
	}
}

func (r *Reader) bad(number int64, f *Fault) {
	r.counts.Lines++
	r.counts.Bad++
	f.Line = number
	if r.fault != nil {
		r.fault(*f)
	}
}

func fault(reason, format string, args ...any) *Fault {
	return &Fault{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// excerpt quotes the beginning of a text for people, on one line.
func excerpt(text []byte) string {
	const most = 100
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "…"
	}
	return strconv.Quote(string(text))
}

// bind finds the places of the wanted columns, -1 for an optional one that isn't there.
func bind(format string, there []string, o *Options, find func(name string) int) (places []int, err error) {
	var missing []string
	for _, name := range o.Columns {
		at := find(name)
		if at < 0 && !slices.Contains(o.Optional, name) && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		places = append(places, at)
	}
	if len(missing) > 0 {
		return nil, &ColumnError{Format: format, Missing: missing, There: there}
	}
	return places, nil
}

// detect finds out the format from a log's first lines: that of the first line that is of one, else CSV
// or TSV.
func detect(head [][]byte) string {
	for _, line := range head {
		switch {
		case bytes.HasPrefix(line, []byte("#Version")) || bytes.HasPrefix(line, []byte("#Fields")):
			return formatCloudFront
		case bytes.TrimSpace(line)[0] == '{':
			return formatJSON
		}
		if format := detectLayout(line); format != "" {
			return format
		}
	}
	if len(head) > 0 && delimiterOf(head[0]) == '\t' {
		return formatTSV
	}
	return formatCSV
}

func detectLayout(line []byte) string {
	var space [maxTokens]token
	tokens, closed := tokenize(line, space[:0])
	if !closed || len(tokens) < 5 {
		return ""
	}
	var f fields
	if _, ok := readEnvoy(tokens, &f); ok {
		return formatEnvoy
	}
	if _, ok := readALB(tokens, &f); ok {
		return formatALB
	}
	if hostFirst(tokens) {
		if _, ok := readVhost(tokens, &f); ok {
			return formatVhost
		}
	}
	if _, ok := readCombined(tokens, &f); !ok {
		return ""
	}
	quoted := 0
	for _, t := range tokens {
		if t.quoted {
			quoted++
		}
	}
	if quoted > 1 {
		return formatCombined
	}
	return formatCommon
}
