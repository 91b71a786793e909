package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// TestNoWindowHoldsMoreThanTheLimitOfItsTime counts the promise through changes of policies. Whatever sets the events
// of a window are of: at each admission the windows of the quota key hold no more than the amount that it met. Amounts
// go up and down, tiers and overrides change, policies are renamed, put in another order, deleted and come back.
func TestNoWindowHoldsMoreThanTheLimitOfItsTime(t *testing.T) {
	seeds := 30
	if testing.Short() || raceEnabled {
		seeds = 10
	}
	held, back := 0, 0
	switches := map[fsm.Refusal]int{}
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		h := newHistory(t, seeded(seed))
		for range 150 {
			h.step() // the history holds every admission to the promise
		}
		held, back = held+h.held, back+h.oracle.back
		for why, n := range h.switches {
			switches[why] += n
		}
	})
	t.Logf("%d admissions held to a limit, through %d changes; %d deleted policies came back", held, switches[fsm.Accepted], back)
	if held == 0 || back == 0 || switches[fsm.RefusedSet] == 0 || switches[fsm.RefusedConflict] == 0 {
		t.Errorf("%d held, %d came back, refusals %v", held, back, switches)
	}
}

// TestBucketsKeepTheirSizeAsTheOracleSays plays histories of buckets that are free for some, and whose capacities go up
// and down.
func TestBucketsKeepTheirSizeAsTheOracleSays(t *testing.T) {
	kept := 0
	eachSeed(t, 6, func(t *testing.T, seed uint64) {
		c := seeded(seed)
		var set policy.Set
		for i, l := range []policy.Limit{bucket(3, 1, second), bucket(9, 2, 10*second), bucket(5, 1, minute)} {
			p := perUser(l)
			p.Name, p.Domain = fmt.Sprint("p", i), pick(c, "a", "b", "c")
			p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "pro"}}, Amounts: []policy.Amount{{Limit: "bucket", Unlimited: true}}}}
			if i == 2 {
				p.Domain = "a"
				p.Overrides = []policy.Override{{When: []keyspace.Entry{{Name: "user", Value: "u1"}}, Amounts: []policy.Amount{{Limit: "bucket", Amount: 4, Refill: 3}}}}
			}
			set.Policies = append(set.Policies, p)
		}
		h := newHistoryWith(t, c, settings(), set)
		h.sizes = true
		for range 100 {
			h.step()
		}
		kept += len(h.oracle.holds)
	})
	if kept == 0 {
		t.Error("no bucket of any history kept its size")
	}
}

// left is what the check's first charge has left of its policy's first limit.
func (r *replica) left(c *fsm.Check) uint64 {
	return r.m.Inspect(nil, &c.Charges[0], r.m.Now())[0].Left
}

// POL-01: a raised amount is there at once, less what was used.
func TestPOL01RaisedLimitCountsAtOnce(t *testing.T) {
	for _, l := range []policy.Limit{rolling(3, minute), bucket(3, 1, hour), counter(3, hour), fixed(3, hour)} {
		r := start(t, settings(), perUser(l))
		r.want(fsm.VerdictAllow, r.check(2, desc("user=a")))
		r.want(fsm.VerdictDeny, r.check(2, desc("user=a")))
		l.Amount = 10
		r.at(second).change(perUser(l))
		if left := r.left(r.check(1, desc("user=a"))); left != 8 {
			t.Errorf("%s: %d left, want 8", l.Name, left)
		}
		r.want(fsm.VerdictAllow, r.check(8, desc("user=a")))
		r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
	}
}

func counter(n uint64, window int64) policy.Limit {
	return policy.Limit{Name: "counter", Algorithm: limit.SlidingWindowCounter, Amount: n, Window: window}
}

func fixed(n uint64, window int64) policy.Limit {
	return policy.Limit{Name: "fixed", Algorithm: limit.FixedWindow, Amount: n, Window: window}
}

// POL-02: a lowered amount holds in mid-window, for what was used before.
func TestPOL02LoweredLimitCountsWhatWasUsed(t *testing.T) {
	for _, l := range []policy.Limit{rolling(10, minute), bucket(10, 1, hour), counter(10, hour), fixed(10, hour)} {
		r := start(t, settings(), perUser(l))
		r.want(fsm.VerdictAllow, r.check(3, desc("user=a")))
		l.Amount = 5
		r.change(perUser(l))
		for i, want := range []fsm.Verdict{fsm.VerdictAllow, fsm.VerdictAllow, fsm.VerdictDeny, fsm.VerdictDeny, fsm.VerdictDeny} {
			if a := r.ask(r.check(1, desc("user=a"))); a.Verdict != want {
				t.Errorf("%s, check %d: %s", l.Name, i, words[a.Verdict])
			}
		}
		// What is used beyond the amount goes as it always would.
		l.Amount = 1
		r.change(perUser(l))
		if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.Remaining != 0 || a.At <= r.m.Now() || a.At == limit.Never {
			t.Errorf("%s: %+v", l.Name, a)
		}
	}
}

// POL-03: a set that is applied again, or says the same of a quota under another name, carries everything over.
func TestPOL03TheSameSetAgainChangesNothing(t *testing.T) {
	p := perUser(bucket(5, 1, hour))
	r := start(t, settings(), p)
	r.want(fsm.VerdictAllow, r.check(5, desc("user=a")))
	denied := r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
	r.unchanged(func() {
		for range 100 {
			for _, e := range [][]byte{
				fsm.PoliciesEntry(r.header(), r.v, policy.Set{Policies: []policy.Policy{p}}.Canonical()),
				fsm.ChangeEntry(r.header(), fsm.Version{Epoch: 7}, r.v, policy.Set{Policies: []policy.Policy{p}}.Canonical()),
			} {
				if a := r.apply(e); a.Refusal != fsm.Accepted {
					t.Fatalf("refusal %d", a.Refusal)
				}
			}
		}
	})
	p.Quota = "p"
	for i := range 100 {
		p.Name = fmt.Sprint("label-", i)
		r.change(p)
	}
	if again := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); again != denied {
		t.Errorf("%+v, before %+v", again, denied)
	}
}

// POL-04: a lowered amount holds for the keys that are there already.
func TestPOL04LoweredLimitHoldsForKeysThatAreThere(t *testing.T) {
	r := start(t, settings(), perUser(rolling(10, hour)))
	for i := range 1000 {
		r.want(fsm.VerdictAllow, r.check(1, user(i)))
	}
	r.at(minute).change(perUser(rolling(1, hour)))
	for i := range 1000 {
		if a := r.want(fsm.VerdictDeny, r.check(1, user(i))); a.At != hour {
			t.Fatalf("user %d denied until %d", i, a.At)
		}
	}
	r.want(fsm.VerdictAllow, r.check(1, user(1000)))
}

// POL-05: what is left goes by the amount in force, and never below nothing.
func TestPOL05RemainingFollowsTheLimitAndNeverUnderflows(t *testing.T) {
	for _, l := range []policy.Limit{rolling(5, minute), bucket(5, 1, hour), counter(5, hour), fixed(5, hour)} {
		r := start(t, settings(), perUser(l))
		r.want(fsm.VerdictAllow, r.check(5, desc("user=a")))
		for _, step := range []struct{ amount, take, left uint64 }{{10, 3, 2}, {3, 0, 0}, {0, 0, 0}, {9, 1, 0}} {
			l.Amount = step.amount
			r.change(perUser(l))
			if step.take > 0 {
				r.want(fsm.VerdictAllow, r.check(step.take, desc("user=a")))
			}
			use := r.m.Inspect(nil, &r.check(1, desc("user=a")).Charges[0], r.m.Now())[0]
			if use.Left != step.left || use.Spec.Amount != step.amount {
				t.Errorf("%s of %d: %d left of %d, want %d", l.Name, step.amount, use.Left, use.Spec.Amount, step.left)
			}
			if a := r.want(fsm.VerdictDeny, r.check(step.left+1, desc("user=a"))); a.Remaining != step.left {
				t.Errorf("%s of %d: denied with %d left, want %d", l.Name, step.amount, a.Remaining, step.left)
			}
		}
	}
}

// A set is ordered by whoever knows the one in force, and adopted by whoever has an older one.
func TestSetsComeInTheirOrder(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	r.want(fsm.VerdictAllow, r.check(2, desc("user=a")))
	next := policy.Set{Policies: []policy.Policy{perUser(rolling(9, minute))}}.Canonical()
	one := fsm.Version{Epoch: 1, Number: 1}
	two := fsm.Version{Epoch: 1, Number: 2}
	r.unchanged(func() {
		for name, e := range map[string][]byte{
			"expects none":           fsm.ChangeEntry(r.header(), fsm.Version{}, two, next),
			"expects the next":       fsm.ChangeEntry(r.header(), two, fsm.Version{Epoch: 1, Number: 3}, next),
			"expects another epoch":  fsm.ChangeEntry(r.header(), fsm.Version{Epoch: 2, Number: 1}, two, next),
			"skips a number":         fsm.ChangeEntry(r.header(), one, fsm.Version{Epoch: 1, Number: 3}, next),
			"is of another epoch":    fsm.ChangeEntry(r.header(), one, fsm.Version{Epoch: 2, Number: 2}, next),
			"is the same version":    fsm.ChangeEntry(r.header(), one, one, next),
			"is older":               fsm.ChangeEntry(r.header(), one, fsm.Version{Epoch: 1}, next),
			"adopts the same":        fsm.PoliciesEntry(r.header(), one, next),
			"adopts an older one":    fsm.PoliciesEntry(r.header(), fsm.Version{Epoch: 1}, next),
			"adopts an older epoch":  fsm.PoliciesEntry(r.header(), fsm.Version{Number: 9}, next),
			"that isn't even parsed": fsm.PoliciesEntry(r.header(), one, []byte("damage")),
		} {
			if a := r.apply(e); a.Refusal != fsm.RefusedConflict {
				t.Errorf("a set that %s: refusal %d", name, a.Refusal)
			}
		}
	})
	if a := r.apply(fsm.ChangeEntry(r.header(), one, two, next)); a.Refusal != fsm.Accepted {
		t.Errorf("the next: refusal %d", a.Refusal)
	}
	far := fsm.Version{Epoch: 3, Number: 1}
	if a := r.apply(fsm.PoliciesEntry(r.header(), far, next)); a.Refusal != fsm.Accepted {
		t.Errorf("one of another partition, far ahead: refusal %d", a.Refusal)
	}
	if r.v = far; r.want(fsm.VerdictAllow, r.check(7, desc("user=a"))).Remaining != 0 {
		t.Error("usage is lost")
	}
}

func TestTheFirstSetIsOrderedToo(t *testing.T) {
	r := &replica{tb: t, m: fsm.New()}
	r.lead()
	r.apply(fsm.SettingsEntry(r.header(), settings()))
	first := policy.Set{Policies: []policy.Policy{perUser(rolling(1, minute))}}
	two := fsm.Version{Epoch: 1, Number: 2}
	if a := r.apply(fsm.ChangeEntry(r.header(), version, two, first.Canonical())); a.Refusal != fsm.RefusedConflict {
		t.Errorf("expecting one where there is none: refusal %d", a.Refusal)
	}
	if why := r.order(first); why != fsm.Accepted || r.v != version {
		t.Errorf("refusal %d", why)
	}
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
}

// A set under which usage couldn't go on is refused by the machine too, whoever proposed it.
func TestSetsThatBreakTheRuleAreRefused(t *testing.T) {
	p := perUser(rolling(3, minute))
	r := start(t, settings(), p)
	longer := perUser(rolling(3, hour))
	canonical := policy.Set{Policies: []policy.Policy{longer}}.Canonical()
	r.unchanged(func() {
		if why := r.order(policy.Set{Policies: []policy.Policy{longer}}); why != fsm.RefusedSet {
			t.Errorf("ordered: refusal %d", why)
		}
		if a := r.apply(fsm.PoliciesEntry(r.header(), fsm.Version{Epoch: 1, Number: 9}, canonical)); a.Refusal != fsm.RefusedSet {
			t.Errorf("adopted: refusal %d", a.Refusal)
		}
	})
}

func TestPolicyEntriesThatNoLeaderWritesAreDamage(t *testing.T) {
	r := lived(t)
	whole := fsm.PoliciesEntry(r.header(), fsm.Version{Epoch: 1, Number: 99}, policy.Set{}.Canonical())
	for name, e := range map[string][]byte{
		"an unknown flag":                  set(bytes.Clone(whole), 32, 2),
		"an expectation without condition": set(bytes.Clone(whole), 33, 1),
		"cut short":                        whole[:64],
	} {
		if _, err := clone(t, r.m).Apply(r.index+1, r.term, resealed(e)); !errors.Is(err, fsm.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// others are policies that stand beside the one that a test is about.
func others(n int) (list []policy.Policy) {
	for i := range n {
		p := perUser(rolling(5, hour))
		p.Name, p.Domain = fmt.Sprint("other-", i), fmt.Sprint("domain-", i)
		list = append(list, p)
	}
	return list
}

// A quota isn't its policy's place in the set: however the set around it changes, its keys, its records and its
// domain stay its own.
func TestUsageStaysWhereverThePolicyStands(t *testing.T) {
	p := perUser(rolling(3, hour))
	r := start(t, settings(), append(others(2), p)...)
	c := r.check(2, desc("user=a"))
	r.want(fsm.VerdictAllow, c)
	theirs := r.checkIn("domain-0", 4, desc("user=a"))
	theirs.ID = c.ID // in another domain it is another id
	r.want(fsm.VerdictAllow, theirs)
	same := func(policies ...policy.Policy) {
		t.Helper()
		r.change(policies...)
		clone(t, r.m)
		if got := r.used(r.check(1, desc("user=a"))); got != 2 {
			t.Errorf("%d used, want 2", got)
		}
		r.want(fsm.VerdictDeny, r.check(2, desc("user=a")))
		again, _ := r.resolve("default", 2, []keyspace.Descriptor{desc("user=a")})
		again.ID, again.Fence = c.ID, 0
		if a := r.want(fsm.VerdictAllow, again); !a.Replayed || a.Policy != again.Charges[0].Policy || a.Remaining != 1 {
			t.Errorf("sent again: %+v", a)
		}
		if theirs, ok := r.resolve("domain-0", 4, []keyspace.Descriptor{desc("user=a")}); ok {
			theirs.ID, theirs.Fence = c.ID, 0
			if a := r.want(fsm.VerdictAllow, theirs); !a.Replayed || a.Remaining != 1 {
				t.Errorf("the other domain's, sent again: %+v", a)
			}
		}
	}
	same(append([]policy.Policy{p}, others(2)...)...)
	same(p)
	same(append(others(5), p)...)
	same(others(1)[0], p)
	renamed := p
	renamed.Name, renamed.Quota = "another-name", "p"
	same(renamed)
}

// A deleted policy's quota comes back with all that it has used, and only as it was.
func TestADeletedQuotaComesBackWithItsUsage(t *testing.T) {
	p := perUser(rolling(3, hour), named("b", bucket(9, 1, hour)))
	r := start(t, settings(), p)
	c := r.check(2, desc("user=a"))
	r.want(fsm.VerdictAllow, c)
	r.change(others(1)...)
	if _, ok := r.resolve("default", 1, []keyspace.Descriptor{desc("user=a")}); ok {
		t.Error("a deleted policy decides")
	}
	if gone := r.m.Tombstones(); len(gone) != 1 || gone[0].Quota != "p" || gone[0].Deleted != 0 {
		t.Errorf("remembered: %+v", gone)
	}
	r.at(minute)
	for name, change := range map[string]func(*policy.Policy){
		"key":    func(p *policy.Policy) { p.Key = []string{"class", "user"} },
		"domain": func(p *policy.Policy) { p.Domain = "domain-0" },
		"limit":  func(p *policy.Policy) { p.Limits = p.Limits[:1] },
		"window": func(p *policy.Policy) { p.Limits = []policy.Limit{rolling(3, minute), p.Limits[1]} },
	} {
		other := p
		change(&other)
		if why := r.order(policy.Set{Policies: append(others(1), other)}); why != fsm.RefusedSet {
			t.Errorf("it comes back with another %s: refusal %d", name, why)
		}
	}
	m := clone(t, r.m)
	p.Limits = []policy.Limit{rolling(4, hour), p.Limits[1]}
	r.change(append(others(1), p)...)
	apply(t, m, r.log[len(r.log)-1])
	if m.StateHash() != r.m.StateHash() {
		t.Error("a replica that was restored meanwhile differs")
	}
	r.want(fsm.VerdictDeny, r.check(3, desc("user=a")))
	r.want(fsm.VerdictAllow, r.check(2, desc("user=a")))
	if len(r.m.Tombstones()) != 0 {
		t.Error("it is still deleted")
	}
}

// Ninety days after its deletion nothing that a quota admitted is in any window: its name is free, its number goes to
// the next that is new, and it counts for no memory.
func TestADeletedQuotaIsForgottenAfterNinetyDays(t *testing.T) {
	p := perUser(rolling(3, hour))
	keep := others(1)
	r := start(t, settings(), append([]policy.Policy{p}, keep...)...)
	r.want(fsm.VerdictAllow, r.check(3, desc("user=a")))
	r.at(second).change(keep...)
	if bytes := r.m.Memory().Bytes; bytes < 512 {
		t.Errorf("%d bytes", bytes)
	}
	other := p
	other.Key = []string{"class", "user"}
	r.at(second + policy.TombstoneLife - 1).settle()
	if why := r.order(policy.Set{Policies: append(keep, other)}); why != fsm.RefusedSet {
		t.Errorf("a moment too early: refusal %d", why)
	}
	r.at(second + policy.TombstoneLife).change(append(keep, other)...)
	r.want(fsm.VerdictAllow, r.check(3, desc("user=a", "class=x")))
	if gone := r.m.Tombstones(); len(gone) != 0 {
		t.Errorf("remembered: %+v", gone)
	}
	clone(t, r.m)
	r.at(r.now + second).change(keep...)
	r.at(r.now + policy.TombstoneLife).settle()
	r.apply(fsm.CheckpointEntry(r.header(), r.m.LastCheckpoint())) // which forgets too
	if bytes := r.m.Memory().Bytes; bytes != 0 {
		t.Errorf("%d bytes are left over", bytes)
	}
}

// The lowest number that is free is taken first, and one that is deleted isn't free yet.
func TestNumbersAreTakenAgain(t *testing.T) {
	list := others(4)
	r := start(t, settings(), list...)
	number := func(i int) uint32 { return r.m.NumberOf(r.checkIn(list[i].Domain, 1, desc("user=a"))) }
	r.change(list[1], list[3])
	r.change(list[1], list[3], list[2])
	if got := number(2); got != 2 {
		t.Errorf("what came back has the number %d, want its own, 2", got)
	}
	fresh := perUser(rolling(1, hour))
	r.change(list[1], list[3], fresh)
	if got := r.m.NumberOf(r.check(1, desc("user=a"))); got != 4 {
		t.Errorf("a new one has the number %d, want the next, 4", got)
	}
	r.at(policy.TombstoneLife).change(list[3], fresh, list[0], list[2])
	if a, b, c := number(0), number(2), number(3); a != 0 || b != 2 || c != 3 {
		t.Errorf("numbers %d, %d and %d, want 0, 2 and 3", a, b, c)
	}
	clone(t, r.m)
}

// A number isn't given away while a key or a record names it, however old the deletion is.
func TestANumberIsKeptWhileSomethingNamesIt(t *testing.T) {
	s := settings()
	p, keep := perUser(rolling(3, hour)), others(1)
	r := start(t, s, append([]policy.Policy{p}, keep...)...)
	for i := range 200 {
		r.want(fsm.VerdictAllow, r.check(1, user(i)))
	}
	r.change(keep...)
	// No entry has had the time to reclaim the keys yet.
	fresh := perUser(rolling(1, hour))
	fresh.Name = "fresh"
	r.at(2 * policy.TombstoneLife).change(append(keep, fresh)...)
	if got := len(r.m.Tombstones()); got != 1 || r.m.Memory().Keys != 200 {
		t.Errorf("%d remembered with %d keys", got, r.m.Memory().Keys)
	}
	clone(t, r.m)
	for i := range 200 {
		r.want(fsm.VerdictAllow, r.late(1, user(i)))
	}
	r.settle()
	r.apply(fsm.CheckpointEntry(r.header(), r.m.LastCheckpoint()))
	if got := len(r.m.Tombstones()); got != 0 {
		t.Errorf("%d remembered without keys", got)
	}
}

// One who follows takes what was ordered: where the old quota is still remembered here, the new one of its name gets
// another number, and neither knows the other's usage.
func TestAdoptedQuotasOfOneNameAreToldApart(t *testing.T) {
	p := perUser(rolling(3, hour))
	r := start(t, settings(), p)
	adopt := func(policies ...policy.Policy) {
		t.Helper()
		r.v.Number++
		if a := r.apply(fsm.PoliciesEntry(r.header(), r.v, policy.Set{Policies: policies}.Canonical())); a.Refusal != fsm.Accepted {
			t.Fatalf("refusal %d", a.Refusal)
		}
		clone(t, r.m)
	}
	other := p
	other.Limits = []policy.Limit{rolling(5, minute)}
	r.want(fsm.VerdictAllow, r.check(2, desc("user=a")))
	adopt(others(1)...)
	adopt(other)
	r.want(fsm.VerdictAllow, r.check(5, desc("user=a")))
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
	adopt(others(1)...)
	if got := len(r.m.Tombstones()); got != 2 {
		t.Errorf("%d remembered, want both", got)
	}
	adopt(p)
	r.want(fsm.VerdictDeny, r.check(2, desc("user=a")))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	adopt(others(1)...)
	adopt(other)
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
}

func TestFollowersRememberBoundedlyManyToo(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("sets of twenty thousand policies")
	}
	r := start(t, settings(), perUser(rolling(3, hour)))
	many := func(name string) policy.Set {
		var s policy.Set
		for i := range policy.MaxTombstones {
			p := perUser(rolling(3, hour))
			p.Name = fmt.Sprint(name, i)
			s.Policies = append(s.Policies, p)
		}
		return s
	}
	for i, want := range []fsm.Refusal{fsm.Accepted, fsm.Accepted, fsm.RefusedSet} {
		v := fsm.Version{Epoch: 1, Number: uint64(2 + i)}
		if a := r.apply(fsm.PoliciesEntry(r.header(), v, many(fmt.Sprint("s", i, "-")).Canonical())); a.Refusal != want {
			t.Errorf("set %d: refusal %d, want %d", i, a.Refusal, want)
		}
	}
	if got := len(r.m.Tombstones()); got != policy.MaxTombstones+1 {
		t.Errorf("%d remembered", got)
	}
}

// A recorded allow is found again under any later set. It speaks of its limit as that is now, as long as the check
// still meets it.
func TestARecordedAllowOutlivesItsPolicy(t *testing.T) {
	p := perUser(rolling(5, hour))
	p.Match = []keyspace.Entry{{Name: "class", Value: "x"}}
	all := perUser(rolling(100, hour))
	all.Name = "all"
	all.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "rolling", Unlimited: true}}}}
	r := start(t, settings(), p, all)
	d := desc("class=x", "user=a")
	c := r.check(1, d)
	r.want(fsm.VerdictAllow, c)
	free := r.check(1, desc("tier=none", "user=a"))
	r.want(fsm.VerdictAllow, free)
	again := func(old *fsm.Check, d keyspace.Descriptor, policies ...policy.Policy) fsm.Answer {
		t.Helper()
		r.change(policies...)
		now := r.check(1, d)
		now.ID, now.Fence = old.ID, old.Fence
		memory, ok := r.m.Recall(now)
		a := r.want(fsm.VerdictAllow, now)
		if !a.Replayed || !ok || memory != a {
			t.Errorf("%+v, from memory %+v", a, memory)
		}
		return a
	}
	if a := again(c, d, all, p); a.Policy != 1 || a.Remaining != 4 || a.Amount != 5 {
		t.Errorf("in another order: %+v", a)
	}
	lower := p
	lower.Limits = []policy.Limit{rolling(2, hour)}
	if a := again(c, d, all, lower); a.Policy != 1 || a.Remaining != 2 || a.Amount != 2 {
		t.Errorf("lowered: %+v", a)
	}
	gone := fsm.Answer{Verdict: fsm.VerdictAllow, Replayed: true, Policy: -1}
	if a := again(c, d, all); a != gone {
		t.Errorf("its policy is deleted: %+v", a)
	}
	elsewhere := p
	elsewhere.Match = []keyspace.Entry{{Name: "class", Value: "y"}}
	if a := again(c, d, all, elsewhere); a != gone {
		t.Errorf("its policy doesn't match any more: %+v", a)
	}
	if a := again(free, desc("tier=none", "user=a"), all); !a.Unlimited || a.Policy != 0 {
		t.Errorf("unlimited: %+v", a)
	}
	all.Tiers = nil
	if a := again(free, desc("tier=none", "user=a"), all); a != gone {
		t.Errorf("unlimited no more: %+v", a)
	}
	if used := r.used(r.check(1, d)); used != 1 {
		t.Errorf("%d used of the policy that matches now, want the unlimited one's 1", used)
	}
}

// A check that was resolved under another set is no reason to fall over.
func TestAStaleCheckIsNotRecalled(t *testing.T) {
	p := unlimitedTier()
	r := start(t, settings(), p)
	c := r.check(1, desc("tier=none", "user=a"))
	r.want(fsm.VerdictAllow, c)
	p.Tiers = nil
	r.change(p)
	if a, ok := r.m.Recall(c); ok {
		t.Errorf("a tier that is gone: %+v", a)
	}
	r.change()
	if a, ok := r.m.Recall(c); ok {
		t.Errorf("a domain that is gone: %+v", a)
	}
}

// Units that went early leave a marker, and a larger amount doesn't make them unused.
func TestARaisedLimitDoesntReopenForgottenUnits(t *testing.T) {
	p := unlimitedTier()
	r := start(t, settings(), p)
	for i := range int64(5) {
		r.at((i+1)*second).want(fsm.VerdictAllow, r.check(1, desc("user=a", "tier=none")))
	}
	p.Limits = []policy.Limit{rolling(9, minute)}
	r.change(p)
	if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.At != 62*second || a.Remaining != 0 {
		t.Errorf("%+v, want denied until what was forgotten has left", a)
	}
}

// freeBucket is a bucket that refills a unit a minute, of which the tier "none" is free.
func freeBucket(capacity uint64) policy.Policy {
	p := perUser(bucket(capacity, 1, minute))
	p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "bucket", Unlimited: true}}}}
	return p
}

// What an unlimited charge took beyond the largest capacity isn't known any more, so a larger one isn't there before a
// bucket of it, emptied by that charge, would be full. Without such a charge it is there at once.
func TestARaisedCapacityWaitsForWhatWasLetGo(t *testing.T) {
	r := start(t, settings(), freeBucket(5))
	r.want(fsm.VerdictAllow, r.check(9, desc("user=a", "tier=none")))
	r.at(minute).change(freeBucket(8))
	clone(t, r.m)
	c := r.late(2, desc("user=a")) // 4 owed of 5
	if a := r.want(fsm.VerdictDeny, c); a.At != 2*minute || a.Remaining != 1 || a.Exceeds {
		t.Errorf("%+v", a)
	}
	if left := r.left(c); left != 1 {
		t.Errorf("%d left, want 1", left)
	}
	r.want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	if a := r.want(fsm.VerdictDeny, r.late(7, desc("user=a"))); a.At != 8*minute || a.Exceeds {
		t.Errorf("more than there was: %+v", a)
	}
	r.at(8*minute-1).want(fsm.VerdictDeny, r.late(7, desc("user=a")))
	r.at(8*minute).want(fsm.VerdictAllow, r.late(7, desc("user=a")))

	r = start(t, settings(), freeBucket(5))
	r.want(fsm.VerdictAllow, r.check(5, desc("user=a", "tier=none")))
	r.at(minute).change(freeBucket(8))
	r.want(fsm.VerdictAllow, r.late(4, desc("user=a")))
}

// The one who waits longest is a key whose override refills more slowly.
func TestARaisedCapacityWaitsForTheSlowestRefill(t *testing.T) {
	policies := func(capacity uint64) policy.Policy {
		p := freeBucket(capacity)
		p.Overrides = []policy.Override{{When: []keyspace.Entry{{Name: "user", Value: "slow"}}, Amounts: []policy.Amount{{Limit: "bucket", Amount: capacity, Period: hour}}}}
		return p
	}
	r := start(t, settings(), policies(5))
	r.want(fsm.VerdictAllow, r.check(9, desc("user=a", "tier=none")))
	r.change(policies(8))
	r.at(8*hour-1).want(fsm.VerdictDeny, r.late(6, desc("user=b")))
	r.at(8*hour).want(fsm.VerdictAllow, r.late(6, desc("user=b")))
}

// A bound that is still there is kept through further raises, and the earlier of two sizes counts.
func TestTwoRaisesOfACapacityKeepTheFirstSize(t *testing.T) {
	r := start(t, settings(), freeBucket(2))
	r.want(fsm.VerdictAllow, r.check(9, desc("user=a", "tier=none")))
	r.change(freeBucket(4))
	r.at(second).want(fsm.VerdictAllow, r.check(9, desc("user=a", "tier=none")))
	r.change(freeBucket(6))
	r.want(fsm.VerdictDeny, r.late(3, desc("user=b")))
	r.at(second+6*minute-1).want(fsm.VerdictDeny, r.late(3, desc("user=b")))
	r.at(second+6*minute).want(fsm.VerdictAllow, r.late(6, desc("user=b")))
}

// A bucket keeps its debt when its capacity is lowered: an unlimited charge may let go of what it adds, never of what
// was owed before.
func TestAnUnlimitedChargeNeverLowersADebt(t *testing.T) {
	r := start(t, settings(), freeBucket(8))
	r.want(fsm.VerdictAllow, r.check(8, desc("user=a")))
	r.change(freeBucket(3))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a", "tier=none")))
	if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.At != 6*minute {
		t.Errorf("denied until %d s, want six minutes", a.At/second)
	}
}

// An event of a grain merges on under another amount, and no key is kept for shorter than it was.
func TestLogsGoOnUnderAnotherAmount(t *testing.T) {
	l := rolling(10, minute)
	l.Precision = second
	r := start(t, settings(), perUser(l))
	c := r.at(100).late(2, desc("user=a"))
	r.want(fsm.VerdictAllow, c)
	l.Amount = 3
	r.at(200).change(perUser(l))
	r.at(300).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	r.demand(c, -1, event1(300, 3))
	l.Amount = 1
	r.change(perUser(l))
	r.at(minute+299).want(fsm.VerdictDeny, r.late(1, desc("user=a")))
	r.at(minute+300).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
}

// The accounting of domains goes by the domain, wherever it stands in a set.
func TestDomainsKeepTheirAccounts(t *testing.T) {
	s := settings()
	s.Bound, s.DomainBound = 1<<20, 3000
	list := others(3)
	r := start(t, s, list...)
	next := 0
	full := func(domain string) bool {
		next++
		return r.ask(r.checkIn(domain, 1, user(next))).Verdict == fsm.VerdictMemory
	}
	for !full("domain-2") {
	}
	slices.Reverse(list)
	early := perUser(rolling(1, hour))
	early.Domain = "a-domain" // stands before the others
	r.change(append([]policy.Policy{early}, list...)...)
	clone(t, r.m)
	if !full("domain-2") {
		t.Error("a domain that was full has room")
	}
	if full("domain-1") || full("a-domain") {
		t.Error("another domain is full")
	}
	before := r.m.Memory().Bytes
	r.change(early) // all the others are deleted, and what they used counts as before
	if now := r.m.Memory().Bytes; now < before+3*512 {
		t.Errorf("%d bytes, before %d", now, before)
	}
	clone(t, r.m)
}

func TestSnapshotsOfAnEarlierVersionAreRefused(t *testing.T) {
	b := written(t, lived(t).m.Snapshot())
	copy(b, "QUORATE\x01")
	_, err := fsm.Restore(bytes.NewReader(b))
	if want := `it begins with "QUORATE\x01", this software reads "QUORATE\x02"`; !errors.Is(err, fsm.ErrSnapshot) || !bytes.Contains([]byte(err.Error()), []byte(want)) {
		t.Errorf("%v, want %s", err, want)
	}
}
