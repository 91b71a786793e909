package keyspace_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
)

// TestKEY01SeparatorsInValuesDontMix: values that joined with a separator would be one key are several.
func TestKEY01SeparatorsInValuesDontMix(t *testing.T) {
	distinct(t,
		descriptor(t, "p=a|b", "q=c"),
		descriptor(t, "p=a", "q=b|c"),
		descriptor(t, "p=a_b"),
		descriptor(t, "p=a", "q=b"),
		descriptor(t, "p=", "q=x"),
		descriptor(t, "p=x", "q="),
		descriptor(t, "p=x"),
	)
}

// TestKEY02ConcatenatedValuesDontMix: the same without any separator.
func TestKEY02ConcatenatedValuesDontMix(t *testing.T) {
	distinct(t,
		descriptor(t, "ip=10.0.0.1", "path=1/a"),
		descriptor(t, "ip=10.0.0.11", "path=/a"),
	)
}

func distinct(t *testing.T, keys ...keyspace.Descriptor) {
	t.Helper()
	names := []string{"ip", "p", "path", "q"}
	for i, a := range keys {
		for _, b := range keys[:i] {
			if bytes.Equal(keyspace.AppendQuotaKey(nil, "ns", "quota", a), keyspace.AppendQuotaKey(nil, "ns", "quota", b)) {
				t.Errorf("%v and %v are one quota key", a, b)
			}
			same := slices.EqualFunc(names, names, func(n, _ string) bool { return value(a, n) == value(b, n) })
			if got := bytes.Equal(keyspace.AppendValues(nil, a, names), keyspace.AppendValues(nil, b, names)); got != same {
				t.Errorf("%v and %v have equal encoded values: %v, want %v", a, b, got, same)
			}
		}
	}
}

func value(d keyspace.Descriptor, name string) string {
	v, _ := d.Get(name)
	return v
}

// TestQuotaKeyParts: where one part ends and the next begins is part of the key, from the namespace on.
func TestQuotaKeyParts(t *testing.T) {
	x := descriptor(t, "x=1")
	keys := [][]byte{
		keyspace.AppendQuotaKey(nil, "ab", "c", x),
		keyspace.AppendQuotaKey(nil, "a", "bc", x),
		keyspace.AppendQuotaKey(nil, "ab", "cx1", nil),
		keyspace.AppendQuotaKey(nil, "ab", "c", descriptor(t, "x1=")),
		keyspace.AppendQuotaKey(nil, "ab", "c", descriptor(t, "x=1", "y=")),
	}
	for i := range keys {
		for j := range i {
			if bytes.Equal(keys[i], keys[j]) {
				t.Errorf("keys %d and %d are both %x", j, i, keys[i])
			}
		}
	}
}

// splitParts is the obvious decoder: a uvarint, that many bytes, and so on.
func splitParts(t *testing.T, b []byte) (parts []string) {
	t.Helper()
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			t.Fatalf("no part begins with %x", b)
		}
		parts = append(parts, string(b[size:size+int(n)]))
		b = b[size+int(n):]
	}
	return parts
}

func FuzzQuotaKeyReadsBack(f *testing.F) {
	f.Add("media", "conversions", "principal", "u42", "tier", "")
	f.Add("", "\x00", "\xff", "|", "=", strings.Repeat("v", 200))
	f.Fuzz(func(t *testing.T, namespace, quota, n1, v1, n2, v2 string) {
		key, err := keyspace.NewDescriptor([]keyspace.Entry{{Name: n1, Value: v1}, {Name: n2, Value: v2}})
		if err != nil {
			t.Skip("not a descriptor")
		}
		want := []string{namespace, quota, key[0].Name, key[0].Value, key[1].Name, key[1].Value}
		if got := splitParts(t, keyspace.AppendQuotaKey(nil, namespace, quota, key)); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func FuzzSplitValues(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x03u42"))
	f.Add([]byte("\x80\x00"))
	f.Add([]byte("\x04u42"))
	f.Add(keyspace.AppendValues(nil, keyspace.Descriptor{{Name: "a", Value: strings.Repeat("v", 1024)}}, []string{"a"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		values, err := keyspace.SplitValues(nil, b)
		if err != nil {
			if !errors.Is(err, keyspace.ErrEncoding) {
				t.Errorf("%x: %v", b, err)
			}
			return
		}
		var again []byte
		for _, v := range values {
			again = keyspace.AppendValues(again, keyspace.Descriptor{{Name: "n", Value: string(v)}}, []string{"n"})
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x was read as %q, which is written %x", b, values, again)
		}
	})
}

func TestSplitValuesRefuses(t *testing.T) {
	long := append(binary.AppendUvarint(nil, keyspace.MaxValueLen+1), make([]byte, keyspace.MaxValueLen+1)...)
	for name, b := range map[string][]byte{
		"a length without its end":    {0x80},
		"a length in a longer form":   {0x81, 0x00, 'x'},
		"zero in a longer form":       {0x80, 0x00},
		"a length beyond the end":     {2, 'x'},
		"a length beyond 64 bits":     {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
		"a value longer than allowed": long,
		"a good value and a bad one":  {1, 'x', 5},
		"the largest length there is": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	} {
		if values, err := keyspace.SplitValues(nil, b); !errors.Is(err, keyspace.ErrEncoding) {
			t.Errorf("%s: got %q, %v", name, values, err)
		}
	}
}

func TestSplitValuesAppends(t *testing.T) {
	d := descriptor(t, "a=1", "c=3")
	b := keyspace.AppendValues([]byte("front"), d, []string{"a", "b", "c"})
	values, err := keyspace.SplitValues([][]byte{[]byte("0")}, bytes.TrimPrefix(b, []byte("front")))
	if got := string(bytes.Join(values, []byte(","))); err != nil || got != "0,1,,3" {
		t.Errorf("got %s, %v", got, err)
	}
}
