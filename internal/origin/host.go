package origin

import (
	"bytes"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Lengths in bytes.
const (
	maxName  = 253  // a name, without trailing dot (RFC 1035 leaves this much of its 255)
	maxLabel = 63   // a label of it
	maxText  = 1024 // a name with other characters, before it is mapped: bounds the work spent on it
)

// AppendHost appends the normal form of the host text to dst: a name, or an address without mask. ok is
// false where text can't be a host; out is then dst.
func AppendHost(dst, text []byte) (out []byte, ok bool) {
	if addr, ok := parseAddress(text); ok {
		return addr.AppendTo(dst), true
	}
	name := text
	if colon := bytes.IndexByte(text, ':'); colon >= 0 {
		if !isPort(text[colon:]) {
			return dst, false
		}
		name = text[:colon]
	}
	if !isASCII(name) {
		if name, ok = toASCII(name); !ok {
			return dst, false
		}
	}
	// After the mapping, which makes dots of other full stops.
	name = bytes.TrimSuffix(name, []byte("."))
	if endsInNumber(name) {
		addr, ok := parseIPv4(name)
		if !ok {
			return dst, false
		}
		return addr.AppendTo(dst), true
	}
	return appendName(dst, name)
}

// appendName appends an ASCII name in lower case.
func appendName(dst, name []byte) ([]byte, bool) {
	if len(name) == 0 || len(name) > maxName {
		return dst, false
	}
	out := dst
	for rest, more := name, true; more; {
		var label []byte
		label, rest, more = bytes.Cut(rest, []byte("."))
		if len(label) == 0 || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return dst, false
		}
		for _, c := range label {
			switch {
			case 'A' <= c && c <= 'Z':
				c += 'a' - 'A'
			case !isAlphanumeric(c) && c != '-' && c != '_':
				return dst, false
			}
			out = append(out, c)
		}
		if more {
			out = append(out, '.')
		}
	}
	return out, true
}

// endsInNumber says whether programs that resolve names would take this one for an IPv4 address: its last
// label is decimal, or hexadecimal after 0x. No top-level domain is.
func endsInNumber(name []byte) bool {
	last := name[bytes.LastIndexByte(name, '.')+1:]
	hex := len(last) >= 2 && last[0] == '0' && last[1]|0x20 == 'x'
	if hex {
		last = last[2:]
	}
	for _, c := range last {
		digit := '0' <= c && c <= '9'
		if !digit && !(hex && 'a' <= c|0x20 && c|0x20 <= 'f') {
			return false
		}
	}
	return hex || len(last) > 0
}

func toASCII(name []byte) ([]byte, bool) {
	if len(name) > maxText || !utf8.Valid(name) {
		return nil, false
	}
	mapped, err := idna.Lookup.ToASCII(string(name))
	return []byte(mapped), err == nil
}

func isASCII(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
