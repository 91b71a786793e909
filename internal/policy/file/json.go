package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/policy"
	"go.yaml.in/yaml/v3"
)

// setInJSON reads a set that is larger than MaxYAML: one policy, or domain, after the other, by the rules that hold for
// YAML, of which JSON is a part. Where it isn't what it should be at the top, it says so and reads no further.
func (r *reader) setInJSON(text []byte) (policy.Set, bool) {
	var s policy.Set
	if !json.Valid(text) {
		r.notJSON(text)
		return s, false
	}
	lists := []field{
		{"policies", true, func(n *yaml.Node, path string) { s.Policies = append(s.Policies, r.policy(n, path)) }},
		{"domains", false, func(n *yaml.Node, path string) { s.Domains = append(s.Domains, r.domain(n, path)) }},
	}
	j := jsonReader{reader: r, text: text, line: 1, decoder: json.NewDecoder(bytes.NewReader(text))}
	_, _ = j.decoder.Token() // the brace
	seen := map[string]bool{}
	for j.decoder.More() {
		if !j.member(lists, seen) {
			return s, false
		}
	}
	if !seen["policies"] {
		r.add("policies", "is required")
	}
	return s, true
}

// notJSON says what keeps the text from being JSON, and where.
func (r *reader) notJSON(text []byte) {
	err, line := json.Unmarshal(text, &struct{}{}), 1
	if broken := new(json.SyntaxError); errors.As(err, &broken) {
		line += bytes.Count(text[:min(max(broken.Offset, 0), int64(len(text)))], []byte("\n"))
	}
	r.addAt(line, "", "is not JSON: %v", err)
}

// jsonReader walks through a text that is JSON, so that nothing it reads can be missing or misplaced.
type jsonReader struct {
	*reader
	text    []byte
	decoder *json.Decoder
	counted int // bytes
	line    int // behind them
}

// member reads one name of the set, and its list.
func (j *jsonReader) member(lists []field, seen map[string]bool) bool {
	token, _ := j.decoder.Token()
	name, _ := token.(string)
	line := j.lineAt(int(j.decoder.InputOffset()))
	var read func(*yaml.Node, string)
	for _, f := range lists {
		if f.name == name {
			read = f.read
		}
	}
	switch {
	case seen[name]:
		j.addAt(line, name, "is given twice")
		return false
	case read == nil:
		j.lines[name] = line
		j.unknown("", name, lists)
		return false
	}
	seen[name], j.lines[name] = true, line
	if token, _ := j.decoder.Token(); token != json.Delim('[') {
		j.add(name, "is not a list")
		return false
	}
	for i := 0; j.decoder.More(); i++ {
		if j.full() || !j.item(fmt.Sprintf("%s[%d]", name, i), read) {
			return false
		}
	}
	_, _ = j.decoder.Token() // the bracket
	return true
}

// item reads one item of a list. Of its lines only the first is kept. What follows one that can't be read would have
// another place in the set than in the text, so there reading ends.
func (j *jsonReader) item(path string, read func(*yaml.Node, string)) bool {
	var raw json.RawMessage
	_ = j.decoder.Decode(&raw)
	line := j.lineAt(int(j.decoder.InputOffset()) - len(raw))
	j.lines[path] = line
	if len(raw) > MaxYAML {
		j.add(path, "is larger than %d bytes", MaxYAML)
		return false
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: line}
	if string(raw) != "null" { // which would be no document
		if n = j.parse(raw, line); n == nil {
			return false
		}
	}
	all := j.lines
	j.lines = map[string]int{"": 1, path: line}
	read(n, path)
	j.lines = all
	return true
}

// lineAt is the line of a byte, which must not be before one that was asked for.
func (j *jsonReader) lineAt(offset int) int {
	j.line += bytes.Count(j.text[j.counted:offset], []byte("\n"))
	j.counted = offset
	return j.line
}
