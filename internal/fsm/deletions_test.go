package fsm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

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
