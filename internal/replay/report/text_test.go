package report

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/quorate/quorate/internal/replay"
)

func text(t *testing.T, s *replay.Summary, o TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := Text(&b, s, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTextForPeople shows the whole report; read testdata/*.txt.
func TestTextForPeople(t *testing.T) {
	for name, s := range map[string]*replay.Summary{
		"plain.txt": plain(), "bad.txt": bad(), "compared.txt": compared(), "unread.txt": unread(), "hostile.txt": hostile(),
	} {
		golden(t, name, []byte(text(t, s, TextOptions{})))
	}
	golden(t, "ascii.txt", []byte(text(t, hostile(), TextOptions{ASCII: true, Width: 64})))
}

// TestTextStaysWithinItsWidth, whatever the keys; only the name of an input may be longer.
func TestTextStaysWithinItsWidth(t *testing.T) {
	for _, width := range []int{60, 80, 132} {
		s := hostile()
		s.Inputs = s.Inputs[1:]
		for line := range strings.Lines(text(t, s, TextOptions{Width: width})) {
			if line = strings.TrimSuffix(line, "\n"); columns(line) > width {
				t.Errorf("%d columns, not %d: %s", columns(line), width, line)
			}
		}
	}
}

// TestTextShowsNothingThatMovesTheCursor: no control character but the end of a line, and none that
// reorders text, unless colours were asked for; then only theirs.
func TestTextShowsNothingThatMovesTheCursor(t *testing.T) {
	colours := strings.NewReplacer("\x1b[1m", "", "\x1b[31m", "", "\x1b[33m", "", "\x1b[0m", "")
	plain := text(t, hostile(), TextOptions{})
	coloured := text(t, hostile(), TextOptions{Color: true})
	if coloured == plain || colours.Replace(coloured) != plain {
		t.Error("colours are missing, or change more than colours")
	}
	for _, r := range plain {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("shows %U", r)
		}
	}
	for i, c := range []byte(text(t, hostile(), TextOptions{ASCII: true})) {
		if c >= utf8.RuneSelf {
			t.Fatalf("byte %d is not ASCII", i)
		}
	}
}

// TestCSV15NumbersAddUp: every line is a request, bad, blank or a header, and the report says so in one sum;
// where no line could be used it says that too.
func TestCSV15NumbersAddUp(t *testing.T) {
	for want, s := range map[string]*replay.Summary{
		"13,360 = 12,345 requests + 1,012 bad + 2 blank + 1 header": bad(),
		"3 = 0 requests + 2 bad + 1 blank + 0 header":               unread(),
		"1 = 0 requests + 0 bad + 0 blank + 1 header":               {Lines: 1, Header: 1},
		"0 = 0 requests + 0 bad + 0 blank + 0 header":               {},
	} {
		got := text(t, s, TextOptions{})
		if !strings.Contains(got, "  Lines      "+want+"\n") {
			t.Errorf("no %q in\n%s", want, got)
		}
		if used := !strings.HasPrefix(got, "No request was read, so nothing was decided.\n"); used != (s.Requests > 0) {
			t.Errorf("of %d requests says\n%s", s.Requests, got)
		}
	}
}

// TestShadowDenialsAreMarked: what a Shadow policy denies passes live.
func TestShadowDenialsAreMarked(t *testing.T) {
	const live = "40 of them by Shadow policies alone: would block; live they pass."
	if !strings.Contains(text(t, compared(), TextOptions{}), live) || strings.Contains(text(t, bad(), TextOptions{}), "Shadow") {
		t.Error("Shadow denials look like others, or others like them")
	}
}

// TestChartShowsTheSmallestBlock: one blocked request among millions is still a mark, and an empty slice none.
func TestChartShowsTheSmallestBlock(t *testing.T) {
	s := &replay.Summary{Requests: 2_000_002, Denied: 1_000_001, Allowed: 1_000_001, To: 2 * second,
		Series: replay.Series{Step: second, Allowed: []int64{1, 0, 1_000_000}, Denied: []int64{1, 0, 1_000_000}}}
	for _, o := range []TextOptions{{}, {ASCII: true}} {
		mark, wall, all := "▁", "│", "█"
		if o.ASCII {
			mark, wall, all = ".", "|", "#"
		}
		got := text(t, s, o)
		lowest := wall + strings.Repeat(mark, widestBar) + strings.Repeat(" ", widestBar) + strings.Repeat(all, widestBar) + "\n"
		if !strings.Contains(got, lowest) || strings.Count(got, all) != chartRows*widestBar {
			t.Errorf("no %q in\n%s", lowest, got)
		}
		if !strings.Contains(got, "At most 1,000,000 in 1s, from 1970-01-01 00:00:02 UTC.") {
			t.Errorf("no peak in\n%s", got)
		}
	}
}

// TestMergedSlicesLoseNothing: the sum stays, and there are never more than asked for.
func TestMergedSlicesLoseNothing(t *testing.T) {
	for n := range 40 {
		for most := 1; most < 45; most++ {
			s := replay.Series{Start: 7, Step: 3}
			for i := range int64(n) {
				s.Allowed, s.Denied = append(s.Allowed, i), append(s.Denied, i*i)
			}
			m := merged(s, most)
			if len(m.Denied) > most || len(m.Denied) != len(m.Allowed) || m.Start != 7 || n > 0 && m.Step*int64(len(m.Denied)) < 3*int64(n) {
				t.Fatalf("%d in %d: %+v", n, most, m)
			}
			if total(m.Denied) != total(s.Denied) || n > 0 && total(m.Allowed) != total(s.Allowed) {
				t.Fatalf("%d in %d: %+v", n, most, m)
			}
		}
	}
}

func total(counts []int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// TestSharesNeverLie: they are rounded half up, but never to none or all of it.
func TestSharesNeverLie(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		n, of int64
		want  string
	}{
		{0, 0, "0 %"}, {0, 5, "0 %"}, {5, 5, "100 %"}, {1, 3, "33.3 %"}, {2, 3, "66.7 %"}, {1, 8, "12.5 %"},
		{1, 2000, "0.1 %"}, {1, 2001, "< 0.1 %"}, {1999, 2000, "> 99.9 %"}, {9994, 10000, "99.9 %"},
		{1, most, "< 0.1 %"}, {most - 1, most, "> 99.9 %"}, {most / 2, most, "50.0 %"}, {most, most, "100 %"},
	} {
		if got := share(c.n, c.of); got != c.want {
			t.Errorf("%d of %d is %q, want %q", c.n, c.of, got, c.want)
		}
	}
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 1234567: "1,234,567", math.MaxInt64: "9,223,372,036,854,775,807",
	} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
}

// TestShortenedKeepsBothEnds and never exceeds its width.
func TestShortenedKeepsBothEnds(t *testing.T) {
	for _, c := range []struct {
		s     string
		width int
		want  string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdefg", 6, "abc…fg"}, {"abcdefgh", 5, "ab…gh"}, {"日本語日本語", 8, "日本…語"}, {"e\u0301e\u0301e\u0301e\u0301", 3, "e\u0301…e\u0301"},
	} {
		if got := shortened(c.s, c.width, "…"); got != c.want {
			t.Errorf("%q in %d is %q, want %q", c.s, c.width, got, c.want)
		}
	}
}

// FuzzVisible: whatever it was, it prints, it is one line, and unless it holds quotes it can be read back.
func FuzzVisible(f *testing.F) {
	for _, o := range hostile().Top {
		f.Add(o.Key, 20)
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		shown := visible(s, false)
		for _, r := range shown {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q shows %U", s, r)
			}
		}
		if back, err := unquoted(shown); err != nil || back != s {
			t.Fatalf("%q is shown as %q, which is %q (%v)", s, shown, back, err)
		}
		width = 4 + int(uint(width)%100)
		if short := shortened(shown, width, "…"); columns(short) > width || !utf8.ValidString(short) {
			t.Fatalf("%q in %d columns is %q", shown, width, short)
		}
	})
}

// TestErrorsOfTheWriterAreReturned by each form.
func TestErrorsOfTheWriterAreReturned(t *testing.T) {
	w := broken{errors.New("disk full")}
	for i, err := range []error{
		Text(w, plain(), TextOptions{}), JSON(w, plain()), HTML(w, plain(), HTMLOptions{}), writeDecision(w),
	} {
		if !errors.Is(err, w.error) {
			t.Errorf("form %d: %v", i, err)
		}
	}
}

type broken struct{ error }

func (b broken) Write([]byte) (int, error) { return 0, b.error }

func writeDecision(w broken) error {
	d := NewDecisions(w)
	if err := d.Write(&replay.Decision{}); err != nil {
		return fmt.Errorf("before Flush: %w", err)
	}
	return d.Flush()
}

// unquoted reads Go escapes back.
func unquoted(s string) (string, error) {
	var b []byte
	for s != "" {
		r, multibyte, tail, err := strconv.UnquoteChar(s, 0)
		if err != nil {
			return "", err
		}
		if s = tail; r < utf8.RuneSelf || !multibyte {
			b = append(b, byte(r))
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b), nil
}
