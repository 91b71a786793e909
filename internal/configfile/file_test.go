package configfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sample is a configuration of each kind of value.
type sample struct {
	name   string
	on     bool
	nodes  []string
	inner  string
	pairs  []string
	number int
}

// fields are those of the sample, with an empty one for whatever is left.
func (s *sample) fields() []Field {
	return []Field{
		{Name: "name", Read: IntoText(&s.name)},
		{Name: "on", Read: IntoBool(&s.on)},
		{Name: "nodes", Read: IntoTexts(&s.nodes)},
		{Name: "tls", Read: func(v Value) { v.Fields(Field{Name: "ca", Required: true, Read: IntoText(&s.inner)}) }},
		{Name: "pairs", Read: func(v Value) {
			v.Each(func(v Value) {
				var a, b string
				v.Fields(Field{Name: "a", Required: true, Read: IntoText(&a)}, Field{Name: "b", Read: IntoText(&b)})
				s.pairs = append(s.pairs, a+"="+b)
			})
		}},
		{Name: "number", Read: Into(&s.number, strconv.Atoi)},
	}
}

// TestAFileSaysWhatItSays, and what it doesn't say stays as it was.
func TestAFileSaysWhatItSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("on: false\nnodes: [a, 'b: c']\ntls: {ca: x}\npairs:\n- {b: 2b, a: 1a}\n- a: 3a\nnumber: 07\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sample{name: "default", on: true}
	f, err := Read(path, s.fields()...)
	if err != nil || f.Err() != nil {
		t.Fatal(err, f.Err())
	}
	want := sample{"default", false, []string{"a", "b: c"}, "x", []string{"1a=2b", "3a="}, 7}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// TestEveryProblemIsToldAtOnce, in the order of lines.
func TestEveryProblemIsToldAtOnce(t *testing.T) {
	const known = "unknown field; known are name, on, nodes, tls, pairs, number"
	for text, want := range map[string]string{
		"":                      "f:1: is empty",
		"# nothing\n":           "f:1: is empty",
		"~":                     "f:1: is empty",
		"[a]":                   "f:1: is a list, not a mapping",
		"a: b\nc: [":            "f:2: is not YAML: did not find expected node content",
		"name: a\n---\nname: b": "f:2: has more than one document",
		"name: a\n---\n- [":     "f:3: is not YAML: did not find expected node content",
		"name: a\nname: b":      "f:2: name: is given twice",
		"nam: a\nnam: b":        "f:1: nam: " + known + "\nf:2: nam: " + known,
		"tls.ca: a\n'': b":      "f:1: \"tls.ca\": " + known + "\nf:2: \"\": " + known,
		"1: a\n? [a]\n: b\n!!str x: y\n<<: {name: a}": "f:1: has a name that is not a string\nf:2: has a name that is not a string\n" +
			"f:4: has a name that is not a string\nf:5: has a name that is not a string",
		"number: &a 1\nname: *a":     "f:1: number: anchors and aliases are not accepted; write it out\nf:2: name: anchors and aliases are not accepted; write it out",
		"name: !!str a\nnodes: !x [": "f:2: is not YAML: did not find expected node content",
		"name: !!str a":              "f:1: name: tags are not accepted",
		"name:\nnodes: ~":            "f:1: name: has no value; leave it out, or give it one\nf:2: nodes: has no value; leave it out, or give it one",
		"name: 7\non: yes":           "f:1: name: 7 is not a string; quote it: \"7\"\nf:2: on: \"yes\" is not true or false",
		"name: ''\non: TRUE":         "f:1: name: is empty\nf:2: on: \"TRUE\" is not true or false",
		"number: x":                  "f:1: number: strconv.Atoi: parsing \"x\": invalid syntax",
		"number: [1]":                "f:1: number: is a list, not a single value",
		"on: 'true'\nname: {}":       "f:1: on: \"true\" is not true or false\nf:2: name: is a mapping, not a single value",
		"nodes: a\ntls: []":          "f:1: nodes: is a single value, not a list\nf:2: tls: is a list, not a mapping",
		"nodes:\n- a\n- 7\n- [b]":    "f:3: nodes[1]: 7 is not a string; quote it: \"7\"\nf:4: nodes[2]: is a list, not a single value",
		"tls: {}\npairs: [a, {c: 1}]": "f:1: tls.ca: is required\nf:2: pairs[0]: is a single value, not a mapping\n" +
			"f:2: pairs[1].c: unknown field; known are a, b\nf:2: pairs[1].a: is required",
	} {
		got := ""
		if err := parse("f", []byte(text), new(sample).fields()).Err(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q\ngot\n%s\nwant\n%s", text, got, want)
		}
	}
}

// TestAListIsWholeOrNotOK: an item that can't be read leaves its place empty.
func TestAListIsWholeOrNotOK(t *testing.T) {
	for text, want := range map[string]string{"a: [x, y]": "[x y] true", "a: []": "[] true", "a: [x, 7, z]": "[x  z] false", "a: x": "[] false"} {
		got := ""
		parse("f", []byte(text), []Field{{Name: "a", Read: func(v Value) {
			list, ok := v.Texts()
			got = fmt.Sprint(list, ok)
		}}})
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestWhatWasRefusedIsNoNewsToAChecker, nor what it holds; what wasn't is told where it is, or where it would be.
func TestWhatWasRefusedIsNoNewsToAChecker(t *testing.T) {
	f := parse("f", []byte("pairs:\n- {a: x}\n- a: 7\nnodes: {a: b}\nname: n\n"), new(sample).fields())
	f.AddFlag("name", "is loud")
	for _, path := range []string{"pairs[1].a", "nodes", "nodes[0]", "nodes.a", "pairs[0].a", "pairs[1].b", "pairs[7]", "tls.ca", "name.x.y", ""} {
		f.Add(path, "is wrong")
	}
	want := `f:1: pairs[7]: is wrong
f:1: tls.ca: is wrong
f:1: is wrong
f:2: pairs[0].a: is wrong
f:3: pairs[1].a: 7 is not a string; quote it: "7"
f:3: pairs[1].b: is wrong
f:4: nodes: is a mapping, not a list
f:5: name.x.y: is wrong
--name: is loud`
	if err := f.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	f = parse("f", []byte("["), nil)
	f.Add("name", "is required")
	if err := f.Err(); err.Error() != "f:1: is not YAML: did not find expected node content" {
		t.Errorf("of a file that is none: %v", err)
	}
}

// TestWhoeverHasNoFileHasFlags.
func TestWhoeverHasNoFileHasFlags(t *testing.T) {
	var f File
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	f.AddFlag("nodes", "is %s", "required")
	if broken := (*Error)(nil); !errors.As(f.Err(), &broken) || broken.Error() != "--nodes: is required" {
		t.Error(f.Err())
	}
}

// TestAFileThatCannotBeReadIsNoConfiguration.
func TestAFileThatCannotBeReadIsNoConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if f, err := Read(path); f != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", f, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("#", MaxSize)), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(path); err != nil || f.Err() == nil {
		t.Errorf("as large as may be: %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("#", MaxSize+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(path); f != nil || err == nil || !strings.Contains(err.Error(), "larger than any configuration (1048576 bytes)") {
		t.Errorf("too large: %v", err)
	}
}

var placed = regexp.MustCompile(`^f:[1-9]\d*: `)

// FuzzRead: no input panics, and each problem has a place within the file, in order.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"name: n\non: true\nnodes: [a]\ntls: {ca: x}\npairs: [{a: b}]\nnumber: 7", "tls: &a {ca: *a}", "? {a: b}\n: c", "- [", "- a", "<<: *x", "a: \"\\x\"", "a: |\n b\n---\n",
		"\xff\xfea\x00", "%TAG ! x\n---\n! a: b", "nodes: [[]]\npairs: {a: !!binary x}", "\rname: 1", "name: \u2028x\u0085y",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file := parse("f", text, new(sample).fields())
		for _, path := range []string{"", "nodes[0]", "pairs[1].a", "name.x", "..[[-1]", "nodes[-1]"} {
			file.Add(path, "is wrong")
		}
		broken := (*Error)(nil)
		if !errors.As(file.Err(), &broken) {
			t.Fatal("nothing is wrong")
		}
		line := 0
		for _, p := range broken.Problems {
			one := &Error{"f", []Problem{p}}
			if !placed.MatchString(one.Error()) || p.Line < line || p.Line > len(text)+1 {
				t.Errorf("%q: %v after line %d", text, one, line)
			}
			line = p.Line
		}
	})
}
