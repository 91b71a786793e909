package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// refusal is a change of a valid set and all that is wrong afterwards, nothing if it is still valid.
type refusal struct {
	name   string
	change func(*policy.Set)
	want   []string
}

// check applies each change to a fresh example.
func check(t *testing.T, refusals []refusal) {
	t.Helper()
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			s := conversions()
			r.change(&s)
			var got []string
			for _, p := range s.Validate() {
				got = append(got, p.String())
			}
			if !slices.Equal(got, r.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(r.want, "\n  "))
			}
			// Normalizing neither repairs nor breaks.
			s.Normalize()
			if again := s.Validate(); len(again) != len(got) {
				t.Errorf("normalized it has %d problems, before %d:\n%v", len(again), len(got), again)
			}
			if _, err := policy.Compile(s); (err == nil) != (len(r.want) == 0) {
				t.Errorf("compiles: %v", err)
			}
		})
	}
}

// first changes the only policy of the example.
func first(change func(*policy.Policy)) func(*policy.Set) {
	return func(s *policy.Set) { change(&s.Policies[0]) }
}

// limitAt changes one of its limits: 0 and 1 are rolling windows, 2 is a bucket.
func limitAt(i int, change func(*policy.Limit)) func(*policy.Set) {
	return func(s *policy.Set) { change(&s.Policies[0].Limits[i]) }
}

func TestTheExampleIsValid(t *testing.T) {
	check(t, []refusal{{"as it is", func(*policy.Set) {}, nil}})
	if problems := (policy.Set{}).Validate(); len(problems) != 0 {
		t.Errorf("the empty set: %v", problems)
	}
}

// TestNotSupportedYet: what this version doesn't enforce is refused by the field's name.
func TestNotSupportedYet(t *testing.T) {
	check(t, []refusal{
		{"shadow", first(func(p *policy.Policy) { p.Mode = policy.Shadow }),
			[]string{"policies[0].mode: Shadow is not supported yet"}},
		{"allow", first(func(p *policy.Policy) { p.OnUnavailable = policy.Allow }),
			[]string{"policies[0].onUnavailable: Allow is not supported yet"}},
		{"adjust", first(func(p *policy.Policy) { p.AllowAdjust = true }),
			[]string{"policies[0].allowAdjust: true is not supported yet"}},
		{"transitions", first(func(p *policy.Policy) { p.Transition = policy.FromNow }), nil},
	})
}

func TestNames(t *testing.T) {
	long := strings.Repeat("n", policy.MaxNameBytes)
	only := "may hold only lower-case letters, digits, '-' and '.'"
	check(t, []refusal{
		{"bounds", first(func(p *policy.Policy) { p.Name, p.Quota, p.Namespace = long, "q", "0.a-b" }), nil},
		{"missing", first(func(p *policy.Policy) { p.Name = "" }), []string{"policies[0].name: is required"}},
		{"too long", first(func(p *policy.Policy) { p.Name = long + "n" }),
			[]string{"policies[0].name: has 254 bytes, at most 253 are allowed"}},
		{"upper case", first(func(p *policy.Policy) { p.Name = "Conversions" }),
			[]string{`policies[0].name: "Conversions" ` + only}},
		{"not ASCII", first(func(p *policy.Policy) { p.Quota = "größe" }),
			[]string{`policies[0].quota: "größe" ` + only}},
		{"not UTF-8", first(func(p *policy.Policy) { p.Quota = "a\xff" }),
			[]string{`policies[0].quota: "a\xff" ` + only}},
		{"namespace", first(func(p *policy.Policy) { p.Namespace = "a b" }),
			[]string{`policies[0].namespace: "a b" ` + only}},
		{"ends", first(func(p *policy.Policy) { p.Name, p.Quota = "-a", "a." }), []string{
			`policies[0].name: "-a" must begin and end with a letter or digit`,
			`policies[0].quota: "a." must begin and end with a letter or digit`,
		}},
		{"domains of gateways", func(s *policy.Set) {
			s.Policies[0].Domain, s.Domains[0].Name = "eg/http_80", "eg/http_80"
		}, nil},
		{"domain", first(func(p *policy.Policy) { p.Domain = "a:b" }),
			[]string{`policies[0].domain: "a:b" may hold only lower-case letters, digits, '-', '.', '_' and '/'`}},
		{"limit", limitAt(2, func(l *policy.Limit) { l.Name = "per_minute" }), []string{
			`policies[0].limits[2].name: "per_minute" ` + only,
			`policies[0].tiers[0].amounts: "burst" is not the name of a limit of this policy`,
			`policies[0].overrides[0].amounts: "burst" is not the name of a limit of this policy`,
		}},
	})
}

func TestNamesAreTakenOnce(t *testing.T) {
	check(t, []refusal{
		{"name", func(s *policy.Set) {
			p := least("conversions")
			p.Namespace = "media"
			s.Policies = append(s.Policies, p)
		}, []string{`policies[1].name: "conversions" in namespace "media" is already the name of policies[0]`}},
		{"quota", func(s *policy.Set) {
			p := least("other")
			p.Namespace, p.Quota = "media", "conversions"
			s.Policies = append(s.Policies, p)
		}, []string{`policies[1].quota: "conversions" in namespace "media" is already the quota of policies[0]`}},
		{"another namespace", func(s *policy.Set) { s.Policies = append(s.Policies, least("conversions")) }, nil},
		{"limit", limitAt(1, func(l *policy.Limit) { l.Name = "per-minute" }), []string{
			`policies[0].limits[1].name: "per-minute" is already the name of limits[0]`,
			`policies[0].tiers[0].amounts: "daily" is not the name of a limit of this policy`,
		}},
		{"domain", func(s *policy.Set) { s.Domains = append(s.Domains, policy.Domain{Name: "video-api"}) },
			[]string{`domains[1].name: "video-api" is already the name of domains[0]`}},
	})
}

func TestEntriesOfMatchAndWhen(t *testing.T) {
	matching := func(name, value string) func(*policy.Set) {
		return first(func(p *policy.Policy) { p.Match = when(name, value) })
	}
	names := "only printing ASCII characters without spaces are allowed"
	check(t, []refusal{
		{"bounds", matching(strings.Repeat("~", 128), strings.Repeat("é", 512)), nil},
		{"any text", matching("x-user!", "a b\u00a0|=\U0001F600"), nil},
		{"empty name", matching("", "x"), []string{"policies[0].match: has an entry with an empty name"}},
		{"long name", matching(strings.Repeat("n", 129), "x"),
			[]string{"policies[0].match: has an entry name of 129 bytes, at most 128 are allowed"}},
		{"space in a name", matching("a b", "x"), []string{`policies[0].match: has the entry name "a b"; ` + names}},
		{"empty value", matching("a", ""),
			[]string{"policies[0].match.a: has an empty value, which no descriptor's entry is matched by"}},
		{"long value", matching("a", strings.Repeat("v", 1025)),
			[]string{"policies[0].match.a: has a value of 1025 bytes, at most 1024 are allowed"}},
		{"not UTF-8", matching("a", "v\xff"), []string{"policies[0].match.a: has a value that is not UTF-8"}},
		{"a control character", matching("a", "v\x00"),
			[]string{"policies[0].match.a: has a value with a character that can't be read at byte 1"}},
		{"what YAML takes for a line break", matching("a", "\u0085"),
			[]string{"policies[0].match.a: has a value with a character that can't be read at byte 0"}},
		{"twice", first(func(p *policy.Policy) { p.Match = append(when("a", "1"), when("a", "2")...) }),
			[]string{"policies[0].match.a: is given twice"}},
		{"a rule without entries", first(func(p *policy.Policy) {
			p.Tiers[0].When, p.Overrides[0].When, p.Costs[0].When = nil, nil, nil
		}), []string{
			"policies[0].tiers[0].when: names no entry; at least one is required",
			"policies[0].overrides[0].when: names no entry; at least one is required",
			"policies[0].costs[0].when: names no entry; at least one is required",
		}},
		{"an override by another entry", first(func(p *policy.Policy) { p.Overrides[0].When = when("tier", "pro") }),
			[]string{`policies[0].overrides[0].when: "tier" is not in key: an override goes by key entries, a tier by any`}},
	})
}

func TestKey(t *testing.T) {
	sixteen := func() (list []string) {
		for i := range keyspace.MaxEntries {
			list = append(list, fmt.Sprintf("e%d", i))
		}
		return list
	}
	check(t, []refusal{
		{"none", first(func(p *policy.Policy) { p.Key, p.Overrides = nil, nil }),
			[]string{"policies[0].key: names no entry; write the entries that each have their own allowance, or global: true for one allowance for all"}},
		{"global", first(func(p *policy.Policy) { p.Key, p.Overrides, p.Global = nil, nil, true }), nil},
		{"both", first(func(p *policy.Policy) { p.Global = true }),
			[]string{"policies[0].global: true and a key exclude each other"}},
		{"overrides of a global one", first(func(p *policy.Policy) { p.Key, p.Global = nil, true }),
			[]string{`policies[0].overrides[0].when: "principal" is not in key: an override goes by key entries, a tier by any`}},
		{"twice", first(func(p *policy.Policy) { p.Key = []string{"principal", "principal"} }),
			[]string{`policies[0].key: "principal" is given twice`, `policies[0].partitionBy: "principal" is given twice`}},
		{"more than a descriptor has", first(func(p *policy.Policy) { p.Key, p.Overrides = sixteen(), nil }),
			[]string{"policies[0].key: needs 17 entries together with match, a descriptor has at most 16"}},
		{"all that a descriptor has", first(func(p *policy.Policy) { p.Key, p.Overrides, p.Match = sixteen(), nil, nil }), nil},
		{"partitioned by another entry", first(func(p *policy.Policy) { p.PartitionBy = []string{"tenant"} }),
			[]string{`policies[0].partitionBy: "tenant" is not in key: one allowance can't be in two partitions`}},
		{"one partition", first(func(p *policy.Policy) { p.PartitionBy = []string{} }), nil},
	})
}

// TestNUM04AmountsOutOfRange: the largest amounts are exact, larger ones refused; never "no limit".
func TestNUM04AmountsOutOfRange(t *testing.T) {
	fixed := func(amount uint64) func(*policy.Set) {
		return first(func(p *policy.Policy) {
			p.Tiers, p.Overrides, p.KeepHistory = nil, nil, 0
			p.Limits = []policy.Limit{{Name: "l", Algorithm: limit.FixedWindow, Amount: amount, Window: second}}
		})
	}
	bucket := func(amount uint64) func(*policy.Set) {
		return func(s *policy.Set) {
			fixed(amount)(s)
			l := &s.Policies[0].Limits[0]
			l.Algorithm, l.Refill = limit.TokenBucket, 1<<62
		}
	}
	const outOfRange = ": %d is out of range, 0 to 9223372036854775807"
	check(t, []refusal{
		{"2^62", fixed(1 << 62), nil},
		{"2^63-1", fixed(limit.MaxAmount), nil},
		{"2^63", fixed(1 << 63), []string{fmt.Sprintf("policies[0].limits[0].fixedWindow.limit"+outOfRange, uint64(1)<<63)}},
		{"unlimited", fixed(limit.Unlimited),
			[]string{fmt.Sprintf("policies[0].limits[0].fixedWindow.limit"+outOfRange, limit.Unlimited)}},
		{"bucket of 2^62", bucket(1 << 62), nil},
		{"bucket of 2^63", bucket(1 << 63),
			[]string{fmt.Sprintf("policies[0].limits[0].tokenBucket.capacity"+outOfRange, uint64(1)<<63)}},
		{"a tier's", first(func(p *policy.Policy) { p.Tiers[0].Amounts[0].Amount = 1 << 63 }),
			[]string{fmt.Sprintf("policies[0].tiers[0].amounts.per-minute.limit"+outOfRange, uint64(1)<<63)}},
		{"an override's refill", first(func(p *policy.Policy) { p.Overrides[0].Amounts[1].Refill = 1 << 63 }),
			[]string{"policies[0].overrides[0].amounts.burst.refill: 9223372036854775808 is out of range, 1 to 9223372036854775807"}},
	})
}

// TestNUM05TimeToRefillIsBounded: a bucket that takes centuries is refused in words that say so.
func TestNUM05TimeToRefillIsBounded(t *testing.T) {
	bucket := func(capacity, refill uint64, period int64) func(*policy.Set) {
		return limitAt(2, func(l *policy.Limit) { l.Amount, l.Refill, l.Window = capacity, refill, period })
	}
	check(t, []refusal{
		{"the case", first(func(p *policy.Policy) {
			p.Tiers, p.Overrides, p.Costs = nil, nil, nil
			p.Limits[2] = policy.Limit{Name: "burst", Algorithm: limit.TokenBucket, Amount: 100, Refill: 1, Window: 25_000_000 * second}
		}), []string{"policies[0].limits[2].tokenBucket.period: 6944h26m40s is longer than 2160h0m0s, the longest allowed"}},
		{"90 days", bucket(90, 1, day), nil},
		{"91 days", bucket(91, 1, day), []string{
			"policies[0].limits[2].tokenBucket.capacity: 91 at 1 per 24h0m0s take longer than 2160h0m0s to refill, the longest allowed",
		}},
		{"a ns over 90 days", bucket(90, 1, day+1), []string{
			"policies[0].limits[2].tokenBucket.capacity: 90 at 1 per 24h0m0.000000001s take longer than 2160h0m0s to refill, the longest allowed",
		}},
		{"a tier's capacity", first(func(p *policy.Policy) { p.Tiers[0].Amounts[2].Amount = 20_000_000 }), []string{
			"policies[0].tiers[0].amounts.burst.capacity: 20000000 at 2 per 1s take longer than 2160h0m0s to refill, the longest allowed",
		}},
		{"an override's own refill", first(func(p *policy.Policy) {
			p.Overrides[0].Amounts[1] = policy.Amount{Limit: "burst", Amount: 10, Refill: 1, Period: 9*day + 1}
		}), []string{
			"policies[0].overrides[0].amounts.burst.capacity: 10 at 1 per 216h0m0.000000001s take longer than 2160h0m0s to refill, the longest allowed",
		}},
		{"beyond 64 bits", bucket(limit.MaxAmount, 1, policy.MaxSpan), []string{
			"policies[0].limits[2].tokenBucket.capacity: 9223372036854775807 at 1 per 2160h0m0s take longer than 2160h0m0s to refill, the longest allowed",
			"policies[0].tiers[0].amounts.burst.capacity: 80 at 1 per 2160h0m0s take longer than 2160h0m0s to refill, the longest allowed",
		}},
	})
}

// TestCOST09ZeroIsClosed: an amount of 0 bans and is accepted; a bucket that never refills is refused.
func TestCOST09ZeroIsClosed(t *testing.T) {
	check(t, []refusal{
		{"limit 0", limitAt(0, func(l *policy.Limit) { l.Amount = 0 }), nil},
		{"all limits 0", first(func(p *policy.Policy) {
			p.Limits[0].Amount, p.Tiers, p.Overrides = 0, nil, nil
		}), nil},
		{"capacity 0", first(func(p *policy.Policy) { p.Limits[2].Amount, p.Tiers, p.Overrides, p.Costs = 0, nil, nil, nil }), nil},
		{"refill 0", limitAt(2, func(l *policy.Limit) { l.Refill = 0 }),
			[]string{"policies[0].limits[2].tokenBucket.refill: 0 is out of range, 1 to 9223372036854775807"}},
	})
}

// TestNUM10WindowMustBePositive: 0, negative and absent are refused; a nanosecond and 90 days are the bounds.
func TestNUM10WindowMustBePositive(t *testing.T) {
	for field, i := range map[string]int{"limits[0].rollingWindow.window": 0, "limits[2].tokenBucket.period": 2} {
		window := func(ns int64) func(*policy.Set) {
			return first(func(p *policy.Policy) {
				p.Limits[i].Window, p.Limits[i].Amount = ns, 20
				p.Tiers, p.Overrides, p.Costs, p.KeepHistory = nil, nil, nil, 0
			})
		}
		check(t, []refusal{
			{field + " 1ns", window(1), nil},
			{field + " 90 days", first(func(p *policy.Policy) {
				p.Limits[i].Window, p.Limits[i].Refill = policy.MaxSpan, uint64(i)*40
				p.KeepHistory = 0
			}), nil},
			{field + " 0", window(0), []string{"policies[0]." + field + ": 0s is not positive"}},
			{field + " -5s", window(-5 * second), []string{"policies[0]." + field + ": -5s is not positive"}},
			{field + " more than 90 days", window(policy.MaxSpan + 1),
				[]string{"policies[0]." + field + ": 2160h0m0.000000001s is longer than 2160h0m0s, the longest allowed"}},
		})
	}
}

func TestAlgorithms(t *testing.T) {
	check(t, []refusal{
		{"none", limitAt(1, func(l *policy.Limit) { l.Algorithm = 0 }),
			[]string{"policies[0].limits[1]: needs one of rollingWindow, tokenBucket, slidingWindowCounter, fixedWindow"}},
		{"no limit", first(func(p *policy.Policy) { p.Limits, p.Tiers, p.Overrides, p.KeepHistory = nil, nil, nil, 0 }),
			[]string{"policies[0].limits: has no limit; at least one is required"}},
		{"refill without a bucket", limitAt(0, func(l *policy.Limit) { l.Refill = 1 }),
			[]string{"policies[0].limits[0].rollingWindow.refill: only a tokenBucket refills"}},
		{"precision without a log", limitAt(2, func(l *policy.Limit) { l.Precision = 1 }),
			[]string{"policies[0].limits[2].tokenBucket.precision: only a rollingWindow has a precision"}},
		{"all four", first(func(p *policy.Policy) {
			p.Limits = append(p.Limits,
				policy.Limit{Name: "counter", Algorithm: limit.SlidingWindowCounter, Amount: 30, Window: minute},
				policy.Limit{Name: "fixed", Algorithm: limit.FixedWindow, Amount: 30, Window: minute})
		}), nil},
	})
}

// TestPrecision: a log has as many events as its amount, or else as many grains as its precision makes of it.
func TestPrecision(t *testing.T) {
	both := func(precision int64, change func(*policy.Policy)) func(*policy.Set) {
		return first(func(p *policy.Policy) {
			p.Limits[0].Precision, p.Limits[1].Precision = precision, precision
			change(p)
		})
	}
	nothing := func(*policy.Policy) {}
	check(t, []refusal{
		{"100000 without one", limitAt(0, func(l *policy.Limit) { l.Amount = 100_000 }), nil},
		{"100001 without one", limitAt(0, func(l *policy.Limit) { l.Amount = 100_001 }),
			[]string{"policies[0].limits[0].rollingWindow.limit: 100001 is above 100000: the limit needs a precision"}},
		{"a tier's 100001 without one", first(func(p *policy.Policy) { p.Tiers[0].Amounts[0].Amount = 100_001 }),
			[]string{"policies[0].tiers[0].amounts.per-minute.limit: 100001 is above 100000: the limit needs a precision"}},
		{"an override's too", first(func(p *policy.Policy) { p.Overrides[0].Amounts[0].Amount = 100_001 }),
			[]string{"policies[0].overrides[0].amounts.per-minute.limit: 100001 is above 100000: the limit needs a precision"}},
		{"other algorithms need none", limitAt(2, func(l *policy.Limit) { l.Amount = 1_000_000 }), nil},
		{"with one", both(6*second, func(p *policy.Policy) { p.Limits[0].Amount, p.Tiers[0].Amounts[0].Amount = 1<<40, 1<<41 }), nil},
		{"coarse", both(6*second+1, nothing),
			[]string{"policies[0].limits[0].rollingWindow.precision: 6.000000001s is more than a tenth of the window, 1m0s"}},
		{"negative", both(-1, nothing), []string{
			"policies[0].limits[0].rollingWindow.precision: -1ns is not positive",
			"policies[0].limits[1].rollingWindow.precision: -1ns is not positive",
		}},
		{"as fine as may be", both(2*day/100_000, nothing), nil},
		{"finer", both(2*day/100_000-1, nothing), []string{
			"policies[0].limits[0].rollingWindow.precision: 1.727999999s cuts the 48h0m0s that the log is kept into more than 100000 parts",
			"policies[0].limits[1].rollingWindow.precision: 1.727999999s cuts the 48h0m0s that the log is kept into more than 100000 parts",
		}},
		{"one log, two precisions", first(func(p *policy.Policy) { p.Limits[0].Precision = 2 * second }), []string{
			`policies[0].limits[1].rollingWindow.precision: 0s differs from the 2s of limit "per-minute"; the rolling limits of a policy share one log and need one precision`,
		}},
	})
}

func TestAmounts(t *testing.T) {
	tier := func(amounts ...policy.Amount) func(*policy.Set) {
		return first(func(p *policy.Policy) { p.Tiers[0].Amounts, p.Costs = amounts, nil })
	}
	override := func(amounts ...policy.Amount) func(*policy.Set) {
		return first(func(p *policy.Policy) { p.Overrides[0].Amounts = amounts })
	}
	check(t, []refusal{
		{"none", tier(), []string{"policies[0].tiers[0].amounts: has no amount; at least one is required"}},
		{"of no limit", tier(policy.Amount{Limit: "weekly", Amount: 1}),
			[]string{`policies[0].tiers[0].amounts: "weekly" is not the name of a limit of this policy`}},
		{"twice", override(policy.Amount{Limit: "daily", Amount: 1}, policy.Amount{Limit: "daily", Amount: 2}),
			[]string{"policies[0].overrides[0].amounts.daily: is given twice"}},
		{"both", tier(policy.Amount{Limit: "daily", Unlimited: true, Amount: 1}),
			[]string{"policies[0].tiers[0].amounts.daily: unlimited and other amounts exclude each other"}},
		{"unlimited with a refill", override(policy.Amount{Limit: "burst", Unlimited: true, Refill: 1}),
			[]string{"policies[0].overrides[0].amounts.burst: unlimited and other amounts exclude each other"}},
		{"a tier's refill", tier(policy.Amount{Limit: "burst", Amount: 40, Refill: 1}),
			[]string{"policies[0].tiers[0].amounts.burst: a tier can't change refill or period, which must be the same for all checks of a key"}},
		{"a window's period", override(policy.Amount{Limit: "daily", Amount: 1, Period: 1}),
			[]string{"policies[0].overrides[0].amounts.daily: only a tokenBucket has a refill and a period"}},
		{"a negative period", override(policy.Amount{Limit: "burst", Amount: 40, Period: -1}),
			[]string{"policies[0].overrides[0].amounts.burst.period: -1ns is not positive"}},
		{"a refill alone", override(policy.Amount{Limit: "burst", Amount: 40, Refill: 9}), nil},
		{"a period alone", override(policy.Amount{Limit: "burst", Amount: 40, Period: hour}), nil},
		{"a ban", override(policy.Amount{Limit: "daily"}, policy.Amount{Limit: "burst"}), nil},
	})
}

// TestCOST11CostThatNeverFits: a rule that makes every check too dear is found when it is written.
func TestCOST11CostThatNeverFits(t *testing.T) {
	bucket := func(cost uint64, rules ...policy.Tier) func(*policy.Set) {
		return first(func(p *policy.Policy) {
			p.Limits = []policy.Limit{{Name: "burst", Algorithm: limit.TokenBucket, Amount: 1, Refill: 1, Window: second}}
			p.Tiers, p.Overrides, p.KeepHistory = rules, nil, 0
			p.Costs[0].Cost = cost
		})
	}
	pro := func(a policy.Amount) policy.Tier {
		return policy.Tier{When: when("tier", "pro"), Amounts: []policy.Amount{a}}
	}
	check(t, []refusal{
		{"fits", bucket(1), nil},
		{"never fits", bucket(2), []string{`policies[0].costs[0].cost: 2 never fits limit "burst", whose largest amount is 1`}},
		{"fits a tier", bucket(2, pro(policy.Amount{Limit: "burst", Amount: 2})), nil},
		{"fits no tier", bucket(3, pro(policy.Amount{Limit: "burst", Amount: 2})),
			[]string{`policies[0].costs[0].cost: 3 never fits limit "burst", whose largest amount is 2`}},
		{"an unlimited tier", bucket(3, pro(policy.Amount{Limit: "burst", Unlimited: true})), nil},
		{"0", bucket(0), []string{"policies[0].costs[0].cost: 0 is out of range, 1 to 9223372036854775807"}},
		{"2^63", bucket(1 << 63),
			[]string{"policies[0].costs[0].cost: 9223372036854775808 is out of range, 1 to 9223372036854775807"}},
	})
}

func TestKeepHistory(t *testing.T) {
	keep := func(ns int64) func(*policy.Set) { return first(func(p *policy.Policy) { p.KeepHistory = ns }) }
	check(t, []refusal{
		{"the longest window", keep(day), nil},
		{"90 days", keep(policy.MaxSpan), nil},
		{"shorter", keep(day - 1), []string{"policies[0].keepHistory: 23h59m59.999999999s is shorter than the longest window, 24h0m0s"}},
		{"longer", keep(policy.MaxSpan + 1),
			[]string{"policies[0].keepHistory: 2160h0m0.000000001s is longer than 2160h0m0s, the longest allowed"}},
		{"negative", keep(-1), []string{"policies[0].keepHistory: -1ns is negative"}},
		{"of nothing", first(func(p *policy.Policy) {
			p.Limits[0].Algorithm, p.Limits[1].Algorithm = limit.FixedWindow, limit.SlidingWindowCounter
		}), []string{"policies[0].keepHistory: only rolling windows keep history, and there is none"}},
	})
}

func TestWords(t *testing.T) {
	check(t, []refusal{
		{"transition", first(func(p *policy.Policy) { p.Transition = "conservative" }),
			[]string{`policies[0].transition: "conservative" is not one of Conservative, FromNow`}},
		{"mode", first(func(p *policy.Policy) { p.Mode = "shadow" }),
			[]string{`policies[0].mode: "shadow" is not one of Enforce, Shadow`}},
		{"onUnavailable", first(func(p *policy.Policy) { p.OnUnavailable = policy.OnUnavailable(strings.Repeat("x", 61)) }),
			[]string{`policies[0].onUnavailable: "` + strings.Repeat("x", 60) + `"... is not one of Deny, Allow`}},
	})
}

// TestAPolicyThatNeverWinsIsWarnedOf: it says something that isn't so.
func TestAPolicyThatNeverWinsIsWarnedOf(t *testing.T) {
	second := func(change func(*policy.Policy)) func(*policy.Set) {
		return func(s *policy.Set) {
			p := least("second")
			p.Domain, p.Match = "video-api", when("api_class", "convert")
			change(&p)
			s.Policies = append(s.Policies, p)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*policy.Set)
		never  bool
	}{
		{"the same match and key", second(func(*policy.Policy) {}), true},
		{"the same match and more key", second(func(p *policy.Policy) { p.Key = append(p.Key, "tenant") }), true},
		{"another key", second(func(p *policy.Policy) { p.Key = []string{"tenant"} }), false},
		{"another domain", second(func(p *policy.Policy) { p.Domain = "other" }), false},
		{"more match", second(func(p *policy.Policy) { p.Match = append(p.Match, when("x", "1")...) }), false},
		{"less match", second(func(p *policy.Policy) { p.Match = nil }), false},
		{"the key's own value", second(func(p *policy.Policy) { p.Match = append(p.Match, when("principal", "u1")...) }), false},
		{"more in front", func(s *policy.Set) {
			second(func(p *policy.Policy) { p.Key = append(p.Key, "tenant") })(s)
			slices.Reverse(s.Policies)
		}, false},
	} {
		s := conversions()
		c.change(&s)
		if problems := s.Validate(); len(problems) > 0 {
			t.Errorf("%s: %v", c.name, problems)
		}
		var want string
		if c.never {
			want = `policies[1]: never wins: policies[0] ("conversions") matches all that this one does`
		}
		if got := s.Warnings().Error(); got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}

// TestNothingIsHidden: a rule that can't ever apply says something that isn't so.
func TestNothingIsHidden(t *testing.T) {
	check(t, []refusal{
		{"the same tier", first(func(p *policy.Policy) { p.Tiers = append(p.Tiers, p.Tiers[0]) }),
			[]string{"policies[0].tiers[1]: never applies: tiers[0] applies to all that this one does"}},
		{"a narrower override", first(func(p *policy.Policy) {
			p.Key = append(p.Key, "tenant")
			narrow := p.Overrides[0]
			narrow.When = append(when("tenant", "t"), narrow.When...)
			p.Overrides = append(p.Overrides, narrow)
		}), []string{"policies[0].overrides[1]: never applies: overrides[0] applies to all that this one does"}},
		{"the same cost rule", first(func(p *policy.Policy) { p.Costs = append(p.Costs, p.Costs[0]) }),
			[]string{"policies[0].costs[1]: never applies: costs[0] applies to all that this one does"}},
	})
}

func TestHowMany(t *testing.T) {
	check(t, []refusal{
		{"all of the most", first(func(p *policy.Policy) { fill(p, 0) }), nil},
		{"one more of each", first(func(p *policy.Policy) { fill(p, 1) }), []string{
			"policies[0].limits: has 17 limits, at most 16 are allowed",
			"policies[0].tiers: has 65 entries, at most 64 are allowed",
			"policies[0].overrides: has 1001 entries, at most 1000 are allowed",
			"policies[0].costs: has 65 entries, at most 64 are allowed",
		}},
		{"names and entries", first(func(p *policy.Policy) {
			p.Match, p.Key, p.Overrides = nil, nil, nil
			for i := range keyspace.MaxEntries + 1 {
				p.Match = append(p.Match, when(fmt.Sprintf("e%02d", i), "v")...)
				p.Key = append(p.Key, fmt.Sprintf("e%02d", i))
			}
		}), []string{
			"policies[0].match: has 17 entries, at most 16 are allowed",
			"policies[0].key: has 17 names, at most 16 are allowed",
			"policies[0].key: needs 17 entries together with match, a descriptor has at most 16",
			"policies[0].partitionBy: has 17 names, at most 16 are allowed",
		}},
	})
}

// fill gives p the most of everything, and as much more.
func fill(p *policy.Policy, more int) {
	amount := []policy.Amount{{Limit: "daily", Amount: 100}}
	for i := len(p.Limits); i < policy.MaxLimits+more; i++ {
		p.Limits = append(p.Limits, policy.Limit{Name: fmt.Sprintf("l%d", i), Algorithm: limit.FixedWindow, Amount: 100, Window: 1})
	}
	for i := len(p.Tiers); i < policy.MaxTiers+more; i++ {
		p.Tiers = append(p.Tiers, policy.Tier{When: when("tier", fmt.Sprint(i)), Amounts: amount})
	}
	for i := len(p.Overrides); i < policy.MaxOverrides+more; i++ {
		p.Overrides = append(p.Overrides, policy.Override{When: when("principal", fmt.Sprint(i)), Amounts: amount})
	}
	for i := len(p.Costs); i < policy.MaxCosts+more; i++ {
		p.Costs = append(p.Costs, policy.CostRule{When: when("operation", fmt.Sprint(i)), Cost: 2})
	}
}

// TestAsManyPoliciesAsMayBe: the largest set is read in a second or so, one more is refused.
func TestAsManyPoliciesAsMayBe(t *testing.T) {
	s := policy.Set{}
	for i := range policy.MaxPolicies + 1 {
		p := least(fmt.Sprintf("p%d", i))
		p.Match = when("tenant", fmt.Sprint(i))
		s.Policies = append(s.Policies, p)
	}
	problems := s.Validate()
	if len(problems) != 1 || problems[0].String() != "policies: 65536 policies, at most 65535 are allowed" {
		t.Errorf("got %v", problems)
	}
	s.Policies = s.Policies[1:]
	if problems := s.Validate(); len(problems) != 0 {
		t.Errorf("got %v", problems)
	}
}

func TestDomains(t *testing.T) {
	check(t, []refusal{
		{"name", func(s *policy.Set) { s.Domains[0].Name = "" }, []string{"domains[0].name: is required"}},
		{"required", func(s *policy.Set) { s.Domains[0].Required = []string{"a", "", "a"} }, []string{
			"domains[0].required: has an entry with an empty name",
			`domains[0].required: "a" is given twice`,
		}},
	})
}
