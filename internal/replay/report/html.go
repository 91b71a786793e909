package report

import (
	"bytes"
	_ "embed" // the page
	"html/template"
	"io"
	"unicode"

	"github.com/quorate/quorate/internal/replay"
)

// HTMLOptions say what stands beside the figures.
type HTMLOptions struct {
	// Title names the page; "Quorate replay" if it is empty.
	Title string
	// Policy is the text of the policies that decided, shown as it is; none if it is empty.
	Policy string
}

//go:embed page.html
var pageText string

// longestKey is how many characters of a key the page shows: whoever wrote a log may have sent megabytes.
const longestKey = 160

// view is what the page shows, in words.
type view struct {
	Title, Headline, Shadow, Sum, Period string
	Facts                                []fact
	Timeline                             *timeline
	Top                                  *offenderTable
	TopExact                             bool
	Policies                             []policyRow
	ShadowPolicies                       bool
	Against                              []fact
	NewlyDenied                          *offenderTable
	BadBy, Inputs                        []fact
	Policy                               string
}

// fact is a labelled figure.
type fact struct{ Label, Value, Share, Note, Class string }

type offenderTable struct {
	Caption, Denied string
	WithPolicy      bool
	Rows            []offenderRow
}

type offenderRow struct {
	Key, Policy, Denied, Requests, Share string
	// The bar: all its requests, of those of the busiest key shown, and how many of them were denied.
	Length, DeniedLength place
}

type policyRow struct {
	Name, Requests, Denied, Share string
	Shadow                        bool
}

// HTML writes the summary as one page that needs nothing else: no script, no network, no other file. The
// error is the writer's.
func HTML(w io.Writer, s *replay.Summary, o HTMLOptions) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, newView(s, o)); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

func newView(s *replay.Summary, o HTMLOptions) *view {
	if o.Title == "" {
		o.Title = "Quorate replay"
	}
	v := &view{
		Title: visible(o.Title, false), Headline: headline(s), Sum: sum(s),
		Facts: facts(s), Timeline: newTimeline(s), TopExact: s.TopExact,
		Policy: escaped(o.Policy, func(r rune) bool { return unicode.IsPrint(r) || r == '\n' || r == '\t' || r == '\u00a0' }),
	}
	if s.Requests > 0 {
		v.Period = period(s.From, s.To)
	}
	if s.ShadowDenied > 0 {
		v.Shadow = grouped(s.ShadowDenied) + " of them by Shadow policies alone: would block; live they pass."
	}
	v.Top = offenders("Most blocked", "Blocked", s.Top, s)
	v.ShadowPolicies = shadows(s.Policies)
	v.Policies = policyRows(s.Policies)
	if c := s.Against; c != nil {
		v.Against = comparison(s, c)
		v.NewlyDenied = offenders("Most newly blocked", "Newly blocked", c.Top, s)
	}
	for _, c := range s.BadBy {
		v.BadBy = append(v.BadBy, fact{Label: visible(c.Name, false), Value: grouped(c.N)})
	}
	for _, in := range s.Inputs {
		v.Inputs = append(v.Inputs, fact{Label: visible(in.Name, false), Value: visible(in.Format, false)})
	}
	return v
}

func facts(s *replay.Summary) []fact {
	all := []fact{
		{Label: "Requests", Value: grouped(s.Requests)},
		{Label: "Allowed", Value: grouped(s.Allowed), Share: share(s.Allowed, s.Requests), Class: "allowed"},
		{Label: "Blocked", Value: grouped(s.Denied), Share: share(s.Denied, s.Requests), Class: "blocked"},
	}
	if s.Unmatched > 0 {
		all = append(all, fact{Label: "No policy matched", Value: grouped(s.Unmatched), Share: share(s.Unmatched, s.Requests)})
	}
	if s.Bad > 0 {
		all = append(all, fact{Label: "Bad lines", Value: grouped(s.Bad), Share: share(s.Bad, s.Lines), Note: "left out"})
	}
	return all
}

func comparison(s *replay.Summary, c *replay.Comparison) []fact {
	row := func(label string, n int64) fact {
		return fact{Label: label, Value: grouped(n), Share: share(n, s.Requests)}
	}
	return []fact{
		row("Blocked by this set", s.Denied),
		row("Blocked by the other", c.Denied),
		row("Newly blocked: only by this set", c.NewlyDenied),
		row("Newly allowed: only by this set", c.NewlyAllowed),
	}
}

func offenders(caption, denied string, top []replay.Offender, s *replay.Summary) *offenderTable {
	if len(top) == 0 {
		return nil
	}
	t := &offenderTable{Caption: caption, Denied: denied, WithPolicy: len(s.Policies) > 1}
	busiest := int64(0)
	for i := range top {
		busiest = max(busiest, top[i].Requests)
	}
	for i := range top {
		o := &top[i]
		t.Rows = append(t.Rows, offenderRow{
			Key: shortened(visible(keyName(o.Key), false), longestKey, "…"), Policy: visible(o.Policy, false),
			Denied: grouped(o.Denied), Requests: grouped(o.Requests), Share: shareOf(o, s),
			Length: place(portion(o.Requests, busiest, whole)), DeniedLength: place(portion(o.Denied, busiest, whole)),
		})
	}
	return t
}

// policyRows are worth a table where there is more than one policy, or one that doesn't enforce.
func policyRows(policies []replay.PolicySummary) (rows []policyRow) {
	if len(policies) < 2 && !shadows(policies) {
		return nil
	}
	for i := range policies {
		p := &policies[i]
		rows = append(rows, policyRow{
			Name: visible(name(p), false), Shadow: p.Shadow,
			Requests: grouped(p.Requests), Denied: grouped(p.Denied), Share: share(p.Denied, p.Requests),
		})
	}
	return rows
}
