package report

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/replay"
)

// merged returns s in at most most slices, each the sum of equally many of the old.
func merged(s replay.Series, most int) replay.Series {
	each := max(1, (len(s.Denied)+most-1)/most)
	m := replay.Series{Start: s.Start, Step: s.Step * int64(each)}
	for i := range s.Denied {
		if i%each == 0 {
			m.Allowed, m.Denied = append(m.Allowed, 0), append(m.Denied, 0)
		}
		m.Allowed[i/each] += s.Allowed[i]
		m.Denied[i/each] += s.Denied[i]
	}
	return m
}

// peak is the first place of the largest count.
func peak(counts []int64) (at int, most int64) {
	most = slices.Max(counts)
	return slices.Index(counts, most), most
}

const (
	chartRows = 6 // lines of the chart
	widestBar = 8 // characters
)

// marks are what the chart is drawn with. fill fills a character from below, by equal steps.
type marks struct {
	fill               []string
	wall, corner, base string
}

func (p *page) marks() marks {
	if p.ASCII {
		return marks{fill: []string{" ", ".", ":", "#"}, wall: "|", corner: "+", base: "-"}
	}
	return marks{fill: strings.Split(" ▁▂▃▄▅▆▇█", ""), wall: "│", corner: "└", base: "─"}
}

// mark is what n of most shows in a row; whatever is not nothing shows at least a little.
func (m marks) mark(n, most int64, row int) string {
	steps := len(m.fill) - 1
	return m.fill[min(max(int(portion(n, most, int64(chartRows*steps)))-row*steps, 0), steps)]
}

// chart draws the blocked requests over time, if there were any.
func (p *page) chart(s *replay.Summary) {
	if s.Denied == 0 || len(s.Series.Denied) == 0 {
		return
	}
	margin := 2 + len(grouped(s.Denied)) + 2 // no bar has more than all
	bars := merged(s.Series, max(1, p.Width-margin))
	at, most := peak(bars.Denied)
	label := len(grouped(most))
	stretch := max(1, min((p.Width-4-label)/len(bars.Denied), widestBar))
	p.title("Blocked over time")
	m := p.marks()
	for row := chartRows - 1; row >= 0; row-- {
		tick := ""
		if row == chartRows-1 {
			tick = grouped(most)
		}
		var line strings.Builder
		for _, n := range bars.Denied {
			line.WriteString(strings.Repeat(m.mark(n, most, row), stretch))
		}
		p.line("  ", right(tick, label), " ", m.wall, p.paint(red, strings.TrimRight(line.String(), " ")))
	}
	width := len(bars.Denied) * stretch
	p.line("  ", right("0", label), " ", m.corner, strings.Repeat(m.base, width))
	p.axis(s, label+4, width)
	peaks := utc(bars.Start + int64(at)*bars.Step).Format(clockFor(bars.Step))
	p.line("  ", "At most ", grouped(most), " in ", span(bars.Step), ", from ", peaks, " UTC.")
}

// axis writes the first and the last time below the chart, the date only where it is another.
func (p *page) axis(s *replay.Summary, margin, width int) {
	const day, clock = "2006-01-02", " 15:04:05"
	first, last := utc(s.From), utc(s.To)
	a, b := first.Format(day+clock), last.Format(day+clock)
	if first.Format(day) == last.Format(day) {
		b = last.Format(clock)
	}
	p.line(strings.Repeat(" ", margin), a, "  ", right(b, width-len(a)-2))
}

// clockFor is the layout that tells apart the starts of slices of that length.
func clockFor(step int64) string {
	if step%int64(time.Second) != 0 {
		return "2006-01-02 15:04:05.999999999"
	}
	return "2006-01-02 15:04:05"
}

// span writes a length of time without units that are zero: 10s, 5m, 1h30m.
func span(ns int64) string {
	s := time.Duration(ns).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// portion is n of all in units of 1/whole, rounded down, but at least one unit of anything.
func portion(n, all, whole int64) int64 {
	if n <= 0 || all <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(min(n, all)), uint64(whole))
	q, _ := bits.Div64(hi, lo, uint64(all)) // at most whole, so it fits
	return max(1, int64(q))
}
