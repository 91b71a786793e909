package origin_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/origin"
)

// client gives the element as it stands, or "none".
func client(list, peer string, trusted int) string {
	element, ok := origin.Client([]byte(list), []byte(peer), trusted)
	if !ok {
		return "none"
	}
	return string(element)
}

func TestHDR01HopsCountFromTheRight(t *testing.T) {
	for n := range 10 {
		list := fmt.Sprintf("192.0.2.%d, 203.0.113.9", n)
		if got := client(list, "10.0.0.1", 1); got != "203.0.113.9" {
			t.Errorf("%q: the caller chose %q", list, got)
		}
	}
}

func TestCSV05OneElementOfAQuotedList(t *testing.T) {
	const list = "203.0.113.9, 198.51.100.7, 10.0.0.1"
	for trusted, want := range []string{"10.0.0.1", "198.51.100.7", "203.0.113.9", "203.0.113.9"} {
		if got := client(list, "", trusted); got != want {
			t.Errorf("%d trusted of the list alone: %q, want %q", trusted, got, want)
		}
	}
}

func TestCSV17WithoutAListThePeer(t *testing.T) {
	for _, list := range []string{"", "-", " - ", "  "} {
		for trusted := range 3 {
			if got := client(list, "198.51.100.5", trusted); got != "198.51.100.5" {
				t.Errorf("list %q, %d trusted: %q", list, trusted, got)
			}
		}
	}
	if got := client("198.51.100.5", "10.0.0.1", 1); got != "198.51.100.5" {
		t.Errorf("with a list: %q", got)
	}
}

func TestAnUntrustedPeerIsTheClient(t *testing.T) {
	for _, list := range []string{"192.0.2.1", "10.0.0.1, 10.0.0.2", "unknown", ","} {
		if got := client(list, "198.51.100.5:4711", 0); got != "198.51.100.5:4711" {
			t.Errorf("list %q: %q", list, got)
		}
	}
}

func TestWithoutAnAddressThereIsNoClient(t *testing.T) {
	for _, c := range []struct {
		list, peer string
		trusted    int
		want       string
	}{
		{"", "", 0, "none"},
		{"-", "-", 1, "none"},
		{"192.0.2.1", "10.0.0.1", -1, "none"},
		// Not the left neighbour, not the right one.
		{"192.0.2.1, unknown", "10.0.0.1", 1, "none"},
		{"192.0.2.1, unknown, 10.0.0.2", "10.0.0.1", 2, "none"},
		{"192.0.2.1, _hidden", "10.0.0.1", 1, "none"},
		{"192.0.2.1, -", "10.0.0.1", 1, "none"},
		{"192.0.2.1,", "10.0.0.1", 1, "none"},
		{"192.0.2.1, , 10.0.0.2", "10.0.0.1", 2, "none"},
		{"192.0.2.1 198.51.100.7", "10.0.0.1", 1, "none"},
		{"unknown", "10.0.0.1", 9, "none"},
		{"localhost, localhost", "", 0, "none"},
		// What isn't asked doesn't matter.
		{"<script>, 192.0.2.1", "10.0.0.1", 1, "192.0.2.1"},
		{",,, 192.0.2.1", "10.0.0.1", 1, "192.0.2.1"},
		{"192.0.2.1", "unix:", 1, "192.0.2.1"},
		{"192.0.2.1, unknown", "10.0.0.1", 2, "192.0.2.1"},
		{"192.0.2.1", "unix:", 0, "none"},
		{"\t192.0.2.1\t,10.0.0.2", "10.0.0.1", 2, "192.0.2.1"},
		{"[2001:db8::1]:443,10.0.0.2", " 10.0.0.1 ", 2, "[2001:db8::1]:443"},
	} {
		if got := client(c.list, c.peer, c.trusted); got != c.want {
			t.Errorf("%q from %q, %d trusted: %q, want %q", c.list, c.peer, c.trusted, got, c.want)
		}
	}
}

// chosen is the documentation as a program: the whole chain, and one place in it.
func chosen(list, peer string, trusted int) string {
	trim := func(text string) string { return strings.Trim(text, " \t") }
	absent := func(field string) bool { return trim(field) == "" || trim(field) == "-" }
	var chain []string
	if !absent(list) {
		chain = strings.Split(list, ",")
	}
	if !absent(peer) {
		chain = append(chain, peer)
	}
	if len(chain) == 0 || trusted < 0 {
		return "none"
	}
	element := trim(chain[max(0, len(chain)-1-trusted)])
	if _, ok := origin.AppendAddress(nil, []byte(element), 128); !ok || strings.Contains(element, "/") {
		return "none"
	}
	return element
}

func TestClientAgreesWithTheWholeChain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	elements := []string{"192.0.2.1", "2001:db8::1", "[2001:db8::2]:80", "unknown", "-", "", "unix:"}
	for range 20_000 {
		var list []string
		for range r.IntN(6) {
			list = append(list, strings.Repeat(" ", r.IntN(3))+elements[r.IntN(len(elements))]+strings.Repeat("\t", r.IntN(2)))
		}
		joined, peer, trusted := strings.Join(list, ","), elements[r.IntN(len(elements))], r.IntN(8)-1
		if got, want := client(joined, peer, trusted), chosen(joined, peer, trusted); got != want {
			t.Fatalf("%q from %q, %d trusted: %q, want %q", joined, peer, trusted, got, want)
		}
	}
}

func FuzzClient(f *testing.F) {
	f.Add("192.0.2.1, 203.0.113.9", "10.0.0.1", 1)
	f.Add("-", "unix:", 0)
	f.Add("unknown,, [2001:db8::1]:443", "", 2)
	f.Fuzz(func(t *testing.T, list, peer string, trusted int) {
		got := client(list, peer, trusted)
		trusted = min(trusted, 1<<20) // more hops than elements, and no overflow in the oracle
		if want := chosen(list, peer, trusted); got != want {
			t.Fatalf("%q from %q, %d trusted: %q, want %q", list, peer, trusted, got, want)
		}
	})
}

func BenchmarkClient(b *testing.B) {
	list, peer := []byte("192.0.2.1, 203.0.113.9, 10.0.0.2"), []byte("10.0.0.1")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = origin.Client(list, peer, 2)
	}
}
