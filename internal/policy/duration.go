package policy

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// MaxSpan is the longest window, history and time to refill that a policy may ask for, in ns: what a deleted
// quota's tombstone must outlast.
const MaxSpan = int64(90 * 24 * time.Hour)

// units are those of Go's durations. The two-letter ones come first: "ms" is not minutes.
var units = []struct {
	name string
	ns   uint64
}{
	{"ns", 1},
	{"us", 1e3},
	{"µs", 1e3},
	{"ms", 1e6},
	{"s", 1e9},
	{"m", 60e9},
	{"h", 3600e9},
}

// ParseDuration reads a duration as policies write it, one or more decimal numbers each with a unit of
// h, m, s, ms, us (or µs) and ns, as in 60s, 1h30m and 0.25s, and returns it in ns, never negative.
//
// It reads no other form that time.ParseDuration knows: no sign, no bare 0, no missing digits, nothing
// finer than a nanosecond (which that function drops without a word). Beyond int64 is an error too. Its
// errors say what to write instead where that can be told.
func ParseDuration(s string) (int64, error) {
	ns, ok := parseDuration(s)
	switch {
	case !ok:
		return 0, fmt.Errorf("%s is not a duration; write %s", quote(s), suggestDuration(s))
	case ns > math.MaxInt64:
		return 0, fmt.Errorf("%s is longer than %s, the longest allowed", quote(s), FormatDuration(MaxSpan))
	}
	return int64(ns), nil
}

// FormatDuration writes ns as [ParseDuration] reads it, and as Go prints it: 1h30m0s.
func FormatDuration(ns int64) string { return time.Duration(ns).String() }

// parseDuration saturates at MaxUint64.
func parseDuration(s string) (total uint64, ok bool) {
	for ok = s != ""; ok && s != ""; {
		var ns uint64
		ns, s, ok = parseTerm(s)
		total = saturatingAdd(total, ns)
	}
	return total, ok
}

// parseTerm reads one number with its unit off the front of s.
func parseTerm(s string) (ns uint64, rest string, ok bool) {
	whole, rest := cutDigits(s)
	fraction, pointed := "", strings.HasPrefix(rest, ".")
	if pointed {
		fraction, rest = cutDigits(rest[1:])
	}
	if whole == "" || pointed && fraction == "" {
		return 0, "", false
	}
	for _, u := range units {
		if tail, found := strings.CutPrefix(rest, u.name); found {
			part, exact := scaleFraction(fraction, u.ns)
			return saturatingAdd(scaleWhole(whole, u.ns), part), tail, exact
		}
	}
	return 0, "", false
}

func scaleWhole(digits string, unit uint64) uint64 {
	n, err := strconv.ParseUint(digits, 10, 64)
	hi, ns := bits.Mul64(n, unit)
	if err != nil || hi != 0 {
		return math.MaxUint64 // the only error of digits is their range
	}
	return ns
}

// scaleFraction returns 0.digits × unit and whether it is whole.
func scaleFraction(digits string, unit uint64) (ns uint64, exact bool) {
	digits = strings.TrimRight(digits, "0")
	if len(digits) > 13 {
		return 0, false // 10^14 divides no unit times a number that doesn't end in 0
	}
	n, scale := uint64(0), uint64(1)
	for _, digit := range []byte(digits) {
		n, scale = n*10+uint64(digit-'0'), scale*10
	}
	hi, lo := bits.Mul64(n, unit)
	ns, rest := bits.Div64(hi, lo, scale) // n < scale, so the quotient is below unit
	return ns, rest == 0
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

func cutDigits(s string) (digits, rest string) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// suggestDuration says what the writer of s may have meant.
func suggestDuration(s string) string {
	compact := strings.ToLower(strings.Join(strings.Fields(s), ""))
	number, unit := cutDigits(compact)
	if n, err := strconv.ParseUint(number, 10, 16); err == nil && unit != "" {
		switch {
		case strings.HasPrefix("days", unit):
			return fmt.Sprintf("%dh", n*24)
		case strings.HasPrefix("weeks", unit):
			return fmt.Sprintf("%dh", n*24*7)
		}
	}
	for _, candidate := range []string{compact, compact + "s"} {
		if ns, ok := parseDuration(candidate); ok && ns != 0 && ns <= math.MaxInt64 {
			return candidate
		}
	}
	return "a number and a unit, like 60s, 1h30m or 0.25s"
}
