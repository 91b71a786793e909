// Package origin brings addresses and host names into one normal form, so that one client has one
// allowance however its address was written, and picks the client's address from a forwarded list.
//
// Invariants:
//
//   - The normal form of a normal form is itself (of the same prefix length), so it doesn't matter how
//     often, or in how many places, a value passes through here.
//   - What isn't certainly an address or a host is refused (ok is false) and never becomes a key: a
//     literal "unknown" would be one allowance shared by everybody without an address.
//   - Nothing here allocates for ASCII input, apart from a destination that is too small and input that
//     looks like an address and is none.
//   - Every byte of the text counts: no space around it is skipped. Only [Client] skips the spaces and
//     tabs around the elements of its list.
//
// # Addresses
//
// An address may have a port (192.0.2.1:80, [2001:db8::1]:443), brackets where it is IPv6, and a zone
// where it is IPv6. Without brackets everything after the first colon belongs to the address:
// 2001:db8::1:80 has no port. IPv4 is written without leading zeros, since 010.0.0.1 is 10.0.0.1 to one
// program and 8.0.0.1 to another. Its normal form is:
//
//   - IPv4 and IPv4-mapped IPv6 (::ffff:192.0.2.1): 192.0.2.1
//   - IPv6: as RFC 5952 writes it, without zone; masked to the prefix and marked so, as in
//     2001:db8:1:2::/64, unless the prefix is 128. One customer has a whole network, mostly a /64 or a
//     /56. A zone says through which interface of ours an address is reached, not who has it.
//
// # Hosts
//
// A host is an address (in normal form, never masked) or a name. The port and one trailing dot are
// removed and letters are lower case, so Example.COM, example.com. and example.com:443 are one host. The
// port is no part of it even where it isn't the usual one.
//
// An ASCII name is taken as the domain name system compares it: labels of 1 to 63 letters, digits,
// hyphens (not at either end) and underscores, 253 bytes in all; xn-- labels stay as they are. A name
// whose last label is a number is an IPv4 address or nothing.
//
// A name with other characters becomes its A-labels, by UTS #46, not transitional, as
// golang.org/x/net/idna.Lookup does it (mapping of case, width and form; STD3, hyphen, joiner and bidi
// rules; faß.example and fass.example are two names). What that profile refuses is refused.
//
// # Forwarded lists
//
// Every proxy appends the address that it was called from, so the right end of the list is ours and
// everything left of it is whatever the caller chose to send: hops are counted from the right. The
// element so found must be an address; where it isn't there is no client. Neither its left neighbour
// (chosen by the caller) nor its right one (a proxy, shared by everybody) may stand in for it.
//
// The fronts of the gateway and the replay of access logs call this package. It has no state, no clock
// and does no I/O, least of all a DNS query.
package origin
