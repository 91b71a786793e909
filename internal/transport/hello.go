package transport

import (
	"errors"
	"fmt"
	"io"
)

// A connection begins with a hello of the node that dialled and the answer of the one that accepted,
// each one byte of length and then its fields. A version that differs is told before anything else is
// looked at, so that the rest may change with it.
const (
	helloMark    = 0x51524c4b // "QRLK"
	helloVersion = 1
	maxHello     = 255
	maxNode      = 63 // a DNS label
)

// purpose is what a connection is for.
type purpose = uint8

const (
	forRequests purpose = iota + 1
	forSnapshot
)

// hello is what the dialling node says.
type hello struct {
	version  uint8
	purpose  purpose
	cluster  [16]byte
	from, to string // node names
}

// verdict is what the accepting node thinks of a hello.
type verdict = uint8

const (
	accepted verdict = iota + 1
	otherVersion
	otherCluster
	otherNode // the name is not that of the certificate, or this node is not the one that was meant
)

var verdictErrors = map[verdict]error{
	accepted:     nil,
	otherVersion: errors.New("it speaks another version"),
	otherCluster: errors.New("it belongs to another cluster"),
	otherNode:    errors.New("it takes one of the two nodes for another one"),
}

// welcome answers a hello.
type welcome struct {
	version uint8
	verdict verdict
	node    string // who answers
}

// opening walks the fields that every version begins with.
func (c *coder) opening(version *uint8) {
	mark := uint32(helloMark)
	c.u32(&mark)
	if mark != helloMark {
		c.fail()
	}
	c.u8(version)
}

func (c *coder) hello(h *hello) {
	c.opening(&h.version)
	if c.mode == reading && h.version != helloVersion {
		c.bytes = nil // another version's fields
		return
	}
	c.u8(&h.purpose)
	for i := range h.cluster {
		c.u8(&h.cluster[i])
	}
	c.text(&h.from)
	c.text(&h.to)
}

func (c *coder) welcome(w *welcome) {
	c.opening(&w.version)
	c.u8(&w.verdict)
	c.text(&w.node)
}

func decodeHello(b []byte) (h hello, err error) {
	c := coder{mode: reading, bytes: b}
	c.hello(&h)
	if err := c.finish(); err != nil {
		return hello{}, err
	}
	if h.version == helloVersion && (h.purpose < forRequests || h.purpose > forSnapshot) {
		return hello{}, errMalformed
	}
	return h, nil
}

func decodeWelcome(b []byte) (w welcome, err error) {
	c := coder{mode: reading, bytes: b}
	c.welcome(&w)
	if err := c.finish(); err != nil {
		return welcome{}, err
	}
	if _, known := verdictErrors[w.verdict]; !known {
		return welcome{}, errMalformed
	}
	return w, nil
}

// prefixed writes one byte of length and then what walk writes.
func prefixed(w io.Writer, walk func(*coder)) error {
	c := coder{mode: writing, bytes: []byte{0}}
	walk(&c)
	c.bytes[0] = uint8(len(c.bytes) - 1)
	_, err := w.Write(c.bytes)
	return err
}

// readPrefixed reads exactly what prefixed wrote: what follows belongs to frames.
func readPrefixed(r io.Reader) ([]byte, error) {
	var b [1 + maxHello]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return nil, err
	}
	n := int(b[0])
	if _, err := io.ReadFull(r, b[1:1+n]); err != nil {
		return nil, err
	}
	return b[1 : 1+n], nil
}

// greet says hello to a node and waits for its welcome.
func greet(conn io.ReadWriter, h hello) error {
	if err := prefixed(conn, func(c *coder) { c.hello(&h) }); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	b, err := readPrefixed(conn)
	if err != nil {
		return fmt.Errorf("wait for the welcome: %w", err)
	}
	w, err := decodeWelcome(b)
	switch {
	case err != nil:
		return fmt.Errorf("read the welcome: %w", err)
	case w.verdict != accepted:
		return fmt.Errorf("refused: %w", verdictErrors[w.verdict])
	case w.version != helloVersion:
		return fmt.Errorf("read the welcome: %w", verdictErrors[otherVersion])
	case w.node != h.to:
		return fmt.Errorf("node %q answers", w.node)
	}
	return nil
}

// receive reads a hello and answers it. Known is the name in the peer's certificate, or "" where there
// is none. An error says that the peer was refused; the answer, if any, tells it why.
func receive(conn io.ReadWriter, self string, cluster [16]byte, known string) (hello, error) {
	b, err := readPrefixed(conn)
	if err != nil {
		return hello{}, fmt.Errorf("wait for hello: %w", err)
	}
	h, err := decodeHello(b)
	if err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	v := h.judge(self, cluster, known)
	w := welcome{version: helloVersion, verdict: v, node: self}
	if err := prefixed(conn, func(c *coder) { c.welcome(&w) }); err != nil {
		return hello{}, fmt.Errorf("answer hello: %w", err)
	}
	if v != accepted {
		return hello{}, fmt.Errorf("hello of %q (certificate %q) to %q: %w", h.from, known, h.to, verdictErrors[v])
	}
	return h, nil
}

func (h hello) judge(self string, cluster [16]byte, known string) verdict {
	switch {
	case h.version != helloVersion:
		return otherVersion
	case h.cluster != cluster:
		return otherCluster
	case h.to != self, h.from == self, known != "" && h.from != known, !validNode(h.from):
		return otherNode
	}
	return accepted
}

// validNode reports whether s is a DNS label.
func validNode(s string) bool {
	if len(s) == 0 || len(s) > maxNode || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// nodeOf returns the node part of a server id, which is a node's name, a hyphen and 16 hex digits; ""
// if it is none.
func nodeOf(server string) string {
	at := len(server) - 17
	if at < 1 || server[at] != '-' {
		return ""
	}
	for _, c := range []byte(server[at+1:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return server[:at]
}
