package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes is far above any configuration; what is larger is some other file.
const maxFileBytes = 1 << 20

// readFile takes what the file says. Nothing of it is ignored.
func (r *reader) readFile() error {
	text, err := readWhole(r.file)
	if err != nil {
		return err
	}
	if root := r.parse(text); root != nil {
		r.mapping(root)
	}
	return nil
}

func readWhole(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("%s: larger than any configuration (%d bytes)", path, maxFileBytes)
	}
	return text, err
}

// parse returns the root of the only document, nil if it isn't there or isn't the only one.
func (r *reader) parse(text []byte) *yaml.Node {
	var document, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && (len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null") {
		r.report(r.at(1, ""), "is empty")
		return nil
	}
	if err == nil {
		if err = d.Decode(&second); err == nil {
			r.report(r.at(second.Line, ""), "has more than one document")
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		r.report(r.at(1, ""), "is not YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	return document.Content[0]
}

// at is a place in the file.
func (r *reader) at(line int, name string) problem {
	place := fmt.Sprintf("%s:%d", r.file, max(line, 1))
	if name != "" {
		place += ": " + name
	}
	return problem{line: max(line, 1), place: place}
}

func (r *reader) mapping(n *yaml.Node) {
	if !r.is(n, yaml.MappingNode, r.at(n.Line, "")) {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		known := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		at := r.at(key.Line, fmt.Sprintf("%.100s", key.Value))
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0:
			r.report(r.at(key.Line, ""), "has a name that is not a string")
		case known < 0:
			r.report(at, "unknown field; known are "+strings.Join(names(), ", "))
		case r.places[fields[known].flag].line > 0:
			r.report(at, "is given twice")
		default:
			r.value(fields[known], value, at)
		}
	}
}

func names() []string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.name
	}
	return list
}

// value reads what a field has. A value that can't be read counts as given: what it says is no news.
func (r *reader) value(f field, n *yaml.Node, at problem) {
	r.places[f.flag] = at
	if f.list {
		r.list(f, n, at)
		return
	}
	if text, ok := r.text(n, at); ok {
		if f.path && text != "" && !filepath.IsAbs(text) {
			text = filepath.Join(filepath.Dir(r.file), text)
		}
		r.take(f, at, text)
	}
}

func (r *reader) list(f field, n *yaml.Node, at problem) {
	if !r.is(n, yaml.SequenceNode, at) {
		return
	}
	if len(n.Content) == 0 {
		r.report(at, "is empty")
		return
	}
	var items []string
	for _, item := range n.Content {
		text, ok := r.text(item, at)
		if ok && strings.Contains(text, ",") {
			r.report(at, fmt.Sprintf("%q has a comma; give each one an item of its own", text))
			ok = false
		}
		if !ok {
			return
		}
		items = append(items, text)
	}
	r.take(f, at, strings.Join(items, ","))
}

func (r *reader) text(n *yaml.Node, at problem) (string, bool) {
	if !r.is(n, yaml.ScalarNode, at) {
		return "", false
	}
	if n.ShortTag() != "!!str" {
		r.report(at, fmt.Sprintf("%s is not a string; quote it: %q", n.Value, n.Value))
		return "", false
	}
	return n.Value, true
}

// is reports a node that is of another kind, or has what a configuration may not have.
func (r *reader) is(n *yaml.Node, kind yaml.Kind, at problem) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.report(at, "anchors and aliases are not accepted; write it out")
	case n.Style&yaml.TaggedStyle != 0:
		r.report(at, "tags are not accepted")
	case n.ShortTag() == "!!null":
		r.report(at, "has no value; leave it out, or give it one")
	case n.Kind != kind:
		r.report(at, fmt.Sprintf("is %s, not %s", kindName(n.Kind), kindName(kind)))
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
