package accesslog

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// The reasons why a text is no time. They are for people.
var (
	errNoTime      = errors.New("no time in a known form")
	errNoZone      = errors.New("a time without a zone: give --time-zone")
	errNegative    = errors.New("a time before 1970")
	errFar         = errors.New("a time after 2262")
	errNoSuchTime  = errors.New("no such time")
	errTwice       = errors.New("a local time that exists twice, when summer time ends")
	errSkipped     = errors.New("a local time that doesn't exist, when summer time begins")
	errWantsText   = errors.New("a number, where times are text (--time-unit rfc3339)")
	errWantsNumber = errors.New("no number, as --time-unit says it is")
)

// timeReader reads the times of one log.
type timeReader struct {
	unit Unit           // as asked for
	zone *time.Location // of times without one
	seen Unit           // with UnitAuto, the unit of the log's first number
}

// read reads a time in any form that a log of columns may have.
func (t *timeReader) read(text []byte) (int64, error) {
	if len(text) == 0 {
		return 0, errNoTime
	}
	if isNumber(text) {
		return t.number(text)
	}
	if t.unit != UnitAuto && t.unit != UnitText {
		return 0, errWantsNumber
	}
	return t.readText(text)
}

// readText reads a time that is no number.
func (t *timeReader) readText(text []byte) (int64, error) {
	if len(text) == 0 {
		return 0, errNoTime
	}
	if text[0] == '[' && text[len(text)-1] == ']' {
		text = text[1 : len(text)-1]
	}
	if len(text) > 11 && text[2] == '/' {
		return readCLF(text)
	}
	return t.readISO(text)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isNumber tells whether the text is meant as a number: digits, with a sign before or a point between.
func isNumber(text []byte) bool {
	rest := text
	if rest[0] == '-' || rest[0] == '+' {
		rest = rest[1:]
	}
	points := 0
	for _, c := range rest {
		if c == '.' {
			points++
		} else if !isDigit(c) {
			return false
		}
	}
	return len(rest) > 0 && points <= 1 && rest[0] != '.' && rest[len(rest)-1] != '.'
}

// nanosIn are the nanoseconds in each unit.
var nanosIn = [...]uint64{UnitSeconds: 1e9, UnitMillis: 1e6, UnitMicros: 1e3, UnitNanos: 1}

// number reads a decimal number of units since 1970, exactly; what is less than a nanosecond is dropped.
func (t *timeReader) number(text []byte) (int64, error) {
	if t.unit == UnitText {
		return 0, errWantsText
	}
	if text[0] == '-' {
		return 0, errNegative
	}
	if text[0] == '+' {
		return 0, errNoTime
	}
	whole, fraction, ok := splitNumber(text)
	if !ok {
		return 0, errFar
	}
	unit := t.unit
	if unit == UnitAuto {
		unit = unitBySize(whole)
		if t.seen != UnitAuto && unit != t.seen {
			return 0, fmt.Errorf("looks like %s, the log began with %s: give --time-unit", unit, t.seen)
		}
	}
	at, err := scale(whole, fraction, nanosIn[unit])
	if err == nil { // what is no time says nothing of the unit of others
		t.seen = unit
	}
	return at, err
}

// scale is a decimal number of units of so many nanoseconds. The whole part is held against the bound by
// itself: with the fraction added, one far beyond it would wrap around to 1970.
func scale(whole uint64, fraction []byte, per uint64) (int64, error) {
	high, low := bits.Mul64(whole, per)
	if high > 0 || low > math.MaxInt64 {
		return 0, errFar
	}
	for _, digit := range fraction {
		per /= 10
		low += uint64(digit-'0') * per
	}
	if low > math.MaxInt64 {
		return 0, errFar
	}
	return int64(low), nil
}

// splitNumber splits digits at their point.
func splitNumber(text []byte) (whole uint64, fraction []byte, ok bool) {
	for i, c := range text {
		if c == '.' {
			return whole, text[i+1:], true
		}
		if whole > (math.MaxUint64-9)/10 {
			return 0, nil, false
		}
		whole = whole*10 + uint64(c-'0')
	}
	return whole, nil, true
}

// unitBySize: seconds reach 1e11 in the year 5138, milliseconds did so in 1973, and so on.
func unitBySize(n uint64) Unit {
	switch {
	case n < 1e11:
		return UnitSeconds
	case n < 1e14:
		return UnitMillis
	case n < 1e17:
		return UnitMicros
	}
	return UnitNanos
}

// readCLF reads 02/Jan/2006:15:04:05 -0700.
func readCLF(b []byte) (int64, error) {
	if len(b) != 26 || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' || b[17] != ':' || b[20] != ' ' {
		return 0, errNoTime
	}
	month := monthOf(b[3:6])
	day, ok1 := digits(b[0:2])
	year, ok2 := digits(b[7:11])
	hour, ok3 := digits(b[12:14])
	minute, ok4 := digits(b[15:17])
	second, ok5 := digits(b[18:20])
	if month == 0 || !(ok1 && ok2 && ok3 && ok4 && ok5) {
		return 0, errNoTime
	}
	offset, ok := readOffset(b[21:24], b[24:26])
	if !ok {
		return 0, errNoTime
	}
	return instant(year, month, day, hour, minute, second, 0, offset)
}

func monthOf(b []byte) int {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	for m := range 12 {
		if string(b) == names[m*3:m*3+3] {
			return m + 1
		}
	}
	return 0
}

// digits reads a number of which every character is a digit.
func digits(b []byte) (n int, ok bool) {
	for _, c := range b {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, len(b) > 0
}

// readOffset reads an offset, its sign with the hours, in seconds east of UTC.
func readOffset(signed, minutes []byte) (seconds int, ok bool) {
	h, ok1 := digits(signed[1:])
	m, ok2 := digits(minutes)
	if !ok1 || !ok2 || h > 23 || m > 59 {
		return 0, false
	}
	seconds = h*3600 + m*60
	switch signed[0] {
	case '+':
		return seconds, true
	case '-':
		return -seconds, true
	}
	return 0, false
}

// readISO reads RFC 3339, with t or a space for T and z for Z, or the same without a zone.
func (t *timeReader) readISO(b []byte) (int64, error) {
	if len(b) < 19 || b[4] != '-' || b[7] != '-' || b[13] != ':' || b[16] != ':' || b[10] != 'T' && b[10] != 't' && b[10] != ' ' {
		return 0, errNoTime
	}
	year, ok1 := digits(b[0:4])
	month, ok2 := digits(b[5:7])
	day, ok3 := digits(b[8:10])
	hour, ok4 := digits(b[11:13])
	minute, ok5 := digits(b[14:16])
	second, ok6 := digits(b[17:19])
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) {
		return 0, errNoTime
	}
	rest, nanos := b[19:], 0
	if len(rest) > 0 && rest[0] == '.' {
		n := 1
		for per := 100_000_000; n < len(rest) && isDigit(rest[n]); n++ {
			nanos += int(rest[n]-'0') * per
			per /= 10
		}
		if n == 1 {
			return 0, errNoTime
		}
		rest = rest[n:]
	}
	switch {
	case len(rest) == 0:
		return t.local(year, month, day, hour, minute, second, nanos)
	case len(rest) == 1 && (rest[0] == 'Z' || rest[0] == 'z'):
		return instant(year, month, day, hour, minute, second, nanos, 0)
	case len(rest) == 6 && rest[3] == ':':
		if offset, ok := readOffset(rest[:3], rest[4:]); ok {
			return instant(year, month, day, hour, minute, second, nanos, offset)
		}
	}
	return 0, errNoTime
}

// instant is a date and time so many seconds east of UTC, in nanoseconds since 1970.
func instant(year, month, day, hour, minute, second, nanos, offset int) (int64, error) {
	if !exists(year, month, day, hour, minute, second) {
		return 0, errNoSuchTime
	}
	seconds := int64(daysSince1970(year, month, day))*86400 + int64(hour*3600+minute*60+second-offset)
	switch {
	case seconds < 0:
		return 0, errNegative
	case seconds > (math.MaxInt64-int64(nanos))/1e9:
		return 0, errFar
	}
	return seconds*1e9 + int64(nanos), nil
}

func exists(year, month, day, hour, minute, second int) bool {
	if month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59 {
		return false
	}
	return day <= daysIn(year, month)
}

func daysIn(year, month int) int {
	if month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 29
	}
	return [...]int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
}

// daysSince1970 counts days of the Gregorian calendar, in years that begin in March: then the leap day is
// the last one, and a month's first day is a linear function of its number, rounded.
func daysSince1970(year, month, day int) int {
	if month <= 2 {
		year, month = year-1, month+12
	}
	return 365*year + year/4 - year/100 + year/400 + (153*(month-3)+2)/5 + day - 1 - 719468
}

// local reads the clocks of the zone. A time that they show twice or never is refused: nobody can tell
// which instant was meant.
func (t *timeReader) local(year, month, day, hour, minute, second, nanos int) (int64, error) {
	if t.zone == nil {
		return 0, errNoZone
	}
	if !exists(year, month, day, hour, minute, second) {
		return 0, errNoSuchTime
	}
	guess := time.Date(year, time.Month(month), day, hour, minute, second, 0, t.zone)
	if guess.Hour() != hour || guess.Minute() != minute || guess.Second() != second || guess.Day() != day {
		return 0, errSkipped
	}
	// Clocks are never put back by more than a day: another instant that shows the same is one with
	// an offset in force the day before or after.
	_, offset := guess.Zone()
	for _, near := range []time.Time{guess.Add(-24 * time.Hour), guess.Add(24 * time.Hour)} {
		_, other := near.Zone()
		twin := guess.Add(time.Duration(offset-other) * time.Second)
		if _, there := twin.Zone(); other != offset && there == other {
			return 0, errTwice
		}
	}
	return instant(year, month, day, hour, minute, second, nanos, offset)
}
