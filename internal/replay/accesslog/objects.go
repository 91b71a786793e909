package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// objects is the parser of JSON lines. A column is a name in the object, or a path of names into nested
// ones with points between.
type objects struct {
	times  []string // the candidates for the time, best first; once a line has one, that one
	paths  []string // all that is looked for: the wanted columns, then the times
	found  [][]byte // the values, raw
	above  []string // the objects that paths lead through
	passed []bool   // those of them that were seen
	path   []byte
	wanted int
}

func newObjects(o *Options) (*objects, error) {
	p := &objects{paths: slices.Clone(o.Columns), wanted: len(o.Columns), times: usualTimes}
	if o.TimeColumn != "" {
		p.times = []string{o.TimeColumn}
	}
	p.paths = append(p.paths, p.times...)
	p.found = make([][]byte, len(p.paths))
	for _, path := range p.paths {
		for i := range len(path) {
			if path[i] == '.' && !slices.Contains(p.above, path[:i]) {
				p.above = append(p.above, path[:i])
			}
		}
	}
	p.passed = make([]bool, len(p.above))
	return p, nil
}

func (p *objects) places() []int { return nil }

func (p *objects) parse(line []byte, r *Reader) *Fault {
	line = bytes.TrimSpace(line)
	if line[0] != '{' || !json.Valid(line) {
		return fault("json", "not a JSON object: %s", excerpt(line))
	}
	clear(p.found)
	clear(p.passed)
	p.path = p.path[:0]
	if err := p.object(line); err != nil {
		return fault("json", "%v: %s", err, excerpt(line))
	}
	var text []byte
	candidate := 0
	for i, raw := range p.found[p.wanted:] {
		if text = p.text(raw); text != nil {
			candidate = i
			break
		}
	}
	if text == nil {
		return fault("time", "no time under %s: %s", strings.Join(p.times, ", "), excerpt(line))
	}
	at, err := r.times.read(text)
	if err != nil {
		return fault("time", "%v: %s", err, excerpt(text))
	}
	r.record.Time = at
	for i := range r.record.Values {
		r.record.Values[i] = p.text(p.found[i])
	}
	if len(p.times) > 1 { // another name in another line may be another time
		p.times = p.times[candidate : candidate+1]
		p.paths = append(p.paths[:p.wanted], p.times...)
		p.found = p.found[:len(p.paths)]
	}
	return nil
}

var errTwoValues = errors.New("a name that is there twice")

// object walks an object that is known to be valid, and keeps the values that are looked for. Where each
// thing ends follows from its first byte.
func (p *objects) object(b []byte) (err error) {
	depth := len(p.path)
	b = bytes.TrimLeft(b[1:], " \t\r\n")
	for b[0] != '}' {
		n := stringEnd(b)
		name := b[1 : n-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = unquote(b[:n])
		}
		b = bytes.TrimLeft(b[n:], " \t\r\n")
		b = bytes.TrimLeft(b[1:], " \t\r\n") // the colon
		p.path = append(p.path, name...)
		n = valueEnd(b)
		if err := p.keep(b[:n]); err != nil {
			return err
		}
		p.path = p.path[:depth]
		b = bytes.TrimLeft(b[n:], " \t\r\n")
		if b[0] == ',' {
			b = bytes.TrimLeft(b[1:], " \t\r\n")
		}
	}
	return nil
}

// keep takes the value at the current path, and looks into it where paths go on. An object that is there
// twice is refused as a value is: which of them counts is for nobody to guess.
func (p *objects) keep(raw []byte) error {
	for i, path := range p.paths {
		if path == string(p.path) {
			if p.found[i] != nil {
				return errTwoValues
			}
			p.found[i] = raw
		}
	}
	at := slices.IndexFunc(p.above, func(s string) bool { return s == string(p.path) })
	if at < 0 {
		return nil
	}
	if p.passed[at] {
		return errTwoValues
	}
	p.passed[at] = true
	if raw[0] != '{' {
		return nil
	}
	p.path = append(p.path, '.')
	return p.object(raw)
}

// text is a value as a column holds it: a text's content, a number or a boolean as it is written; nil for
// null, objects and lists, which are no value of a column, and for an empty text.
func (p *objects) text(raw []byte) []byte {
	if len(raw) == 0 {
		return nil
	}
	switch raw[0] {
	case 'n', '{', '[':
		return nil
	case '"':
		content := raw[1 : len(raw)-1]
		if bytes.IndexByte(content, '\\') >= 0 {
			content = unquote(raw)
		}
		if len(content) == 0 {
			return nil
		}
		return content
	}
	return raw
}

// unquote reads a valid text with escapes in it.
func unquote(raw []byte) []byte {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil
	}
	return []byte(s)
}

// stringEnd returns where the text at the beginning of b ends, behind its quote.
func stringEnd(b []byte) int {
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// valueEnd returns where the value at the beginning of b ends.
func valueEnd(b []byte) int {
	switch b[0] {
	case '"':
		return stringEnd(b)
	case '{', '[':
		depth := 0
		for i := 0; ; i++ {
			switch b[i] {
			case '"':
				i += stringEnd(b[i:]) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	n := 0
	for n < len(b) && !bytes.ContainsRune([]byte(",}] \t\r\n"), rune(b[n])) {
		n++
	}
	return n
}
