package report

import (
	"math"
	"strconv"
	"time"

	"github.com/quorate/quorate/internal/replay"
)

// timeline is the chart of requests over time, in hundredths of a percent of its frame: so one drawing
// fits every width, and its letters keep their size.
type timeline struct {
	Bars   []bar
	Counts []tick // from below
	Times  []tick // from the left
	Label  string // the chart in words
	Step   string
}

// bar is one slice of time: blocked below, allowed on top of it.
type bar struct {
	Start           string
	Allowed, Denied string
	X, Width        place
	// The tops of the two parts and their heights.
	DeniedY, DeniedHeight, AllowedY, AllowedHeight place
}

// tick is a labelled line of an axis.
type tick struct {
	At    place
	Label string
	// Anchor is where the label's edge is: start, middle or end.
	Anchor string
	// Minor labels are left out where it is narrow.
	Minor bool
}

// place is a length in hundredths of a percent.
type place int64

const whole = 100_00

func (p place) String() string {
	s := strconv.FormatInt(int64(p)/100, 10)
	if rest := int64(p) % 100; rest != 0 {
		s += "." + strconv.FormatInt(100+rest, 10)[1:]
	}
	return s + "%"
}

// mostBars keeps a bar three pixels wide on a telephone.
const mostBars = 96

// newTimeline returns nil where there is nothing to draw.
func newTimeline(s *replay.Summary) *timeline {
	if s.Requests == 0 || len(s.Series.Denied) == 0 {
		return nil
	}
	series := merged(s.Series, mostBars)
	n, most := len(series.Denied), int64(1)
	for i := range n {
		most = max(most, series.Allowed[i]+series.Denied[i])
	}
	t := &timeline{Step: span(series.Step)}
	var top int64
	t.Counts, top = countTicks(most)
	t.Times = timeTicks(series.Start, series.Step*int64(n))
	for i := range n {
		t.Bars = append(t.Bars, newBar(series, i, top))
	}
	at, blocked := peak(series.Denied)
	t.Label = "Requests over time, " + count(int64(n), "bar", "bars") + " of " + t.Step + " each, " + period(s.From, s.To) +
		". At most " + grouped(most) + " requests in one bar; at most " + grouped(blocked) + " blocked"
	if blocked > 0 {
		t.Label += ", at " + utc(series.Start+int64(at)*series.Step).Format(clockFor(series.Step)) + " UTC"
	}
	t.Label += "."
	return t
}

func newBar(s replay.Series, i int, top int64) bar {
	n := int64(len(s.Denied))
	left, next := place(int64(i)*whole/n), place(int64(i+1)*whole/n)
	blocked := place(portion(s.Denied[i], top, whole))
	passed := place(portion(s.Allowed[i], top, whole))
	return bar{
		Start:   utc(s.Start + int64(i)*s.Step).Format(clockFor(s.Step)),
		Allowed: grouped(s.Allowed[i]), Denied: grouped(s.Denied[i]),
		X: left, Width: (next - left) * 86 / 100, // the rest is a gap
		DeniedY: whole - blocked, DeniedHeight: blocked,
		AllowedY: max(whole-blocked-passed, 0), AllowedHeight: passed,
	}
}

// countTicks divides 0 to most by steps of 1, 2 or 5 times a power of ten, and says where the axis ends.
func countTicks(most int64) (ticks []tick, top int64) {
	const wanted = 4
	step := int64(1)
	for factor := 0; (most-1)/step >= wanted; factor++ {
		if step > math.MaxInt64/4 {
			break
		}
		step = step * [...]int64{2, 5, 2}[factor%3] / [...]int64{1, 2, 1}[factor%3]
	}
	top = ((most-1)/step + 1) * step
	for n := int64(0); n <= top; n += step {
		ticks = append(ticks, tick{At: place(whole - portion(n, top, whole)), Label: compact(n), Anchor: "end"})
	}
	return ticks, top
}

// compact writes a round number shortly: 500, 20k, 1.5M.
func compact(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= unit.size && n%(unit.size/10) == 0 {
			s := strconv.FormatInt(n/unit.size, 10)
			if tenth := n % unit.size / (unit.size / 10); tenth > 0 {
				s += "." + strconv.FormatInt(tenth, 10)
			}
			return s + unit.name
		}
	}
	return grouped(n)
}

// timeSteps are the lengths of time that clocks and calendars divide by.
var timeSteps = [...]time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 365 * day,
}

const day = 24 * time.Hour

// timeTicks labels the time axis at round moments.
func timeTicks(start, length int64) (ticks []tick) {
	const wanted = 7
	step := int64(timeSteps[0])
	for _, d := range timeSteps {
		if step = int64(d); length/step <= wanted {
			break
		}
	}
	for length/step > 2*wanted { // decades
		step *= 2
	}
	first := (start + step - 1) / step * step
	for t := first; t-start <= length; t += step {
		at := place(portion(t-start, length, whole))
		ticks = append(ticks, tick{At: at, Label: timeLabel(t, step), Anchor: anchor(at), Minor: len(ticks)%2 == 1})
	}
	return ticks
}

// anchor keeps a label within the frame.
func anchor(at place) string {
	switch {
	case at < whole*5/100:
		return "start"
	case at > whole*95/100:
		return "end"
	}
	return "middle"
}

// timeLabel is as short as the step allows; among hours midnight is the day that begins.
func timeLabel(t, step int64) string {
	at := utc(t)
	switch {
	case step >= int64(day) || t%int64(day) == 0 && step >= int64(time.Hour):
		return at.Format("Jan 2")
	case step >= int64(time.Minute):
		return at.Format("15:04")
	case step >= int64(time.Second):
		return at.Format("15:04:05")
	}
	return at.Format("05.000")
}
