package checker_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/checker"
)

// broken is a history that breaks rules, and what of it has to be mended.
type broken struct {
	file  string
	rules []string // in the order of the alphabet
	line  int      // the one line that is wrong
	old   string   // what of it is wrong
	new   string   // what would be right
	opt   checker.Options
}

var brokenHistories = []broken{
	{file: "fourth-in-a-window", rules: []string{"window"}, line: 5, old: `"time":1009`, new: `"time":1010`},
	{file: "costs-above-the-limit", rules: []string{"window"}, line: 3, old: `"cost":2`, new: `"cost":1`},
	{file: "fourth-across-epochs", rules: []string{"real-window"}, line: 5, old: `"answered":1099`, new: `"answered":1100`},
	{file: "longer-window-too", rules: []string{"window"}, line: 6, old: `"time":5400`, new: `"time":6000`},
	{file: "clock-too-fast", rules: []string{"pace"}, line: 3, old: `"time":521`, new: `"time":520`},
	{file: "clock-goes-back", rules: []string{"forward", "pace"}, line: 3, old: `"time":49`, new: `"time":50`},
	{file: "charged-twice", rules: []string{"once"}, line: 4, old: `"time":70`, new: `"time":60`},
	{file: "charged-in-two-partitions", rules: []string{"once"}, line: 3, old: `"partition":1`, new: `"partition":0`},
	{file: "charged-to-two-keys", rules: []string{"once"}, line: 3, old: `"key":"other"`, new: `"key":"k"`},
	{file: "repetition-denied", rules: []string{"repeat"}, line: 5, old: `"answer":"deny","partition":0,"epoch":1,"time":80`, new: `"answer":"allow","partition":0,"epoch":1,"time":20,"replayed":true`},
	{file: "repetition-not-marked", rules: []string{"repeat"}, line: 3, old: `"time":10`, new: `"time":10,"replayed":true`},
	{file: "denied-with-room", rules: []string{"denial", "linear"}, line: 4, old: `"cost":1`, new: `"cost":2`},
	{file: "denied-by-what-has-left", rules: []string{"denial", "linear"}, line: 5, old: `"time":1010`, new: `"time":1009`},
	{file: "denied-before-it-was-full", rules: []string{"linear"}, line: 5, old: `"sent":140`, new: `"sent":138`},
	{file: "acknowledged-allow-lost", rules: []string{"usage"}, line: 5, old: `"used":2`, new: `"used":3`},
	{file: "usage-nobody-asked-for", rules: []string{"usage"}, line: 5, old: `"used":3`, new: `"used":2`},
	{file: "usage-before-what-it-counts", rules: []string{"forward"}, line: 5, old: `"time":29,"limits":[{"limit":"per-window","used":2}]`, new: `"time":30,"limits":[{"limit":"per-window","used":3}]`},
	{file: "states-differ", rules: []string{"state"}, line: 4, old: `"hash":"ab"`, new: `"hash":"aa"`},
	{file: "no-policy-in-force", rules: []string{"policy"}, line: 2, old: `"outcome":"applied"`, new: `"outcome":"refused"`},
	{file: "above-a-lowered-limit", rules: []string{"window"}, line: 4, old: `"answered":135`, new: `"answered":140`},
	{file: "above-a-limit-not-yet-raised", rules: []string{"real-window", "window"}, line: 6, old: `"sent":171`, new: `"sent":170`},
	{file: "above-a-raise-that-was-refused", rules: []string{"real-window", "window"}, line: 2, old: `"refused"`, new: `"unknown"`},
	{file: "within-neither-set", rules: []string{"real-window", "window"}, line: 1, old: `"max":2`, new: `"max":3`},
	{file: "live-denial-goes-back", rules: []string{"denial", "forward", "linear"}, line: 5, old: `"time":29`, new: `"time":30`, opt: checker.Options{Live: true}},
}

// TestBrokenHistoriesFail: each history fails by the rules that it breaks and no other, and passes once its one
// wrong line is mended.
func TestBrokenHistoriesFail(t *testing.T) {
	for _, b := range brokenHistories {
		t.Run(b.file, func(t *testing.T) {
			text := readHistory(t, b.file)
			report := judge(t, text, b.opt)
			if got := slices.Sorted(maps.Keys(report.Violated)); !slices.Equal(got, b.rules) || report.OK() {
				t.Errorf("broken: violates %v, want %v\n%s", got, b.rules, report)
			}
			for _, v := range report.Violations {
				if len(v.Lines) == 0 || v.What == "" {
					t.Errorf("a violation of %s shows nothing", v.Rule)
				}
			}
			lines := strings.SplitAfter(text, "\n")
			wrong := lines[b.line-1]
			if lines[b.line-1] = strings.Replace(wrong, b.old, b.new, 1); lines[b.line-1] == wrong {
				t.Fatalf("line %d has no %s: %s", b.line, b.old, wrong)
			}
			if report := judge(t, strings.Join(lines, ""), b.opt); !report.OK() {
				t.Errorf("mended:\n%s", report)
			}
		})
	}
}

var goodHistories = []string{
	"good-edits-and-unknowns", "good-failover", "good-equal-times",
	"good-same-moment",            // what was sent when something else was answered was not sent after it
	"good-raise-in-an-instant",    // of one instant some under an amount, and the last under a larger one
	"good-late-copy",              // a call that was denied is charged by a copy of it that comes late
	"good-forgotten-twice",        // two sends of an id, further apart than it is remembered, are two charges
	"good-forgotten-once-more",    // the same after an allow
	"good-clock-ahead-of-its-log", // a denial's time is above what the next leader begins with
}

// TestGoodHistoriesPass: what faults do to a history that keeps its promises.
func TestGoodHistoriesPass(t *testing.T) {
	total := map[string]int{}
	for _, name := range goodHistories {
		report := judge(t, readHistory(t, name), checker.Options{})
		if !report.OK() {
			t.Errorf("%s:\n%s", name, report)
		}
		for what, n := range report.Counts {
			total[what] += n
			if strings.Contains(what, "not judged") {
				t.Errorf("%s: %s", name, what)
			}
		}
	}
	for _, what := range []string{
		"windows in decision time", "windows in real time", "pieces in order", "pairs of times", "times after times",
		checker.CountDenials, checker.CountUsages, checker.CountStates,
	} {
		if total[what] == 0 {
			t.Errorf("no %s", what)
		}
	}
}

// TestEveryRuleHasABrokenHistory, so that none of them can be lost unseen; and every file is one of the table's.
func TestEveryRuleHasABrokenHistory(t *testing.T) {
	seen := map[string]bool{}
	files := slices.Clone(goodHistories)
	for _, b := range brokenHistories {
		files = append(files, b.file)
		for _, r := range b.rules {
			seen[r] = true
		}
	}
	for _, r := range []string{checker.RuleWindow, checker.RuleReal, checker.RuleOnce, checker.RuleRepeat, checker.RulePolicy, checker.RulePace,
		checker.RuleForward, checker.RuleDenial, checker.RuleUsage, checker.RuleState, checker.RuleLinear} {
		if !seen[r] {
			t.Errorf("no history breaks %q", r)
		}
	}
	found, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(found) != len(files) {
		t.Errorf("%d files, %d in the table, %v", len(found), len(files), err)
	}
}

func readHistory(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func judge(t *testing.T, text string, opt checker.Options) *checker.Report {
	t.Helper()
	report, err := checker.CheckReader(bytes.NewReader([]byte(text)), opt)
	if err != nil {
		t.Fatal(err)
	}
	return report
}
