package accesslog

import (
	"bytes"
	"net/netip"
	"unsafe"
)

// isAddressList tells whether the text is a list of addresses, as proxies write it: with commas between,
// and unknown for those that aren't known.
func isAddressList(text []byte) bool {
	known := false
	for {
		one, rest, more := bytes.Cut(text, []byte{','})
		one = bytes.Trim(one, " ")
		switch {
		case isAddress(one):
			known = true
		case string(one) != "unknown":
			return false
		}
		if !more {
			return known
		}
		text = rest
	}
}

// isAddress tells whether the text is an address, with a port or without.
func isAddress(text []byte) bool {
	// Most texts between quotes are none. They are told by their bytes, since a parser's error would be
	// an allocation for each.
	points, colons := 0, 0
	for _, c := range text {
		switch {
		case c == '.':
			points++
		case c == ':':
			colons++
		case hexValue(c) < 0 && c != '[' && c != ']' && c != '%':
			return false
		}
	}
	if points != 3 && colons < 2 {
		return false
	}
	s := unsafe.String(unsafe.SliceData(text), len(text)) // which nobody keeps
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	_, err := netip.ParseAddrPort(s)
	return err == nil
}
