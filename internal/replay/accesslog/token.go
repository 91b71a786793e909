package accesslog

import "bytes"

// token is a part of a log line: bare, or between quotes or brackets, which are taken off.
type token struct {
	text   []byte
	quoted bool // "..."; escapes are left as they are
	boxed  bool // [...]
}

// maxTokens is how many parts of a line are told apart; what follows is of no format that is read here.
const maxTokens = 64

// tokenize splits a line at its spaces, and behind each closing quote or bracket, though the space be
// missing there. It reports whether every quote and bracket is closed.
func tokenize(line []byte, tokens []token) (all []token, ok bool) {
	for {
		for len(line) > 0 && line[0] == ' ' {
			line = line[1:]
		}
		if len(line) == 0 || len(tokens) == maxTokens {
			return tokens, true
		}
		var n int
		t := token{}
		switch line[0] {
		case '"':
			n = closingQuote(line)
			t.quoted = true
		case '[':
			n = bytes.IndexByte(line, ']')
			t.boxed = n < 0 || n+1 == len(line) || line[n+1] != ':'
		}
		if !t.quoted && !t.boxed {
			n = bareEnd(line, len(tokens) < 2)
			t.text = line[:n]
			tokens = append(tokens, t)
			line = line[n:]
			continue
		}
		if n < 0 {
			return tokens, false
		}
		t.text = line[1:n]
		tokens = append(tokens, t)
		line = line[n+1:]
	}
}

// bareEnd finds where the bare part at the line's beginning ends: at a space, but in a list for those
// behind its commas. Lists are addresses, in front of a line; a user's name that ends with a comma is none.
// [2001:db8::1]:443 is bare, too.
func bareEnd(line []byte, list bool) int {
	end := 0
	for {
		at := bytes.IndexByte(line[end:], ' ')
		if at < 0 {
			return len(line)
		}
		end += at
		if !list || line[end-1] != ',' || end+1 == len(line) || line[end+1] == ' ' {
			return end
		}
		end++
	}
}

// closingQuote finds the quote that ends the one at the line's beginning, -1 if none does.
func closingQuote(line []byte) int {
	for i := 1; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// absent tells whether a log says by the text that there is nothing.
func absent(text []byte) bool { return len(text) == 0 || len(text) == 1 && text[0] == '-' }

// value returns the text, or nil where a log says that there is nothing.
func value(text []byte) []byte {
	if absent(text) {
		return nil
	}
	return text
}

// unescape takes the escapes of nginx (\xNN) and Apache (\", \\, \n, ...) out of a quoted text. Most have
// none and come back as they are; else the result is in scratch.
func unescape(text []byte, scratch *[]byte) []byte {
	at := bytes.IndexByte(text, '\\')
	if at < 0 {
		return text
	}
	out := append((*scratch), text[:at]...)
	begin := len(*scratch)
	for i := at; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			out = append(out, c)
			continue
		}
		i++
		switch text[i] {
		case 'x':
			if i+2 < len(text) {
				if high, low := hexValue(text[i+1]), hexValue(text[i+2]); high >= 0 && low >= 0 {
					out = append(out, byte(high<<4|low))
					i += 2
					continue
				}
			}
			out = append(out, '\\', 'x')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default:
			out = append(out, text[i])
		}
	}
	*scratch = out
	return out[begin:]
}

func hexValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// request is what the first line of an HTTP request says; nil where it says nothing.
type request struct{ method, host, path []byte }

// readRequest takes "GET /path?query HTTP/1.1" apart. What isn't one (an empty line, "-", the bytes of a
// TLS handshake) has no parts.
func readRequest(line []byte) (r request) {
	method, target, found := bytes.Cut(line, []byte{' '})
	if !found || !isMethod(method) {
		return r
	}
	r.method = method
	if at := bytes.LastIndexByte(target, ' '); at >= 0 {
		if version := target[at+1:]; absent(version) || bytes.HasPrefix(version, []byte("HTTP/")) {
			target = target[:at]
		}
	}
	if absent(target) {
		return r
	}
	if scheme, after, ok := bytes.Cut(target, []byte("://")); ok && isMethod(scheme) {
		at := bytes.IndexAny(after, "/?")
		if at < 0 {
			at = len(after)
		}
		r.host, target = value(after[:at]), after[at:]
	}
	if at := bytes.IndexByte(target, '?'); at >= 0 {
		target = target[:at]
	}
	r.path = value(target)
	return r
}

// isMethod tells whether the text is a word such as a method or a scheme.
func isMethod(text []byte) bool {
	if absent(text) || len(text) > 32 {
		return false
	}
	for _, c := range text {
		if !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}
