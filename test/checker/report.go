package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The rules, by the names that violations bear. The file of each argues why a cluster that keeps its promises
// never breaks it.
const (
	RuleWindow  = "window"      // no window above its limit, in decision time
	RuleReal    = "real-window" // none possible in real time
	RuleOnce    = "once"        // no id charged twice
	RuleRepeat  = "repeat"      // a repetition finds the allow of its id
	RulePolicy  = "policy"      // an allow is under a policy that may have been in force
	RulePace    = "pace"        // decision time is never faster than real time
	RuleForward = "forward"     // decision time never goes back
	RuleDenial  = "denial"      // a denial is true
	RuleUsage   = "usage"       // usage holds all acknowledged allows, and nothing that can't have been charged
	RuleState   = "state"       // replicas have the same state at the same index
	RuleLinear  = "linear"      // a key's answers are those of one limiter that answers them one after another
)

// Names in Report.Counts by which a run can demand that its history proves something.
const (
	CountAllows  = "allows, each id once"
	CountDenials = "denials judged"
	CountUsages  = "usages judged"
	CountStates  = "equal states" // beyond the first replica's at each index
)

// Violation is a promise that wasn't kept.
type Violation struct {
	// Rule is which.
	Rule string
	// What says how, with the arithmetic.
	What string
	// Lines are those that show it.
	Lines []Shown
}

// Shown is a line of the history.
type Shown struct {
	// Number is its number.
	Number int
	// Text is what it says.
	Text string
}

// Report is what the checker has to say of a history.
type Report struct {
	// Counts are how many of what were seen and judged: who wants to know whether a history proves anything
	// looks here.
	Counts map[string]int
	// Violated is how often each rule was broken.
	Violated map[string]int
	// Violations are the first of each rule.
	Violations []Violation
	// Undecided says of which keys no order was found in time.
	Undecided []string
	// lenient: undecided is no failure.
	lenient bool
}

// OK says that nothing was violated and nothing was left undecided.
func (r *Report) OK() bool {
	return len(r.Violated) == 0 && (len(r.Undecided) == 0 || r.lenient)
}

// String is the report for people.
func (r *Report) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, "%-32s %d\n", name, r.Counts[name])
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\nVIOLATION %s: %s\n", v.Rule, v.What)
		for _, l := range v.Lines {
			fmt.Fprintf(&b, "  line %d: %s\n", l.Number, l.Text)
		}
	}
	for _, u := range r.Undecided {
		fmt.Fprintf(&b, "\nUNDECIDED %s\n", u)
	}
	b.WriteString("\n")
	for _, rule := range slices.Sorted(maps.Keys(r.Violated)) {
		fmt.Fprintf(&b, "violations of %q: %d\n", rule, r.Violated[rule])
	}
	if r.OK() {
		b.WriteString("verdict: kept\n")
	} else {
		b.WriteString("verdict: BROKEN\n")
	}
	return b.String()
}

// mostShown bounds the lines that are shown of one violation.
const mostShown = 12

// violated notes that a rule is broken; show gives the lines, and is asked only where they are kept.
func (c *Checker) violated(rule string, show []Shown, what string, args ...any) {
	r := c.report
	r.Violated[rule]++
	if r.Violated[rule] > c.opt.Examples {
		return
	}
	if len(show) > mostShown {
		what += fmt.Sprintf(" (%d lines, the last %d are shown)", len(show), mostShown)
		show = show[len(show)-mostShown:]
	}
	r.Violations = append(r.Violations, Violation{Rule: rule, What: fmt.Sprintf(what, args...), Lines: show})
}

func (c *Checker) count(what string) { c.report.Counts[what]++ }

// show is a line for people.
func show(number int, l Line) Shown {
	text, err := encode(l)
	if err != nil {
		text = fmt.Appendf(nil, "%+v", l)
	}
	return Shown{number, strings.TrimSpace(string(text))}
}

func (c *Checker) shown(calls ...*call) (lines []Shown) {
	for _, k := range calls {
		lines = append(lines, show(int(k.line), c.kept.line(k)))
	}
	return lines
}

func (c *Checker) shownEvents(events ...*event) (lines []Shown) {
	for _, e := range events {
		lines = append(lines, c.shown(c.kept.at(e.call))...)
	}
	return lines
}

// who names a subject for people.
func (c *Checker) who(n int32) string {
	s := &c.kept.subjects[n]
	return fmt.Sprintf("%s of %q", c.kept.names[s.quota], s.key)
}
