package file

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
	"go.yaml.in/yaml/v3"
)

// reader walks YAML nodes and collects what is wrong with them. What reads a value returns the zero value
// for one that it reports.
type reader struct {
	problems []Problem
	lines    map[string]int  // where each path is
	broken   map[string]bool // paths whose value was reported, so that what validation says of it is an echo
}

// add reports what is wrong with the value at path.
func (r *reader) add(path, format string, args ...any) {
	r.broken[path] = true
	r.addAt(r.line(path), path, format, args...)
}

func (r *reader) addAt(line int, path, format string, args ...any) {
	if r.full() {
		return
	}
	r.problems = append(r.problems, Problem{Line: line, Path: path, Message: fmt.Sprintf(format, args...)})
}

// full says that reading on is no use: enough is wrong.
func (r *reader) full() bool { return len(r.problems) >= maxProblems }

// line is where path is, or the nearest that holds it.
func (r *reader) line(path string) int {
	for {
		if line, found := r.lines[path]; found {
			return line
		}
		path = parent(path)
	}
}

// isBroken reports whether path or anything that holds it was reported.
func (r *reader) isBroken(path string) bool {
	for path != "" && !r.broken[path] {
		path = parent(path)
	}
	return r.broken[path]
}

func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// is reports a node that is of another kind, or has what a policy file may not have.
func (r *reader) is(n *yaml.Node, kind yaml.Kind, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.add(path, "anchors and aliases are not accepted; write it out")
	case n.Style&yaml.TaggedStyle != 0:
		r.add(path, "tags are not accepted")
	case n.ShortTag() == "!!null":
		r.add(path, "has no value")
	case n.Kind != kind:
		r.add(path, "is %s, not %s", kindName(n.Kind), kindName(kind))
	default:
		return true
	}
	return false
}

func kindName(k yaml.Kind) string {
	switch k {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a single value"
}

// field is a field that a mapping may have.
type field struct {
	name     string
	required bool
	read     func(n *yaml.Node, path string)
}

// fields reads a mapping with known fields, in the order of known. It returns the names it found.
func (r *reader) fields(n *yaml.Node, path string, known []field) map[string]bool {
	found := map[string]bool{}
	if !r.is(n, yaml.MappingNode, path) {
		return found
	}
	values := map[string]*yaml.Node{}
	r.pairs(n, path, func(name string, value *yaml.Node) {
		if slices.ContainsFunc(known, func(f field) bool { return f.name == name }) {
			values[name] = value
		} else {
			r.unknown(path, name, known)
		}
	})
	for _, f := range known {
		at := join(path, f.name)
		if value := values[f.name]; value != nil {
			found[f.name] = true
			f.read(value, at)
		} else if f.required && !r.broken[at] {
			r.add(at, "is required")
		}
	}
	return found
}

// pairs calls visit for each key of a mapping, and reports keys that aren't strings or come again.
func (r *reader) pairs(n *yaml.Node, path string, visit func(name string, value *yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content) && !r.full(); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 {
			r.addAt(key.Line, path, "has a name that is not a string: %s; quote it", quote(key.Value))
			continue
		}
		at := join(path, key.Value)
		if seen[key.Value] {
			r.addAt(key.Line, at, "is given twice")
			continue
		}
		seen[key.Value] = true
		r.lines[at] = key.Line
		visit(key.Value, value)
	}
}

// unknown reports a field that doesn't exist. The one that was meant, if it can be told, counts as reported.
func (r *reader) unknown(path, name string, known []field) {
	meant := suggest(name, known)
	if meant == "" {
		r.add(join(path, name), "unknown field")
		return
	}
	r.add(join(path, name), "unknown field; did you mean %s?", meant)
	r.broken[join(path, meant)] = true
}

// list calls visit for each item.
func (r *reader) list(n *yaml.Node, path string, visit func(n *yaml.Node, path string)) {
	if !r.is(n, yaml.SequenceNode, path) {
		return
	}
	for i, item := range n.Content {
		if r.full() {
			return
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		r.lines[at] = item.Line
		visit(item, at)
	}
}

// text reads a string that isn't empty.
func (r *reader) text(n *yaml.Node, path string) string {
	if !r.is(n, yaml.ScalarNode, path) {
		return ""
	}
	switch {
	case n.ShortTag() != "!!str":
		r.add(path, "%s is not a string; quote it: %s", n.Value, quote(n.Value))
		return ""
	case n.Value == "":
		r.add(path, "is empty")
	}
	return n.Value
}

// texts reads a list of strings, not nil even if it is empty.
func (r *reader) texts(n *yaml.Node, path string) []string {
	list := []string{}
	r.list(n, path, func(n *yaml.Node, at string) {
		if s := r.text(n, at); s != "" {
			list = append(list, s)
		} else {
			r.broken[path] = true // what the list lacks is no news
		}
	})
	return list
}

func (r *reader) bool(n *yaml.Node, path string) bool {
	if !r.is(n, yaml.ScalarNode, path) {
		return false
	}
	if n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		r.add(path, "%s is not true or false", quote(n.Value))
	}
	return n.Value == "true"
}

// whole reads a whole number from least to limit.MaxAmount, written as its decimal digits and nothing else.
func (r *reader) whole(n *yaml.Node, path string, least uint64) uint64 {
	if !r.is(n, yaml.ScalarNode, path) {
		return 0
	}
	digits, negative := strings.CutPrefix(n.Value, "-")
	if !isDecimal(digits) {
		r.add(path, "%s is not a whole number; write its digits alone", quote(n.Value))
		return 0
	}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 || n.ShortTag() == "!!str" {
		r.add(path, "%s is a string, not a number; leave out the quotes", quote(n.Value))
		return 0
	}
	v, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || negative || v < least || v > limit.MaxAmount {
		r.add(path, "%s is out of range, %d to %d", n.Value, least, limit.MaxAmount)
		return 0
	}
	return v
}

// isDecimal leaves out leading zeros, which some readers take for octal.
func isDecimal(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

// duration reads a positive duration in ns.
func (r *reader) duration(n *yaml.Node, path string) int64 {
	if !r.is(n, yaml.ScalarNode, path) {
		return 0
	}
	ns, err := policy.ParseDuration(n.Value)
	switch {
	case err != nil:
		r.add(path, "%s", err)
	case ns == 0:
		r.add(path, "%s is not positive", quote(n.Value))
	}
	return ns
}

// quote quotes what the file says, the front of it if it is long.
func quote(s string) string {
	const enough = 60
	if len(s) > enough {
		return strconv.Quote(s[:enough]) + "..."
	}
	return strconv.Quote(s)
}
