package origin

import "bytes"

// Client picks the address that a request came from. The chain is the elements of forwardedFor, from the
// left, and then peer, who called us; either may be empty or "-", which is the same as absent. The
// trusted last elements of the chain are our own proxies, and the client is the element left of them; in
// a shorter chain, as of a request that didn't pass all of them, the leftmost one. With trusted 0 that is
// the peer, whatever the list says; without a peer, trusted counts in the list alone.
//
// The elements stand between commas, with spaces and tabs around them or not; several header lines are
// joined with commas in their order. An empty element is an element: skipping it would bring the count
// to what the caller has chosen.
//
// Element is a part of forwardedFor or peer, good for [AppendAddress]. ok is false where it is not an
// address, there is none, or trusted is negative. What the other elements are doesn't matter: those on
// the left are anything a caller likes, and a proxy of ours may be "unix:".
func Client(forwardedFor, peer []byte, trusted int) (element []byte, ok bool) {
	list, peer := present(forwardedFor), present(peer)
	if trusted < 0 {
		return nil, false
	}
	element = peer
	if list != nil && (peer == nil || trusted > 0) {
		if peer != nil {
			trusted--
		}
		element = fromRight(list, trusted)
	}
	if _, ok = parseAddress(element); !ok {
		return nil, false
	}
	return element, true
}

// fromRight gives the element of a list that has n elements on its right, or the leftmost one.
func fromRight(list []byte, n int) []byte {
	for {
		comma := bytes.LastIndexByte(list, ',')
		if comma < 0 || n == 0 {
			return trim(list[comma+1:])
		}
		list, n = list[:comma], n-1
	}
}

// present gives a field of a header or a log without the space around it, nil where it is absent.
func present(field []byte) []byte {
	field = trim(field)
	if len(field) == 0 || len(field) == 1 && field[0] == '-' {
		return nil
	}
	return field
}

func trim(text []byte) []byte {
	return bytes.Trim(text, " \t")
}
