package file

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/policy"
	"go.yaml.in/yaml/v3"
)

// MaxSize is the largest file that is read, in bytes.
const MaxSize = 4 << 20

// Problem is one thing that is wrong with a file.
type Problem struct {
	Line    int    // from 1
	Path    string // as in policies[2].limits[0].rollingWindow.window; empty for the file as a whole
	Message string
}

// Error is everything that is wrong with a file, sorted by line.
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
	var r reader
	set := r.read(text, validate)
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		return policy.Set{}, &Error{Name: name, Problems: r.problems}
	}
	set.Normalize()
	return set, nil
}

// read returns the set that text says, and leaves what is wrong with it in r.problems.
func (r *reader) read(text []byte, validate func(policy.Set) policy.Problems) policy.Set {
	r.lines, r.broken = map[string]int{"": 1}, map[string]bool{}
	if len(text) > MaxSize {
		r.addAt(1, "", "is larger than %d bytes", MaxSize)
		return policy.Set{}
	}
	root := r.parse(text)
	if root == nil {
		return policy.Set{}
	}
	set := r.set(root)
	for _, p := range validate(set) {
		if !r.isBroken(p.Path) {
			r.addAt(r.line(p.Path), p.Path, "%s", p.Message)
		}
	}
	return set
}

// parse returns the root of the only document, nil if it isn't there or isn't the only one.
func (r *reader) parse(text []byte) *yaml.Node {
	var document, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
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
		r.syntax(err)
		return nil
	}
	return document.Content[0]
}

func isEmpty(document *yaml.Node) bool {
	return len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null"
}

// syntax reports what the YAML parser says, which has a line in its text, or none.
func (r *reader) syntax(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	r.addAt(max(line, 1), "", "is not YAML: %s", text)
}
