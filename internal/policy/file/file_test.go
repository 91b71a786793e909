package file_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

var update = flag.Bool("update", false, "rewrite testdata/broken.txt")

// TestTheExample: the documentation's file says what the canonical example says.
func TestTheExample(t *testing.T) {
	got, err := file.ReadFile("testdata/conversions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := file.ReadFile("../testdata/conversions.json")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %s\nwant %s", got.Canonical(), want.Canonical())
	}
}

// TestDocumentedExamples: what the documentation shows as a policy file is one.
func TestDocumentedExamples(t *testing.T) {
	for _, page := range []string{"README.md", "docs/policies.md"} {
		text, err := os.ReadFile("../../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(text), "```yaml\npolicies:\n")[1:]
		if len(blocks) == 0 {
			t.Errorf("%s shows no policy file", page)
		}
		for _, block := range blocks {
			block, _, _ = strings.Cut(block, "```")
			if _, got := read("policies:\n" + block); got != "" {
				t.Errorf("%s:\n%s\n%s", page, block, got)
			}
		}
	}
}

// TestEveryFaultAtOnce: one reading of a file full of faults reports each of them, with its line.
func TestEveryFaultAtOnce(t *testing.T) {
	_, err := file.ReadFile("testdata/broken.yaml")
	got := fmt.Sprintln(err)
	if *update {
		if err := os.WriteFile("testdata/broken.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/broken.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// read reads text, and returns the set or the error's lines.
func read(text string) (policy.Set, string) {
	s, err := file.Read("f", strings.NewReader(text))
	if err != nil {
		return s, err.Error()
	}
	return s, ""
}

// faults reads texts that each have exactly the faults given.
func faults(t *testing.T, texts map[string]string) {
	t.Helper()
	for text, want := range texts {
		if s, got := read(text); got != want {
			t.Errorf("%s\ngot\n  %s\n%s\nwant\n  %s", text, got, s.Canonical(), want)
		}
	}
}

// withLimit is a file with one policy, whose only limit is this.
func withLimit(limit string) string {
	return "policies:\n- name: p\n  key: [a]\n  limits:\n  - {name: l, " + limit + "}\n"
}

// withPolicy is a file with one policy that has this line too.
func withPolicy(line string) string {
	return withLimit("rollingWindow: {limit: 3, window: 1m}") + "  " + line + "\n"
}

func TestStructure(t *testing.T) {
	faults(t, map[string]string{
		"policies: []":                "",
		`{"policies": []}`:            "",
		"":                            "f:1: is empty; a set without policies is written policies: []",
		"# nothing\n":                 "f:1: is empty; a set without policies is written policies: []",
		"---\n":                       "f:1: is empty; a set without policies is written policies: []",
		"null":                        "f:1: is empty; a set without policies is written policies: []",
		"policies":                    "f:1: is a single value, not a mapping",
		"[]":                          "f:1: is a list, not a mapping",
		"domains: []":                 "f:1: policies: is required",
		"policies:":                   "f:1: policies: has no value",
		"policies: {}":                "f:1: policies: is a mapping, not a list",
		"policies: [p]":               "f:1: policies[0]: is a single value, not a mapping",
		"policies: [~]":               "f:1: policies[0]: has no value",
		"policies: []\npolicies: []":  "f:2: policies: is given twice",
		"policies: []\n---\n{}":       "f:2: has more than one document",
		"policies: []\n---\n":         "f:2: has more than one document",
		"policies: [":                 "f:1: is not YAML: did not find expected node content",
		"policies: []\n\tdomains: []": "f:2: is not YAML: found character that cannot start any token",
		"policies: \x01":              "f:1: is not YAML: control characters are not allowed",
		"policies: \xff":              "f:1: is not YAML: invalid leading UTF-8 octet",
		"policies: []\n1: x":          `f:2: has a name that is not a string: "1"; quote it`,
		"policies: []\n? [a]\n: x":    `f:2: has a name that is not a string: ""; quote it`,
	})
}

// TestWhatYAMLHasAndPolicyFilesDont: nothing that makes a file say more than it shows.
func TestWhatYAMLHasAndPolicyFilesDont(t *testing.T) {
	const anchors = "anchors and aliases are not accepted; write it out"
	faults(t, map[string]string{
		withPolicy("match: &m {a: b}"):   "f:6: policies[0].match: " + anchors,
		withPolicy("match: {a: &m b}"):   "f:6: policies[0].match.a: " + anchors,
		withPolicy("quota: !!str q"):     "f:6: policies[0].quota: tags are not accepted",
		withPolicy("quota: !q q"):        "f:6: policies[0].quota: tags are not accepted",
		withPolicy("quota: !!binary YQ"): "f:6: policies[0].quota: tags are not accepted",
		"x: &x [1]\npolicies: *x":        "f:1: x: unknown field\nf:2: policies: " + anchors,
		"x: &x {name: p}\npolicies: [{<<: *x}]": "f:1: x: unknown field\n" +
			"f:2: policies[0]: has a name that is not a string: \"<<\"; quote it\n" +
			"f:2: policies[0].name: is required\nf:2: policies[0].limits: is required\n" +
			"f:2: policies[0].key: names no entry; write the entries that each have their own allowance, or global: true for one allowance for all",
	})
}

// TestAliasesAreNotExpanded: a file of a few hundred bytes that would be gigabytes is refused at once.
func TestAliasesAreNotExpanded(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		item := fmt.Sprintf("*a%d", i-1)
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.Join([]string{item, item, item, item, item, item, item, item, item, item}, ", "))
	}
	if _, got := read(bomb + "policies: *a11\n"); !strings.Contains(got, "f:13: policies: anchors and aliases are not accepted") {
		t.Error(got)
	}
}

func TestSizeIsBounded(t *testing.T) {
	padding := strings.Repeat(" ", file.MaxYAML-len("policies: []"))
	for text, want := range map[string]string{
		"policies: []" + padding: "",
		"policies: []" + padding + " ": "f:1: is larger than 4194304 bytes, which is the most that is read as YAML; " +
			"write it as JSON, up to 67108864 bytes",
		`{"policies": []}` + strings.Repeat(" ", file.MaxSize-len(`{"policies": []}`)): "",
		`{"policies": []}` + strings.Repeat(" ", file.MaxSize):                         "f:1: is larger than 67108864 bytes",
	} {
		if _, got := read(text); got != want {
			t.Errorf("%d bytes: %s, want %s", len(text), got, want)
		}
	}
	if _, err := file.Read("f", io.MultiReader(strings.NewReader("policies"), neverEnding{})); err == nil {
		t.Error("an endless file was accepted")
	}
}

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { return copy(b, "#\n"), nil }

func TestFailingSource(t *testing.T) {
	broken := errors.New("broken disk")
	if _, err := file.Read("f", iotest.ErrReader(broken)); !errors.Is(err, broken) || !strings.Contains(err.Error(), "read f") {
		t.Errorf("got %v", err)
	}
	if _, err := file.ReadFile(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestErrorHasTheProblems: a program finds line, path and message apart.
func TestErrorHasTheProblems(t *testing.T) {
	_, err := file.Read("f", strings.NewReader(withLimit("rollingWindow: {limit: 3, window: 1d}")))
	var e *file.Error
	if !errors.As(err, &e) || e.Name != "f" || len(e.Problems) != 1 {
		t.Fatalf("got %#v", err)
	}
	want := file.Problem{Line: 5, Path: "policies[0].limits[0].rollingWindow.window", Policy: "default/p", Message: `"1d" is not a duration; write 24h`}
	if e.Problems[0] != want {
		t.Errorf("got %+v, want %+v", e.Problems[0], want)
	}
}

// TestHDR07KeySpelling: a key rule in another spelling is refused, and so is none: never one allowance for
// everybody by mistake.
func TestHDR07KeySpelling(t *testing.T) {
	const rest = "\n  limits: [{name: l, fixedWindow: {limit: 1, window: 1m}}]"
	for _, spelling := range []string{"keyBy", "keyby", "KeyBy", "Key", "keys"} {
		want := "f:3: policies[0]." + spelling + ": unknown field; did you mean key?"
		if _, got := read("policies:\n- name: p\n  " + spelling + ": [client]" + rest); got != want {
			t.Errorf("%s: got %s", spelling, got)
		}
	}
	faults(t, map[string]string{
		"policies:\n- name: p" + rest: "f:2: policies[0].key: names no entry; write the entries that each have their own allowance, or global: true for one allowance for all",
	})
}

// TestRLS09UnknownFields: a misspelt field is refused with its path, wherever it is.
func TestRLS09UnknownFields(t *testing.T) {
	faults(t, map[string]string{
		withPolicy("Quota: q"):         "f:6: policies[0].Quota: unknown field; did you mean quota?",
		withPolicy("onunavailable: x"): "f:6: policies[0].onunavailable: unknown field; did you mean onUnavailable?",
		withPolicy("priority: 1"):      "f:6: policies[0].priority: unknown field",
		withPolicy("tiers: [{when: {t: p}, amounts: {l: {unlimied: true}}}]"): "f:6: policies[0].tiers[0].amounts.l.unlimied: unknown field; did you mean unlimited?",
		withPolicy("tiers: [{whem: {t: p}, amounts: {l: {limit: 1}}}]"):       "f:6: policies[0].tiers[0].whem: unknown field; did you mean when?",
		withLimit("rollingwindow: {limit: 3, window: 1m}"):                    "f:5: policies[0].limits[0].rollingwindow: unknown field; did you mean rollingWindow?",
		withLimit("rollingWindow: {limit: 3, windows: 1m}"):                   "f:5: policies[0].limits[0].rollingWindow.windows: unknown field; did you mean window?",
		withLimit("rollingWindow: {capacity: 3, window: 1m}"):                 "f:5: policies[0].limits[0].rollingWindow.capacity: unknown field; did you mean limit?",
		withLimit("fixedWindow: {limit: 3, window: 1m, precision: 1s}"):       "f:5: policies[0].limits[0].fixedWindow.precision: unknown field",
		withLimit("tokenBucket: {limit: 3, refill: 3, period: 1m}"):           "f:5: policies[0].limits[0].tokenBucket.limit: unknown field; did you mean capacity?",
		withLimit("rollingWindow: {limit: 3, window: 1M}"):                    `f:5: policies[0].limits[0].rollingWindow.window: "1M" is not a duration; write 1m`,
		withLimit("rollingWindow: {limit: 3, window: 1minute}"):               `f:5: policies[0].limits[0].rollingWindow.window: "1minute" is not a duration; write a number and a unit, like 60s, 1h30m or 0.25s`,
		withPolicy("mode: enforce"):                                           `f:6: policies[0].mode: "enforce" is not one of Enforce, Shadow`,
		"policies: []\ndomains: [{name: d, onNoMatch: allow}]":                `f:2: domains[0].onNoMatch: "allow" is not one of Deny, Allow`,
		"policies: []\ndomain: []":                                            "f:2: domain: unknown field; did you mean domains?",
	})
}

// TestWIN12CapacityIsRequired: a bucket without a capacity has no default that everybody would guess.
func TestWIN12CapacityIsRequired(t *testing.T) {
	faults(t, map[string]string{
		withLimit("tokenBucket: {refill: 6, period: 60s}"):   "f:5: policies[0].limits[0].tokenBucket.capacity: is required",
		withLimit("tokenBucket: {capacity: 6, period: 60s}"): "f:5: policies[0].limits[0].tokenBucket.refill: is required",
		withLimit("tokenBucket: {}"): "f:5: policies[0].limits[0].tokenBucket.capacity: is required\n" +
			"f:5: policies[0].limits[0].tokenBucket.refill: is required\n" +
			"f:5: policies[0].limits[0].tokenBucket.period: is required",
		withLimit("rollingWindow: {window: 1m}"): "f:5: policies[0].limits[0].rollingWindow.limit: is required",
		withLimit("rollingWindow: {limit: 1}"):   "f:5: policies[0].limits[0].rollingWindow.window: is required",
	})
}

// TestNUM04NumbersAreWhole: digits and nothing else, in range.
func TestNUM04NumbersAreWhole(t *testing.T) {
	const path = "f:5: policies[0].limits[0].fixedWindow.limit: "
	for number, want := range map[string]string{
		"0":                    "",
		"4611686018427387904":  "",
		"9223372036854775807":  "",
		"9223372036854775808":  "9223372036854775808 is out of range, 0 to 9223372036854775807",
		"18446744073709551615": "18446744073709551615 is out of range, 0 to 9223372036854775807",
		"18446744073709551616": "18446744073709551616 is out of range, 0 to 9223372036854775807",
		"-1":                   "-1 is out of range, 0 to 9223372036854775807",
		"-0":                   "-0 is out of range, 0 to 9223372036854775807",
		"1.0":                  `"1.0" is not a whole number; write its digits alone`,
		"1e3":                  `"1e3" is not a whole number; write its digits alone`,
		"0x10":                 `"0x10" is not a whole number; write its digits alone`,
		"010":                  `"010" is not a whole number; write its digits alone`,
		"1_000":                `"1_000" is not a whole number; write its digits alone`,
		"+1":                   `"+1" is not a whole number; write its digits alone`,
		".inf":                 `".inf" is not a whole number; write its digits alone`,
		"many":                 `"many" is not a whole number; write its digits alone`,
		"unlimited":            `"unlimited" is not a whole number; write its digits alone`,
		`"5"`:                  `"5" is a string, not a number; leave out the quotes`,
		"'5'":                  `"5" is a string, not a number; leave out the quotes`,
		"true":                 `"true" is not a whole number; write its digits alone`,
		"~":                    "has no value",
		"[5]":                  "is a list, not a single value",
	} {
		if want != "" {
			want = path + want
		}
		if _, got := read(withLimit("fixedWindow: {limit: " + number + ", window: 1m}")); got != want {
			t.Errorf("%s: got %s\nwant %s", number, got, want)
		}
	}
}

// TestNUM10WindowMustBePositive, and TestCRD03 below: what a file may say of a duration.
func TestNUM10WindowMustBePositive(t *testing.T) {
	windows(t, map[string]string{
		"1ns": "",
		"0s":  `"0s" is not positive`,
		"-5s": `"-5s" is not a duration; write a number and a unit, like 60s, 1h30m or 0.25s`,
		`""`:  `"" is not a duration; write a number and a unit, like 60s, 1h30m or 0.25s`,
		"":    "has no value",
	})
}

func TestCRD03DurationForms(t *testing.T) {
	windows(t, map[string]string{
		"1.5h":     "",
		"100ms":    "",
		`"60s"`:    "",
		"1d":       `"1d" is not a duration; write 24h`,
		"60":       `"60" is not a duration; write 60s`,
		"1m 30s":   `"1m 30s" is not a duration; write 1m30s`,
		"9999999h": `"9999999h" is longer than 2160h0m0s, the longest allowed`,
		"2161h":    "2161h0m0s is longer than 2160h0m0s, the longest allowed",
	})
}

func windows(t *testing.T, forms map[string]string) {
	t.Helper()
	for window, want := range forms {
		if want != "" {
			want = "f:5: policies[0].limits[0].rollingWindow.window: " + want
		}
		if _, got := read(withLimit("rollingWindow: {limit: 3, window: " + window + "}")); got != want {
			t.Errorf("%s: got %s\nwant %s", window, got, want)
		}
	}
}

// TestStringsAreStrings: what YAML takes for a number, a truth or nothing is no name and no value until quoted.
func TestStringsAreStrings(t *testing.T) {
	faults(t, map[string]string{
		withPolicy("quota: 42"):              `f:6: policies[0].quota: 42 is not a string; quote it: "42"`,
		withPolicy(`quota: "42"`):            "",
		withPolicy("match: {port: 80}"):      `f:6: policies[0].match.port: 80 is not a string; quote it: "80"`,
		withPolicy("match: {on: true}"):      `f:6: policies[0].match.on: true is not a string; quote it: "true"`,
		withPolicy("match: {on: yes}"):       "", // a string in YAML 1.2
		withPolicy("match: {v: 1.0}"):        `f:6: policies[0].match.v: 1.0 is not a string; quote it: "1.0"`,
		withPolicy("match: {d: 2024-01-02}"): `f:6: policies[0].match.d: 2024-01-02 is not a string; quote it: "2024-01-02"`,
		withPolicy("match: {a: ~}"):          "f:6: policies[0].match.a: has no value",
		withPolicy(`match: {a: ""}`):         "f:6: policies[0].match.a: is empty",
		withPolicy("match: {a: b, a: c}"):    "f:6: policies[0].match.a: is given twice",
		withPolicy("match: {1: a}"):          `f:6: policies[0].match: has a name that is not a string: "1"; quote it`,
		withPolicy("partitionBy: [1]"):       `f:6: policies[0].partitionBy[0]: 1 is not a string; quote it: "1"`,
		withPolicy("partitionBy: a"):         "f:6: policies[0].partitionBy: is a single value, not a list",
		withPolicy("partitionBy: []"):        "",
		withPolicy(`mode: ""`):               "f:6: policies[0].mode: is empty",
		withPolicy("global: yes"):            `f:6: policies[0].global: "yes" is not true or false`,
		withPolicy("global: True"):           `f:6: policies[0].global: "True" is not true or false`,
		withPolicy(`allowAdjust: "false"`):   `f:6: policies[0].allowAdjust: "false" is not true or false`,
		withPolicy("allowAdjust: false"):     "",
		withPolicy("keepHistory: 0s"):        `f:6: policies[0].keepHistory: "0s" is not positive`,
	})
}

func TestAmountsHaveTheShapeOfTheirLimit(t *testing.T) {
	override := func(amount string) string {
		return "policies:\n- name: p\n  key: [a]\n" +
			"  limits: [{name: l, rollingWindow: {limit: 3, window: 1m}}, {name: b, tokenBucket: {capacity: 3, refill: 1, period: 1s}}]\n" +
			"  overrides: [{when: {a: x}, amounts: {" + amount + "}}]\n"
	}
	const path = "f:5: policies[0].overrides[0].amounts."
	faults(t, map[string]string{
		override("l: {limit: 5}"):                           "",
		override("l: {unlimited: true}"):                    "",
		override("l: {unlimited: false, limit: 5}"):         "",
		override("b: {capacity: 5}"):                        "",
		override("b: {capacity: 5, refill: 2}"):             "",
		override("b: {capacity: 5, refill: 2, period: 1m}"): "",
		override("l: {capacity: 5}"):                        path + "l.capacity: unknown field; did you mean limit?",
		override("b: {limit: 5}"):                           path + "b.limit: unknown field; did you mean capacity?",
		override("l: {limit: 5, window: 1m}"):               path + "l.window: unknown field",
		override("l: {}"):                                   path + "l: needs either limit or unlimited: true",
		override("l: {unlimited: false}"):                   path + "l: needs either limit or unlimited: true",
		override("b: {refill: 2}"):                          path + "b: needs either capacity or unlimited: true",
		override("l: {limit: 5, unlimited: true}"):          path + "l: needs either limit or unlimited: true",
		override("b: {capacity: 5, refill: 0}"):             path + "b.refill: 0 is out of range, 1 to 9223372036854775807",
		override("b: {capacity: 5, period: 0s}"):            path + `b.period: "0s" is not positive`,
		override("l: 5"):                                    path + "l: is a single value, not a mapping",
		override("x: {limit: 5}"):                           `f:5: policies[0].overrides[0].amounts: "x" is not the name of a limit of this policy`,
	})
}

func TestALimitHasOneAlgorithm(t *testing.T) {
	faults(t, map[string]string{
		withLimit("fixedWindow: {limit: 1, window: 1m}, rollingWindow: {limit: 1, window: 1m}"): "f:5: policies[0].limits[0]: has 2 algorithms; a limit has one",
		withLimit(`"x": y`):                           "f:5: policies[0].limits[0].x: unknown field",
		strings.Replace(withLimit("z"), ", z", "", 1): "f:5: policies[0].limits[0]: needs one of rollingWindow, tokenBucket, slidingWindowCounter, fixedWindow",
	})
}

// TestRLS03TwoPoliciesWithOneEntryInCommon both load.
func TestRLS03TwoPoliciesWithOneEntryInCommon(t *testing.T) {
	text := withPolicy("match: {generic_key: abc}")
	second := strings.NewReplacer("policies:\n", "", "name: p", "name: foo").Replace(withPolicy("match: {generic_key: abc, PATH: /foo}"))
	s, got := read(text + second)
	if got != "" || len(s.Policies) != 2 {
		t.Errorf("got %s, %d policies", got, len(s.Policies))
	}
	twice := strings.Replace(text+text, "policies:\n", "", 2)
	faults(t, map[string]string{
		"policies:\n" + twice: `f:7: policies[1].name: "p" in namespace "default" is already the name of policies[0]`,
	})
}

// FuzzRead: no text panics. What is accepted is valid and normalized, and its canonical form reads back to the
// same set, here and in package policy. What is refused says why, sorted by line.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"testdata/conversions.yaml", "testdata/broken.yaml", "../testdata/conversions.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(withPolicy("match: {a: \"\\u2028\\x7f\"}")))
	f.Add([]byte("policies: [{name: p, global: true, limits: [{name: l, fixedWindow: {limit: 1, window: 1m}}]}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := file.Read("f", bytes.NewReader(text))
		if err != nil {
			var e *file.Error
			if !errors.As(err, &e) || len(e.Problems) == 0 {
				t.Fatalf("got %#v", err)
			}
			line := 1
			for _, p := range e.Problems {
				if p.Line < line || p.Message == "" {
					t.Errorf("%+v after line %d", p, line)
				}
				line = p.Line
			}
			return
		}
		if problems := s.Validate(); len(problems) > 0 {
			t.Fatalf("accepted, but %v", problems)
		}
		canonical := s.Canonical()
		again, err := file.Read("f", bytes.NewReader(canonical))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%s reads back as %+v, %v, was %+v", canonical, again, err, s)
		}
		if parsed, err := policy.ParseCanonical(canonical); err != nil || !reflect.DeepEqual(parsed, s) {
			t.Errorf("%s parses to %+v, %v, was %+v", canonical, parsed, err, s)
		}
	})
}
