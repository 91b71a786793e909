package origin_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/origin"
)

func host(t *testing.T, text string) string {
	t.Helper()
	return normal(t, origin.AppendHost, text)
}

func TestKEY07OneHostOneKey(t *testing.T) {
	for _, text := range []string{"Example.COM", "example.com", "example.com.", "example.com:443", "EXAMPLE.COM:80", "example.com.:8080", "example.com:", "ｅxample.com", "example。com"} {
		if got := host(t, text); got != "example.com" {
			t.Errorf("%q: %q", text, got)
		}
	}
	for _, text := range []string{"bücher.example", "BÜCHER.Example:80", "bu\u0308cher.example.", "xn--bcher-kva.example", "XN--BCHER-KVA.example"} {
		if got := host(t, text); got != "xn--bcher-kva.example" {
			t.Errorf("%q: %q", text, got)
		}
	}
	if a, b := host(t, "faß.example"), host(t, "fass.example"); a != "xn--fa-hia.example" || b != "fass.example" {
		t.Errorf("not transitional: %q and %q", a, b)
	}
}

func TestCSV14PortsAndAddressesAsHosts(t *testing.T) {
	for text, want := range map[string]string{
		"example.com:80":         "example.com",
		"example.com":            "example.com",
		"192.0.2.3:80":           "192.0.2.3",
		"192.0.2.3.":             "192.0.2.3",
		"192.0.2.3.:80":          "192.0.2.3",
		"[2001:db8::3]:443":      "2001:db8::3",
		"[2001:DB8:0::3]":        "2001:db8::3",
		"2001:db8::3":            "2001:db8::3",
		"[::ffff:192.0.2.3]":     "192.0.2.3",
		"[fe80::1%25eth0]:80":    "fe80::1",
		"１９２.0.2.3":              "192.0.2.3",
		"localhost:8080":         "localhost",
		"a_b.default.svc":        "a_b.default.svc",
		"r3---sn-x.example":      "r3---sn-x.example",
		"4chan.example":          "4chan.example",
		"example.0xyz":           "example.0xyz",
		"xn--not a name.example": "refused",
	} {
		if got := host(t, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestWhatCannotBeAHostIsRefused(t *testing.T) {
	long := strings.Repeat("a", 63)
	fits := strings.Join([]string{long, long, long, strings.Repeat("a", 61)}, ".")
	if got := host(t, fits); got != fits {
		t.Errorf("253 bytes: %q", got)
	}
	for _, text := range []string{
		"", ".", "..", ":", ":80", "-", "a..b", ".a", "a.example..", "-a.example", "a-.example", "a b", "a\tb", "a\r", "a\x00", "a/b", "a%41", "a@b", "a,b",
		"http://a.example", "a.example:http", "a.example:65536", "a.example:80:80", "[a.example]", "[::1", "::1]", "[::1]x", "1.2.3", "010.0.0.1",
		"256.0.2.1", "12345", "0x7f000001", "a.0x", "a.example.1", "unix:/run/app.sock", "*", "*.example", fits + "a", long + "a.example",
		"a\u00adb.example:x", "\xff.example", "\u2603\u200d.example", "_x.bücher.example", "a\uff0fb.example", "bücher..example",
		strings.Repeat("ü", 1<<20),
	} {
		if got := host(t, text); got != "refused" {
			t.Errorf("%.50q: %.50q", text, got)
		}
	}
}

// The oracle writes a name as we mean it, then spells it in some other way.
func TestEverySpellingOfANameIsOneHost(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const letters, inner = "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz0123456789-_"
	for range 20_000 {
		var labels []string
		for range 1 + r.IntN(4) {
			label := string(letters[r.IntN(len(letters))])
			for range r.IntN(20) {
				label += string(inner[r.IntN(len(inner))])
			}
			labels = append(labels, label+"z")
		}
		name := strings.Join(labels, ".")
		text := name
		if r.IntN(2) == 0 {
			text = strings.ToUpper(text)
		}
		text += []string{"", ".", ":80", ".:443"}[r.IntN(4)]
		if got := host(t, text); got != name {
			t.Fatalf("%q: %q, want %q", text, got, name)
		}
	}
}

func FuzzHost(f *testing.F) {
	for _, text := range []string{"Example.COM.:443", "[2001:db8::3]:443", "192.0.2.3", "bücher.example", "xn--bcher-kva.example", "010.0.0.1", "example。com"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := host(t, text)
		if len(got) > 253 || got == "" {
			t.Fatalf("%q became %q", text, got)
		}
		for _, c := range []byte(got) {
			if c <= ' ' || c > '~' || strings.IndexByte(`"%/@[]\`, c) >= 0 || 'A' <= c && c <= 'Z' {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}

func BenchmarkHost(b *testing.B) {
	for _, text := range []string{"www.Example.COM:443", "203.0.113.195:8080", "[2001:db8:85a3::8a2e:370:7334]:443", "xn--bcher-kva.example", "bücher.example"} {
		b.Run(text, func(b *testing.B) {
			dst, in := make([]byte, 0, 64), []byte(text)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = origin.AppendHost(dst, in)
			}
		})
	}
}

func TestNothingAllocatesForASCII(t *testing.T) {
	dst := make([]byte, 0, 256)
	for _, text := range []string{"203.0.113.195:80", "[2001:db8::8a2e:370:7334]:443", "fe80::1%eth0", "www.Example.COM.:443", "-", "unknown", "unix:", ""} {
		in := []byte(text)
		list := []byte("unknown, " + text)
		if n := testing.AllocsPerRun(100, func() {
			_, _ = origin.AppendAddress(dst, in, 64)
			_, _ = origin.AppendHost(dst, in)
			_, _ = origin.Client(list, in, 1)
		}); n != 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}
