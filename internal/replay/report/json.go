package report

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/quorate/quorate/internal/replay"
)

// rfc3339 has all nine digits, so that times sort as text.
const rfc3339 = "2006-01-02T15:04:05.000000000Z"

// The document of JSON. Its names are a contract: programs read them. Where nothing applies stands null;
// a list may be empty, never null.
type document struct {
	Lines        int64          `json:"lines"`
	Requests     int64          `json:"requests"`
	Allowed      int64          `json:"allowed"`
	Denied       int64          `json:"denied"`
	Bad          int64          `json:"bad"`
	Blank        int64          `json:"blank"`
	Header       int64          `json:"header"`
	Unmatched    int64          `json:"unmatched"`
	ShadowDenied int64          `json:"shadow_denied"`
	BadBy        reasons        `json:"bad_by"`
	From         *string        `json:"from"`
	To           *string        `json:"to"`
	Policies     []jsonPolicy   `json:"policies"`
	Top          []jsonOffender `json:"top"`
	TopExact     bool           `json:"top_exact"`
	Series       *jsonSeries    `json:"series"`
	Inputs       []jsonInput    `json:"inputs"`
	Against      *jsonAgainst   `json:"against"`
}

type jsonPolicy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Shadow    bool   `json:"shadow"`
	Requests  int64  `json:"requests"`
	Denied    int64  `json:"denied"`
}

type jsonOffender struct {
	Key      string `json:"key"`
	Policy   string `json:"policy"`
	Requests int64  `json:"requests"`
	Denied   int64  `json:"denied"`
}

type jsonSeries struct {
	Start       string      `json:"start"`
	StepSeconds json.Number `json:"step_seconds"`
	Allowed     []int64     `json:"allowed"`
	Denied      []int64     `json:"denied"`
}

type jsonInput struct {
	Name   string `json:"name"`
	Format string `json:"format"`
}

type jsonAgainst struct {
	Allowed      int64          `json:"allowed"`
	Denied       int64          `json:"denied"`
	NewlyDenied  int64          `json:"newly_denied"`
	NewlyAllowed int64          `json:"newly_allowed"`
	Top          []jsonOffender `json:"top"`
}

// reasons is an object in the order of its counts: a map would sort the most frequent away.
type reasons []replay.Count

func (r reasons) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, c := range r {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, c.Name), ':')
		b = strconv.AppendInt(b, c.N, 10)
	}
	return append(b, '}'), nil
}

// JSON writes the summary as one indented object with the names that docs and tools rely on. The error
// is the writer's.
func JSON(w io.Writer, s *replay.Summary) error {
	d := document{
		Lines: s.Lines, Requests: s.Requests, Allowed: s.Allowed, Denied: s.Denied,
		Bad: s.Bad, Blank: s.Blank, Header: s.Header, Unmatched: s.Unmatched, ShadowDenied: s.ShadowDenied,
		BadBy: s.BadBy, Policies: []jsonPolicy{}, Top: jsonOffenders(s.Top), TopExact: s.TopExact, Inputs: []jsonInput{},
	}
	if s.Requests > 0 {
		from, to := utc(s.From).Format(rfc3339), utc(s.To).Format(rfc3339)
		d.From, d.To = &from, &to
	}
	for _, p := range s.Policies {
		d.Policies = append(d.Policies, jsonPolicy(p))
	}
	for _, in := range s.Inputs {
		d.Inputs = append(d.Inputs, jsonInput(in))
	}
	if len(s.Series.Denied) > 0 {
		d.Series = &jsonSeries{
			Start: utc(s.Series.Start).Format(rfc3339), StepSeconds: decimalSeconds(s.Series.Step),
			Allowed: s.Series.Allowed, Denied: s.Series.Denied,
		}
	}
	if a := s.Against; a != nil {
		d.Against = &jsonAgainst{a.Allowed, a.Denied, a.NewlyDenied, a.NewlyAllowed, jsonOffenders(a.Top)}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(&d); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

func jsonOffenders(top []replay.Offender) []jsonOffender {
	all := make([]jsonOffender, len(top))
	for i, o := range top {
		all[i] = jsonOffender{Key: o.Key, Policy: o.Policy, Requests: o.Requests, Denied: o.Denied}
	}
	return all
}

// decimalSeconds writes nanoseconds as seconds, exactly.
func decimalSeconds(ns int64) json.Number {
	b := strconv.AppendInt(nil, ns/int64(time.Second), 10)
	if rest := ns % int64(time.Second); rest > 0 {
		b = append(b, '.')
		b = append(b, strconv.FormatInt(int64(time.Second)+rest, 10)[1:]...)
		b = bytes.TrimRight(b, "0")
	}
	return json.Number(b)
}
