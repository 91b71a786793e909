package crd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// tree is JSON as a value.
type tree = map[string]any

// generator draws specs: most of them are policies, and spoil makes something else of one.
type generator struct{ *rand.Rand }

func newGenerator(seed int) generator {
	return generator{rand.New(rand.NewPCG(uint64(seed), 6))}
}

func (g generator) one(of ...any) any { return of[g.IntN(len(of))] }

// sometimes is true once in n times.
func (g generator) sometimes(n int) bool { return g.IntN(n) == 0 }

func (g generator) text(spec tree) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // it is made of plain values
	}
	return string(text)
}

var algorithms = []string{"rollingWindow", "tokenBucket", "slidingWindowCounter", "fixedWindow"}

func (g generator) spec() tree {
	s := tree{}
	key := []any{"user", "tenant", "User/1", "~"}[:g.IntN(5)]
	if len(key) == 0 {
		s["global"] = true
	} else {
		s["key"] = key
	}
	if g.sometimes(3) {
		s["partitionBy"] = key[:g.IntN(len(key)+1)]
	}
	limits, rolling := g.limits()
	s["limits"] = limits
	if rolling && g.sometimes(2) {
		s["keepHistory"] = "2160h"
	}
	for _, f := range []struct {
		name  string
		value any
	}{
		{"quota", "q-1.x"}, {"domain", "a/b_c.d"}, {"match", g.entries("z")}, {"transition", g.one("FromNow", "Conservative")},
		{"mode", "Enforce"}, {"onUnavailable", "Deny"}, {"allowAdjust", false},
	} {
		if g.sometimes(2) {
			s[f.name] = f.value
		}
	}
	s["tiers"] = g.rules("plan", limits, false)
	if len(key) > 0 {
		s["overrides"] = g.rules(key[0].(string), limits, true)
	}
	if g.sometimes(2) {
		s["costs"] = []any{tree{"when": tree{"operation": "export"}, "cost": g.one(1, 2)}}
	}
	return s
}

// limits draws limits whose amounts a cost of 2 fits.
func (g generator) limits() (limits []any, rolling bool) {
	for i := range 1 + g.IntN(4) {
		algorithm := algorithms[g.IntN(4)]
		of := tree{"limit": g.one(0, 2, 100000), "window": g.duration()}
		switch algorithm {
		case "rollingWindow":
			rolling = true
		case "tokenBucket":
			of = tree{"capacity": g.one(0, 2, 1000), "refill": g.one(1, 1000), "period": g.one("1ns", "0.25s", "1h")}
		}
		limits = append(limits, tree{"name": fmt.Sprintf("l%d", i), algorithm: of})
	}
	return limits, rolling
}

func (g generator) duration() any {
	return g.one("60s", "1h30m", "0.25s", "1.5h", "100ms", "1ns", "2160h", "1us", "3µs", "007m", "1h0.5m2.25s", "1.0000000000000h")
}

func (g generator) entries(prefix string) tree {
	e := tree{}
	for i := range g.IntN(3) {
		e[fmt.Sprint(prefix, i)] = g.one("v", "ü <&>", strings.Repeat("x", 1024))
	}
	return e
}

// rules draws tiers or overrides of different values of an entry, so that none hides another.
func (g generator) rules(entry string, limits []any, overrides bool) []any {
	rules := []any{}
	for i := range g.IntN(4) {
		amounts := tree{}
		for _, l := range limits[:1+g.IntN(len(limits))] {
			l := l.(tree)
			amount := tree{"limit": g.one(2, 50)}
			if l["tokenBucket"] != nil {
				amount = tree{"capacity": g.one(2, 50)}
				if overrides && g.sometimes(2) {
					amount["refill"], amount["period"] = 5, "2s"
				}
			}
			if g.sometimes(4) {
				amount = tree{"unlimited": true}
			}
			amounts[l["name"].(string)] = amount
		}
		rules = append(rules, tree{"when": tree{entry: fmt.Sprint("v", i)}, "amounts": amounts})
	}
	return rules
}

// Values that stand where they shouldn't, and names that come close.
var (
	oddValues = []any{nil, true, 0, 1, -1, 1.5, json.Number("1e3"), json.Number("9223372036854775808"), "", " ", "A", "a", "60", "1d", "0s", "-1s",
		"2160h1ns", "é", "\u2028", "x\x01", strings.Repeat("n", 254), strings.Repeat("é", 600), []any{}, []any{"user", "user"}, tree{}, tree{"a b": "c"}, tree{"a": ""}}
	oddNames = []string{"Limits", "window", "capacity", "refill", "period", "precision", "limit", "unlimited", "l9", "a b", "", strings.Repeat("n", 129)}
)

// spoil changes something somewhere in the spec: a value, a name, or that it is there.
func (g generator) spoil(spec tree) {
	at := places(spec)
	p := at[g.IntN(len(at))]
	switch g.IntN(4) {
	case 0:
		p.parent[p.name] = oddValues[g.IntN(len(oddValues))]
	case 1:
		delete(p.parent, p.name)
	case 2:
		p.parent[oddNames[g.IntN(len(oddNames))]] = p.parent[p.name]
		delete(p.parent, p.name)
	case 3:
		p.parent[oddNames[g.IntN(len(oddNames))]] = oddValues[g.IntN(len(oddValues))]
	}
}

type place struct {
	parent tree
	name   string
}

// places are all fields of all mappings, in an order that is always the same.
func places(v any) (all []place) {
	switch v := v.(type) {
	case tree:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = append(append(all, place{v, name}), places(v[name])...)
		}
	case []any:
		for _, item := range v {
			all = append(all, places(item)...)
		}
	}
	return all
}
