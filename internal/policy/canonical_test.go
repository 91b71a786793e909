package policy_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// TestGolden: the canonical form and the hashes of testdata never change for a set that is already known.
// Where this test fails, nodes of two versions would take one set for two.
func TestGolden(t *testing.T) {
	canonical, err := os.ReadFile("testdata/conversions.json")
	if err != nil {
		t.Fatal(err)
	}
	s := conversions()
	if got := string(s.Canonical()) + "\n"; got != string(canonical) {
		t.Errorf("got\n%swant\n%s", got, canonical)
	}
	hash := s.Hash()
	if got, want := hex.EncodeToString(hash[:]), "0087cf6d0c0f13e3714f54dcef94d7ea9520ba723e5ef2e5b10991987c1cf15c"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
	if got, want := s.Policies[0].Revision(), uint64(0xcfc22e134b32a8b); got != want {
		t.Errorf("revision %#x, want %#x", got, want)
	}
}

func TestCanonicalReadsBack(t *testing.T) {
	eachSeed(t, 200, func(t *testing.T, g *generator) {
		want := g.set(1+g.rng.IntN(6), 3)
		b := want.Canonical()
		got, err := policy.ParseCanonical(b)
		if err != nil {
			t.Fatal(err)
		}
		want.Normalize()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if again := got.Canonical(); !bytes.Equal(again, b) {
			t.Errorf("written again\n%s\nwas\n%s", again, b)
		}
	})
}

func TestEmptySetIsCanonical(t *testing.T) {
	got, err := policy.ParseCanonical(policy.Set{}.Canonical())
	if err != nil || !reflect.DeepEqual(got, policy.Set{}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestParseCanonicalRefusesOtherForms: one set has one form, so that bytes, hash and meaning can't part.
func TestParseCanonicalRefusesOtherForms(t *testing.T) {
	text := string(conversions().Canonical())
	for name, change := range map[string][2]string{
		"white space":                 {`{"policies"`, `{ "policies"`},
		"another case":                {`"quota":`, `"Quota":`},
		"an unknown field":            {`"quota":`, `"priority":1,"quota":`},
		"a repeated field":            {`"quota":"conversions"`, `"quota":"x","quota":"conversions"`},
		"fields in another order":     {`"namespace":"media","quota":"conversions"`, `"quota":"conversions","namespace":"media"`},
		"a missing default":           {`"mode":"Enforce",`, ``},
		"a default spelt out":         {`"transition"`, `"global":false,"transition"`},
		"a duration in another form":  {`"1m0s"`, `"60s"`},
		"a duration that is none":     {`"1m0s"`, `"1d"`},
		"a number in another form":    {`"limit":3,`, `"limit":3e0,`},
		"a number as a string":        {`"limit":3,`, `"limit":"3",`},
		"a negative number":           {`"limit":3,`, `"limit":-3,`},
		"a number beyond 64 bits":     {`"limit":3,`, `"limit":18446744073709551616,`},
		"a limit with two algorithms": {`"tokenBucket"`, `"fixedWindow":{"limit":1,"window":"1s"},"tokenBucket"`},
		"a bucket with a limit":       {`{"capacity":80}`, `{"limit":80}`},
		"amounts in another order":    {`"daily":{"unlimited":true},"per-minute":{"limit":1000}`, `"per-minute":{"limit":1000},"daily":{"unlimited":true}`},
		"escapes that nothing needs":  {`"media"`, `"\u006dedia"`},
		"something after it":          {`]}`, `]}{}`},
	} {
		other := strings.Replace(text, change[0], change[1], 1)
		if other == text {
			t.Errorf("%s: nothing to change in %s", name, text)
		}
		if got, err := policy.ParseCanonical([]byte(other)); !errors.Is(err, policy.ErrNotCanonical) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// TestRevision: every change of a policy changes its revision, and nothing else does.
func TestRevision(t *testing.T) {
	revision := conversions().Policies[0].Revision()
	other := conversions()
	other.Policies = append(other.Policies, least("another"))
	if other.Policies[0].Revision() != revision {
		t.Error("another policy changed it")
	}
	other.Normalize()
	if other.Policies[0].Revision() != revision {
		t.Error("filling in the defaults changed it")
	}
	seen := map[uint64]string{revision: "no change"}
	for name, change := range map[string]func(*policy.Policy){
		"an amount":     func(p *policy.Policy) { p.Limits[0].Amount++ },
		"a window":      func(p *policy.Policy) { p.Limits[0].Window++ },
		"a refill":      func(p *policy.Policy) { p.Limits[2].Refill++ },
		"an algorithm":  func(p *policy.Policy) { p.Limits[0].Algorithm = limit.FixedWindow },
		"a precision":   func(p *policy.Policy) { p.Limits[0].Precision = second },
		"a limit name":  func(p *policy.Policy) { p.Limits[0].Name = "x" },
		"a match":       func(p *policy.Policy) { p.Match[0].Value = "x" },
		"the key":       func(p *policy.Policy) { p.Key[0] = "x" },
		"partitionBy":   func(p *policy.Policy) { p.PartitionBy = []string{} },
		"a tier":        func(p *policy.Policy) { p.Tiers[0].Amounts[0].Amount++ },
		"an override":   func(p *policy.Policy) { p.Overrides[0].Amounts[1].Period++ },
		"a cost":        func(p *policy.Policy) { p.Costs[0].Cost++ },
		"keepHistory":   func(p *policy.Policy) { p.KeepHistory++ },
		"transition":    func(p *policy.Policy) { p.Transition = policy.FromNow },
		"mode":          func(p *policy.Policy) { p.Mode = policy.Shadow },
		"onUnavailable": func(p *policy.Policy) { p.OnUnavailable = policy.Allow },
		"allowAdjust":   func(p *policy.Policy) { p.AllowAdjust = true },
		"quota":         func(p *policy.Policy) { p.Quota = "x" },
		"domain":        func(p *policy.Policy) { p.Domain = "x" },
	} {
		p := conversions().Policies[0]
		change(&p)
		r := p.Revision()
		if before, taken := seen[r]; taken {
			t.Errorf("%s and %s give one revision", name, before)
		}
		seen[r] = name
	}
}

func FuzzParseCanonical(f *testing.F) {
	f.Add(conversions().Canonical())
	f.Add(policy.Set{Policies: []policy.Policy{least("p")}}.Canonical())
	f.Add([]byte(`{"policies":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := policy.ParseCanonical(b)
		if err != nil {
			if !errors.Is(err, policy.ErrNotCanonical) {
				t.Error(err)
			}
			return
		}
		if again := s.Canonical(); !bytes.Equal(again, b) {
			t.Errorf("read\n%s\nwrote\n%s", b, again)
		}
		if len(s.Validate()) > 0 {
			return
		}
		if _, err := policy.Compile(s); err != nil {
			t.Error(err)
		}
	})
}
