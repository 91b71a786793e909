package origin_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/origin"
)

// address gives the normal form, or "refused".
func address(t *testing.T, text string, prefix int) string {
	t.Helper()
	return normal(t, func(dst, text []byte) ([]byte, bool) { return origin.AppendAddress(dst, text, prefix) }, text)
}

// normal checks on the way that what stands in dst is kept, and that a normal form is its own.
func normal(t *testing.T, form func(dst, text []byte) ([]byte, bool), text string) string {
	t.Helper()
	out, ok := form([]byte("before "), []byte(text))
	got, kept := strings.CutPrefix(string(out), "before ")
	if !kept || !ok && got != "" {
		t.Fatalf("%q: left %q in the destination", text, out)
	}
	if !ok {
		return "refused"
	}
	again, ok := form(nil, []byte(got))
	if !ok || string(again) != got {
		t.Fatalf("%q: the normal form of %q is %q, %v", text, got, again, ok)
	}
	return got
}

func TestKEY03MappedIPv6IsIPv4(t *testing.T) {
	for _, text := range []string{"192.0.2.1", "::ffff:192.0.2.1", "::FFFF:C000:0201", "0:0:0:0:0:ffff:c000:201", "[::ffff:192.0.2.1]:80"} {
		for _, prefix := range []int{64, 128} {
			if got := address(t, text, prefix); got != "192.0.2.1" {
				t.Errorf("%q with prefix %d: %q", text, prefix, got)
			}
		}
	}
}

func TestKEY04IPv6ByPrefix(t *testing.T) {
	for _, c := range []struct {
		text   string
		prefix int
		want   string
	}{
		{"2001:db8:1:2::1", 64, "2001:db8:1:2::/64"},
		{"2001:db8:1:2:ffff::9", 64, "2001:db8:1:2::/64"},
		{"2001:db8:1:3::1", 64, "2001:db8:1:3::/64"},
		{"2001:db8:1:3ff::1", 56, "2001:db8:1:300::/56"},
		{"2001:db8:1:3::1", 127, "2001:db8:1:3::/127"},
		{"2001:db8:1:3::1", 128, "2001:db8:1:3::1"},
		{"ffff::", 1, "8000::/1"},
		{"192.0.2.1", 64, "192.0.2.1"},
		{"192.0.2.2", 1, "192.0.2.2"},
	} {
		if got := address(t, c.text, c.prefix); got != c.want {
			t.Errorf("%q with prefix %d: %q, want %q", c.text, c.prefix, got, c.want)
		}
	}
}

func TestKEY05PortsBracketsZones(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.4:5678":            "192.0.2.4",
		"192.0.2.4":                 "192.0.2.4",
		"192.0.2.4:":                "192.0.2.4",
		"::1":                       "::1",
		"2001:db8::1":               "2001:db8::1",
		"[2001:db8::1]:5678":        "2001:db8::1",
		"[2001:db8::1]":             "2001:db8::1",
		"2001:db8::1%eth0":          "2001:db8::1",
		"[fe80::1%25eth0]:80":       "fe80::1",
		"2001:db8::1:5678":          "2001:db8::1:5678", // no brackets, no port
		"2001:db8:0:0:0:0:0:1:5678": "refused",
		"192.0.2.4:65536":           "refused",
		"192.0.2.4:http":            "refused",
		"192.0.2.4:80:80":           "refused",
		"[2001:db8::1]5678":         "refused",
		"[2001:db8::1":              "refused",
		"2001:db8::1]":              "refused",
		"[192.0.2.4]":               "refused",
		"[192.0.2.4]:80":            "refused",
		"[]":                        "refused",
		"2001:db8::1%":              "refused",
		"2001:db8::1%eth0:80":       "refused",
		"2001:db8::1%eth 0":         "refused",
		"192.0.2.4%eth0":            "refused",
		"::ffff:192.0.2.4%eth0":     "refused",
	} {
		if got := address(t, text, 128); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestKEY11NoAddressIsNoKey(t *testing.T) {
	for _, text := range []string{
		"", "-", "unknown", "_hidden", "_SEVKISEK", "localhost", "example.com", "unix:", "unix:/run/app.sock", "null", "nil",
		"None", "0", "1", "127.1", "3221225985", "0x7f.0.0.1", "dead.beef", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.", ".1.2.3",
		"1..2.3", ":", "::g", ":::", "1::2::3", "192.0.2.1, 192.0.2.2", " 192.0.2.1", "192.0.2.1 ", "192.0.2.1\r", "192.0.2.1\x00",
		"+1.2.3.4", "１９２.0.2.1", "192.0.2.1/24", "192.0.2.1/32", "2001:db8::1/64", "2001:db8::/32", "2001:DB8::/64", "2001:db8::/64/64",
		"[2001:db8::/64]", "2001:db8::/", "/64", strings.Repeat("/", 1<<20),
	} {
		if got := address(t, text, 64); got != "refused" {
			t.Errorf("%.50q: %q", text, got)
		}
	}
}

func TestKEY14OneSpellingNoOctal(t *testing.T) {
	for text, want := range map[string]string{
		"2001:0db8:10ff:f00f:0000:0000:0:8000": "2001:db8:10ff:f00f::8000",
		"2001:db8:10ff:f00f::8000":             "2001:db8:10ff:f00f::8000",
		"2001:DB8:10FF:F00F::8000":             "2001:db8:10ff:f00f::8000",
		"10.0.0.1":                             "10.0.0.1",
		"010.0.0.1":                            "refused",
		"10.0.0.01":                            "refused",
		"::ffff:010.0.0.1":                     "refused",
		"2001:00db8::1":                        "refused",
	} {
		if got := address(t, text, 128); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestAPrefixOutOfRangeKeysNobody(t *testing.T) {
	for _, prefix := range []int{-1, 0, 129} {
		for _, text := range []string{"192.0.2.1", "2001:db8::1"} {
			if got := address(t, text, prefix); got != "refused" {
				t.Errorf("%q with prefix %d: %q", text, prefix, got)
			}
		}
	}
}

// The oracle: netip's own text of what the address was made from.
func TestEverySpellingAgreesWithNetip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		a, prefix := someAddress(r), 1+r.IntN(128)
		for _, text := range spellings(r, a) {
			if got, want := address(t, text, prefix), oracle(a, prefix); got != want {
				t.Fatalf("%q with prefix %d: %q, want %q", text, prefix, got, want)
			}
		}
	}
}

func oracle(a netip.Addr, prefix int) string {
	a = a.Unmap().WithZone("")
	if a.Is4() || prefix == 128 {
		return a.String()
	}
	return netip.PrefixFrom(a, prefix).Masked().String()
}

func someAddress(r *rand.Rand) netip.Addr {
	var b [16]byte
	for i := range b {
		if r.IntN(2) == 0 { // zeros, for runs to be compressed
			b[i] = byte(r.Uint32())
		}
	}
	switch r.IntN(3) {
	case 0:
		return netip.AddrFrom4([4]byte(b[:4]))
	case 1:
		copy(b[:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff")
	}
	return netip.AddrFrom16(b)
}

func spellings(r *rand.Rand, a netip.Addr) []string {
	port := uint16(r.Uint32())
	all := []string{a.String(), netip.AddrPortFrom(a, port).String()}
	if a.Is4() {
		return all
	}
	var groups []string
	for b := a.As16(); len(groups) < 8; {
		i := 2 * len(groups)
		groups = append(groups, fmt.Sprintf("%X", int(b[i])<<8|int(b[i+1])))
	}
	long := strings.Join(groups, ":")
	return append(all, a.StringExpanded(), strings.ToUpper(a.StringExpanded()), long, "["+long+"]", fmt.Sprintf("[%s]:%d", long, port))
}

func FuzzAddress(f *testing.F) {
	for _, text := range []string{"192.0.2.1:80", "[2001:db8::1%25eth0]:443", "::ffff:192.0.2.1", "2001:db8:1:2::/64", "unknown", "010.0.0.1"} {
		f.Add(text, 64)
	}
	f.Fuzz(func(t *testing.T, text string, prefix int) {
		got := address(t, text, prefix)
		if got == "refused" {
			a, err := netip.ParseAddr(text)
			if err == nil && a.Zone() == "" && 1 <= prefix && prefix <= 128 {
				t.Fatalf("refused %q, prefix %d", text, prefix)
			}
			return
		}
		if a, err := netip.ParseAddr(text); err == nil && got != oracle(a, prefix) {
			t.Fatalf("%q with prefix %d: %q, want %q", text, prefix, got, oracle(a, prefix))
		}
		bare, _, _ := strings.Cut(got, "/")
		if _, err := netip.ParseAddr(bare); err != nil {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func BenchmarkAddress(b *testing.B) {
	for _, text := range []string{"203.0.113.195", "203.0.113.195:54321", "2001:db8:85a3::8a2e:370:7334", "[2001:db8:85a3::8a2e:370:7334]:443", "unknown"} {
		b.Run(text, func(b *testing.B) {
			dst, in := make([]byte, 0, 64), []byte(text)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = origin.AppendAddress(dst, in, 64)
			}
		})
	}
}
