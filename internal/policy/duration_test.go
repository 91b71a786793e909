package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/policy"
)

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]int64{
		"60s":                       minute,
		"1h30m":                     90 * minute,
		"0.25s":                     second / 4,
		"1.5h":                      90 * minute,
		"100ms":                     second / 10,
		"1ns":                       1,
		"1us":                       1000,
		"1µs":                       1000,
		"1m1m":                      2 * minute,
		"0s":                        0,
		"000001.500000000000000s":   second + second/2,
		"0.0000000000025h":          9,
		"2562047h47m16.854775807s":  math.MaxInt64,
		"0.000000000000h":           0,
		"9223372036854775807ns":     math.MaxInt64,
		"0.00000000000000000000ns":  0,
		"0000000000000000000001.0s": second,
	} {
		if got, err := policy.ParseDuration(s); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", s, got, err, want)
		}
	}
}

// TestCRD03DurationForms: what isn't the documented form is refused with the form that was meant.
func TestCRD03DurationForms(t *testing.T) {
	const form = "a number and a unit, like 60s, 1h30m or 0.25s"
	for s, want := range map[string]string{
		"1d":                        `"1d" is not a duration; write 24h`,
		"2 days":                    `"2 days" is not a duration; write 48h`,
		"1w":                        `"1w" is not a duration; write 168h`,
		"60":                        `"60" is not a duration; write 60s`,
		"1.5":                       `"1.5" is not a duration; write 1.5s`,
		"":                          `"" is not a duration; write ` + form,
		"0":                         `"0" is not a duration; write ` + form,
		"1m 30s":                    `"1m 30s" is not a duration; write 1m30s`,
		"1H":                        `"1H" is not a duration; write 1h`,
		"-5s":                       `"-5s" is not a duration; write ` + form,
		"+5s":                       `"+5s" is not a duration; write ` + form,
		".5s":                       `".5s" is not a duration; write ` + form,
		"5.s":                       `"5.s" is not a duration; write ` + form,
		"1e3s":                      `"1e3s" is not a duration; write ` + form,
		"1_000s":                    `"1_000s" is not a duration; write ` + form,
		"0.5ns":                     `"0.5ns" is not a duration; write ` + form,
		"forever":                   `"forever" is not a duration; write ` + form,
		"P1D":                       `"P1D" is not a duration; write ` + form,
		"1s\x00":                    `"1s\x00" is not a duration; write ` + form,
		"9999999h":                  `"9999999h" is longer than 2160h0m0s, the longest allowed`,
		"99999999999999999999s":     `"99999999999999999999s" is longer than 2160h0m0s, the longest allowed`,
		"9223372036854775807ns1ns":  `"9223372036854775807ns1ns" is longer than 2160h0m0s, the longest allowed`,
		"18446744073709551615ns1ns": `"18446744073709551615ns1ns" is longer than 2160h0m0s, the longest allowed`,
		"1.0000000001s":             `"1.0000000001s" is not a duration; write ` + form,
	} {
		if got, err := policy.ParseDuration(s); err == nil || err.Error() != want {
			t.Errorf("%q: %d, %v\nwant %s", s, got, err, want)
		}
	}
}

// FuzzParseDuration: what is accepted, Go's own parser reads alike, and printing it reads back.
func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"60s", "1h30m", "0.25s", "1d", "60", "-5s", "9999999h", "1.5µs", "0.0000000000025h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ns, err := policy.ParseDuration(s)
		if err != nil {
			return
		}
		if want, err := time.ParseDuration(s); err != nil || int64(want) != ns {
			t.Errorf("%q: %d, but Go says %d, %v", s, ns, want, err)
		}
		if again, err := policy.ParseDuration(policy.FormatDuration(ns)); err != nil || again != ns {
			t.Errorf("%q: %d is printed as %s and read as %d, %v", s, ns, policy.FormatDuration(ns), again, err)
		}
	})
}
