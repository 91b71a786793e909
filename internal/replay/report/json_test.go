package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/replay"
)

func asJSON(t *testing.T, s *replay.Summary) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := JSON(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestJSONForPrograms shows the whole document; read testdata/*.json.
func TestJSONForPrograms(t *testing.T) {
	golden(t, "compared.json", asJSON(t, short(compared())))
	golden(t, "unread.json", asJSON(t, unread()))
}

// short cuts the series to three slices.
func short(s *replay.Summary) *replay.Summary {
	s.Series.Allowed, s.Series.Denied = s.Series.Allowed[:3], s.Series.Denied[:3]
	return s
}

// TestJSONHasAllNamesAlways, in one order, with null or an empty list where nothing applies.
func TestJSONHasAllNamesAlways(t *testing.T) {
	const want = "lines requests allowed denied bad blank header unmatched shadow_denied bad_by from to " +
		"policies top top_exact series inputs against"
	for name, s := range map[string]*replay.Summary{"all": compared(), "none": unread(), "zero": {}} {
		d := json.NewDecoder(bytes.NewReader(asJSON(t, s)))
		if got := strings.Join(names(t, d), " "); got != want {
			t.Errorf("%s has %s", name, got)
		}
	}
	const zero = `{"lines":0,"requests":0,"allowed":0,"denied":0,"bad":0,"blank":0,"header":0,"unmatched":0,"shadow_denied":0,` +
		`"bad_by":{},"from":null,"to":null,"policies":[],"top":[],"top_exact":false,"series":null,"inputs":[],"against":null}`
	var b bytes.Buffer
	if err := json.Compact(&b, asJSON(t, &replay.Summary{})); err != nil || b.String() != zero {
		t.Errorf("nothing at all is %s (%v)", b.String(), err)
	}
}

// names are those of the outermost object, as they come.
func names(t *testing.T, d *json.Decoder) (all []string) {
	t.Helper()
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name.(string))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestJSONIsExact: the largest integer and any nanosecond come back, and hostile keys too.
func TestJSONIsExact(t *testing.T) {
	s := hostile()
	s.Requests, s.Denied, s.To = math.MaxInt64, math.MaxInt64-1, math.MaxInt64
	s.Series.Step = 1_250_000_000
	var got struct {
		Requests, Denied int64
		To               string
		Series           struct {
			Step json.Number `json:"step_seconds"`
		}
		Top   []replay.Offender
		BadBy map[string]int64 `json:"bad_by"`
	}
	if err := json.Unmarshal(asJSON(t, s), &got); err != nil {
		t.Fatal(err)
	}
	if got.Requests != s.Requests || got.Denied != s.Denied || got.To != "2262-04-11T23:47:16.854775807Z" || got.Series.Step != "1.25" {
		t.Errorf("%+v", got)
	}
	for i, o := range s.Top {
		o.Key, o.Policy = strings.ToValidUTF8(o.Key, "\ufffd"), strings.ToValidUTF8(o.Policy, "\ufffd")
		if o.Key == "\ufffd\x00" { // a run of bad bytes is one of ToValidUTF8's, and one each of JSON's
			o.Key, o.Policy = "\ufffd\ufffd\x00", "\ufffd\ufffd\x00/\ufffd\ufffd\x00"
		}
		if got.Top[i] != o {
			t.Errorf("%+v, want %+v", got.Top[i], o)
		}
	}
	for _, c := range s.BadBy {
		if got.BadBy[c.Name] != c.N {
			t.Errorf("%q: %d", c.Name, got.BadBy[c.Name])
		}
	}
}

// decisionLine is a decision as encoding/json writes it: slow, and plain to see.
type decisionLine struct {
	Line       int64   `json:"line"`
	Time       string  `json:"time"`
	Key        *string `json:"key"`
	Decision   string  `json:"decision"`
	RetryAfter *int64  `json:"retry_after"`
	Remaining  *uint64 `json:"remaining"`
	Limit      *uint64 `json:"limit"`
	LimitName  *string `json:"limit_name"`
	Policy     *string `json:"policy"`
	Shadow     bool    `json:"shadow"`
	Input      int     `json:"input"`
}

func oracle(t *testing.T, v *replay.Decision) string {
	t.Helper()
	l := decisionLine{Line: v.Line, Time: utc(v.Time).Format(rfc3339), Decision: "deny", Shadow: v.Shadow, Input: v.Input}
	if v.Policy != "" {
		l.Key, l.LimitName, l.Policy = &v.Key, &v.LimitName, &v.Policy
		if !v.Unlimited {
			l.Remaining, l.Limit = &v.Remaining, &v.Limit
		}
	}
	if v.Allowed {
		l.Decision = "allow"
	} else if v.RetryAfter >= 0 {
		l.RetryAfter = &v.RetryAfter
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(&l); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func decisionLines(t *testing.T, all ...replay.Decision) string {
	t.Helper()
	var b bytes.Buffer
	d := NewDecisions(&b)
	for i := range all {
		if err := d.Write(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestADecisionIsALineOfJSON: these are the cases that a reader of the file has to know.
func TestADecisionIsALineOfJSON(t *testing.T) {
	base := replay.Decision{Line: 2, Time: start + 12_000_000, Key: "192.0.2.7", Policy: "default/per-ip", Limit: 100, LimitName: "limit"}
	with := func(change func(*replay.Decision)) replay.Decision {
		d := base
		change(&d)
		return d
	}
	const head = `{"line":2,"time":"2026-01-01T00:00:00.012000000Z","key":`
	for want, d := range map[string]replay.Decision{
		`"192.0.2.7","decision":"allow","retry_after":null,"remaining":99,"limit":100,"limit_name":"limit","policy":"default/per-ip","shadow":false,"input":0}`: with(func(d *replay.Decision) {
			d.Allowed, d.RetryAfter, d.Remaining = true, -1, 99
		}),
		`"192.0.2.7","decision":"deny","retry_after":60,"remaining":0,"limit":100,"limit_name":"limit","policy":"default/per-ip","shadow":true,"input":1}`: with(func(d *replay.Decision) {
			d.RetryAfter, d.Shadow, d.Input = 60, true, 1
		}),
		`"192.0.2.7","decision":"deny","retry_after":null,"remaining":100,"limit":100,"limit_name":"limit","policy":"default/per-ip","shadow":false,"input":0}`: with(func(d *replay.Decision) {
			d.RetryAfter, d.Remaining = -1, 100 // never fits
		}),
		`"","decision":"allow","retry_after":null,"remaining":null,"limit":null,"limit_name":"limit","policy":"default/per-ip","shadow":false,"input":0}`: with(func(d *replay.Decision) {
			d.Allowed, d.Unlimited, d.Key = true, true, ""
		}),
		`null,"decision":"deny","retry_after":null,"remaining":null,"limit":null,"limit_name":null,"policy":null,"shadow":false,"input":0}`: with(func(d *replay.Decision) {
			d.Policy, d.RetryAfter = "", -1
		}),
	} {
		if got := decisionLines(t, d); got != head+want+"\n" {
			t.Errorf("%s\nwant\n%s", got, head+want)
		}
	}
}

// TestDecisionsAreWhatEncodingJSONWrites, byte for byte, for whatever values.
func TestDecisionsAreWhatEncodingJSONWrites(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	word := func() string {
		b := make([]byte, r.IntN(12))
		for i := range b {
			b[i] = byte(r.Uint32() >> (r.UintN(2) * 25)) // any byte, often ASCII
		}
		return string(b) + string(rune(r.Int32N(0x3000)))[:r.UintN(2)]
	}
	var all []replay.Decision
	var want strings.Builder
	for range 2000 {
		d := replay.Decision{
			Input: r.IntN(3), Line: r.Int64(), Time: r.Int64() >> r.UintN(63), Key: word(), Policy: word(), LimitName: word(),
			Allowed: r.IntN(2) == 0, Shadow: r.IntN(2) == 0, Unlimited: r.IntN(3) == 0,
			RetryAfter: r.Int64N(100) - 1, Remaining: r.Uint64() >> r.UintN(64), Limit: r.Uint64() >> r.UintN(64),
		}
		all = append(all, d)
		want.WriteString(oracle(t, &d))
	}
	if got := decisionLines(t, all...); got != want.String() {
		t.Fatalf("seed %d: differs at\n%s", seed, firstDifference(got, want.String()))
	}
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%s\nwant\n%s", a[i], b[i])
		}
	}
	return "the end"
}

// TestDecisionsCostNoAllocation, however many rows.
func TestDecisionsCostNoAllocation(t *testing.T) {
	d := NewDecisions(io.Discard)
	v := replay.Decision{Key: hostile().Top[0].Key, Policy: "default/per-ip", LimitName: "limit"}
	if n := testing.AllocsPerRun(1000, func() {
		v.Time += second / 3
		if err := d.Write(&v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a row", n)
	}
}

// FuzzDecisionString: a key is what encoding/json makes of it, and comes back as it was but for bytes
// outside UTF-8.
func FuzzDecisionString(f *testing.F) {
	for _, o := range hostile().Top {
		f.Add(o.Key, int64(start))
	}
	f.Add("\u2028\u2029\x7f\x1f", int64(0))
	f.Fuzz(func(t *testing.T, key string, time int64) {
		d := replay.Decision{Time: max(time, 0), Key: key, Policy: "p", RetryAfter: -1}
		got := decisionLines(t, d)
		if want := oracle(t, &d); got != want {
			t.Fatalf("%s\nwant\n%s", got, want)
		}
		var back decisionLine
		if err := json.Unmarshal([]byte(got), &back); err != nil || !reflect.DeepEqual([]rune(*back.Key), []rune(key)) {
			t.Fatalf("%q comes back as %q (%v)", key, *back.Key, err)
		}
	})
}

func BenchmarkDecisions(b *testing.B) {
	d := NewDecisions(io.Discard)
	v := replay.Decision{Line: 123456, Time: start, Key: "198.51.100.23", Policy: "default/per-ip", LimitName: "limit", Limit: 100}
	for b.Loop() {
		v.Time += 1_000_000
		if err := d.Write(&v); err != nil {
			b.Fatal(err)
		}
	}
}
