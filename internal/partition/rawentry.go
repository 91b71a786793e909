package partition

import (
	"encoding/binary"
	"slices"
)

// logsBucket is what raft-boltdb calls the bucket of the log's entries.
const logsBucket = "logs"

// rawEntry is an entry as raft-boltdb keeps it: a MessagePack map of the fields of raft.Log by name, each an integer,
// bytes or nothing (https://github.com/msgpack/msgpack/blob/master/spec.md; the time of appending goes as bytes).
type rawEntry []byte

// decodable tells whether it is that and nothing else, and no longer or shorter than it says. The library's decoder believes
// what it reads: four damaged bytes have it ask for 4 GB, and a row of nested lists takes it deeper than any stack, which
// ends the process. The checksum in the entry comes too late for that.
func (r rawEntry) decodable() bool {
	if len(r) == 0 || r[0]&0xf0 != 0x80 {
		return false
	}
	rest := r[1:]
	for range r[0] & 0x0f {
		name, behind, ok := rest.value()
		if !ok || !slices.Contains(entryFields, string(name)) {
			return false
		}
		if _, rest, ok = behind.value(); !ok {
			return false
		}
	}
	return len(rest) == 0
}

var entryFields = []string{"Index", "Term", "Type", "Data", "Extensions", "AppendedAt"}

// value takes the first value off: its bytes, and what follows; false for any kind that no entry has.
func (r rawEntry) value() (value, rest rawEntry, ok bool) {
	if len(r) == 0 {
		return nil, nil, false
	}
	head, size := 1, uint64(0) // bytes of kind and length; bytes of the value
	switch kind := r[0]; {
	case kind < 0x80 || kind >= 0xe0 || kind == 0xc0: // a small integer, nothing
	case kind>>5 == 0b101: // short bytes
		size = uint64(kind & 0x1f)
	case kind >= 0xcc && kind <= 0xcf: // an unsigned integer of 1, 2, 4 or 8 bytes
		size = 1 << (kind - 0xcc)
	case kind >= 0xd0 && kind <= 0xd3: // a signed one
		size = 1 << (kind - 0xd0)
	case kind >= 0xc4 && kind <= 0xc6: // bytes whose length has 1, 2 or 4
		head += 1 << (kind - 0xc4)
	case kind >= 0xd9 && kind <= 0xdb: // text, likewise
		head += 1 << (kind - 0xd9)
	default:
		return nil, nil, false
	}
	if len(r) < head {
		return nil, nil, false
	}
	var length [8]byte
	copy(length[8-(head-1):], r[1:head])
	size += binary.BigEndian.Uint64(length[:])
	if uint64(len(r)-head) < size {
		return nil, nil, false
	}
	return r[head:][:size], r[head:][size:], true
}
