package crd_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// everything uses each field of a spec, each in the form that isn't the default.
const everything = `{"quota":"q","domain":"a_b/c.d-e","match":{"api_class":"convert","z":"<&>\u00e9\ud83d\ude00"},` +
	`"key":["tenant","user"],"partitionBy":[],"keepHistory":"48h","transition":"FromNow",` +
	`"limits":[{"name":"r","rollingWindow":{"limit":200000,"window":"24h","precision":"1m30s"}},` +
	`{"name":"t","tokenBucket":{"capacity":9007199254740993,"refill":9007199254740993,"period":"0.25s"}},` +
	`{"name":"s","slidingWindowCounter":{"limit":9223372036854775807,"window":"1ns"}},` +
	`{"name":"f","fixedWindow":{"limit":0,"window":"2160h"}}],` +
	`"tiers":[{"when":{"plan":"pro"},"amounts":{"r":{"limit":0},"t":{"capacity":0},"f":{"unlimited":true}}}],` +
	`"overrides":[{"when":{"user":"u1","tenant":"t1"},"amounts":{"t":{"capacity":5,"refill":2,"period":"1h"}}}],` +
	`"costs":[{"when":{"operation":"export"},"cost":50}]}`

// TestNothingIsLost: each field of a policy comes back from the Go types.
func TestNothingIsLost(t *testing.T) {
	for name, spec := range map[string]string{
		"everything":  everything,
		"the least":   `{"global":true,"limits":[{"name":"l","fixedWindow":{"limit":1,"window":"1s"}}]}`,
		"partitionBy": `{"key":["a"],"partitionBy":["a"],"limits":[{"name":"l","fixedWindow":{"limit":1,"window":"1s"}}]}`,
	} {
		set, err := readSpec(spec)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		roundTrip(t, set)
	}
}

// roundTrip takes a set of one policy through the Go types and back.
func roundTrip(t *testing.T, set policy.Set) {
	t.Helper()
	spec, err := decode(specOf(t, set))
	if err != nil {
		t.Fatalf("the Go types refuse %s: %v", set.Canonical(), err)
	}
	p := set.Policies[0]
	again, err := readFile(p.Name, p.Namespace, encode(t, spec))
	if err != nil || !reflect.DeepEqual(again, set) {
		t.Fatalf("%s\ncomes back as %s, %v", set.Canonical(), again.Canonical(), err)
	}
	if copied := spec.DeepCopy(); !reflect.DeepEqual(*copied, spec) {
		t.Fatalf("a copy of %+v is %+v", spec, copied)
	}
}

// FuzzSpec: a text is one spec for the Go types and for the policy file's reader. What the reader takes, the Go types
// take, and give back. What they refuse, a field that doesn't exist, one that comes twice or is of another kind, it
// refuses. And what it refuses stays refused on the way through them: no mistake gets lost.
func FuzzSpec(f *testing.F) {
	f.Add(everything)
	f.Add(`{}`)
	f.Add(`{"key":["a"],"key":["b"],"limits":[]}`)
	f.Add(`{"key":["a"],"Limits":[],"limits":[{"name":"l","fixedWindow":{"limit":1.0,"window":"1s"}}]}`)
	f.Add(`{"match":{"a":"b","a":"c"},"global":true,"limits":[{"name":"l","fixedWindow":{"limit":1e3,"window":"1s"}}]}`)
	f.Add(`{"global":true,"limits":[{"name":"l","fixedWindow":{"limit":9223372036854775808,"window":60}}]}`)
	f.Add(`{"match":{"a":"\ud800"},"global":true,"limits":[{"name":"l","fixedWindow":{"limit":1,"window":"1s"}}]}`)
	f.Add(`{"global":true,"tiers":[{"when":{"a":"b"},"amounts":{"l":{"limit":0}}}],"limits":[{"name":"l","fixedWindow":{"limit":1,"window":"1s"}}]}`)
	f.Fuzz(func(t *testing.T, spec string) {
		if !isObject(spec) {
			return
		}
		set, readErr := readSpec(spec)
		typed, typesErr := decode([]byte(spec))
		switch {
		case readErr == nil && typesErr != nil:
			t.Fatalf("the reader takes %s\nthe Go types don't: %v", spec, typesErr)
		case readErr == nil:
			roundTrip(t, set)
		case typesErr == nil && !slipsBy(spec, problems(t, readErr)):
			if again, err := readSpec(encode(t, typed)); err == nil {
				t.Fatalf("the reader refuses %s: %v\nbut not what comes out of the Go types: %s", spec, readErr, again.Canonical())
			}
		}
	})
}

// isObject says whether the text is JSON for an object that leaves out what isn't the spec's.
func isObject(text string) bool {
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &o) != nil || o == nil {
		return false
	}
	return o["name"] == nil && o["namespace"] == nil
}

// slipsBy says whether a spec that the reader refuses may get better on its way through the Go types. They don't keep
// some things apart from nothing, or from 0: null, "", a refill of 0, an amount that isn't there. Those the schema
// refuses (TestBlanksAreRefused). And all JSON of Go has U+FFFD in place of what isn't Unicode, the API server's too.
func slipsBy(spec string, found []file.Problem) bool {
	d := json.NewDecoder(strings.NewReader(spec))
	d.UseNumber()
	var v any
	return d.Decode(&v) != nil || blank(v) || strings.Contains(fmt.Sprint(v), "\ufffd") || slices.ContainsFunc(found, func(p file.Problem) bool {
		return p.Message == "is required"
	})
}

func blank(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return slices.ContainsFunc(v, blank)
	case map[string]any:
		for _, inner := range v {
			if blank(inner) {
				return true
			}
		}
		return v["refill"] == json.Number("0")
	}
	return false
}
