package checker_test

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/quorate/quorate/test/checker"
)

// TestGoodWorldsNeverAlarm: a limiter that does what it promises, through failovers, edits, lost and doubled
// messages, repetitions and remembered denials, is never accused.
func TestGoodWorldsNeverAlarm(t *testing.T) {
	worlds := 150
	if testing.Short() {
		worlds = 50
	}
	if n, err := strconv.Atoi(os.Getenv("WORLDS")); err == nil {
		worlds = n
	}
	total := map[string]int{}
	for seed := range worlds {
		lines := live(uint64(seed), "")
		report := pass(t, seed, lines, checker.Options{Fenced: true, Live: seed%2 == 1})
		pass(t, seed, lines, checker.Options{})
		for _, l := range lines {
			if m, ok := l.(*checker.Mark); ok {
				total[m.Name]++
			}
		}
		for what, n := range report.Counts {
			total[what] += n
		}
	}
	for what, least := range map[string]int{
		tooLate: 1, "failover": 5, checker.CountAllows: 200, "answers allow, replayed": 20, "answers unavailable": 5, "answers unknown": 20, checker.CountDenials: 100, checker.CountUsages: 40, checker.CountStates: 3, "calls that may have been charged": 5, "pieces in order": 2,
		"policy sets unknown": 1, "policy sets refused": 1, "windows in real time": 400, "pairs of times": 200, "times after times": 200,
	} {
		if total[what] < least*worlds {
			t.Errorf("%s: %d in %d worlds, want at least %d in each", what, total[what], worlds, least)
		}
	}
	t.Logf("%d worlds: %v", worlds, total)
}

func pass(t *testing.T, seed int, lines []checker.Line, opt checker.Options) *checker.Report {
	t.Helper()
	report, err := checker.Check(lines, opt)
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() {
		t.Fatalf("seed %d, %+v:\n%s", seed, opt, report)
	}
	return report
}

// TestFastClockIsForgivenWhereItIsKnown: by so much and no less.
func TestFastClockIsForgivenWhereItIsKnown(t *testing.T) {
	for seed := range 20 {
		lines := live(uint64(seed), "clock 1 % fast")
		pass(t, seed, lines, checker.Options{Fast: 10_000})
		report, err := checker.Check(lines, checker.Options{Fast: 1_000})
		if err != nil || report.Violated[checker.RulePace] == 0 {
			t.Errorf("seed %d: a clock ten times as fast as allowed is not noticed, %v", seed, err)
		}
	}
}

// faults are what a limiter can do wrong, and rules that have to notice, in some seed.
var faults = []struct {
	fault string
	rules []string
}{
	{"fixed windows", []string{checker.RuleWindow, checker.RuleReal}},
	{"forgets usage on failover", []string{checker.RuleWindow, checker.RuleUsage}},
	{"forgets ids on failover", []string{checker.RuleOnce}},
	{"charges again", []string{checker.RuleOnce}},
	{"clock 1 % fast", []string{checker.RulePace}},
	{"admits without a leader", []string{checker.RuleWindow, checker.RuleReal}},
	{"equal times don't count", []string{checker.RuleWindow}},
	{"window a grain short", []string{checker.RuleWindow}},
	{"window a tenth short", []string{checker.RuleWindow}},
	{"what is W old counts", []string{checker.RuleDenial, checker.RuleLinear}},
	{"always denies", []string{checker.RuleDenial, checker.RuleLinear}},
	{"two leaders", []string{checker.RuleWindow, checker.RuleForward, checker.RuleOnce}},
	{"time goes back on failover", []string{checker.RuleForward, checker.RuleReal}},
	{"looks for ids last", []string{checker.RuleRepeat}},
	{"loses an allow", []string{checker.RuleWindow, checker.RuleUsage}},
	{"applies what it refused", []string{checker.RuleWindow, checker.RuleDenial}},
	{"charges one for all", []string{checker.RuleWindow, checker.RuleUsage}},
	{"looks at one limit", []string{checker.RuleWindow}},
	{"charges and says unavailable", []string{checker.RuleUsage, checker.RuleDenial}},
	{"replicas differ", []string{checker.RuleState}},
	{"ignores fences", []string{checker.RuleUsage}},
}

// TestFaultyLimitersAreCaught: each by every rule that should notice, within 25 seeds.
func TestFaultyLimitersAreCaught(t *testing.T) {
	for _, f := range faults {
		t.Run(f.fault, func(t *testing.T) {
			first, missing := -1, slices.Clone(f.rules)
			for seed := 0; seed < 25 && len(missing) > 0; seed++ {
				report, err := checker.Check(live(uint64(seed), f.fault), checker.Options{Fenced: true})
				if err != nil {
					t.Fatal(err)
				}
				if !report.OK() && first < 0 {
					first = seed
				}
				missing = slices.DeleteFunc(missing, func(rule string) bool { return report.Violated[rule] > 0 })
			}
			if len(missing) > 0 {
				t.Errorf("never noticed by %v (by anything first in seed %d)", missing, first)
			}
			t.Logf("first in seed %d", first)
		})
	}
}

// TestUndecidedIsAFailure, unless it is allowed; and a denial that nothing can explain is found without a search.
func TestUndecidedIsAFailure(t *testing.T) {
	lines := live(1, "")
	report, err := checker.Check(lines, checker.Options{Patience: 1})
	if err != nil || report.OK() || len(report.Undecided) == 0 || len(report.Violated) > 0 {
		t.Errorf("nothing is undecided, or it is no failure: %v\n%s", err, report)
	}
	report, err = checker.Check(lines, checker.Options{Patience: 1, AllowUndecided: true})
	if err != nil || !report.OK() || len(report.Undecided) == 0 {
		t.Errorf("undecided isn't allowed: %v\n%s", err, report)
	}
	report, err = checker.Check(live(1, "always denies"), checker.Options{Patience: 1, AllowUndecided: true})
	if err != nil || report.Violated[checker.RuleLinear] == 0 {
		t.Errorf("no denial is found to be without reason: %v", err)
	}
}

// TestOrderOfLinesDoesNotMatter: a history is what it says, however its writers were interleaved.
func TestOrderOfLinesDoesNotMatter(t *testing.T) {
	for _, fault := range []string{"", "window a tenth short"} {
		lines := live(3, fault)
		forth, err := checker.Check(lines, checker.Options{})
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(lines)
		var file bytes.Buffer
		w := checker.NewWriter(&file)
		if err := w.Write(lines...); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		back, err := checker.CheckReader(&file, checker.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if forth.OK() != back.OK() || forth.Violated[checker.RuleWindow] != back.Violated[checker.RuleWindow] {
			t.Errorf("%q: forwards %v, backwards %v", fault, forth.Violated, back.Violated)
		}
	}
}
