package keyspace_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
)

// TestGolden: the bytes and hashes of testdata/golden.txt never change. Where this test fails, keys of running
// clusters would lose their usage: it is the code that must go back.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	if i := strings.Index(want, "\n\n"); i >= 0 {
		want = want[i+2:] // below the heading
	}
	if got := golden(t); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func golden(t *testing.T) string {
	u42 := descriptor(t, "principal=u42")
	two := descriptor(t, "principal=u42", "api_class=convert")
	odd := descriptor(t, "principal=\x00\xff|=", "x=", "long="+strings.Repeat("0123456789", 20))
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	line("key media conversions principal=u42: %x", keyspace.AppendQuotaKey(nil, "media", "conversions", u42))
	line("key media conversions two entries: %x", keyspace.AppendQuotaKey(nil, "media", "conversions", two))
	line("key media global: %x", keyspace.AppendQuotaKey(nil, "media", "global", nil))
	line("key default odd bytes: %x", keyspace.AppendQuotaKey(nil, "default", "odd", odd))
	line("values api_class, principal: %x", keyspace.AppendValues(nil, two, []string{"api_class", "principal"}))
	line("values api_class, absent: %x", keyspace.AppendValues(nil, two, []string{"api_class", "tenant"}))

	line("slot video-api: %d", counting.Slot("video-api", nil, nil))
	line("slot video-api principal=u42: %d", counting.Slot("video-api", two, []string{"principal"}))
	line("slot video-api two entries: %d", counting.Slot("video-api", two, []string{"api_class", "principal"}))
	line("slot default odd bytes: %d", counting.Slot("default", odd, []string{"long", "principal", "x"}))
	line("slot, another seed, video-api principal=u42: %d", keyspace.Seed{}.Slot("video-api", two, []string{"principal"}))

	line("digest video-api 1 principal=u42: %016x", counting.Digest("video-api", 1, []keyspace.Descriptor{u42}))
	line("digest video-api 3 of two: %016x", counting.Digest("video-api", 3, []keyspace.Descriptor{u42, odd}))
	line("digest video-api 1 of none: %016x", counting.Digest("video-api", 1, nil))
	return b.String()
}

// TestSlotIsTheHashOfItsParts says in one line of bytes what Slot feeds piece by piece.
func TestSlotIsTheHashOfItsParts(t *testing.T) {
	d := descriptor(t, "a=1", "b="+strings.Repeat("x", 300), "c=")
	text := "\x01" + "\x06domain" + "\x01a\x011" + "\x01b\xac\x02" + strings.Repeat("x", 300) + "\x01c\x00" + "\x01d\x00"
	want := uint16(sipHash(counting, []byte(text)) % keyspace.Slots)
	if got := counting.Slot("domain", d, []string{"a", "b", "c", "d"}); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

// TestSlotsSpread: a hundred thousand keys fill all slots about evenly. A slot expects 24.4; that one of
// 4,096 is beyond 3..60 has, by the Poisson distribution, a chance below one in a million.
func TestSlotsSpread(t *testing.T) {
	var filled [keyspace.Slots]int
	for i := range 100_000 {
		filled[counting.Slot("d", descriptor(t, fmt.Sprintf("p=%d", i)), []string{"p"})]++
	}
	for slot, n := range filled {
		if n < 3 || n > 60 {
			t.Errorf("slot %d has %d keys", slot, n)
		}
	}
}

func TestEvenTable(t *testing.T) {
	for _, partitions := range []int{1, 2, 3, 5, 7, 16, 100, 4095, keyspace.Slots} {
		table := keyspace.EvenTable(partitions)
		owned := make([]int, partitions)
		for slot, p := range table {
			owned[p]++
			if slot > 0 && p != table[slot-1] && p != table[slot-1]+1 {
				t.Fatalf("%d partitions: slot %d belongs to %d, the one before to %d", partitions, slot, p, table[slot-1])
			}
		}
		for p, n := range owned {
			if n != keyspace.Slots/partitions && n != keyspace.Slots/partitions+1 {
				t.Errorf("%d partitions: partition %d owns %d slots", partitions, p, n)
			}
		}
	}
}

func TestEvenTableRefuses(t *testing.T) {
	for _, partitions := range []int{-1, 0, keyspace.Slots + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d partitions were accepted", partitions)
				}
			}()
			keyspace.EvenTable(partitions)
		}()
	}
}
