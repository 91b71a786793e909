package report

import (
	"bufio"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/quorate/quorate/internal/replay"
)

// Decisions writes each decision as one line of JSON, with these names in this order:
//
//	line         of its input, from 1
//	time         RFC 3339, UTC, nine digits of a second
//	key          what was charged; null where no policy matched
//	decision     "allow" or "deny"
//	retry_after  whole seconds after which the cost fits; null where it is allowed or never fits
//	remaining    units; null where unlimited, and without a policy
//	limit        units; null likewise
//	limit_name   null without a policy
//	policy       namespace/name; null where none matched
//	shadow       whether it is a Shadow policy that denies: live, the request passes
//	input        which one, from 0, in the order of the summary's inputs
//
// Strings are escaped as encoding/json does without its escapes for HTML, byte for byte.
type Decisions struct {
	w   *bufio.Writer
	row []byte
	// Rows come in the order of their times, so most share their second with the one before.
	second int64
	prefix []byte // that second, up to the decimal point
}

// NewDecisions returns a writer of decisions to w, which is buffered: Flush at the end.
func NewDecisions(w io.Writer) *Decisions {
	return &Decisions{w: bufio.NewWriterSize(w, 64<<10), second: -1}
}

// Write writes one decision and keeps nothing of it. The error is the writer's, perhaps of an earlier row.
func (d *Decisions) Write(v *replay.Decision) error {
	b := strconv.AppendInt(append(d.row[:0], `{"line":`...), v.Line, 10)
	b = d.appendTime(append(b, `,"time":"`...), v.Time)
	b = appendStringOrNull(append(b, `","key":`...), v.Key, v.Policy != "")
	if v.Allowed {
		b = append(b, `,"decision":"allow","retry_after":`...)
	} else {
		b = append(b, `,"decision":"deny","retry_after":`...)
	}
	b = appendCountOrNull(b, uint64(v.RetryAfter), !v.Allowed && v.RetryAfter >= 0)
	finite := v.Policy != "" && !v.Unlimited
	b = appendCountOrNull(append(b, `,"remaining":`...), v.Remaining, finite)
	b = appendCountOrNull(append(b, `,"limit":`...), v.Limit, finite)
	b = appendStringOrNull(append(b, `,"limit_name":`...), v.LimitName, v.Policy != "")
	b = appendStringOrNull(append(b, `,"policy":`...), v.Policy, v.Policy != "")
	b = strconv.AppendBool(append(b, `,"shadow":`...), v.Shadow)
	b = strconv.AppendInt(append(b, `,"input":`...), int64(v.Input), 10)
	d.row = append(b, '}', '\n')
	_, err := d.w.Write(d.row)
	return err
}

// Flush writes what is still held back. The error is the writer's, perhaps of an earlier row.
func (d *Decisions) Flush() error { return d.w.Flush() }

// appendTime appends t as RFC 3339; t is not negative.
func (d *Decisions) appendTime(b []byte, t int64) []byte {
	const second = int64(time.Second)
	if t/second != d.second {
		d.second = t / second
		d.prefix = time.Unix(d.second, 0).UTC().AppendFormat(d.prefix[:0], "2006-01-02T15:04:05.")
	}
	b = append(b, d.prefix...)
	rest := t % second
	for unit := second / 10; unit > 0; unit /= 10 {
		b = append(b, byte('0'+rest/unit%10))
	}
	return append(b, 'Z')
}

func appendCountOrNull(b []byte, n uint64, is bool) []byte {
	if !is {
		return append(b, "null"...)
	}
	return strconv.AppendUint(b, n, 10)
}

func appendStringOrNull(b []byte, s string, is bool) []byte {
	if !is {
		return append(b, "null"...)
	}
	return appendString(b, s)
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	clean := 0 // s[clean:i] needs no escape
	for i := 0; i < len(s); {
		n, escape := 1, ""
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			var r rune
			r, n = utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && n == 1:
				escape = `\ufffd`
			case r == '\u2028': // a line's end in JavaScript of old
				escape = `\u2028`
			case r == '\u2029':
				escape = `\u2029`
			}
		case c == '"' || c == '\\' || c < ' ':
			escape = escapes[c]
		}
		if escape != "" {
			b = append(append(b, s[clean:i]...), escape...)
			clean = i + n
		}
		i += n
	}
	return append(append(b, s[clean:]...), '"')
}

// escapes are those of the ASCII characters that can't stand for themselves.
var escapes = func() (all ['\\' + 1]string) {
	for c := range byte(' ') {
		all[c] = `\u00` + hex(c>>4) + hex(c&15)
	}
	for c, short := range map[byte]string{
		'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`,
	} {
		all[c] = short
	}
	return all
}()
