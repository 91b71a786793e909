// Package cases_test keeps the index of cases true. testdata/cases/cases.jsonl holds faults that others
// had, turned into cases for us; testdata/cases/index.txt says for each which tests cover it. A case
// can't get lost: not by a new line in the one file, not by a renamed test.
package cases_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// The parts of the product that are not here yet, for which a case may wait.
var later = []string{
	"the cluster",
	"the operator",
	"the gateway fronts",
	"the chart",
	"shadow mode",
	"changes of windows",
}

// TestEveryCaseIsIndexed: each case has one line, in the order of the cases, and each line holds.
func TestEveryCaseIsIndexed(t *testing.T) {
	auto, order := readCases(t)
	index, err := os.ReadFile(filepath.Join(root, "testdata/cases/index.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(string(index)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
		for _, fault := range checkLine(line, auto, testsOf) {
			t.Errorf("%s: %s", id, fault)
		}
	}
	for _, fault := range checkIDs(ids, order) {
		t.Error(fault)
	}
}

// checkIDs says which cases have no line, which lines have no case, and which come twice.
func checkIDs(ids, cases []string) (faults []string) {
	for _, id := range cases {
		if !slices.Contains(ids, id) {
			faults = append(faults, id+": not in the index")
		}
	}
	for i, id := range ids {
		switch {
		case !slices.Contains(cases, id):
			faults = append(faults, id+": no such case")
		case slices.Contains(ids[:i], id):
			faults = append(faults, id+": twice in the index")
		}
	}
	if len(faults) == 0 && !slices.Equal(ids, cases) {
		faults = append(faults, "the index is not in the order of the cases")
	}
	return faults
}

// checkLine says what is wrong with "ID item, item", where an item is "folder Test", "folder Test/sub"
// or "later: part of the product".
func checkLine(line string, auto map[string]bool, testsOf func(dir string) string) (faults []string) {
	id, rest, _ := strings.Cut(line, " ")
	runs := false
	for item := range strings.SplitSeq(rest, ", ") {
		if what, ok := strings.CutPrefix(item, "later: "); ok {
			if !slices.Contains(later, what) {
				faults = append(faults, fmt.Sprintf("%q is no part of the product to wait for", what))
			}
			continue
		}
		fields := strings.Fields(item)
		if len(fields) != 2 {
			faults = append(faults, fmt.Sprintf("%q names no test", item))
			continue
		}
		name, sub, _ := strings.Cut(fields[1], "/")
		tests := testsOf(fields[0])
		switch {
		case !regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(\w+ \*testing\.[TF]\)`).MatchString(tests):
			faults = append(faults, fmt.Sprintf("%s has no test %s", fields[0], name))
		case name == "TestCases" && (sub != id || !auto[id]):
			faults = append(faults, fmt.Sprintf("TestCases doesn't run %q for it", sub))
		case name != "TestCases" && sub != "" && !strings.Contains(tests, `"`+sub+`"`):
			faults = append(faults, fmt.Sprintf("%s has no subtest %q", fields[1], sub))
		}
		runs = runs || name == "TestCases"
	}
	if auto[id] && !runs {
		faults = append(faults, "runs as it stands, but no TestCases runs it")
	}
	return faults
}

// readCases gives the ids in order, and which of them a test can run as they stand.
func readCases(t *testing.T) (auto map[string]bool, ids []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "testdata/cases/cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	auto = map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var c struct {
			ID   string
			Auto bool
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(ids, c.ID) {
			t.Errorf("%s: two cases have this id", c.ID)
		}
		auto[c.ID] = c.Auto
		ids = append(ids, c.ID)
	}
	if len(ids) == 0 {
		t.Fatal("no cases")
	}
	return auto, ids
}

// testsOf is the text of a folder's test files; empty if it has none.
func testsOf(dir string) string {
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		return ""
	}
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return ""
		}
		all.Write(text)
	}
	return all.String()
}

// TestIndexFaultsAreFound: what the index must not say is refused, each for its own reason.
func TestIndexFaultsAreFound(t *testing.T) {
	auto := map[string]bool{"WIN-01": true}
	tests := func(dir string) string {
		if dir != "internal/limit" {
			return ""
		}
		return "func TestCases(t *testing.T) {}\nfunc TestOther(t *testing.T) { t.Run(\"one\", nil) }\nfunc TestHelp(n int) {}\n"
	}
	for line, want := range map[string]string{
		"WIN-01 internal/limit TestCases/WIN-01":                           "",
		"WIN-01 internal/limit TestCases/WIN-01, internal/limit TestOther": "",
		"MEM-12 internal/limit TestOther/one, later: the cluster":          "",
		"MEM-12 later: next year":                                          "no part of the product",
		"MEM-12 ?":                                                         "names no test",
		"MEM-12":                                                           "names no test",
		"MEM-12 internal/limit TestGone":                                   "has no test TestGone",
		"MEM-12 internal/limit TestHelp":                                   "has no test TestHelp",
		"MEM-12 internal/gone TestOther":                                   "has no test TestOther",
		"MEM-12 internal/limit TestOther/two":                              `no subtest "two"`,
		"MEM-12 internal/limit TestCases/MEM-12":                           "doesn't run",
		"WIN-01 internal/limit TestCases/WIN-02, internal/limit TestOther": "doesn't run",
		"WIN-01 internal/limit TestOther":                                  "no TestCases runs it",
	} {
		faults := strings.Join(checkLine(line, auto, tests), "; ")
		if want == "" && faults != "" || !strings.Contains(faults, want) {
			t.Errorf("%s: %q, want %q", line, faults, want)
		}
	}
	for _, c := range []struct {
		ids  string
		want string
	}{
		{"A B", ""},
		{"A", "B: not in the index"},
		{"A B C", "C: no such case"},
		{"A B A", "A: twice in the index"},
		{"B A", "order"},
	} {
		faults := strings.Join(checkIDs(strings.Fields(c.ids), []string{"A", "B"}), "; ")
		if c.want == "" && faults != "" || !strings.Contains(faults, c.want) {
			t.Errorf("%s: %q, want %q", c.ids, faults, c.want)
		}
	}
}
