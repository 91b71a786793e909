package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrNotCanonical is what [ParseCanonical] wraps for bytes that [Set.Canonical] can't have written.
var ErrNotCanonical = errors.New("policy: not a set in canonical form")

// Canonical returns the set's one JSON form: the shape of the policy file, fields in fixed order, defaults
// filled in, lists sorted where order means nothing, no white space. It is defined for valid sets, and
// changes nothing in s.
func (s Set) Canonical() []byte {
	c := s.Clone()
	c.Normalize()
	return appendJSON(nil, toSetJSON(c))
}

// Hash identifies what the set says: SHA-256 of [Set.Canonical].
func (s Set) Hash() [sha256.Size]byte { return sha256.Sum256(s.Canonical()) }

// Revision tells versions of one policy apart: the first 64 bits of SHA-256 of the policy's part of
// [Set.Canonical].
func (p Policy) Revision() uint64 {
	c := Set{Policies: []Policy{p}}.Clone()
	c.Normalize()
	sum := sha256.Sum256(appendJSON(nil, toPolicyJSON(&c.Policies[0])))
	return binary.BigEndian.Uint64(sum[:])
}

// ParseCanonical reads what [Set.Canonical] wrote, to the normalized set. Every other input, even one that
// says the same in other bytes, is an error that wraps [ErrNotCanonical]. It does not validate.
func ParseCanonical(b []byte) (Set, error) {
	var wire setJSON
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&wire); err != nil {
		return Set{}, fmt.Errorf("%w: %w", ErrNotCanonical, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Set{}, fmt.Errorf("%w: bytes after its end", ErrNotCanonical)
	}
	s := wire.set()
	s.Normalize()
	// The JSON decoder is lenient: case, repeated fields, escapes, white space. Writing it again is strict.
	if !bytes.Equal(s.Canonical(), b) {
		return Set{}, fmt.Errorf("%w: written again it gives other bytes", ErrNotCanonical)
	}
	return s, nil
}

// appendJSON appends v without the escapes that only HTML needs.
func appendJSON(dst []byte, v any) []byte {
	buf := bytes.NewBuffer(dst)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("policy: " + err.Error()) // plain data of our own types
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
