package keyspace_test

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
)

// counting is the seed of the reference vectors and of ours: 00 01 .. 0f.
var counting = keyspace.Seed{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func TestSipHashReferenceVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/siphash24.txt")
	if err != nil {
		t.Fatal(err)
	}
	var message []byte
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		want, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := counting.Sum64(message); got != want {
			t.Errorf("hash of %d bytes: %016x, want %016x", len(message), got, want)
		}
		message = append(message, byte(len(message)))
	}
	if len(message) != 64 {
		t.Errorf("%d vectors, want 64", len(message))
	}
}

// sipHash is the paper's text: pad to whole words with the length in the last byte, mix them, finish.
func sipHash(seed keyspace.Seed, message []byte) uint64 {
	padded := bytes.Clone(message)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(message)))

	k0, k1 := binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	halfRound := func(a, b, c, d, s, t int) {
		v[a] += v[b]
		v[c] += v[d]
		v[b] = bits.RotateLeft64(v[b], s) ^ v[a]
		v[d] = bits.RotateLeft64(v[d], t) ^ v[c]
		v[a] = bits.RotateLeft64(v[a], 32)
	}
	rounds := func(n int) {
		for range n {
			halfRound(0, 1, 2, 3, 13, 16)
			halfRound(2, 1, 0, 3, 17, 21)
		}
	}
	for ; len(padded) > 0; padded = padded[8:] {
		word := binary.LittleEndian.Uint64(padded)
		v[3] ^= word
		rounds(2)
		v[0] ^= word
	}
	v[2] ^= 0xff
	rounds(4)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func FuzzSum64(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), []byte(""))
	f.Add([]byte("k"), bytes.Repeat([]byte("long"), 100))
	f.Fuzz(func(t *testing.T, key, message []byte) {
		var seed keyspace.Seed
		copy(seed[:], key)
		if got, want := seed.Sum64(message), sipHash(seed, message); got != want {
			t.Errorf("seed %x, message %x: %016x, want %016x", seed, message, got, want)
		}
	})
}
