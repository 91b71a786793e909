package keyspace

import (
	"encoding/binary"
	"math/bits"
)

// Seed keys every hash of a cluster. It is drawn once, at genesis, and never changes: keys live where
// their hash under this seed puts them.
type Seed [16]byte

// Sum64 returns SipHash-2-4 of b under the seed (Aumasson and Bernstein, "SipHash: a fast short-input
// PRF", 2012): 64 bits that nobody without the seed can predict or make collide.
//
// It is what hash computes of b in one piece, with the state in registers: the state
// machine hashes every key of every check.
func (s Seed) Sum64(b []byte) uint64 {
	h := s.newHash()
	v0, v1, v2, v3 := h.v0, h.v1, h.v2, h.v3
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		word := binary.LittleEndian.Uint64(b)
		v3 ^= word
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= word
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xff
	for range 4 {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

// round is a SipRound.
func round(v0, v1, v2, v3 uint64) (a, b, c, d uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	return v0, v1, bits.RotateLeft64(v2, 32), v3
}

// hash is SipHash-2-4 fed piece by piece, so that a key that lies in several strings needs no buffer. The
// sum depends on the bytes written alone, not on how they were cut.
type hash struct {
	v0, v1, v2, v3 uint64
	tail           uint64 // the last n%8 bytes, little endian, not yet mixed in
	n              uint64 // bytes written
}

func (s Seed) newHash() hash {
	k0 := binary.LittleEndian.Uint64(s[:8])
	k1 := binary.LittleEndian.Uint64(s[8:])
	return hash{
		v0: k0 ^ 0x736f6d6570736575,
		v1: k1 ^ 0x646f72616e646f6d,
		v2: k0 ^ 0x6c7967656e657261,
		v3: k1 ^ 0x7465646279746573,
	}
}

// write feeds b. Whole words are read straight from b, at whatever offset the tail is.
func write[T string | []byte](h *hash, b T) {
	shift := 8 * (h.n % 8)
	h.n += uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		word := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		h.mix(h.tail | word<<shift)
		h.tail = word >> (64 - shift) // a shift by 64 gives 0 in Go
	}
	for i := 0; i < len(b); i++ {
		h.tail |= uint64(b[i]) << shift
		if shift += 8; shift == 64 {
			h.mix(h.tail)
			h.tail, shift = 0, 0
		}
	}
}

// writePart feeds s with its length in front, as appendPart encodes it.
func (h *hash) writePart(s string) {
	h.writeUvarint(uint64(len(s)))
	write(h, s)
}

func (h *hash) writeUvarint(n uint64) {
	for n >= 0x80 {
		h.writeByte(byte(n) | 0x80)
		n >>= 7
	}
	h.writeByte(byte(n))
}

func (h *hash) writeByte(b byte) {
	shift := 8 * (h.n % 8)
	h.tail |= uint64(b) << shift
	h.n++
	if shift == 56 {
		h.mix(h.tail)
		h.tail = 0
	}
}

func (h *hash) mix(word uint64) {
	h.v3 ^= word
	h.round()
	h.round()
	h.v0 ^= word
}

func (h *hash) sum() uint64 {
	h.mix(h.tail | h.n<<56)
	h.v2 ^= 0xff
	for range 4 {
		h.round()
	}
	return h.v0 ^ h.v1 ^ h.v2 ^ h.v3
}

func (h *hash) round() { h.v0, h.v1, h.v2, h.v3 = round(h.v0, h.v1, h.v2, h.v3) }
