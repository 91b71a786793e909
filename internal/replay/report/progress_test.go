package report

import (
	"bytes"
	"strings"
	"testing"
)

// screen is a terminal of one line that remembers what was drawn on it.
type screen struct {
	line  string
	drawn []string
}

func (s *screen) Write(b []byte) (int, error) {
	text, ok := strings.CutPrefix(string(b), "\r")
	line, cleared := strings.CutSuffix(text, "\x1b[K")
	if !ok || !cleared {
		panic("draws without returning to the line's start and clearing its end: " + string(b))
	}
	s.line = line
	s.drawn = append(s.drawn, line)
	return len(b), nil
}

// TestProgressIsDrawnTenTimesASecondAtMost, however often it is told.
func TestProgressIsDrawnTenTimesASecondAtMost(t *testing.T) {
	var s screen
	now := int64(1)
	p := NewProgress(&s, ProgressOptions{Terminal: true, Total: 1000, Clock: func() int64 { return now }})
	for range 3000 { // three seconds
		p.Update(500, 10)
		now += second / 1000
	}
	if len(s.drawn) < 28 || len(s.drawn) > 30 {
		t.Errorf("drawn %d times in three seconds", len(s.drawn))
	}
}

// TestProgressGoesOnWhileRowsAreDecided: reading is not all there is to wait for.
func TestProgressGoesOnWhileRowsAreDecided(t *testing.T) {
	var s screen
	now := int64(0)
	p := NewProgress(&s, ProgressOptions{Terminal: true, Total: 1000, Clock: func() int64 { return now }, Width: 60})
	now = 10 * second
	p.Update(1000, 50)
	now = 20 * second
	p.Decide(1_024, 4_096)
	if want := " 25 % ██████░░░░░░░░░░░░░░░░░░░ 1,024 of 4,096 rows decided"; s.line != want {
		t.Errorf("%q, want\n%q", s.line, want)
	}
}

// TestProgressSaysHowFar: of a file its part; of a pipe, whose end nobody knows, how much.
func TestProgressSaysHowFar(t *testing.T) {
	for _, c := range []struct {
		o           ProgressOptions
		read, lines int64
		want        string
	}{
		{ProgressOptions{Total: 2_900_000_000}, 1_218_000_000, 12_345_678,
			" 42 % ██████████░░░░░░░░░░░░░░░ 1.2 GB of 2.9 GB, 12,345,678 lines, 1,234,567/s"},
		{ProgressOptions{Total: 2_900_000_000, ASCII: true, Width: 70}, 1_218_000_000, 12_345_678,
			" 42 % ######......... 1.2 GB of 2.9 GB, 12,345,678 lines, 1,234,567/s"},
		{ProgressOptions{Total: 2_900_000_000, Width: 56}, 1_218_000_000, 12_345_678,
			" 42 % 1.2 GB of 2.9 GB, 12,345,678 lines, 1,234,567/s"},
		{ProgressOptions{}, 999, 1, "999 B read, 1 line"},
		{ProgressOptions{Total: -1}, 12_345, 20, "12.3 kB read, 20 lines, 2/s"},
		{ProgressOptions{Total: 1_000}, 0, 0, "  0 % " + strings.Repeat("░", 50) + " 0 B of 1.0 kB, 0 lines"},
		{ProgressOptions{Total: 1_000}, 5_000, 0, "100 % " + strings.Repeat("█", 47) + " 1.0 kB of 1.0 kB, 0 lines"},
	} {
		var s screen
		now := int64(0)
		c.o.Terminal, c.o.Clock = true, func() int64 { return now }
		p := NewProgress(&s, c.o)
		now = 10 * second
		p.Update(c.read, c.lines)
		if s.line != c.want {
			t.Errorf("%d bytes of %d:\n%q, want\n%q", c.read, c.o.Total, s.line, c.want)
		}
		width := c.o.Width
		if width == 0 {
			width = 80
		}
		if columns(s.line) >= width {
			t.Errorf("%d columns wrap at %d", columns(s.line), width)
		}
	}
}

// TestProgressMakesRoomForOtherLines: Clear leaves an empty line, once, and the bar comes back.
func TestProgressMakesRoomForOtherLines(t *testing.T) {
	var s screen
	now := int64(0)
	p := NewProgress(&s, ProgressOptions{Terminal: true, Clock: func() int64 { return now }})
	p.Clear()
	if len(s.drawn) != 0 {
		t.Fatal("clears what isn't there")
	}
	now = second
	p.Update(1, 1)
	p.Clear()
	p.Clear()
	if s.line != "" || len(s.drawn) != 2 {
		t.Fatalf("%q", s.drawn)
	}
	now += second
	p.Update(2, 2)
	if s.line == "" {
		t.Error("the bar doesn't come back")
	}
}

// TestProgressPrintsNothingWithoutATerminal, and needs no clock.
func TestProgressPrintsNothingWithoutATerminal(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, ProgressOptions{Total: 10})
	p.Update(5, 5)
	p.Clear()
	if b.Len() != 0 {
		t.Errorf("%q", b.String())
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 12_345: "12.3 kB", 999_999: "999 kB", 1_000_000: "1.0 MB", 1<<63 - 1: "9.2 EB",
	} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
