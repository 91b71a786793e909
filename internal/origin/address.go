package origin

import (
	"bytes"
	"net/netip"
	"unsafe"
)

// AppendAddress appends the normal form of the address text to dst. IPv6 is masked to prefix bits, 1 to
// 128, where 128 keeps all of it. A network in normal form, as in 2001:db8:1:2::/64, is taken where its
// length is prefix. ok is false for all else and for another prefix; out is then dst.
func AppendAddress(dst, text []byte, prefix int) (out []byte, ok bool) {
	if prefix < 1 || prefix > 128 {
		return dst, false
	}
	if slash := bytes.IndexByte(text, '/'); slash >= 0 {
		return appendNetwork(dst, text, slash, prefix)
	}
	addr, ok := parseAddress(text)
	if !ok {
		return dst, false
	}
	if addr.Is4() || prefix == 128 {
		return addr.AppendTo(dst), true
	}
	// Prefix fails for a length above the address's only.
	network, _ := addr.Prefix(prefix)
	return network.AppendTo(dst), true
}

// appendNetwork takes only what AppendAddress itself writes: a network in any other spelling, or of any
// other length, stands for many addresses, none of which is known.
func appendNetwork(dst, text []byte, slash, prefix int) ([]byte, bool) {
	out, ok := AppendAddress(dst, text[:slash], prefix)
	if !ok || !bytes.Equal(out[len(dst):], text) {
		return dst, false
	}
	return out, true
}

// parseAddress reads an address with or without port, brackets and zone. What it gives is unmapped and
// has no zone.
func parseAddress(text []byte) (netip.Addr, bool) {
	if len(text) == 0 {
		return netip.Addr{}, false
	}
	if text[0] == '[' {
		end := bytes.IndexByte(text, ']')
		if end < 0 || !isPort(text[end+1:]) {
			return netip.Addr{}, false
		}
		return parseIPv6(text[1:end])
	}
	first := bytes.IndexByte(text, ':')
	switch {
	case first < 0:
		return parseIPv4(text)
	case bytes.IndexByte(text[first+1:], ':') >= 0:
		return parseIPv6(text)
	case !isPort(text[first:]):
		return netip.Addr{}, false
	default:
		return parseIPv4(text[:first])
	}
}

// parseIPv4 looks before it asks netip, whose errors allocate: host names are common where addresses are
// looked for.
func parseIPv4(text []byte) (netip.Addr, bool) {
	if len(text) < len("0.0.0.0") || len(text) > len("255.255.255.255") {
		return netip.Addr{}, false
	}
	for _, c := range text {
		if c != '.' && (c < '0' || c > '9') {
			return netip.Addr{}, false
		}
	}
	addr, err := netip.ParseAddr(view(text))
	return addr, err == nil
}

func parseIPv6(text []byte) (netip.Addr, bool) {
	zone := bytes.IndexByte(text, '%')
	if zone >= 0 {
		if !isZone(text[zone+1:]) {
			return netip.Addr{}, false
		}
		text = text[:zone]
	}
	if bytes.IndexByte(text, ':') < 0 { // [192.0.2.1]
		return netip.Addr{}, false
	}
	// Without its zone: netip would keep that, in memory of its own and of ours.
	addr, err := netip.ParseAddr(view(text))
	if err != nil || zone >= 0 && addr.Is4In6() {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// isPort says whether text is nothing, or a colon and a port. RFC 3986 allows one of no digits.
func isPort(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	if text[0] != ':' || len(text) > len(":65535") {
		return false
	}
	port := 0
	for _, c := range text[1:] {
		if c < '0' || c > '9' {
			return false
		}
		port = port*10 + int(c-'0')
	}
	return port <= 65535
}

// isZone says whether text may follow the percent sign of an address (RFC 6874, as escaped or not).
func isZone(text []byte) bool {
	for _, c := range text {
		if !isAlphanumeric(c) && c != '-' && c != '.' && c != '_' && c != '~' && c != '%' {
			return false
		}
	}
	return len(text) > 0
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// view is text as a string that shares its bytes, for callees that keep nothing of it.
func view(text []byte) string {
	return unsafe.String(unsafe.SliceData(text), len(text))
}
