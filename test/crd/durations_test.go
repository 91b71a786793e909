package crd_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// windows is a spec with a limit for each of at most 16 forms of a window, which stand there as JSON.
func windows(forms []string) string {
	limits := make([]string, len(forms))
	for i, form := range forms {
		limits[i] = fmt.Sprintf(`{"name":"l%d","fixedWindow":{"limit":1,"window":%s}}`, i, form)
	}
	return `{"global":true,"limits":[` + strings.Join(limits, ",") + `]}`
}

// schemaRefuses says which of the forms the API server refuses, by their places.
func schemaRefuses(t *testing.T, forms []string) (places []string) {
	t.Helper()
	got := tryCreate(windows(forms))
	if got.String() == "" {
		return nil
	}
	var status struct {
		Details struct{ Causes []struct{ Field string } }
	}
	if err := json.Unmarshal(got.body, &status); err != nil || len(status.Details.Causes) == 0 {
		t.Fatalf("%v: %s", err, got.body)
	}
	for _, c := range status.Details.Causes {
		if strings.HasPrefix(c.Field, "spec.limits[") {
			places = append(places, strings.TrimPrefix(c.Field, "spec."))
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// readerRefuses says the same of the policy file's reader.
func readerRefuses(t *testing.T, forms []string) (places []string) {
	t.Helper()
	_, err := readSpec(windows(forms))
	for _, p := range problems(t, err) {
		places = append(places, strings.TrimPrefix(p.Path, "policies[0]."))
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// TestCRD03DurationForms: only what the documentation shows passes, by the API server and by the reader alike.
func TestCRD03DurationForms(t *testing.T) {
	server(t)
	for form, fine := range map[string]bool{
		`"60s"`: true, `"1h30m"`: true, `"0.25s"`: true, `"1.5h"`: true, `"100ms"`: true, `"250us"`: true, `"250µs"`: true,
		`"1ns"`: true, `"0s1ns"`: true, `"2160h"`: true, `"129600m"`: true, `"2159h59m59.999999999s"`: true, `"00060s"`: true,
		`"0.00000000005m"`: true, `"0.0000000000025h"`: true, `"1.0ns"`: true, `"2159h58.99999999995m"`: true,

		`"0s"`: false, `"0h0m"`: false, `"-5s"`: false, `"+5s"`: false, `"1d"`: false, `"1w"`: false, `"60"`: false, `60`: false, `0`: false,
		`""`: false, `"1m 30s"`: false, `" 1m"`: false, `"1m\n"`: false, `"9999999h"`: false, `"99999999999999999999h"`: false,
		`"2160h1ns"`: false, `"2160h0.000000001s"`: false, `"2160h0.00100000000000us"`: false, `"2161h"`: false, `"1H"`: false, `"1M"`: false,
		`"1.s"`: false, `".5s"`: false, `"1e3s"`: false, `"1,5s"`: false, `"0.1ns"`: false, `"0.0005us"`: false, `"0.0000000001s"`: false,
		`"0.00000000001m"`: false, `"0.0000000000020h"`: false, `"infinite"`: false, `"1 hour"`: false, `"PT1M"`: false, `"1μs"`: false,
		`"٣s"`: false, `null`: false, `true`: false, `["60s"]`: false, `{}`: false,
	} {
		// The one of 14 digits is a nanosecond too long, which time.ParseDuration, which rules calculate with, drops.
		bySchema, byReader := schemaRefuses(t, []string{form}) == nil, readerRefuses(t, []string{form}) == nil
		if bySchema != fine || byReader != fine {
			t.Errorf("%s: taken by the API server: %t, by the reader: %t, want %t", form, bySchema, byReader, fine)
		}
	}
}

// TestTheSchemaReadsDurationsAsTheReaderDoes: on drawn ones, most of them close to being fine, too long or too fine.
func TestTheSchemaReadsDurationsAsTheReaderDoes(t *testing.T) {
	server(t)
	g := newGenerator(3)
	taken, refused := 0, 0
	for range 60 {
		var forms []string
		for len(forms) < 16 {
			if d := g.drawDuration(); len([]rune(d)) <= 24 {
				forms = append(forms, jsonQuoted(d))
			}
		}
		bySchema, byReader := schemaRefuses(t, forms), readerRefuses(t, forms)
		if !slices.Equal(bySchema, byReader) {
			t.Errorf("of %s\nthe API server refuses %v\nthe reader %v", strings.Join(forms, " "), bySchema, byReader)
		}
		refused += len(byReader)
		taken += len(forms) - len(byReader)
	}
	t.Logf("%d taken, %d refused", taken, refused)
	if taken < 200 || refused < 200 {
		t.Errorf("%d taken, %d refused: the draw shows little", taken, refused)
	}
}

func jsonQuoted(s string) string { return `"` + jsonText(s) + `"` }

// drawDuration draws numbers with units, and now and then something else among them.
func (g generator) drawDuration() string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		b.WriteString(g.one("0", "1", "5", "60", "007", "2159", "2160", "129600", "999999", "7776000", "10000000").(string))
		if g.sometimes(2) {
			b.WriteString(".")
			for range g.IntN(14) {
				b.WriteByte("0000125"[g.IntN(7)])
			}
		}
		b.WriteString(g.one("h", "m", "s", "ms", "us", "µs", "ns", "s", "h").(string))
	}
	s := b.String()
	if g.sometimes(8) {
		at := g.IntN(len(s) + 1)
		for at < len(s) && s[at] == '\xb5' { // not within µ
			at++
		}
		s = s[:at] + g.one(" ", "-", "d", ".", "x", "0", "").(string) + s[at:]
	}
	return s
}
