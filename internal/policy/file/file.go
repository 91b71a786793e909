package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/quorate/quorate/internal/policy"
	"go.yaml.in/yaml/v3"
)

// Bounds of a file, in bytes. Package yaml makes a tree of the whole text, which takes some seventy times as much
// memory, so what is larger than MaxYAML has to be JSON, of which one policy is in hand at a time.
const (
	MaxYAML = 4 << 20  // of YAML, and of one policy or domain
	MaxSize = 64 << 20 // of JSON
)

// maxProblems bounds what is told of one file.
const maxProblems = 1000

// Problem is one thing that is wrong with a file.
type Problem struct {
	Line    int    // from 1
	Path    string // as in policies[2].limits[0].rollingWindow.window; empty for the file as a whole
	Policy  string // that the path leads into: namespace/name, or what of it could be read; empty: none
	Message string
}

// Error is everything that is wrong with a file, sorted by line; of a file with very much wrong, the first of it.
type Error struct {
	Name     string // of the file
	Problems []Problem
}

// Error has a line for each problem: name:line: path: message.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		text := policy.Problem{Path: p.Path, Message: p.Message}
		lines[i] = fmt.Sprintf("%s:%d: %s", e.Name, p.Line, text)
	}
	return strings.Join(lines, "\n")
}

// ReadFile reads the set in the file at path. Its error is an [*Error] if the file could be read.
func ReadFile(path string) (policy.Set, error) { return readFile(path, policy.Set.Validate) }

// ReadFileToRehearse is ReadFile for those who enforce nothing: it accepts what is only not supported
// yet.
func ReadFileToRehearse(path string) (policy.Set, error) {
	return readFile(path, policy.Set.Malformed)
}

// Read reads a set from src; name stands for src in errors. The error is an [*Error] unless src fails.
func Read(name string, src io.Reader) (policy.Set, error) {
	return read(name, src, policy.Set.Validate)
}

// Parse is Read for a text that is in memory.
func Parse(name string, text []byte) (policy.Set, error) {
	return parse(name, text, policy.Set.Validate, MaxYAML)
}

func readFile(path string, validate func(policy.Set) policy.Problems) (policy.Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return policy.Set{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return read(path, f, validate)
}

func read(name string, src io.Reader, validate func(policy.Set) policy.Problems) (policy.Set, error) {
	text, err := io.ReadAll(io.LimitReader(src, MaxSize+1))
	if err != nil {
		return policy.Set{}, fmt.Errorf("read %s: %w", name, err)
	}
	return parse(name, text, validate, MaxYAML)
}

// parse reads a text, as YAML if it has no more bytes than that.
func parse(name string, text []byte, validate func(policy.Set) policy.Problems, mostYAML int) (policy.Set, error) {
	var r reader
	set := r.read(text, validate, mostYAML)
	if len(r.problems) > 0 {
		return policy.Set{}, &Error{Name: name, Problems: r.told(&set)}
	}
	set.Normalize()
	return set, nil
}

// read returns the set that text says, and leaves what is wrong with it in r.problems.
func (r *reader) read(text []byte, validate func(policy.Set) policy.Problems, mostYAML int) policy.Set {
	r.lines, r.broken = map[string]int{"": 1}, map[string]bool{}
	set, ok := r.decode(text, mostYAML)
	if !ok || r.full() {
		return set
	}
	for _, p := range validate(set) {
		if !r.isBroken(p.Path) {
			r.addAt(r.line(p.Path), p.Path, "%s", p.Message)
		}
	}
	return set
}

// decode reads the text as what it is; false: nothing of it is to be looked at further.
func (r *reader) decode(text []byte, mostYAML int) (policy.Set, bool) {
	switch {
	case len(text) > MaxSize:
		r.addAt(1, "", "is larger than %d bytes", MaxSize)
	case len(text) > mostYAML && bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")):
		return r.setInJSON(text)
	case len(text) > mostYAML:
		r.addAt(1, "", "is larger than %d bytes, which is the most that is read as YAML; write it as JSON, up to %d bytes", MaxYAML, MaxSize)
	default:
		if root := r.parse(text, 1); root != nil {
			return r.set(root), true
		}
	}
	return policy.Set{}, false
}

// parse returns the root of the only document, nil if it isn't there or isn't the only one.
// The text begins in that line.
func (r *reader) parse(text []byte, line int) *yaml.Node {
	var document, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(unescaped(text)))
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && isEmpty(&document) {
		r.addAt(1, "", "is empty; a set without policies is written policies: []")
		return nil
	}
	if err == nil {
		if err = d.Decode(&second); err == nil {
			r.addAt(max(second.Line, 1), "", "has more than one document")
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		r.syntax(err, line)
		return nil
	}
	shift(&document, line-1)
	return document.Content[0]
}

func isEmpty(document *yaml.Node) bool {
	return len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null"
}

// shift moves a tree down by so many lines.
func shift(n *yaml.Node, lines int) {
	if lines == 0 {
		return
	}
	n.Line += lines
	for _, child := range n.Content {
		shift(child, lines)
	}
}

// syntax reports what the YAML parser says of a text that begins in that line. It has a line in its own text, or none.
func (r *reader) syntax(err error, first int) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	r.addAt(max(line, 1)+first-1, "", "is not YAML: %s", text)
}
