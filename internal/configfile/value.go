package configfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Field is a field that a mapping may have, and what reads its value.
type Field struct {
	Name     string
	Required bool
	Read     func(Value)
}

// Value is what the file says at a path. What reads one reports a value that can't be read, and returns the zero value for it.
type Value struct {
	file *File
	node *yaml.Node
	path string
	line int // where its field is, or the item
}

// Refuse reports what is wrong with the value.
func (v Value) Refuse(format string, args ...any) { v.file.refuse(v.line, v.path, format, args...) }

// Node is the value as it stands, which nothing has looked at.
func (v Value) Node() *yaml.Node { return v.node }

// Fields reads a mapping, in the file's order.
func (v Value) Fields(known ...Field) {
	if !v.is(yaml.MappingNode) {
		return
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.Name
	}
	found := map[string]bool{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 {
			v.file.problems = append(v.file.problems, Problem{key.Line, v.path, "has a name that is not a string"})
			continue
		}
		at := Value{v.file, v.node.Content[i+1], v.under(key.Value), key.Line}
		switch k := slices.Index(names, key.Value); {
		case k < 0:
			at.Refuse("unknown field; known are %s", strings.Join(names, ", "))
		case found[key.Value]:
			at.Refuse("is given twice")
		default:
			known[k].Read(at)
		}
		found[key.Value] = true
	}
	for _, k := range known {
		if k.Required && !found[k.Name] {
			Value{v.file, nil, v.under(k.Name), v.line}.Refuse("is required")
		}
	}
}

// under is the path of a field. What looks like a path itself is no name.
func (v Value) under(name string) string {
	if name == "" || strings.ContainsAny(name, ".[]") {
		name = clip(name)
	}
	if v.path == "" {
		return name
	}
	return v.path + "." + name
}

// Each reads the items of a list, and reports whether it is one.
func (v Value) Each(read func(Value)) bool {
	if !v.is(yaml.SequenceNode) {
		return false
	}
	for i, item := range v.node.Content {
		read(Value{v.file, item, fmt.Sprintf("%s[%d]", v.path, i), item.Line})
	}
	return true
}

// Scalar reads a single value as it is written.
func (v Value) Scalar() (string, bool) {
	if !v.is(yaml.ScalarNode) {
		return "", false
	}
	return v.node.Value, true
}

// Text reads a string that isn't empty.
func (v Value) Text() (string, bool) {
	text, ok := v.Scalar()
	switch {
	case !ok:
		return "", false
	case v.node.ShortTag() != "!!str":
		v.Refuse("%s is not a string; quote it: %s", text, clip(text))
		return "", false
	case text == "":
		v.Refuse("is empty")
		return "", false
	}
	return text, true
}

// Texts reads a list of strings. Where one can't be read an empty one stands for it, and it isn't ok.
func (v Value) Texts() (list []string, ok bool) {
	all := true
	ok = v.Each(func(item Value) {
		text, read := item.Text()
		list, all = append(list, text), all && read
	})
	return list, ok && all
}

// Into reads what parse reads of a single value, and leaves to as it is where that fails. The problem is parse's error.
func Into[T any](to *T, parse func(string) (T, error)) func(Value) {
	return func(v Value) {
		text, ok := v.Scalar()
		if !ok {
			return
		}
		if value, err := parse(text); err != nil {
			v.Refuse("%v", err)
		} else {
			*to = value
		}
	}
}

// IntoText reads a string into to, which stays as it is where there is none.
func IntoText(to *string) func(Value) {
	return func(v Value) {
		if text, ok := v.Text(); ok {
			*to = text
		}
	}
}

// IntoTexts reads a list of strings.
func IntoTexts(to *[]string) func(Value) {
	return func(v Value) { *to, _ = v.Texts() }
}

// IntoBool reads true or false.
func IntoBool(to *bool) func(Value) {
	return func(v Value) {
		text, ok := v.Scalar()
		switch {
		case !ok:
		case v.node.ShortTag() != "!!bool" || text != "true" && text != "false":
			v.Refuse("%s is not true or false", clip(text))
		default:
			*to = text == "true"
		}
	}
}

// is reports a node that is of another kind, or has what a configuration may not have.
func (v Value) is(kind yaml.Kind) bool {
	n := v.node
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		v.Refuse("anchors and aliases are not accepted; write it out")
	case n.Style&yaml.TaggedStyle != 0:
		v.Refuse("tags are not accepted")
	case n.ShortTag() == "!!null":
		v.Refuse("has no value; leave it out, or give it one")
	case n.Kind != kind:
		v.Refuse("is %s, not %s", kindName(n.Kind), kindName(kind))
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

// clip quotes what the file says, the front of it if it is long.
func clip(text string) string {
	const enough = 60
	if len(text) > enough {
		return strconv.Quote(text[:enough]) + "..."
	}
	return strconv.Quote(text)
}
