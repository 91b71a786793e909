package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/replay"
)

var update = flag.Bool("update", false, "write the golden files anew")

const second = int64(1_000_000_000)

// start is 2026-01-01T00:00:00Z.
const start = 1_767_225_600 * second

// plain is a day's beginning with one policy: all lines were good.
func plain() *replay.Summary {
	s := &replay.Summary{
		Inputs: []replay.Input{{Name: "access.log", Format: "combined"}},
		Lines:  12_345, Requests: 12_345, Allowed: 7_345, Denied: 5_000,
		From: start + 12_000_000, To: start + 599_950_000_000,
		Policies: []replay.PolicySummary{{Namespace: "default", Name: "per-ip", Requests: 12_345, Denied: 5_000}},
		Top: []replay.Offender{
			{Key: "198.51.100.23", Policy: "default/per-ip", Requests: 6_000, Denied: 4_990},
			{Key: "2001:db8:0:7::/64", Policy: "default/per-ip", Requests: 250, Denied: 10},
		},
		TopExact: true,
		Series:   replay.Series{Start: start, Step: 10 * second},
	}
	for i := range int64(60) {
		s.Series.Denied = append(s.Series.Denied, min(i*i/8, 112))
		s.Series.Allowed = append(s.Series.Allowed, 100+i*7%40)
	}
	raise(s.Series.Denied, s.Denied)
	raise(s.Series.Allowed, s.Allowed)
	return s
}

// raise raises the counts one after another until all add up to want.
func raise(counts []int64, want int64) {
	for i := 0; total(counts) < want; i++ {
		counts[i%len(counts)]++
	}
}

// bad is plain with lines that were no requests, and requests that no policy matched.
func bad() *replay.Summary {
	s := plain()
	s.Inputs = append(s.Inputs, replay.Input{Name: "-", Format: "csv"})
	s.Lines, s.Bad, s.Blank, s.Header = 13_360, 1_012, 2, 1
	s.BadBy = []replay.Count{{Name: "the time has no zone", N: 1_000}, {Name: "too few fields", N: 12}}
	s.Unmatched, s.TopExact = 7, false
	return s
}

// compared is bad with two policies, one of them in shadow, beside another set.
func compared() *replay.Summary {
	s := bad()
	s.ShadowDenied = 40
	s.Policies = []replay.PolicySummary{
		{Namespace: "media", Name: "conversions", Requests: 12_000, Denied: 4_960},
		{Namespace: "media", Name: "trial", Shadow: true, Requests: 338, Denied: 40},
	}
	s.Top[0].Policy, s.Top[1].Policy = "media/conversions", "media/trial"
	s.Against = &replay.Comparison{
		Allowed: 7_400, Denied: 4_945, NewlyDenied: 60, NewlyAllowed: 5,
		Top: []replay.Offender{{Key: "203.0.113.77", Policy: "media/conversions", Requests: 250, Denied: 60}},
	}
	return s
}

// unread is what remains where every line was bad.
func unread() *replay.Summary {
	return &replay.Summary{
		Inputs: []replay.Input{{Name: "photo.jpg", Format: "csv"}},
		Lines:  3, Bad: 2, Blank: 1, BadBy: []replay.Count{{Name: "not a line of text", N: 2}}, TopExact: true,
	}
}

// hostile has keys, names and reasons of somebody who knows what will show them.
func hostile() *replay.Summary {
	s := compared()
	keys := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "'; DROP TABLE keys; --",
		"\x1b[2J\x1b]0;owned\a", "a\r\nAllowed 100 %", "\u202egnp.exe", "\xff\xfe\x00", `back\slash`,
		"日本語のとても長いキーがここにあります日本語のとても長いキーがここにあります",
		"{{.Title}}", "</title></svg></table>", "javascript:alert(1)", "",
		"https://example.com/a/very/long/path/that/goes/on/and/on/without/any/end/in/sight?query=1#end",
	}
	s.Top = nil
	for _, k := range keys {
		s.Top = append(s.Top, replay.Offender{Key: k, Policy: k + "/" + k, Requests: 10, Denied: 5})
	}
	s.Against.Top = s.Top
	s.Policies[0].Namespace, s.Policies[1].Name = keys[0], keys[3]
	s.BadBy[0].Name, s.Inputs[0].Name, s.Inputs[0].Format = keys[1], keys[4], keys[5]
	return s
}

// golden compares got with a file of testdata, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is\n%s\nwant (or go test -update)\n%s", name, got, want)
	}
}
