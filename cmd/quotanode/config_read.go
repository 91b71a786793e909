package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quorate/quorate/cmd/internal/command"
)

// read takes what the file says. Nothing of it is ignored.
func (r *configReader) read(text []byte) {
	if root := r.parse(text); root != nil {
		r.mapping(root, "", "")
	}
}

// parse returns the root of the only document, nil if it isn't there or isn't the only one.
func (r *configReader) parse(text []byte) *yaml.Node {
	var document, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && document.Content[0].ShortTag() == "!!null" {
		r.add("", "is empty")
		return nil
	}
	if err == nil {
		if err = d.Decode(&second); err == nil {
			r.unreadable(second.Line, "has more than one document")
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	return document.Content[0]
}

// syntax reports what the YAML parser says, which has a line in its text, or none.
func (r *configReader) syntax(err error) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	r.unreadable(line, "is not YAML: %s", text)
}

// unreadable reports that the file as a whole is none: nothing that it lacks is news then.
func (r *configReader) unreadable(line int, format string, args ...any) {
	r.broken[""] = true
	r.addAt(place{line: max(line, 1)}, "", format, args...)
}

// mapping reads a mapping. Pattern is its path as [configFields] has it.
func (r *configReader) mapping(n *yaml.Node, path, pattern string) {
	if !r.is(n, yaml.MappingNode, path) {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 {
			r.addAt(place{line: key.Line}, path, "has a name that is not a string: %s", command.Clip(key.Value))
			continue
		}
		name := key.Value
		if strings.ContainsAny(name, ".[]") { // what looks like a path is no name
			name = strconv.Quote(name)
		}
		at := joinPath(path, name)
		if _, twice := r.places[at]; twice {
			r.addAt(place{line: key.Line}, at, "is given twice")
			continue
		}
		r.places[at] = place{line: key.Line}
		r.value(value, at, joinPath(pattern, name))
	}
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// value reads what a field has, by what the table says of it.
func (r *configReader) value(n *yaml.Node, path, pattern string) {
	holds := func(prefix string) bool {
		return slices.ContainsFunc(configFields, func(f configField) bool { return strings.HasPrefix(f.path, prefix) })
	}
	field := slices.IndexFunc(configFields, func(f configField) bool { return f.path == pattern })
	switch {
	case field >= 0:
		r.scalar(n, path, &configFields[field])
	case holds(pattern + "[]."):
		r.list(n, path, pattern+"[]")
	case holds(pattern + "."):
		r.mapping(n, path, pattern)
	default:
		r.unknown(path, pattern)
	}
}

// unknown reports a field that doesn't exist, with the names of those that do beside it.
func (r *configReader) unknown(path, pattern string) {
	group := ""
	for _, f := range configFields {
		if above := f.path[:strings.LastIndex(f.path, ".")+1]; strings.HasPrefix(pattern, above) && len(above) > len(group) {
			group = above
		}
	}
	var names []string
	for _, f := range configFields {
		rest, ok := strings.CutPrefix(f.path, group)
		if end := strings.IndexAny(rest, ".["); end >= 0 {
			rest = rest[:end]
		}
		if ok && !slices.Contains(names, rest) {
			names = append(names, rest)
		}
	}
	r.add(path, "unknown field; known here are %s", strings.Join(names, ", "))
}

// list reads the nodes: nothing else is a list.
func (r *configReader) list(n *yaml.Node, path, pattern string) {
	if !r.is(n, yaml.SequenceNode, path) {
		return
	}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.places[at] = place{line: item.Line}
		r.config.Nodes = append(r.config.Nodes, nodeConfig{})
		r.mapping(item, at, pattern)
	}
}

// scalar reads a single value.
func (r *configReader) scalar(n *yaml.Node, path string, f *configField) {
	if !r.is(n, yaml.ScalarNode, path) {
		return
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	switch {
	case f.kind == aNumber && quoted:
		r.add(path, "%q is a string, not a number; leave out the quotes", command.Clip(n.Value))
		return
	case f.kind != aNumber && f.kind != aSize && f.kind != aDuration && n.ShortTag() != "!!str":
		r.add(path, "%s is not a string; quote it: %q", command.Clip(n.Value), command.Clip(n.Value))
		return
	}
	text := n.Value
	if (f.kind == aFile || f.kind == aFolder) && text != "" && !filepath.IsAbs(text) {
		text = filepath.Join(r.folder, text)
	}
	if err := f.set(&r.config, text); err != nil {
		r.add(path, "%s", err)
	}
}

// is reports a node that is of another kind, or has what a configuration may not have.
func (r *configReader) is(n *yaml.Node, kind yaml.Kind, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.add(path, "anchors and aliases are not accepted; write it out")
	case n.Style&yaml.TaggedStyle != 0:
		r.add(path, "tags are not accepted")
	case n.ShortTag() == "!!null":
		r.add(path, "has no value; leave it out, or give it one")
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

// override takes what the flags say, in the place of what the file says. What is wrong with the file stays
// wrong.
func (r *configReader) override(flags map[string]string) {
	for i := range configFields {
		f := &configFields[i]
		text, given := flags[f.flag]
		if f.flag == "" || !given || f.optional && text == "" {
			continue
		}
		r.places[f.path] = place{flag: f.flag}
		if err := f.set(&r.config, text); err != nil {
			r.add(f.path, "%s", err)
		}
	}
}
