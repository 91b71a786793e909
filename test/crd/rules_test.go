package crd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// base is a sound spec, which each case below changes at the top level.
const base = `{"key":["user","tenant"],"limits":[` +
	`{"name":"window","rollingWindow":{"limit":3,"window":"60s"}},{"name":"bucket","tokenBucket":{"capacity":3,"refill":1,"period":"1s"}}]}`

// with is base with those fields; null takes one out.
func with(t *testing.T, fields string) string { return overlay(t, base, fields) }

func overlay(t *testing.T, spec, fields string) string {
	t.Helper()
	all := map[string]json.RawMessage{}
	for _, text := range []string{spec, fields} {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	for name, value := range all {
		if string(value) == "null" {
			delete(all, name)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ruled is a spec that breaks one rule of the schema, and what the API server has to say of it: where, and what to do.
type ruled struct{ fields, path, says string }

const (
	saysKey        = "write either key, the entries that each have their own allowance, or global: true for one allowance for all"
	saysDuration   = "write numbers with a unit of h, m, s, ms, us or ns, like 60s, 1h30m or 0.25s: above 0, at most 2160h (90 days)"
	saysOne        = "a limit has exactly one of rollingWindow, tokenBucket, slidingWindowCounter, fixedWindow"
	saysEntryName  = "the names of entries are printing ASCII characters without spaces, 128 at most"
	saysValue      = "every entry needs a value, of 1024 bytes at most: write one, or leave the entry out"
	saysTwice      = "names an entry twice: name each once"
	saysPartition  = "partitionBy may only name entries of key: one allowance can't be in two partitions"
	saysTogether   = "match and key together may name 16 entries, the most that a descriptor has: name fewer"
	saysHistory    = "only rolling windows keep history: leave keepHistory out, or add a limit with a rollingWindow"
	saysTier       = "amounts of a tier may only name limits of this policy: correct the name, or add the limit"
	saysOverride   = "amounts of an override may only name limits of this policy: correct the name, or add the limit"
	saysUnit       = "an amount of a tokenBucket is written capacity, one of a window limit"
	saysOverrideBy = "when of an override may only name entries of key: a tier goes by any entry"
	saysTierRefill = "a tier can't change refill or period, which must be the same for all checks of a key: an override can"
	saysAmount     = "write one of limit (of a window), capacity (of a tokenBucket) and unlimited: true"
	saysRefill     = "refill and period go with the capacity of a tokenBucket: add capacity, or leave them out"
	saysPrecision  = "a limit above 100000 needs a precision: add one, at most a tenth of the window"

	saysSameKey       = "key can't change: it is what allowances are counted by; create another policy with another quota"
	saysSamePartition = "partitionBy can't change: it says where allowances are kept; create another policy with another quota"
	saysSameDomain    = "domain can't change, nor be added or removed: create another policy"
	saysSameQuota     = "quota can't change: it names the allowance and what was used of it; create another policy"
)

func rules() []ruled {
	amounts := func(amounts string) string { return `[{"when":{"user":"u"},"amounts":` + amounts + `}]` }
	when := func(when string) string { return `[{"when":` + when + `,"amounts":{"window":{"limit":1}}}]` }
	one := func(limit string) string { return `{"limits":[{"name":"l",` + limit + `}]}` }
	return []ruled{
		{`{"key":null}`, "spec.key", saysKey},
		{`{"key":[]}`, "spec.key", saysKey},
		{`{"key":null,"global":false}`, "spec.key", saysKey},
		{`{"global":true}`, "spec.key", saysKey},
		{`{"key":["user","user"]}`, "spec.key", saysTwice},
		{`{"partitionBy":["user","user"]}`, "spec.partitionBy", saysTwice},
		{`{"partitionBy":["plan"]}`, "spec.partitionBy", saysPartition},
		{`{"key":null,"global":true,"partitionBy":["user"]}`, "spec.partitionBy", saysPartition},
		{`{"match":{` + entries(15) + `}}`, "spec.key", saysTogether},
		{`{"match":{"a b":"c"}}`, "spec.match", saysEntryName},
		{`{"match":{"":"c"}}`, "spec.match", saysEntryName},
		{`{"match":{"é":"c"}}`, "spec.match", saysEntryName},
		{`{"match":{"` + strings.Repeat("n", 129) + `":"c"}}`, "spec.match", saysEntryName},
		{`{"match":{"a":"` + strings.Repeat("é", 513) + `"}}`, "spec.match", saysValue},
		{`{"match":{"a":null}}`, "spec.match", saysValue},
		{`{"tiers":` + when(`{"a":"b","c":null}`) + `}`, "spec.tiers[0].when", saysValue},
		{`{"overrides":` + when(`{"user":"u","tenant":null}`) + `}`, "spec.overrides[0].when", saysValue},
		{`{"costs":[{"when":{"a":null},"cost":2}]}`, "spec.costs[0].when", saysValue},
		{`{"tiers":` + when(`{"a b":"c"}`) + `}`, "spec.tiers[0].when", saysEntryName},
		{`{"tiers":` + when(`{"a":"`+strings.Repeat("é", 513)+`"}`) + `}`, "spec.tiers[0].when", saysValue},
		{`{"costs":[{"when":{"a b":"c"},"cost":2}]}`, "spec.costs[0].when", saysEntryName},
		{`{"limits":[{"name":"l"}]}`, "spec.limits[0]", saysOne},
		{one(`"fixedWindow":{"limit":1,"window":"1s"},"rollingWindow":{"limit":1,"window":"1s"}`), "spec.limits[0]", saysOne},
		{one(`"rollingWindow":{"limit":100001,"window":"1h"}`), "spec.limits[0].rollingWindow.limit", saysPrecision},
		{one(`"rollingWindow":{"limit":1,"window":"1d"}`), "spec.limits[0].rollingWindow.window", saysDuration},
		{one(`"rollingWindow":{"limit":1,"window":"1h","precision":"0s"}`), "spec.limits[0].rollingWindow.precision", saysDuration},
		{one(`"tokenBucket":{"capacity":1,"refill":1,"period":"9999999h"}`), "spec.limits[0].tokenBucket.period", saysDuration},
		{one(`"slidingWindowCounter":{"limit":1,"window":"-1s"}`), "spec.limits[0].slidingWindowCounter.window", saysDuration},
		{one(`"fixedWindow":{"limit":1,"window":"2160h1ns"}`), "spec.limits[0].fixedWindow.window", saysDuration},
		{`{"overrides":` + amounts(`{"bucket":{"capacity":1,"period":"60"}}`) + `}`, "spec.overrides[0].amounts[bucket].period", saysDuration},
		{`{"keepHistory":"90d"}`, "spec.keepHistory", saysDuration},
		{overlayed(one(`"fixedWindow":{"limit":1,"window":"1s"}`), `"keepHistory":"1h"`), "spec.keepHistory", saysHistory},
		{`{"tiers":` + amounts(`{"windows":{"limit":1}}`) + `}`, "spec.tiers", saysTier},
		{`{"overrides":` + amounts(`{"windows":{"limit":1}}`) + `}`, "spec.overrides", saysOverride},
		{`{"tiers":` + amounts(`{"window":{"capacity":1}}`) + `}`, "spec.tiers", saysUnit},
		{`{"tiers":` + amounts(`{"bucket":{"limit":1}}`) + `}`, "spec.tiers", saysUnit},
		{`{"overrides":` + amounts(`{"window":{"capacity":1}}`) + `}`, "spec.overrides", saysUnit},
		{`{"overrides":` + amounts(`{"bucket":{"limit":1}}`) + `}`, "spec.overrides", saysUnit},
		{`{"overrides":` + when(`{"plan":"pro"}`) + `}`, "spec.overrides", saysOverrideBy},
		{`{"tiers":` + amounts(`{"bucket":{"capacity":1,"refill":1}}`) + `}`, "spec.tiers[0].amounts", saysTierRefill},
		{`{"tiers":` + amounts(`{"bucket":{"capacity":1,"period":"1s"}}`) + `}`, "spec.tiers[0].amounts", saysTierRefill},
		{`{"overrides":` + amounts(`{"window":{}}`) + `}`, "spec.overrides[0].amounts[window]", saysAmount},
		{`{"overrides":` + amounts(`{"window":{"unlimited":false}}`) + `}`, "spec.overrides[0].amounts[window]", saysAmount},
		{`{"overrides":` + amounts(`{"window":{"unlimited":true,"limit":1}}`) + `}`, "spec.overrides[0].amounts[window]", saysAmount},
		{`{"overrides":` + amounts(`{"bucket":{"limit":1,"capacity":1}}`) + `}`, "spec.overrides[0].amounts[bucket]", saysAmount},
		{`{"overrides":` + amounts(`{"bucket":{"unlimited":true,"refill":1}}`) + `}`, "spec.overrides[0].amounts[bucket]", saysRefill},
		{`{"overrides":` + amounts(`{"window":{"limit":1,"period":"1s"}}`) + `}`, "spec.overrides[0].amounts[window]", saysRefill},
	}
}

// entries are so many entries, in JSON without its braces.
func entries(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"e%d":"v"`, i))
	}
	return strings.Join(all, ",")
}

// overlayed is a JSON object with more in it.
func overlayed(object, more string) string { return strings.TrimSuffix(object, "}") + "," + more + "}" }

// changes are objects' specs before and after a change that the API server has to refuse, or where it says nothing, to take.
func changes() (all []struct{ from, to, path, says string }) {
	add := func(from, to, path, says string) {
		all = append(all, struct{ from, to, path, says string }{from, to, path, says})
	}
	global := `{"key":null,"global":true}`
	add(`{}`, `{"key":["user"]}`, "spec.key", saysSameKey)
	add(`{}`, `{"key":["user","tenant","plan"],"partitionBy":["user","tenant"]}`, "spec.key", saysSameKey)
	add(`{}`, `{"key":["user","plan"]}`, "spec.key", saysSameKey)
	add(`{}`, global, "spec.key", saysSameKey)
	add(global, `{}`, "spec.key", saysSameKey)
	add(`{}`, `{"key":["tenant","user"]}`, "", "") // the order means nothing
	add(`{"partitionBy":["user"]}`, `{"partitionBy":["tenant"]}`, "spec.partitionBy", saysSamePartition)
	add(`{"partitionBy":["user"]}`, `{}`, "spec.partitionBy", saysSamePartition)
	add(`{}`, `{"partitionBy":["user"]}`, "spec.partitionBy", saysSamePartition)
	add(`{}`, `{"partitionBy":[]}`, "spec.partitionBy", saysSamePartition)
	add(`{"partitionBy":[]}`, `{}`, "spec.partitionBy", saysSamePartition)
	add(`{}`, `{"partitionBy":["tenant","user"]}`, "", "") // the default, written out
	add(`{"partitionBy":["user","tenant"]}`, `{}`, "", "")
	add(global, overlayed(global, `"partitionBy":[]`), "", "")
	add(`{"domain":"a"}`, `{"domain":"b"}`, "spec.domain", saysSameDomain)
	add(`{}`, `{"domain":"default"}`, "spec.domain", saysSameDomain) // an expression doesn't know the namespace
	add(`{"domain":"a"}`, `{}`, "spec.domain", saysSameDomain)
	add(`{"quota":"a"}`, `{"quota":"b"}`, "spec.quota", saysSameQuota)
	add(`{"quota":"a"}`, `{}`, "spec.quota", saysSameQuota)
	add(`{}`, `{"quota":"a"}`, "spec.quota", saysSameQuota)
	add(`{}`, `{"quota":"changing"}`, "", "") // the object's name, which is the default
	add(`{"quota":"changing"}`, `{}`, "", "")
	add(`{}`, `{"match":{"a":"b"},"onUnavailable":"Deny","limits":[{"name":"other","fixedWindow":{"limit":9,"window":"1h"}}]}`, "", "")
	return all
}

// TestEveryRuleSaysWhatToDo: each rule of the schema refuses what it is there for, at the place and with the words that help.
// The policy file's reader refuses the same.
func TestEveryRuleSaysWhatToDo(t *testing.T) {
	server(t)
	if got := tryCreate(base); got.String() != "" {
		t.Fatal(got) // what is refused below is refused for its change
	}
	seen := map[string]bool{}
	for _, r := range rules() {
		seen[r.says] = true
		spec := with(t, r.fields)
		refusedAt(t, spec, tryCreate(spec), r.path, r.says)
		if _, err := readSpec(spec); err == nil {
			t.Errorf("the reader takes %s", spec)
		}
	}
	for _, c := range changes() {
		seen[c.says] = true
	}
	for _, message := range messages(t) {
		if !seen[message] {
			t.Errorf("no case here breaks the rule that says %q", message)
		}
	}
}

// TestBounds: what is as much as there may be passes, one more is refused; the reader says the same.
func TestBounds(t *testing.T) {
	server(t)
	names := func(n int) string {
		return strings.NewReplacer(`:"v"`, "").Replace(entries(n))
	}
	list := func(n int, item string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(item, "#", fmt.Sprint(i)))
		}
		return strings.Join(all, ",")
	}
	for _, b := range []struct {
		name  string
		most  int
		other bool // the reader takes more
		spec  func(n int) string
	}{
		{"limits", 16, false, func(n int) string {
			return `{"limits":[` + list(n, `{"name":"l#","fixedWindow":{"limit":1,"window":"1s"}}`) + `]}`
		}},
		{"key", 16, false, func(n int) string { return `{"key":[` + names(n) + `]}` }},
		{"match", 16, false, func(n int) string { return `{"key":null,"global":true,"match":{` + entries(n) + `}}` }},
		{"tiers", 64, false, func(n int) string {
			return `{"tiers":[` + list(n, `{"when":{"plan":"p#"},"amounts":{"window":{"limit":1}}}`) + `]}`
		}},
		{"costs", 64, false, func(n int) string { return `{"costs":[` + list(n, `{"when":{"plan":"p#"},"cost":2}`) + `]}` }},
		{"when", 16, false, func(n int) string { return `{"costs":[{"when":{` + entries(n) + `},"cost":2}]}` }},
		{"name of a limit", 253, false, func(n int) string {
			return `{"limits":[{"name":"` + strings.Repeat("n", n) + `","fixedWindow":{"limit":1,"window":"1s"}}]}`
		}},
		{"quota", 253, false, func(n int) string { return `{"quota":"` + strings.Repeat("n", n) + `"}` }},
		{"domain", 253, false, func(n int) string { return `{"domain":"` + strings.Repeat("n", n) + `"}` }},
		{"name of an entry", 128, false, func(n int) string { return `{"key":["` + strings.Repeat("n", n) + `"]}` }},
		{"name in a match", 128, false, func(n int) string { return `{"match":{"` + strings.Repeat("n", n) + `":"v"}}` }},
		{"value", 1024, false, func(n int) string { return `{"match":{"n":"` + strings.Repeat("v", n) + `"}}` }},
		{"duration", 24, true, func(n int) string { return `{"keepHistory":"` + strings.Repeat("0", n-2) + `1h"}` }},
	} {
		for more := range 2 {
			spec := with(t, b.spec(b.most+more))
			if got := tryCreate(spec); (got.String() == "") != (more == 0) {
				t.Errorf("%s, %d: the API server says %.300q of %.300s", b.name, b.most+more, got.String(), spec)
			}
			if _, err := readSpec(spec); (err == nil) != (more == 0 || b.other) {
				t.Errorf("%s, %d: the reader says %v of %.300s", b.name, b.most+more, err, spec)
			}
		}
	}
	for field, words := range map[string][]string{
		"mode": {"Enforce", "Shadow"}, "onUnavailable": {"Deny", "Allow"}, "transition": {"Conservative", "FromNow"},
	} {
		for _, word := range append(words, "Other", strings.ToLower(words[0])) {
			got := tryCreate(with(t, fmt.Sprintf(`{%q:%q}`, field, word)))
			if (got.String() == "") != slices.Contains(words, word) {
				t.Errorf("%s: %s: the API server says %q", field, word, got.String())
			}
		}
	}
}

// refusedAt checks a refusal: for what it says, at that place, and for nothing else.
func refusedAt(t *testing.T, spec string, got answer, path, says string) {
	t.Helper()
	var status struct {
		Details struct {
			Causes []struct{ Field, Message string }
		}
	}
	if err := json.Unmarshal(got.body, &status); err != nil {
		t.Fatalf("%v: %s", err, got.body)
	}
	causes := status.Details.Causes
	if got.status != http.StatusUnprocessableEntity || !strings.Contains(string(got.body), jsonText(says)) {
		t.Errorf("%.300s: got %d %s, want %s: %s", spec, got.status, got, path, says)
		return
	}
	for _, c := range causes {
		if says == saysSameKey && strings.HasSuffix(c.Message, saysSamePartition) {
			continue // with the key its default goes
		}
		if c.Field != path || !strings.HasSuffix(c.Message, says) {
			t.Errorf("%.300s: got %s: %.300s, want %s: %s", spec, c.Field, c.Message, path, says)
		}
	}
}

// jsonText is a text as JSON has it, without its quotes.
func jsonText(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return strings.Trim(string(text), `"`)
}

// TestWhatCanNeverChange: another key, quota, domain or place is another policy. What only says the default is no change.
func TestWhatCanNeverChange(t *testing.T) {
	server(t)
	for _, c := range changes() {
		func() {
			defer remove(t, "changing")
			from, to := with(t, c.from), with(t, c.to)
			o := ask("POST", policies, strict, policyObject("changing", from)).object(t)
			body := fmt.Appendf(nil, `{"apiVersion":"quorate.dev/v1alpha1","kind":"RateLimitPolicy",`+
				`"metadata":{"name":"changing","resourceVersion":%q},"spec":%s}`, o.Metadata.ResourceVersion, to)
			got := ask("PUT", policies+"/changing", strict, body)
			if c.says != "" {
				refusedAt(t, from+" to "+to, got, c.path, c.says)
			} else if got.String() != "" {
				t.Errorf("%s to %s: %s", from, to, got)
			}
		}()
	}
}

// TestBlanksAreRefused: what the Go types don't keep apart from nothing gets into no object. But for null where a field may
// be left out, which the API server takes for leaving it out.
func TestBlanksAreRefused(t *testing.T) {
	server(t)
	sound := overlay(t, everything, `{"key":["user","tenant"],"mode":"Enforce","onUnavailable":"Deny"}`)
	if got := tryCreate(sound); got.String() != "" {
		t.Fatal(got)
	}
	refused, leftOut := 0, 0
	for i := range places(parsed(t, sound)) {
		for _, value := range []any{nil, "", 0, gone} {
			text, blank := blanked(t, sound, i, value)
			if !blank {
				continue
			}
			got := tryCreate(text)
			without, _ := blanked(t, sound, i, gone)
			switch {
			case got.String() != "":
				refused++
			case value == nil && bytes.Equal(got.object(t).Spec, tryCreate(without).object(t).Spec):
				leftOut++
			default:
				t.Errorf("%#v: the API server takes %s", value, text)
			}
		}
	}
	t.Logf("%d refused, %d left out", refused, leftOut)
	if refused < 50 || leftOut < 10 {
		t.Errorf("%d refused, %d left out: that can't be all", refused, leftOut)
	}
}

// gone is the value of a field that is taken out.
const gone = "gone"

// blanked is the spec with another value at its i-th place, and whether that is one that the Go types don't keep: null
// anywhere, "" for a text, 0 for a refill, nothing for an amount.
func blanked(t *testing.T, text string, i int, value any) (string, bool) {
	t.Helper()
	spec := parsed(t, text)
	p := places(spec)[i]
	blank := value == nil
	switch p.parent[p.name].(type) {
	case string:
		blank = blank || value == ""
	case json.Number:
		blank = blank || value == 0 && p.name == "refill" || value == gone && (p.name == "limit" || p.name == "capacity")
	}
	if p.parent[p.name] = value; value == gone {
		delete(p.parent, p.name)
	}
	return generator{}.text(spec), blank
}

func parsed(t *testing.T, text string) tree {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v tree
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
