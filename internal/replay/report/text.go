package report

import (
	"bytes"
	"io"
	"strings"

	"github.com/quorate/quorate/internal/replay"
)

// TextOptions say how Text writes.
type TextOptions struct {
	// Width is the number of columns to stay within; 80 if it is 0, and 60 at least. Only the name of an
	// input is never cut for it.
	Width int
	// Color marks what matters with ANSI colours: for terminals only.
	Color bool
	// ASCII keeps everything, keys and chart too, within ASCII.
	ASCII bool
}

// Text writes the summary for people. The error is the writer's.
func Text(w io.Writer, s *replay.Summary, o TextOptions) error {
	if o.Width == 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 60)
	p := &page{TextOptions: o}
	p.figures(s)
	p.badLines(s)
	p.policies(s)
	p.against(s)
	p.offenders("Most blocked", "BLOCKED", s.Top, s)
	if !s.TopExact && s.Denied > 0 {
		p.note("There were more keys than memory for them: these counts are lower bounds.")
	}
	p.chart(s)
	_, err := w.Write(p.Bytes())
	return err
}

// page is a text in the making.
type page struct {
	bytes.Buffer
	TextOptions
}

// The colours, as ANSI has them.
const (
	bold   = "1"
	red    = "31"
	yellow = "33"
)

func (p *page) paint(color, s string) string {
	if !p.Color || s == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

func (p *page) line(parts ...string) {
	for _, s := range parts {
		p.WriteString(s)
	}
	p.WriteByte('\n')
}

func (p *page) title(s string) { p.line("\n", p.paint(bold, s)) }

// note writes a remark below a table, broken between words.
func (p *page) note(s string) {
	for _, l := range wrapped(s, p.Width-2) {
		p.line("  ", p.paint(yellow, l))
	}
}

func (p *page) shown(s string) string { return visible(s, p.ASCII) }

func (p *page) gap() string {
	if p.ASCII {
		return "..."
	}
	return "…"
}

// figures are the headline and what it rests on.
func (p *page) figures(s *replay.Summary) {
	for _, l := range wrapped(headline(s)+".", p.Width) {
		p.line(p.paint(bold, l))
	}
	if s.ShadowDenied > 0 {
		for _, l := range wrapped(grouped(s.ShadowDenied)+" of them by Shadow policies alone: would block; live they pass.", p.Width) {
			p.line(p.paint(yellow, l))
		}
	}
	p.line()
	if s.Requests > 0 {
		wide := len(grouped(s.Requests))
		number := func(label string, n int64, color, more string) {
			p.line("  ", left(label, 11), p.paint(color, right(grouped(n), wide)), more)
		}
		number("Requests", s.Requests, "0", "")
		number("Allowed", s.Allowed, "0", "  "+right(share(s.Allowed, s.Requests), 8))
		number("Blocked", s.Denied, red, "  "+right(share(s.Denied, s.Requests), 8))
		if s.Unmatched > 0 {
			number("Unmatched", s.Unmatched, yellow, "  "+right(share(s.Unmatched, s.Requests), 8)+"  no policy took them")
		}
		p.hanging("Period", period(s.From, s.To))
	}
	p.hanging("Lines", sum(s))
	for i := range s.Inputs {
		label := ""
		if i == 0 {
			label = "Read"
		}
		p.line("  ", left(label, 11), p.shown(s.Inputs[i].Name), " (", p.shown(s.Inputs[i].Format), ")")
	}
}

// hanging writes a labelled text whose further lines stand below the first.
func (p *page) hanging(label, text string) {
	for _, l := range wrapped(text, p.Width-13) {
		p.line("  ", left(label, 11), l)
		label = ""
	}
}

// period says from when to when, the date only once where it is the same day.
func period(from, to int64) string {
	const day, clock = "2006-01-02 ", "15:04:05.999999999"
	a, b := utc(from), utc(to)
	last := b.Format(day + clock)
	if a.Format(day) == b.Format(day) {
		last = b.Format(clock)
	}
	return a.Format(day+clock) + " to " + last + " UTC (" + span(to-from) + ")"
}

func (p *page) badLines(s *replay.Summary) {
	if s.Bad == 0 {
		return
	}
	t := table{head: []string{"REASON", "BAD LINES"}, texts: 1}
	for _, c := range s.BadBy {
		t.row(p.shown(c.Name), grouped(c.N))
	}
	p.title("Bad lines: these were left out")
	p.table(&t)
}

func (p *page) policies(s *replay.Summary) {
	shadow := shadows(s.Policies)
	if len(s.Policies) < 2 && !shadow {
		return
	}
	t := table{head: []string{"POLICY", "MODE", "REQUESTS", "BLOCKED", "SHARE"}, texts: 2}
	for i := range s.Policies {
		one := &s.Policies[i]
		mode := "Enforced"
		if one.Shadow {
			mode = "Shadow"
		}
		t.row(p.shown(name(one)), mode, grouped(one.Requests), grouped(one.Denied), share(one.Denied, one.Requests))
	}
	p.title("Policies")
	p.table(&t)
	if shadow {
		p.note("What a Shadow policy would block passes live.")
	}
}

func (p *page) against(s *replay.Summary) {
	c := s.Against
	if c == nil {
		return
	}
	t := table{head: []string{"COMPARED WITH THE OTHER SET", "REQUESTS", "SHARE"}, texts: 1}
	row := func(label string, n int64) { t.row(label, grouped(n), share(n, s.Requests)) }
	row("Blocked by this set", s.Denied)
	row("Blocked by the other", c.Denied)
	row("Newly blocked: only by this set", c.NewlyDenied)
	row("Newly allowed: only by this set", c.NewlyAllowed)
	p.line()
	p.table(&t)
	p.offenders("Most newly blocked", "NEWLY BLOCKED", c.Top, s)
}

// offenders writes the table of keys; denied heads its counts.
func (p *page) offenders(title, denied string, top []replay.Offender, s *replay.Summary) {
	if len(top) == 0 {
		return
	}
	policies := len(s.Policies) > 1
	t := table{head: []string{"KEY", denied, "REQUESTS", "SHARE"}, texts: 1}
	if policies {
		t = table{head: []string{"KEY", "POLICY", denied, "REQUESTS", "SHARE"}, texts: 2}
	}
	for i := range top {
		o := &top[i]
		cells := []string{p.shown(keyName(o.Key))}
		if policies {
			cells = append(cells, p.shown(o.Policy))
		}
		t.row(append(cells, grouped(o.Denied), grouped(o.Requests), shareOf(o, s))...)
	}
	p.title(title)
	p.table(&t)
}

// shareOf is how much of a key's requests was denied; of counts that are only lower bounds there is none.
func shareOf(o *replay.Offender, s *replay.Summary) string {
	if !s.TopExact {
		return "-"
	}
	return share(o.Denied, o.Requests)
}

// table is rows of cells: first texts, to the left, then numbers, to the right.
type table struct {
	head  []string
	texts int
	rows  [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// table writes t; texts give way where it would be too wide, the widest first.
func (p *page) table(t *table) {
	const narrowest = 8
	widths, all := make([]int, len(t.head)), 0
	for i := range widths {
		widths[i] = columns(t.head[i])
		for _, cells := range t.rows {
			widths[i] = max(widths[i], columns(cells[i]))
		}
		all += widths[i] + 2
	}
	for ; all > p.Width; all-- {
		widest := 0
		for i := 1; i < t.texts; i++ {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
	}
	for _, cells := range append([][]string{t.head}, t.rows...) {
		for i, cell := range cells {
			p.WriteString("  ")
			if i < t.texts {
				p.WriteString(left(shortened(cell, widths[i], p.gap()), widths[i]))
			} else {
				p.WriteString(right(cell, widths[i]))
			}
		}
		p.line()
	}
}

func left(s string, width int) string  { return s + strings.Repeat(" ", max(0, width-columns(s))) }
func right(s string, width int) string { return strings.Repeat(" ", max(0, width-columns(s))) + s }

// wrapped breaks s between words into lines of at most width columns; a longer word stands alone.
func wrapped(s string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && columns(line)+1+columns(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
