package file

import (
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
	"go.yaml.in/yaml/v3"
)

// set reads the whole file. Each function below is the shape of one mapping.
func (r *reader) set(n *yaml.Node) policy.Set {
	var s policy.Set
	r.fields(n, "", []field{
		{"policies", true, func(n *yaml.Node, path string) {
			r.list(n, path, func(n *yaml.Node, path string) { s.Policies = append(s.Policies, r.policy(n, path)) })
		}},
		{"domains", false, func(n *yaml.Node, path string) {
			r.list(n, path, func(n *yaml.Node, path string) { s.Domains = append(s.Domains, r.domain(n, path)) })
		}},
	})
	return s
}

func (r *reader) policy(n *yaml.Node, path string) policy.Policy {
	var p policy.Policy
	r.fields(n, path, []field{
		{"name", true, r.intoText(&p.Name)},
		{"namespace", false, r.intoText(&p.Namespace)},
		{"quota", false, r.intoText(&p.Quota)},
		{"domain", false, r.intoText(&p.Domain)},
		{"match", false, r.intoEntries(&p.Match)},
		{"key", false, r.intoTexts(&p.Key)},
		{"global", false, func(n *yaml.Node, path string) { p.Global = r.bool(n, path) }},
		{"partitionBy", false, r.intoTexts(&p.PartitionBy)},
		{"limits", true, func(n *yaml.Node, path string) {
			r.list(n, path, func(n *yaml.Node, path string) { p.Limits = append(p.Limits, r.limit(n, path)) })
		}},
		// After the limits, whose algorithms say what an amount looks like.
		{"tiers", false, r.intoRules(&p.Tiers, &p)},
		{"overrides", false, r.intoRules(&p.Overrides, &p)},
		{"costs", false, func(n *yaml.Node, path string) {
			r.list(n, path, func(n *yaml.Node, path string) { p.Costs = append(p.Costs, r.cost(n, path)) })
		}},
		{"keepHistory", false, r.intoDuration(&p.KeepHistory)},
		{"transition", false, func(n *yaml.Node, path string) { p.Transition = policy.Transition(r.text(n, path)) }},
		{"allowAdjust", false, func(n *yaml.Node, path string) { p.AllowAdjust = r.bool(n, path) }},
		{"mode", false, func(n *yaml.Node, path string) { p.Mode = policy.Mode(r.text(n, path)) }},
		{"onUnavailable", false, func(n *yaml.Node, path string) { p.OnUnavailable = policy.OnUnavailable(r.text(n, path)) }},
	})
	return p
}

func (r *reader) limit(n *yaml.Node, path string) policy.Limit {
	var l policy.Limit
	chosen := 0
	choose := func(a limit.Algorithm, read func(*policy.Limit) []field) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) {
			chosen++
			l.Algorithm = a
			r.fields(n, path, read(&l))
		}
	}
	before := len(r.problems)
	r.fields(n, path, []field{
		{"name", true, r.intoText(&l.Name)},
		{"rollingWindow", false, choose(limit.RollingWindow, r.rollingWindow)},
		{"tokenBucket", false, choose(limit.TokenBucket, r.tokenBucket)},
		{"slidingWindowCounter", false, choose(limit.SlidingWindowCounter, r.window)},
		{"fixedWindow", false, choose(limit.FixedWindow, r.window)},
	})
	switch {
	case chosen > 1:
		r.add(path, "has %d algorithms; a limit has one", chosen)
	case chosen == 0 && len(r.problems) > before:
		r.broken[path] = true // the algorithm may be what was reported
	}
	return l
}

func (r *reader) window(l *policy.Limit) []field {
	return []field{
		{"limit", true, r.intoWhole(&l.Amount, 0)},
		{"window", true, r.intoDuration(&l.Window)},
	}
}

func (r *reader) rollingWindow(l *policy.Limit) []field {
	return append(r.window(l), field{"precision", false, r.intoDuration(&l.Precision)})
}

func (r *reader) tokenBucket(l *policy.Limit) []field {
	return []field{
		{"capacity", true, r.intoWhole(&l.Amount, 0)},
		{"refill", true, r.intoWhole(&l.Refill, 1)},
		{"period", true, r.intoDuration(&l.Window)},
	}
}

// intoRules reads tiers or overrides of p, whose limits have been read.
func (r *reader) intoRules(rules *[]policy.Rule, p *policy.Policy) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		r.list(n, path, func(n *yaml.Node, path string) {
			var rule policy.Rule
			r.fields(n, path, []field{
				{"when", true, r.intoEntries(&rule.When)},
				{"amounts", true, func(n *yaml.Node, path string) { rule.Amounts = r.amounts(n, path, p.Limits) }},
			})
			*rules = append(*rules, rule)
		})
	}
}

func (r *reader) amounts(n *yaml.Node, path string, limits []policy.Limit) []policy.Amount {
	var amounts []policy.Amount
	if !r.is(n, yaml.MappingNode, path) {
		return nil
	}
	r.pairs(n, path, func(name string, value *yaml.Node) {
		var algorithm limit.Algorithm
		for _, l := range limits {
			if l.Name == name {
				algorithm = l.Algorithm
			}
		}
		a := r.amount(value, join(path, name), algorithm)
		a.Limit = name
		amounts = append(amounts, a)
	})
	return amounts
}

func (r *reader) amount(n *yaml.Node, path string, algorithm limit.Algorithm) policy.Amount {
	var a policy.Amount
	units := field{"limit", false, r.intoWhole(&a.Amount, 0)}
	if algorithm == limit.TokenBucket {
		units.name = "capacity"
	}
	known := []field{units, {"unlimited", false, func(n *yaml.Node, path string) { a.Unlimited = r.bool(n, path) }}}
	if algorithm == limit.TokenBucket {
		known = append(known,
			field{"refill", false, r.intoWhole(&a.Refill, 1)},
			field{"period", false, r.intoDuration(&a.Period)})
	}
	if algorithm == 0 {
		return a // no such limit, or one that was reported
	}
	before := len(r.problems)
	found := r.fields(n, path, known)
	if len(r.problems) == before && found[units.name] == a.Unlimited {
		r.add(path, "needs either %s or unlimited: true", units.name)
	}
	return a
}

func (r *reader) cost(n *yaml.Node, path string) policy.CostRule {
	var c policy.CostRule
	r.fields(n, path, []field{
		{"when", true, r.intoEntries(&c.When)},
		{"cost", true, r.intoWhole(&c.Cost, 1)},
	})
	return c
}

func (r *reader) domain(n *yaml.Node, path string) policy.Domain {
	var d policy.Domain
	r.fields(n, path, []field{
		{"name", true, r.intoText(&d.Name)},
		{"onNoMatch", false, func(n *yaml.Node, path string) {
			word := r.text(n, path)
			d.OnNoMatchAllow = word == "Allow"
			if word != "" && word != "Allow" && word != "Deny" {
				r.add(path, "%s is not one of Deny, Allow", quote(word))
			}
		}},
		{"required", false, r.intoTexts(&d.Required)},
	})
	return d
}

func (r *reader) entries(n *yaml.Node, path string) []keyspace.Entry {
	var entries []keyspace.Entry
	if !r.is(n, yaml.MappingNode, path) {
		return nil
	}
	r.pairs(n, path, func(name string, value *yaml.Node) {
		entries = append(entries, keyspace.Entry{Name: name, Value: r.text(value, join(path, name))})
	})
	return entries
}

// The functions below read a field's value into a variable.

func (r *reader) intoText(s *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) { *s = r.text(n, path) }
}

func (r *reader) intoTexts(list *[]string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) { *list = r.texts(n, path) }
}

func (r *reader) intoEntries(entries *[]keyspace.Entry) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) { *entries = r.entries(n, path) }
}

func (r *reader) intoWhole(v *uint64, least uint64) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) { *v = r.whole(n, path, least) }
}

func (r *reader) intoDuration(ns *int64) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) { *ns = r.duration(n, path) }
}
