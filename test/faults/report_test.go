package faults_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/test/rig"
)

// report is what a run has to say.
type report struct {
	Seed uint64 `json:"seed"`
	Rows []row  `json:"rows"`
}

// row is what a cell has to say.
type row struct {
	Cell    string `json:"cell"`
	Ground  string `json:"ground"`
	Seed    uint64 `json:"seed"`
	Skipped string `json:"skipped,omitempty"` // why it wasn't run
	Failed  bool   `json:"failed"`
	// About is what proves that the fault took place: a figure of its own.
	About        string        `json:"about"`
	AboutCount   int           `json:"about_count"`
	Elections    uint64        `json:"elections"`
	CutBytes     int64         `json:"cut_bytes"`
	FailedWrites int           `json:"failed_writes"`
	Edits        int           `json:"policy_edits"`
	Refusals     int           `json:"refusals"` // unavailable
	Unknown      int           `json:"unknown"`  // outcomes unknown at first
	Allows       int           `json:"allows"`
	Replays      int           `json:"replays"`
	Denials      int           `json:"denials"`
	Violations   int           `json:"violations"`
	Longest      time.Duration `json:"longest_ns"`  // without a decision, of any caller that went on asking
	Recovery     time.Duration `json:"recovery_ns"` // p50 of the time until a partition that was hit allowed again
	Seconds      float64       `json:"seconds"`
}

// baseline is what a cell's figures are counted from.
type baseline struct {
	terms uint64
	web   rig.Tally
}

func (c *cell) before() baseline {
	c.Helper()
	b := baseline{terms: c.terms(c)}
	if c.web != nil {
		b.web = c.web.Tally()
	}
	return b
}

// failedWrites is the counter that faults of disks add to.
const failedWrites = "failed writes"

// cutBytes is the counter of what the web, or a namespace, has lost.
const cutBytes = "cut bytes"

func (c *cell) result(b baseline) row {
	c.Helper()
	seen := c.crowd.figures()
	r := row{
		Cell: c.plan.name(), Ground: c.on.String(), About: c.plan.fault.about, Elections: c.terms(c) - b.terms, Edits: c.edits,
		Refusals: seen.Refusals, Unknown: seen.Unknown, Allows: seen.Allows, Replays: seen.Replays, Denials: seen.Denials, Longest: seen.Longest,
	}
	if c.web != nil {
		r.CutBytes = c.web.Tally().Minus(b.web).Cut
		c.count(cutBytes, int(r.CutBytes))
	}
	r.FailedWrites = c.counts[failedWrites]
	r.AboutCount = c.counts[r.About]
	if list := c.crowd.recoveries(c.hits); len(list) > 0 {
		r.Recovery = list[len(list)/2]
	}
	return r
}

// wants says what the row lacks to prove anything.
func (r *row) wants(c *cell) (list []string) {
	say := func(bad bool, format string, args ...any) {
		if bad {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	say(r.AboutCount == 0, "the fault did not take place: %s: 0", r.About)
	say(r.Allows < enough, "%d allows, at least %d are needed", r.Allows, enough)
	say(r.Denials == 0, "nothing was denied")
	say(r.Replays == 0, "no allow was given again")
	say(len(c.hits) > 0 && r.Recovery == 0, "no partition that was hit has allowed anything since")
	say(r.Edits < c.leastEdits(), "the policies were changed %d times", r.Edits)
	say(c.plan.phase == installing && c.counts[installs] == 0, "no follower took in a snapshot")
	return list
}

func (r *report) add(one row) {
	r.Rows = append(r.Rows, one)
	fmt.Println(strings.TrimSpace(table([]row{one})))
}

// write writes the table, and a file where that is asked for: JSON, or as Markdown what docs/failures.md shows.
func (r *report) write(t *testing.T) {
	fmt.Printf("\nseed %d\n%s", r.Seed, table(r.Rows))
	path := os.Getenv("REPORT")
	if path == "" {
		return
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if strings.HasSuffix(path, ".md") {
		text = []byte(r.markdown())
	}
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// columns are the table's.
func columns() []string {
	return []string{"cell", "what took place", "elections", "cut bytes", "failed writes", "unavailable", "unknown", "allows", "denials", "violations", "longest without a decision", "recovery p50", "verdict"}
}

func (r row) fields() []string {
	if r.Skipped != "" {
		return []string{r.Cell, "skipped: " + r.Skipped}
	}
	verdict := "ok"
	if r.Failed {
		verdict = "FAILED"
	}
	recovery := "-"
	if r.Recovery > 0 {
		recovery = r.Recovery.Round(time.Millisecond).String()
	}
	fields := []string{r.Cell, fmt.Sprintf("%s: %d", r.About, r.AboutCount)}
	for _, n := range []int{int(r.Elections), int(r.CutBytes), r.FailedWrites, r.Refusals, r.Unknown, r.Allows, r.Denials, r.Violations} {
		fields = append(fields, fmt.Sprint(n))
	}
	return append(fields, r.Longest.Round(time.Millisecond).String(), recovery, verdict)
}

func table(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, fields := range append([][]string{columns()}, fieldsOf(rows)...) {
		fmt.Fprintln(w, strings.Join(fields, "\t"))
	}
	_ = w.Flush() // to memory
	return b.String()
}

// markdown is the table as documents have it, by cell.
func (r *report) markdown() string {
	lines := []string{"| " + strings.Join(columns(), " | ") + " |", strings.Repeat("|---", len(columns())) + "|"}
	list := fieldsOf(r.Rows)
	slices.SortFunc(list, slices.Compare)
	for _, fields := range list {
		lines = append(lines, "| "+strings.Join(fields, " | ")+strings.Repeat(" | ", len(columns())-len(fields))+" |")
	}
	return strings.Join(lines, "\n")
}

func fieldsOf(rows []row) (list [][]string) {
	for _, r := range slices.Clone(rows) {
		list = append(list, r.fields())
	}
	return list
}

// TestARowThatProvesNothingFails: whatever a cell has to show and doesn't is said.
func TestARowThatProvesNothingFails(t *testing.T) {
	whole := func() (row, *cell) {
		r := row{About: "leaders killed", AboutCount: 2, Allows: enough, Denials: 1, Replays: 1, Edits: 5, Recovery: time.Second}
		return r, &cell{plan: planned{phase: installing}, counts: map[string]int{installs: 1}, hits: []hit{{at: 1, partitions: []int{0}}}}
	}
	if r, c := whole(); len(r.wants(c)) != 0 {
		t.Errorf("a whole row lacks %q", r.wants(c))
	}
	for name, spoil := range map[string]func(*row, *cell){
		"no fault":    func(r *row, _ *cell) { r.AboutCount = 0 },
		"few allows":  func(r *row, _ *cell) { r.Allows = enough - 1 },
		"no denials":  func(r *row, _ *cell) { r.Denials = 0 },
		"no replays":  func(r *row, _ *cell) { r.Replays = 0 },
		"no edits":    func(r *row, _ *cell) { r.Edits = 0 },
		"few edits":   func(r *row, c *cell) { r.Edits, c.plan.phase = 4, editing },
		"no recovery": func(r *row, _ *cell) { r.Recovery = 0 },
		"no snapshot": func(_ *row, c *cell) { c.counts = map[string]int{} },
	} {
		r, c := whole()
		spoil(&r, c)
		if list := r.wants(c); len(list) != 1 {
			t.Errorf("%s: it lacks %q", name, list)
		}
	}
}
