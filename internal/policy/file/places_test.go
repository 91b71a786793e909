package file_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/policy/file"
)

// TestPlaces: a field has its own line, one that isn't written that of what holds it, and a text that is wrong
// elsewhere too.
func TestPlaces(t *testing.T) {
	const text = `# two policies
policies:
- name: first
  key: [a]
  limits:
  - name: l
    rollingWindow:
      limit: 3
      window: 60s
- namespace: media
  name: second
  nonsense: 7
  global: true
  limits:
  - {name: l, fixedWindow: {limit: 1, window: 1d}}
domains:
- {name: b}
- {name: a}
`
	places := file.Locate([]byte(text))
	for _, c := range []struct {
		policy, field string
		line          int
	}{
		{"default/first", "", 3},
		{"default/first", "limits[0].rollingWindow.window", 9},
		{"default/first", "limits[0].rollingWindow.precision", 7},
		{"default/first", "limits[0].fixedWindow.window", 6},
		{"default/first", "partitionBy", 3},
		{"media/second", "limits[0].fixedWindow.window", 15},
		{"media/second", "global", 13},
		{"default/second", "global", 0},
		{"", "policies", 2},
		{"", "domains[0].name", 0}, // of a set, they are in the order of their names
		{"", "", 0},
	} {
		if line := places.Line(c.policy, c.field); line != c.line {
			t.Errorf("%s %s: line %d, want %d", c.policy, c.field, line, c.line)
		}
	}
	for _, text := range []string{"", "policies: 3", "{", "x: [", "policies: [{name: 3}]"} {
		if line := file.Locate([]byte(text)).Line("default/first", "key"); line != 0 {
			t.Errorf("%q: line %d", text, line)
		}
	}
}

// TestPlacesOfLargeJSON: of each policy its first line.
func TestPlacesOfLargeJSON(t *testing.T) {
	var b strings.Builder
	b.WriteString("{\"policies\": [\n")
	const policies = 40_000
	for i := range policies {
		comma := ","
		if i == policies-1 {
			comma = ""
		}
		fmt.Fprintf(&b, "{\"name\": \"p%d\", \"quota\": \"q%d\", \"key\": [\"a\"],\n \"limits\": [{\"name\": \"l\", \"rollingWindow\": {\"limit\": 3, \"window\": \"60s\"}}]}%s\n", i, i, comma)
	}
	b.WriteString("]}\n")
	if b.Len() <= file.MaxYAML {
		t.Fatalf("%d bytes are no large JSON", b.Len())
	}
	places := file.Locate([]byte(b.String()))
	for _, i := range []int{0, 7, policies - 1} {
		if line := places.Line(fmt.Sprintf("default/p%d", i), "limits[0]"); line != 2+2*i {
			t.Errorf("policy %d: line %d", i, line)
		}
	}
}
