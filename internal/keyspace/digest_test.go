package keyspace_test

import (
	"encoding/binary"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
)

// TestDigestTellsChecksApart: whatever differs between two checks but the order of their descriptors.
func TestDigestTellsChecksApart(t *testing.T) {
	a, b := descriptor(t, "p=a"), descriptor(t, "p=b")
	type check struct {
		domain string
		cost   uint64
		ds     []keyspace.Descriptor
	}
	checks := []check{
		{"d", 1, nil},
		{"d", 1, []keyspace.Descriptor{nil}},
		{"d", 1, []keyspace.Descriptor{a}},
		{"e", 1, []keyspace.Descriptor{a}},
		{"d", 2, []keyspace.Descriptor{a}},
		{"d", 1, []keyspace.Descriptor{b}},
		{"d", 1, []keyspace.Descriptor{a, a}},
		{"d", 1, []keyspace.Descriptor{a, b}},
		{"d", 1, []keyspace.Descriptor{a, a, b}},
		{"d", 1, []keyspace.Descriptor{a, b, b}},
		{"d", 1, []keyspace.Descriptor{descriptor(t, "p=a", "q=")}},
		{"d", 1, []keyspace.Descriptor{descriptor(t, "p=", "q=a")}},
		{"d", 1, []keyspace.Descriptor{descriptor(t, "p=a"), descriptor(t, "q=")}},
	}
	seen := map[uint64]check{}
	for _, c := range checks {
		digest := counting.Digest(c.domain, c.cost, c.ds)
		if other, taken := seen[digest]; taken {
			t.Errorf("%v and %v have one digest", c, other)
		}
		seen[digest] = c
	}
}

func TestDigestIgnoresTheOrderOfDescriptors(t *testing.T) {
	a, b, c := descriptor(t, "p=a"), descriptor(t, "p=b"), descriptor(t, "q=c", "r=d")
	want := counting.Digest("d", 1, []keyspace.Descriptor{a, b, c})
	for _, ds := range [][]keyspace.Descriptor{{a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
		if got := counting.Digest("d", 1, ds); got != want {
			t.Errorf("%v: %016x, want %016x", ds, got, want)
		}
	}
}

// TestDigestIsTheHashOfItsParts says in lines of bytes what Digest feeds piece by piece.
func TestDigestIsTheHashOfItsParts(t *testing.T) {
	a, b := descriptor(t, "p=a"), descriptor(t, "q=c", "r=")
	sum := sipHash(counting, []byte("\x03\x01p\x01a")) + sipHash(counting, []byte("\x03\x01q\x01c\x01r\x00"))
	text := binary.LittleEndian.AppendUint64([]byte("\x02\x06domain"), 7)
	text = binary.LittleEndian.AppendUint64(text, 2)
	text = binary.LittleEndian.AppendUint64(text, sum)
	if got, want := counting.Digest("domain", 7, []keyspace.Descriptor{a, b}), sipHash(counting, text); got != want {
		t.Errorf("got %016x, want %016x", got, want)
	}
}

func TestDigestIsKeyed(t *testing.T) {
	d := []keyspace.Descriptor{descriptor(t, "p=a")}
	if counting.Digest("d", 1, d) == (keyspace.Seed{}).Digest("d", 1, d) {
		t.Error("two seeds give one digest")
	}
}

// TestNoAllocation: what runs for every check leaves the heap alone.
func TestNoAllocation(t *testing.T) {
	words := entries("tenant=t1", "principal=u42", "api_class=convert")
	d := descriptor(t, "api_class=convert", "principal=u42", "tenant=t1")
	names, ds := []string{"principal", "tenant"}, []keyspace.Descriptor{d, d}
	buf, values := make([]byte, 0, 256), make([][]byte, 0, 4)
	encoded := keyspace.AppendValues(nil, d, names)
	for name, f := range map[string]func(){
		"NewDescriptor":  func() { _, _ = keyspace.NewDescriptor(words) },
		"Sum64":          func() { counting.Sum64(encoded) },
		"Slot":           func() { counting.Slot("video-api", d, names) },
		"Digest":         func() { counting.Digest("video-api", 1, ds) },
		"AppendQuotaKey": func() { keyspace.AppendQuotaKey(buf, "media", "conversions", d) },
		"AppendValues":   func() { keyspace.AppendValues(buf, d, names) },
		"SplitValues":    func() { _, _ = keyspace.SplitValues(values, encoded) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkSlot(b *testing.B) {
	d := descriptor(b, "api_class=convert", "principal=u42", "tenant=t1")
	names := []string{"principal"}
	b.ReportAllocs()
	for b.Loop() {
		counting.Slot("video-api", d, names)
	}
}

func BenchmarkDigest(b *testing.B) {
	ds := []keyspace.Descriptor{descriptor(b, "api_class=convert", "principal=u42", "tenant=t1")}
	b.ReportAllocs()
	for b.Loop() {
		counting.Digest("video-api", 1, ds)
	}
}
