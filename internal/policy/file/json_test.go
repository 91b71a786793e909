package file_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/policy/file"
)

// large is a text with more in front than is read as YAML, in the line of the text's first.
func large(text string) string { return strings.Repeat(" ", file.MaxYAML) + text }

// inJSON is a policy of that name as a program writes it.
func inJSON(name, more string) string {
	return fmt.Sprintf(`{"name": %q, "key": ["a"], "limits": [{"name": "l", "fixedWindow": {"limit": 3, "window": "1m"}}]%s}`, name, more)
}

// TestLargeJSONSaysWhatItSaysInYAML: the canonical example, and one with all that a domain has.
func TestLargeJSONSaysWhatItSaysInYAML(t *testing.T) {
	example, err := os.ReadFile("../testdata/conversions.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		string(example), `{"policies": []}`,
		"{\n \"domains\" : [{\"name\": \"d\", \"onNoMatch\": \"Allow\"}, {\"name\": \"e\"}],\n\t\"policies\": [" +
			inJSON("p", "") + " ,\r\n " + inJSON("q", `, "match": {"t\u00e9": "\/\n"}`) + "]\n}\n",
	} {
		small, faults := read(text)
		big, more := read(large(text))
		if faults != more || !reflect.DeepEqual(small, big) {
			t.Errorf("%s\n%s%s\nlarge\n%s%s", text, small.Canonical(), faults, big.Canonical(), more)
		}
	}
}

// TestLargeJSONHasAnyNumberOfPolicies, which are in the set as they are in the text.
func TestLargeJSONHasAnyNumberOfPolicies(t *testing.T) {
	const many = 2000
	var b strings.Builder
	b.WriteString(`{"policies": [`)
	for i := range many {
		if i > 0 {
			b.WriteString(",\n" + strings.Repeat(" ", file.MaxYAML/many))
		}
		b.WriteString(inJSON(fmt.Sprint("p", i), fmt.Sprintf(`, "match": {"t": "%d"}`, i)))
	}
	b.WriteString("]}")
	if b.Len() <= file.MaxYAML {
		t.Fatalf("%d bytes are read as YAML", b.Len())
	}
	s, got := read(b.String())
	if got != "" || len(s.Policies) != many {
		t.Fatalf("%d policies, %.200s", len(s.Policies), got)
	}
	for i, p := range s.Policies {
		if want := fmt.Sprint("p", i); p.Name != want {
			t.Fatalf("policy %d is %s", i, p.Name)
		}
	}
}

// TestFaultsOfLargeJSON: each with its place, to the line of its policy.
func TestFaultsOfLargeJSON(t *testing.T) {
	p := inJSON("p", "")
	for text, want := range map[string]string{
		"{\n\"policies\": [" + p + ",\n\n" + strings.Replace(inJSON("q", ""), "1m", "1d", 1) + "]}": `f:4: policies[1].limits[0].fixedWindow.window: "1d" is not a duration; write 24h`,
		"{\"policies\": [\n" + p + ",\n{\n\"name\": 3}]}": "f:3: policies[1].limits: is required\n" +
			"f:3: policies[1].key: names no entry; write the entries that each have their own allowance, or global: true for one allowance for all\n" +
			"f:4: policies[1].name: 3 is not a string; quote it: \"3\"",
		"{\"policies\": [" + p + ",\n" + p + "]}":            `f:2: policies[1].name: "p" in namespace "default" is already the name of policies[0]`,
		"{\"policies\": [" + p + ",\n" + inJSON("q", "")[1:]: "f:2: is not JSON: invalid character ':' after array element",
		"{\n\"policies\": [" + p + "],\n}":                   "f:3: is not JSON: invalid character '}' looking for beginning of object key string",
		"{\"policies\": []}\n{}":                             "f:2: is not JSON: invalid character '{' after top-level value",
		"{\"policies\": [], \"domains\":\n[{\"name\": 1}]}":  "f:2: domains[0].name: 1 is not a string; quote it: \"1\"",
		"{\"policies\": [],\n\"policies\": []}":              "f:2: policies: is given twice",
		"{\"policies\": [],\n\"domain\": []}":                "f:2: domain: unknown field; did you mean domains?",
		"{\"policies\": [],\n\"x\": []}":                     "f:2: x: unknown field",
		"{\"Policies\": []}":                                 "f:1: Policies: unknown field; did you mean policies?",
		"{\"policies\":\n{}}":                                "f:1: policies: is not a list",
		"{\"policies\": null}":                               "f:1: policies: is not a list",
		"{}":                                                 "f:1: policies: is required",
		"{\"domains\": []}":                                  "f:1: policies: is required",
		"{\"policies\": [\nnull]}":                           "f:2: policies[0]: has no value",
		"{\"policies\": [\n[]]}":                             "f:2: policies[0]: is a list, not a mapping",
		"{\"policies\": [\n" + strings.Repeat("[", 20_000):   "f:2: is not JSON: invalid character '[' exceeded max depth",
		`{"policies": [` + inJSON("p", `, "quota": "q", "quota": "q"`) + `]}`:                              "f:1: policies[0].quota: is given twice",
		`{"policies": [` + inJSON("p", `, "match": {"a": "\ud83e"}`) + `]}`:                                "f:1: is not YAML: found invalid Unicode character escape code",
		"{\"policies\": [" + inJSON("p", ", \"match\": {\"b\": \"\xff\"}") + "]}":                          "f:1: is not YAML: invalid leading UTF-8 octet",
		`{"policies": [` + inJSON("p", `, "match": {"b": "`+strings.Repeat("v", file.MaxYAML)+`"}`) + `]}`: "f:1: policies[0]: is larger than 4194304 bytes",
	} {
		_, err := file.ParseJSON([]byte(text))
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%.300s\ngot\n  %.500s\nwant\n  %s", text, got, want)
		}
	}
}

// FuzzLargeJSON: what is accepted says what it says in YAML, and what is JSON and says something in YAML is accepted.
func FuzzLargeJSON(f *testing.F) {
	for _, text := range []string{
		`{"policies": [` + inJSON("p", "") + `]}`, `{"domains": [{"name": "d"}], "policies": []}`, `{"policies": [1], "x": 2}`, `{"policies": {}}`, `{`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = append([]byte("{"), text...)
		small, problems := read(string(text))
		big, err := file.ParseJSON(text)
		switch {
		case err == nil && (problems != "" || !reflect.DeepEqual(small, big)):
			t.Errorf("%s\nas YAML %s%s, as JSON %s", text, small.Canonical(), problems, big.Canonical())
		case err != nil && problems == "" && json.Valid(text):
			t.Errorf("%s\nas YAML %s, as JSON %v", text, small.Canonical(), err)
		}
	})
}

// JSON writes a character beyond U+FFFF as it is or as a pair of surrogates. Both are that character; half a pair is
// nothing, and what only looks like one is left alone.
func TestCharactersThatJSONWritesInTwoHalves(t *testing.T) {
	matching := func(value string) string {
		return `{"policies":[{"name":"p","match":{"z":"` + value + `"},"key":["a"],"limits":[{"name":"l","fixedWindow":{"limit":1,"window":"1s"}}]}]}`
	}
	for value, want := range map[string]string{
		`\ud83d\ude00`:         "\U0001F600",
		`a\uD83D\uDE00b\u00e9`: "a\U0001F600b\u00e9",
		`\\ud83d\\ude00`:       `\ud83d\ude00`,
		`\\\ud83d\ude00`:       "\\\U0001F600",
		`\ud83d\ude00\"`:       "\U0001F600\"",
	} {
		set, err := file.Parse("f", []byte(matching(value)))
		if err != nil {
			t.Errorf("%s: %v", value, err)
		} else if got := set.Policies[0].Match; len(got) != 1 || got[0].Value != want {
			t.Errorf("%s is read as %q", value, got)
		}
	}
	for _, value := range []string{`\ud83d`, `\ude00\ud83d`, `\ud83dx\ude00`} {
		if set, err := file.Parse("f", []byte(matching(value))); err == nil {
			t.Errorf("%s is read as %q", value, set.Policies[0].Match)
		}
	}
	if set, err := file.Parse("f", []byte("policies: [{name: p, match: {z: '\\ud83d\\ude00'}, key: [a], limits: [{name: l, fixedWindow: {limit: 1, window: 1s}}]}]")); err != nil || set.Policies[0].Match[0].Value != `\ud83d\ude00` {
		t.Errorf("YAML's own text: %v, %v", set.Policies, err)
	}
}
