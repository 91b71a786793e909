package configfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxSize is far above any configuration, in bytes; what is larger is some other file.
const MaxSize = 1 << 20

// File is a configuration, and what was found wrong with it so far. The zero value is that of whoever has no file, only flags.
type File struct {
	name     string
	root     *yaml.Node      // nil: there is none
	broken   map[string]bool // paths that were refused, so that what a check says of them is an echo
	problems []Problem
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Line    int    // from 1; 0: it is a flag's
	Path    string // as in nodes[1].name, or --nodes; empty for the file as a whole
	Message string
}

// Error is everything that is wrong with a configuration: the file's lines in their order, then flags.
type Error struct {
	Name     string // of the file
	Problems []Problem
}

// Error has a line for each problem: name:line: path: message, or --flag: message.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		text := p.Message
		if p.Path != "" {
			text = p.Path + ": " + text
		}
		if p.Line > 0 {
			text = fmt.Sprintf("%s:%d: %s", e.Name, p.Line, text)
		}
		lines[i] = text
	}
	return strings.Join(lines, "\n")
}

// Read reads the file at path, whose fields are known. Its error says only that it can't be read: what is wrong with what it
// says is in [File.Err].
func Read(path string, known ...Field) (*File, error) {
	src, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = src.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(src, MaxSize+1))
	if err == nil && len(text) > MaxSize {
		err = fmt.Errorf("%s: larger than any configuration (%d bytes)", path, MaxSize)
	}
	if err != nil {
		return nil, err
	}
	return parse(path, text, known), nil
}

func parse(name string, text []byte, known []Field) *File {
	f := &File{name: name, broken: map[string]bool{}}
	var document, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&document)
	switch {
	case errors.Is(err, io.EOF) || err == nil && (len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null"):
		f.refuse(1, "", "is empty")
		return f
	case err == nil:
		if err = d.Decode(&second); err == nil {
			f.refuse(second.Line, "", "has more than one document")
			return f
		}
	}
	if !errors.Is(err, io.EOF) {
		f.syntax(err)
		return f
	}
	f.root = document.Content[0]
	Value{file: f, node: f.root, line: f.root.Line}.Fields(known...)
	return f
}

// syntax reports what the YAML parser says, which has a line in its text, or none.
func (f *File) syntax(err error) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	f.refuse(line, "", "is not YAML: %s", text)
}

// refuse reports what is wrong with what was read at path, of which nothing else is news.
func (f *File) refuse(line int, path, format string, args ...any) {
	f.broken[path] = true
	f.problems = append(f.problems, Problem{max(line, 1), path, fmt.Sprintf(format, args...)})
}

// Add reports what a check has against the value at path, as in domains[1].name, unless that was refused when it was read.
func (f *File) Add(path, format string, args ...any) {
	if !f.isBroken(path) {
		f.problems = append(f.problems, Problem{f.line(path), path, fmt.Sprintf(format, args...)})
	}
}

// AddFlag reports what is wrong with a flag, or missing, of whose value the file has nothing.
func (f *File) AddFlag(name, format string, args ...any) {
	f.problems = append(f.problems, Problem{Path: "--" + name, Message: fmt.Sprintf(format, args...)})
}

// isBroken says whether the value at path, or one that holds it, was refused.
func (f *File) isBroken(path string) bool {
	for path != "" && !f.broken[path] {
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return f.broken[path]
}

// line is where path is, or the nearest that holds it.
func (f *File) line(path string) int {
	n, line := f.root, 1
	if n == nil {
		return line
	}
	for step := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '.' || c == '[' || c == ']' }) {
		next := (*yaml.Node)(nil)
		if i, err := strconv.Atoi(step); err == nil && n.Kind == yaml.SequenceNode && 0 <= i && i < len(n.Content) {
			next, line = n.Content[i], n.Content[i].Line
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				next, line = n.Content[i+1], n.Content[i].Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}

// Err is an [*Error] with everything that is wrong, nil if nothing is.
func (f *File) Err() error {
	if len(f.problems) == 0 {
		return nil
	}
	order := func(p Problem) int { return cmp.Or(p.Line, math.MaxInt) }
	slices.SortStableFunc(f.problems, func(a, b Problem) int { return cmp.Compare(order(a), order(b)) })
	return &Error{f.name, f.problems}
}
