package keyspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
)

// entries reads name=value words.
func entries(words ...string) []keyspace.Entry {
	var list []keyspace.Entry
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		list = append(list, keyspace.Entry{Name: name, Value: value})
	}
	return list
}

func descriptor(t testing.TB, words ...string) keyspace.Descriptor {
	t.Helper()
	d, err := keyspace.NewDescriptor(entries(words...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func numbered(n int) (words []string) {
	for i := range n {
		words = append(words, fmt.Sprintf("e%02d=v", i))
	}
	return words
}

func TestNewDescriptorSorts(t *testing.T) {
	d := descriptor(t, "c=3", "a=1", "B=2", "b=")
	if want := entries("B=2", "a=1", "b=", "c=3"); !slices.Equal(d, want) {
		t.Errorf("got %v, want %v", d, want)
	}
	if value, ok := d.Get("b"); !ok || value != "" || d.Has("b") {
		t.Errorf("an empty value is there for Get and not for Has; got %q, %v, %v", value, ok, d.Has("b"))
	}
	if _, ok := d.Get("d"); ok || d.Has("d") {
		t.Error("found an entry that isn't there")
	}
}

func TestNewDescriptorRefuses(t *testing.T) {
	secret := strings.Repeat("s3cret", keyspace.MaxValueLen)
	for want, words := range map[string][]string{
		"descriptor has 17 entries, at most 16 are allowed":                        numbered(17),
		"descriptor entry 2 has an empty name":                                     {"a=1", "=2"},
		"descriptor entry 1 has a name of 129 bytes, at most 128 are allowed":      {strings.Repeat("n", 129) + "=1"},
		`descriptor entry "a" has a value of 6144 bytes, at most 1024 are allowed`: {"a=" + secret},
		`descriptor entry "a" is given twice`:                                      {"a=1", "b=2", "a=3"},
	} {
		_, err := keyspace.NewDescriptor(entries(words...))
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNewDescriptorBounds(t *testing.T) {
	descriptor(t)
	descriptor(t, numbered(keyspace.MaxEntries)...)
	descriptor(t, strings.Repeat("n", keyspace.MaxNameLen)+"="+strings.Repeat("v", keyspace.MaxValueLen))
}

// TestContains compares the one-pass walk with looking up each entry, over all pairs of small subsets.
func TestContains(t *testing.T) {
	all := entries("a=1", "a=2", "b=1", "c=", "d=1")
	subset := func(bits int) (list []keyspace.Entry) {
		for i, e := range all {
			if bits>>i&1 == 1 {
				list = append(list, e)
			}
		}
		return list
	}
	for i := range 1 << len(all) {
		d, err := keyspace.NewDescriptor(subset(i))
		if err != nil {
			continue // both a=1 and a=2
		}
		for j := range 1 << len(all) {
			want := true
			for _, e := range subset(j) {
				value, ok := d.Get(e.Name)
				want = want && ok && value == e.Value
			}
			if got := d.Contains(subset(j)); got != want {
				t.Errorf("%v contains %v: %v, want %v", d, subset(j), got, want)
			}
		}
	}
}
