package checker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Reader reads a history, line by line. Empty lines are passed over.
type Reader struct {
	in   *bufio.Reader
	line int
}

// NewReader returns one that reads r.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(r, 1<<16)} }

// Line is the number, from 1, of the line that Next returned last.
func (r *Reader) Line() int { return r.line }

// Next returns the next line, or io.EOF behind the last. Any other error names the line; a kind that
// isn't known is one, so that a history is never judged by less than it says.
func (r *Reader) Next() (Line, error) {
	for {
		text, err := r.in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(text) > 0 {
			r.line++
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			l, err := decode(text)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", r.line, err)
			}
			return l, nil
		}
		if err != nil {
			return nil, io.EOF
		}
	}
}

// decode reads one line's text.
func decode(text []byte) (Line, error) {
	kind, err := kindOf(text)
	if err != nil {
		return nil, err
	}
	var l Line
	switch kind {
	case "policies":
		l = &Policies{}
	case "check":
		l = &Call{}
	case "used":
		l = &Usage{}
	case "state":
		l = &State{}
	case "mark":
		l = &Mark{}
	default:
		return nil, fmt.Errorf("kind %q", kind)
	}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, err
	}
	return l, l.check()
}

// kindOf reads a line's kind. A Writer puts it first, and then nothing else of the line is read for it.
func kindOf(text []byte) (string, error) {
	if rest, ok := bytes.CutPrefix(text, []byte(`{"kind":"`)); ok {
		if end := bytes.IndexByte(rest, '"'); end > 0 {
			return string(rest[:end]), nil
		}
	}
	var head struct {
		Kind string `json:"kind"`
	}
	err := json.Unmarshal(text, &head)
	return head.Kind, err
}
