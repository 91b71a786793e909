package fsm_test

import (
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

// A stamp counts from the first entry of its term, and means nothing in another.
func TestEntryOfAnotherTermIsRefusedWhole(t *testing.T) {
	r := start(t, settings(), perUser(rolling(9, hour)))
	checks := []*fsm.Check{r.check(1, desc("user=a"))}
	old := r.header()
	r.lead()
	for name, h := range map[string]fsm.Header{
		"older":                  old,
		"newer":                  {Term: r.term + 1, Time: hour},
		"right, time of another": {Term: r.term - 1, Time: hour},
	} {
		for kind, e := range map[string][]byte{
			"batch": fsm.BatchEntry(h, version, checks), "tick": fsm.Tick(h), "checkpoint": fsm.CheckpointEntry(h, fsm.Checkpoint{}),
			"policies": fsm.PoliciesEntry(h, version, nil), "settings": fsm.SettingsEntry(h, settings()), "first": fsm.First(h),
			"level": fsm.LevelEntry(h, 2),
		} {
			r.unchanged(func() {
				if a := r.apply(e); a.Refusal != fsm.RefusedTerm || a.Answers != nil || r.m.Now() != 0 {
					t.Errorf("%s of a term that is %s: refusal %d at %d", kind, name, a.Refusal, r.m.Now())
				}
			})
		}
	}
}

func TestEntryBeforeItsTermsFirstIsRefusedWhole(t *testing.T) {
	r := start(t, settings(), perUser(rolling(9, hour)))
	c := r.check(1, desc("user=a"))
	r.term++ // elected; the first entry isn't in the log yet
	early := r.header()
	early.Time = hour
	r.unchanged(func() {
		if a := r.apply(fsm.BatchEntry(early, version, []*fsm.Check{c})); a.Refusal != fsm.RefusedTerm {
			t.Errorf("refusal %d", a.Refusal)
		}
	})
	if r.m.Now() != 0 {
		t.Error("its time counts")
	}
	r.apply(fsm.First(r.header()))
	r.want(fsm.VerdictAllow, c)
}

// Apply never resolves: what was resolved under another set is refused whole.
func TestEntryOfAnotherSetIsRefusedWhole(t *testing.T) {
	r := start(t, settings(), perUser(rolling(9, hour)))
	checks := []*fsm.Check{r.check(1, desc("user=a"))}
	for _, v := range []fsm.Version{{}, {Epoch: 1, Number: 2}, {Epoch: 2, Number: 1}, {Epoch: 1}} {
		r.unchanged(func() {
			if a := r.apply(fsm.BatchEntry(r.header(), v, checks)); a.Refusal != fsm.RefusedVersion || a.Answers != nil {
				t.Errorf("version %v: refusal %d", v, a.Refusal)
			}
		})
	}
	bare := &replica{tb: t, m: empty()}
	bare.lead()
	bare.apply(fsm.SettingsEntry(bare.header(), settings()))
	if a := bare.apply(fsm.BatchEntry(bare.header(), fsm.Version{}, checks)); a.Refusal != fsm.RefusedVersion {
		t.Errorf("without a set: refusal %d", a.Refusal)
	}
}

// CLK-01, CLK-03: decision time never goes back, and a clock that does refills nothing
// and makes no wait longer.
func TestCLK01CLK03TimeNeverGoesBack(t *testing.T) {
	r := start(t, settings(), perUser(bucket(10, 1, second)))
	r.at(10*second).want(fsm.VerdictAllow, r.check(10, desc("user=a")))
	for _, now := range []int64{9, 10, 9, 10, 9, 10} {
		if a := r.at(now*second).want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.Time != 10*second || a.At != 11*second {
			t.Errorf("stamped %d s: decided at %d, denied until %d", now, a.Time, a.At)
		}
	}
	r = start(t, settings(), perUser(rolling(3, minute)))
	for _, now := range []int64{1000, 1010, 1020} {
		c := r.at(now*second).check(1, desc("user=a"))
		r.want(fsm.VerdictAllow, at(*c, now*second))
	}
	if a := r.at(0).want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.Time != 1020*second || a.At != 1060*second {
		t.Errorf("stamped 0: decided at %d, denied until %d", a.Time, a.At)
	}
	r.tick()
	r.lead()
	if r.m.Now() != 1020*second {
		t.Errorf("it is %d", r.m.Now())
	}
}

func TestSettingsAreFixedOnce(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	r.unchanged(func() {
		if a := r.apply(fsm.SettingsEntry(r.header(), settings())); a.Refusal != fsm.Accepted {
			t.Errorf("the same settings again: refusal %d", a.Refusal)
		}
		other := settings()
		other.Bound++
		if a := r.apply(fsm.SettingsEntry(r.header(), other)); a.Refusal != fsm.RefusedSettings {
			t.Errorf("other settings: refusal %d", a.Refusal)
		}
	})
	if s, formed := r.m.Settings(); !formed || s != settings() {
		t.Errorf("settings %+v", s)
	}
}

// The leader compiled the set, so a replica that can't is of other software: it
// must not go on without the set that the others enforce.
func TestAReplicaThatCantCompileALoggedSetStops(t *testing.T) {
	invalid := policy.Set{Policies: []policy.Policy{perUser()}}
	for name, canonical := range map[string][]byte{
		"nothing": nil, "not canonical": []byte("{ }"), "no limit": invalid.Canonical(),
	} {
		r := &replica{tb: t, m: empty()}
		r.lead()
		r.apply(fsm.SettingsEntry(r.header(), settings()))
		if _, err := r.m.Apply(r.m.Index()+1, r.m.Term(), fsm.PoliciesEntry(r.header(), version, canonical)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if set, _ := r.m.Set(); set != nil {
			t.Errorf("%s: a set is in force", name)
		}
	}
}

func TestASetBeforeTheSettingsIsRefused(t *testing.T) {
	fine := policy.Set{Policies: []policy.Policy{perUser(rolling(1, minute))}}
	r := &replica{tb: t, m: empty()}
	r.lead()
	if a := r.apply(fsm.PoliciesEntry(r.header(), version, fine.Canonical())); a.Refusal != fsm.RefusedSet {
		t.Errorf("refusal %d", a.Refusal)
	}
}

// Every slot has one owner, and the others refuse it.
func TestSlotsThatArentOwnedAreRefused(t *testing.T) {
	var parts []*replica
	for i := range uint16(3) {
		s := settings()
		s.Partition, s.Partitions = i, 3
		parts = append(parts, start(t, s, perUser(rolling(1, minute))))
	}
	for range 50 {
		c := parts[0].check(1, desc("user="+string(parts[0].random())))
		owners := 0
		for _, r := range parts {
			if r.m.Owns(c.Charges[0].Slot) {
				owners++
				r.want(fsm.VerdictAllow, c)
				continue
			}
			r.unchanged(func() { r.want(fsm.VerdictNotOwned, c) })
		}
		if owners != 1 {
			t.Errorf("slot %d has %d owners", c.Charges[0].Slot, owners)
		}
	}
	c := parts[0].check(1, desc("user=a"))
	c.Charges[0].Slot = keyspace.Slots
	parts[0].want(fsm.VerdictNotOwned, c)
}

// A check of several descriptors is refused if any of them lives elsewhere.
func TestOneSlotThatIsntOwnedRefusesTheCheck(t *testing.T) {
	s := settings()
	s.Partitions = 2
	r := start(t, s, perUser(rolling(1, minute)))
	var mine, theirs *keyspace.Descriptor
	for i := 'a'; mine == nil || theirs == nil; i++ {
		d := desc("user=" + string(i))
		if r.m.Owns(r.check(1, d).Charges[0].Slot) {
			mine = &d
		} else {
			theirs = &d
		}
	}
	r.unchanged(func() { r.want(fsm.VerdictNotOwned, r.check(1, *mine, *theirs)) })
	r.want(fsm.VerdictAllow, r.check(1, *mine))
}

func TestPartitionsShareTheBoundOfANode(t *testing.T) {
	// Three nodes hold all nine replicas of three partitions: each node's bound serves three.
	if got := fsm.BoundFor(900, 3, 3, 3); got != 300 {
		t.Errorf("%d bytes, want 300", got)
	}
	if got := fsm.BoundFor(fsm.DefaultNodeBound, 5, 5, 3); got*3 > fsm.DefaultNodeBound || got*3 < fsm.DefaultNodeBound-15 {
		t.Errorf("three replicas of %d bytes on a node of %d", got, fsm.DefaultNodeBound)
	}
}

func TestCheckSizeIsWhatACheckAddsToABatch(t *testing.T) {
	r := start(t, settings(), perUser(rolling(1, minute)))
	one, two := r.check(1, desc("user=a")), r.check(1, desc("user=abc"), desc("user=d"))
	bare := len(fsm.BatchEntry(r.header(), version, nil))
	if got, want := len(fsm.BatchEntry(r.header(), version, []*fsm.Check{one, two})), bare+fsm.CheckSize(one)+fsm.CheckSize(two); got != want {
		t.Errorf("an entry of %d bytes, want %d", got, want)
	}
}
