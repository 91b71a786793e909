package report

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quorate/quorate/internal/replay"
)

// grouped writes n with commas between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	var b strings.Builder
	for i, d := range digits {
		if i > first && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// share writes n of all in percent to one decimal, half up. What is neither none nor all never looks so.
func share(n, all int64) string {
	switch {
	case n <= 0 || all <= 0:
		return "0 %"
	case n >= all:
		return "100 %"
	}
	hi, lo := bits.Mul64(uint64(n), 2000)
	twice, _ := bits.Div64(hi, lo, uint64(all)) // of a thousandth; n < all, so it fits
	switch tenths := (twice + 1) / 2; tenths {
	case 0:
		return "< 0.1 %"
	case 1000:
		return "> 99.9 %"
	default:
		return strconv.FormatUint(tenths/10, 10) + "." + strconv.FormatUint(tenths%10, 10) + " %"
	}
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// headline is the whole report in a sentence.
func headline(s *replay.Summary) string {
	if s.Requests == 0 {
		return "No request was read, so nothing was decided"
	}
	return grouped(s.Denied) + " of " + count(s.Requests, "request", "requests") +
		" would have been blocked (" + share(s.Denied, s.Requests) + ")"
}

// sum is the line that shows that nothing was lost.
func sum(s *replay.Summary) string {
	return grouped(s.Lines) + " = " + count(s.Requests, "request", "requests") + " + " + grouped(s.Bad) + " bad + " +
		grouped(s.Blank) + " blank + " + grouped(s.Header) + " header"
}

// name is the policy as namespace/name.
func name(p *replay.PolicySummary) string { return p.Namespace + "/" + p.Name }

// shadows says whether any of the policies is in Shadow mode.
func shadows(policies []replay.PolicySummary) bool {
	return slices.ContainsFunc(policies, func(p replay.PolicySummary) bool { return p.Shadow })
}

// keyName is what a key is called: the values of a key are never empty, so an empty one has none.
func keyName(key string) string {
	if key == "" {
		return "(one for all)"
	}
	return key
}

// utc is the moment t, in nanoseconds since 1970.
func utc(t int64) time.Time { return time.Unix(0, t).UTC() }

// visible writes s so that it neither moves the cursor nor reorders the line: what doesn't print, a
// backslash and bytes outside UTF-8 become Go escapes, so that what is shown can be read back; with
// ascii everything else that isn't ASCII too.
func visible(s string, ascii bool) string {
	return escaped(s, func(r rune) bool {
		return r != '\\' && unicode.IsPrint(r) && (!ascii || r < utf8.RuneSelf)
	})
}

// escaped writes s with Go escapes for all but the plain.
func escaped(s string, plain func(rune) bool) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + hex(s[0]>>4) + hex(s[0]&15))
		case plain(r):
			b.WriteString(s[:n])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[n:]
	}
	return b.String()
}

func hex(nibble byte) string { return "0123456789abcdef"[nibble : nibble+1] }

// columns is how many columns of a terminal s takes, as nearly as can be told without its font.
func columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana, unicode.Yi),
		r >= 0x3000 && r <= 0x303e, r >= 0xff01 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}

// shortened cuts the middle out of s, so that it takes at most width columns: of a key both ends tell.
func shortened(s string, width int, gap string) string {
	if columns(s) <= width {
		return s
	}
	keep := max(width-columns(gap), 2)
	head, tail, used := 0, len(s), 0
	for used < keep {
		r, n := utf8.DecodeRuneInString(s[head:])
		if used += columnsOf(r); used > (keep+1)/2 {
			used -= columnsOf(r)
			break
		}
		head += n
	}
	for used < keep {
		r, n := utf8.DecodeLastRuneInString(s[:tail])
		if used += columnsOf(r); used > keep {
			break
		}
		tail -= n
	}
	return s[:head] + gap + s[tail:]
}
