package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
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
	r := &replica{tb: t, m: empty()}
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

func TestSnapshotsOfAnEarlierVersionAreRefused(t *testing.T) {
	b := written(t, lived(t).m.Snapshot())
	copy(b, "QUORATE\x01")
	_, err := fsm.Restore(bytes.NewReader(b))
	if want := `it begins with "QUORATE\x01", this software reads "QUORATE\x02"`; !errors.Is(err, fsm.ErrSnapshot) || !bytes.Contains([]byte(err.Error()), []byte(want)) {
		t.Errorf("%v, want %s", err, want)
	}
}
