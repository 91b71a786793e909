package fsm_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// usage is all of the state but when it is: a snapshot without index, term, time and
// the hash of them.
func usage(tb testing.TB, m *fsm.Machine) []byte {
	const magic, frameHead, moment, end = 8, 8, 24, 16
	var stream []byte
	for b := written(tb, m.Snapshot())[magic:]; len(b) > 0; {
		n := int(binary.LittleEndian.Uint32(b))
		stream = append(stream, b[frameHead:frameHead+n]...)
		b = b[frameHead+n:]
	}
	return stream[moment : len(stream)-end]
}

// unchanged runs f and demands that it leaves all usage as it was.
func (r *replica) unchanged(f func()) {
	r.tb.Helper()
	before := usage(r.tb, r.m)
	if f(); !bytes.Equal(before, usage(r.tb, r.m)) {
		r.tb.Error("the state changed")
	}
}

// used is what the check's first charge finds used of its policy's first limit.
func (r *replica) used(c *fsm.Check) uint64 {
	return r.m.Inspect(nil, &c.Charges[0], r.m.Now())[0].Used
}

func at(c fsm.Check, fence int64) *fsm.Check {
	c.Fence = fence
	return &c
}

// DED-01: a reply that was lost is recovered under its id, spending nothing.
func TestDED01KnownIDReplaysItsAllow(t *testing.T) {
	s := settings()
	s.Horizon = 2 * minute
	r := start(t, s, perUser(rolling(3, minute)))
	c := r.check(1, desc("user=a"))
	first := r.want(fsm.VerdictAllow, c)
	for _, now := range []int64{second, 59 * second} {
		r.at(now).unchanged(func() {
			again := r.want(fsm.VerdictAllow, c)
			if !again.Replayed || again.Remaining != 2 || again.Remaining != first.Remaining || again.Time != first.Time || again.Amount != 3 {
				t.Errorf("at %d: %+v, first %+v", now, again, first)
			}
		})
	}
	if n := r.used(c); n != 1 {
		t.Errorf("%d units used, want 1", n)
	}
}

// DED-02: an id names one allow. Under the same id another question is a conflict, and
// the first answer can still be had.
func TestDED02KnownIDWithAnotherDigestIsAConflict(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	c := r.check(1, desc("user=a"))
	r.want(fsm.VerdictAllow, c)
	r.unchanged(func() {
		for _, other := range []*fsm.Check{r.check(2, desc("user=a")), r.check(1, desc("user=b")), r.check(1, desc("user=a", "class=x"))} {
			other.ID = c.ID
			r.want(fsm.VerdictConflict, other)
		}
		if a := r.want(fsm.VerdictAllow, c); !a.Replayed {
			t.Error("the first answer is gone")
		}
	})
}

// DED-04: copies of one id, however many at once, are one event and equal answers.
func TestDED04CopiesOfOneIDAreOneEvent(t *testing.T) {
	r := start(t, settings(), perUser(rolling(1, minute)))
	c := r.check(1, desc("user=a"))
	copies := make([]*fsm.Check, 100)
	for i := range copies {
		copies[i] = c
	}
	for i, a := range r.decide(copies...) {
		if a.Verdict != fsm.VerdictAllow || a.Replayed != (i > 0) || a.Remaining != 0 || a.Time != 0 {
			t.Errorf("copy %d: %+v", i, a)
		}
	}
	late := r.check(1, desc("user=a"))
	for i := range copies {
		copies[i] = late
	}
	denials := r.decide(copies...)
	for i, a := range denials {
		if a.Verdict != fsm.VerdictDeny || a != denials[0] {
			t.Errorf("copy %d on the full key: %+v", i, a)
		}
	}
	if n := r.used(c); n != 1 {
		t.Errorf("%d units used, want 1", n)
	}
}

// DED-08: an answer "unavailable" isn't recorded; asked again the id gets a decision.
func TestDED08UnavailableIsNotRecorded(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	c := r.check(1, desc("user=a"))
	wrong := r.header()
	wrong.Term++
	r.unchanged(func() { r.apply(fsm.BatchEntry(wrong, version, []*fsm.Check{c})) })
	if a := r.at(5*second).want(fsm.VerdictAllow, c); a.Replayed || a.Time != 5*second {
		t.Errorf("%+v, want a decision at 5 s", a)
	}
}

func TestDenialIsNotRecorded(t *testing.T) {
	r := start(t, settings(), perUser(rolling(1, 5*second)))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	c := r.check(1, desc("user=a"))
	if a := r.want(fsm.VerdictDeny, c); a.At != 5*second {
		t.Errorf("denied until %d, want 5 s", a.At)
	}
	if a := r.at(5*second).want(fsm.VerdictAllow, c); a.Replayed {
		t.Error("an allow that nobody ever got is replayed")
	}
}

func TestSameIDInAnotherDomainIsAnotherID(t *testing.T) {
	p, q := perUser(rolling(3, minute)), perUser(rolling(3, minute))
	p.Domain, q.Domain, q.Name = "one", "two", "q"
	r := start(t, settings(), p, q)
	c, o := r.checkIn("one", 1, desc("user=a")), r.checkIn("two", 1, desc("user=a"))
	o.ID = c.ID
	for _, check := range []*fsm.Check{c, o} {
		if a := r.want(fsm.VerdictAllow, check); a.Replayed {
			t.Errorf("domain %d gets the allow of the other", check.Domain)
		}
	}
	for _, check := range []*fsm.Check{c, o} {
		if a := r.want(fsm.VerdictAllow, check); !a.Replayed {
			t.Errorf("domain %d lost its allow", check.Domain)
		}
	}
}

// A replay tells the amount that its allow was measured by, also where other charges
// of the check have other amounts.
func TestReplayTellsTheAmountOfItsAllow(t *testing.T) {
	p := perUser(rolling(9, minute))
	p.Tiers = []policy.Tier{
		{When: []keyspace.Entry{{Name: "tier", Value: "low"}}, Amounts: []policy.Amount{{Limit: "rolling", Amount: 5}}},
		{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "rolling", Unlimited: true}}},
	}
	r := start(t, settings(), p)
	for _, tiers := range [][]string{{"x", "low"}, {"low", "x"}, {"none", "low", "x"}, {"none"}} {
		var ds []keyspace.Descriptor
		for _, tier := range tiers {
			ds = append(ds, desc("user="+tiers[0]+tier, "tier="+tier))
		}
		c := r.check(1, ds...)
		first, again := r.want(fsm.VerdictAllow, c), r.want(fsm.VerdictAllow, c)
		if again.Amount != first.Amount || again.Remaining != first.Remaining || again.Unlimited != first.Unlimited || again.FullAt != first.FullAt {
			t.Errorf("tiers %v: replayed %+v, first %+v", tiers, again, first)
		}
	}
}

// RACE-02: creating a key is part of the decision that creates it.
func TestRACE02FreshKeyAdmitsExactlyItsLimit(t *testing.T) {
	r := start(t, settings(), perUser(rolling(1, minute)))
	for i := range 100 {
		var checks []*fsm.Check
		for range 100 {
			checks = append(checks, r.check(1, desc("user="+string(rune('A'+i)))))
		}
		allowed := 0
		for _, a := range r.decide(checks...) {
			if a.Verdict == fsm.VerdictAllow {
				allowed++
			}
		}
		if allowed != 1 {
			t.Errorf("key %d: %d allowed", i, allowed)
		}
	}
}

// KEY-01, KEY-02: different values are different keys, wherever one ends and the
// next begins.
func TestKEY01KEY02ValuesNeverRunTogether(t *testing.T) {
	p := perUser(rolling(1, minute))
	p.Key = []string{"a", "b"}
	r := start(t, settings(), p)
	pairs := [][2]string{
		{"a|b", "c"}, {"a", "b|c"}, {"a_b", "c"}, {"a", "b_c"}, {"10.0.0.1", "1/a"}, {"10.0.0.11", "/a"},
		{"\x00", "x"}, {"x", "\x00"}, {"x\x00", "\x00"}, {"\x01x", "y"}, {"x", "\x01y"}, {"A", "c"}, {"a", "c"},
	}
	for _, want := range []fsm.Verdict{fsm.VerdictAllow, fsm.VerdictDeny} {
		for _, v := range pairs {
			r.want(want, r.check(1, desc("a="+v[0], "b="+v[1])))
		}
	}
}

func TestEqualValuesOfDifferentQuotasAreDifferentKeys(t *testing.T) {
	p, q := perUser(rolling(1, minute)), perUser(rolling(1, minute))
	q.Name, q.Match = "q", []keyspace.Entry{{Name: "class", Value: "x"}}
	r := start(t, settings(), p, q)
	for _, want := range []fsm.Verdict{fsm.VerdictAllow, fsm.VerdictDeny} {
		r.want(want, r.check(1, desc("user=a")))
		r.want(want, r.check(1, desc("user=a", "class=x")))
	}
}

// NUM-04: amounts up to the largest work exactly, also where sums pass 64 bits.
func TestNUM04HugeAmountsAreExact(t *testing.T) {
	const huge = 1 << 62
	l := rolling(huge, minute)
	l.Precision = second
	p, q := perUser(l, bucket(huge, huge, minute)), perUser()
	q.Name, q.Match = "most", []keyspace.Entry{{Name: "class", Value: "most"}}
	most := rolling(limit.MaxAmount, minute)
	most.Precision = second
	q.Limits = []policy.Limit{most}
	r := start(t, settings(), p, q)
	if a := r.want(fsm.VerdictAllow, r.check(1, desc("user=a"))); a.Remaining != huge-1 {
		t.Errorf("%d left, want %d", a.Remaining, uint64(huge-1))
	}
	if a := r.want(fsm.VerdictDeny, r.check(huge, desc("user=a"))); a.Remaining != huge-1 || a.Exceeds {
		t.Errorf("%+v", a)
	}
	r.want(fsm.VerdictAllow, r.check(huge, desc("user=b")))
	// Twice the largest cost exceeds the largest amount, though the sum has no name.
	twice := r.check(limit.MaxAmount, desc("user=c", "class=most"), desc("user=c", "class=most", "n=2"))
	if a := r.want(fsm.VerdictDeny, twice); !a.Exceeds {
		t.Errorf("%+v, want a cost that never fits", a)
	}
	r.want(fsm.VerdictAllow, r.check(limit.MaxAmount, desc("user=c", "class=most")))
}

func TestUnlimitedAdmitsAndRecordsSumsBeyondTheLargestAmount(t *testing.T) {
	l := rolling(5, minute)
	l.Precision = second
	p := perUser(l, bucket(5, 5, minute))
	none := []policy.Amount{{Limit: "rolling", Unlimited: true}, {Limit: "bucket", Unlimited: true}}
	p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: none}}
	r := start(t, settings(), p)
	for range 5 {
		d := desc("user=a", "tier=none")
		if a := r.want(fsm.VerdictAllow, r.check(limit.MaxAmount, d, d, d)); !a.Unlimited {
			t.Errorf("%+v", a)
		}
	}
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
	clone(t, r.m)
}

// COST-07: there is no cost below 1. No leader writes one, so it is damage.
func TestCOST07CostsThatNoLeaderWritesAreDamage(t *testing.T) {
	r := start(t, settings(), perUser(rolling(3, minute)))
	r.want(fsm.VerdictAllow, r.check(3, desc("user=a")))
	minus := -1
	for _, cost := range []uint64{0, uint64(minus), policy.TooMuch + 1} {
		c := r.check(1, desc("user=a"))
		c.Charges[0].Cost = cost
		if err := r.damage(c); err == nil {
			t.Errorf("a cost of %d is applied", cost)
		}
	}
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
}

// damage applies a batch to a copy of the machine and returns its error.
func (r *replica) damage(c *fsm.Check) error {
	_, err := clone(r.tb, r.m).Apply(r.index+1, r.term, fsm.BatchEntry(r.header(), version, []*fsm.Check{c}))
	return err
}

func TestNumbersThatNoLeaderWritesAreDamage(t *testing.T) {
	p := perUser(rolling(3, minute))
	q := perUser(rolling(3, minute))
	q.Name, q.Domain = "q", "other"
	r := start(t, settings(), p, q)
	for name, spoil := range map[string]func(c *fsm.Check){
		"no such domain":             func(c *fsm.Check) { c.Domain = 2 },
		"domain below zero":          func(c *fsm.Check) { c.Domain = -1 },
		"no such policy":             func(c *fsm.Check) { c.Charges[0].Policy = 2 },
		"policy below zero":          func(c *fsm.Check) { c.Charges[0].Policy = -1 },
		"policy of another domain":   func(c *fsm.Check) { c.Charges[0].Policy = 1 },
		"no such tier":               func(c *fsm.Check) { c.Charges[0].Tier = 0 },
		"tier below none":            func(c *fsm.Check) { c.Charges[0].Tier = -2 },
		"no such override":           func(c *fsm.Check) { c.Charges[0].Override = 0 },
		"override below none":        func(c *fsm.Check) { c.Charges[0].Override = -2 },
		"no charge":                  func(c *fsm.Check) { c.Charges = nil },
		"one charge more than there": func(c *fsm.Check) { c.Charges = make([]fsm.Charge, fsm.MaxCharges+1) },
	} {
		c := r.check(1, desc("user=a"))
		if spoil(c); r.damage(c) == nil {
			t.Errorf("%s: it is applied", name)
		}
	}
}

// All limits of all descriptors admit and are charged, or none is.
func TestAllOrNothingAcrossLimitsAndDescriptors(t *testing.T) {
	p := perUser(named("wide", rolling(10, minute)), bucket(10, 10, minute), named("tight", rolling(2, second)))
	global := policy.Policy{Name: "all", Global: true, Match: []keyspace.Entry{{Name: "class", Value: "x"}}, Limits: []policy.Limit{rolling(3, minute)}}
	r := start(t, settings(), p, global)
	both := []keyspace.Descriptor{desc("user=a"), desc("class=x")}
	r.want(fsm.VerdictAllow, r.check(2, both...))
	r.unchanged(func() {
		// The limit "tight" of the first descriptor denies; nobody is charged.
		if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.Limit != 2 {
			t.Errorf("limit %d denies, want 2", a.Limit)
		}
		// "tight" until 1 s, the global one until 60 s: the longer wait is told.
		if a := r.want(fsm.VerdictDeny, r.check(2, both...)); a.Policy != 1 || a.At != minute {
			t.Errorf("policy %d denies until %d, want 1 until %d", a.Policy, a.At, minute)
		}
	})
	// Another user is free, and the global limit still has room for one.
	r.unchanged(func() { r.want(fsm.VerdictDeny, r.check(2, desc("user=b"), desc("class=x"))) })
	if a := r.want(fsm.VerdictAllow, r.check(1, desc("user=b"), desc("class=x"))); a.Policy != 1 || a.Remaining != 0 {
		t.Errorf("%+v, want 0 left of the global limit, the tightest", a)
	}
	r.want(fsm.VerdictAllow, r.check(1, desc("user=b"))) // charged 1 before, not 3
}

func TestChargesToOneKeyAreSummed(t *testing.T) {
	for _, l := range []policy.Limit{rolling(3, minute), bucket(3, 1, minute)} {
		r := start(t, settings(), perUser(l))
		a := desc("user=a")
		r.unchanged(func() {
			if x := r.want(fsm.VerdictDeny, r.check(2, a, a)); !x.Exceeds {
				t.Errorf("%+v, want a cost of 4 that never fits 3", x)
			}
			r.want(fsm.VerdictDeny, r.check(1, a, desc("user=b"), a, a, a))
		})
		c := r.check(1, a, desc("user=b"), a)
		if x := r.want(fsm.VerdictAllow, c); x.Remaining != 1 {
			t.Errorf("%d left, want 1", x.Remaining)
		}
		if n := r.used(c); n != 2 {
			t.Errorf("%s: %d units used, want 2", l.Name, n)
		}
	}
}

func TestWhatIsNotAllowedChangesNothing(t *testing.T) {
	s := settings()
	s.Partitions = 2
	r := start(t, s, perUser(rolling(1, hour), bucket(1, 1, hour)))
	var mine, theirs []*fsm.Check
	for len(mine) < 2 || len(theirs) < 1 {
		c := r.check(1, desc("user="+string(r.random())))
		if r.m.Owns(c.Charges[0].Slot) {
			mine = append(mine, c)
		} else {
			theirs = append(theirs, c)
		}
	}
	r.want(fsm.VerdictAllow, mine[0])
	again := *mine[0]
	again.ID = r.id()
	conflict := *mine[0]
	conflict.Digest++
	r.at(11 * second).tick()
	r.unchanged(func() {
		r.want(fsm.VerdictDeny, at(again, r.now))
		r.want(fsm.VerdictConflict, &conflict)
		r.want(fsm.VerdictStaleTime, mine[1])
		r.want(fsm.VerdictNotOwned, theirs[0])
		if a := r.want(fsm.VerdictAllow, mine[0]); !a.Replayed {
			t.Error("not replayed")
		}
	})
}

func (r *replica) random() []byte { return binary.AppendUvarint(nil, r.ids) }

// An event exactly as old as the window has left it; one a nanosecond younger hasn't.
func TestEventLeavesWhenItIsExactlyAWindowOld(t *testing.T) {
	r := start(t, settings(), perUser(rolling(2, minute)))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	r.at(10*second).want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	if a := r.at(minute-1).want(fsm.VerdictDeny, r.late(1, desc("user=a"))); a.At != minute {
		t.Errorf("denied until %d, want %d", a.At, minute)
	}
	r.at(minute).want(fsm.VerdictAllow, r.late(1, desc("user=a")))
	r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
}

// MEM-06, MEM-09: nothing that still counts expires, however often expiry runs.
func TestMEM06MEM09UsageOutlastsEveryCollection(t *testing.T) {
	r := start(t, settings(), perUser(rolling(4, hour)))
	r.want(fsm.VerdictAllow, r.check(4, desc("user=a")))
	for now := int64(0); now < hour; now += 100 * second {
		r.at(now).settle()
		if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.At != hour {
			t.Fatalf("at %d: denied until %d", now, a.At)
		}
	}
	r.at(hour).settle()
	r.want(fsm.VerdictAllow, r.check(4, desc("user=a")))

	r = start(t, settings(), perUser(bucket(1, 1, minute)))
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
	for now := int64(0); now < minute; now += 10 * second {
		r.at(now).settle()
		r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
	}
	r.at(minute).settle()
	r.want(fsm.VerdictAllow, r.check(1, desc("user=a")))
}

func TestDecisionRecordLivesForTheHorizon(t *testing.T) {
	r := start(t, settings(), perUser(rolling(9, hour)))
	c := r.check(1, desc("user=a"))
	r.at(second).want(fsm.VerdictAllow, c)
	r.at(second + fsm.DefaultHorizon).settle()
	if a := r.want(fsm.VerdictAllow, c); !a.Replayed {
		t.Error("forgotten within the horizon")
	}
	r.at(second + fsm.DefaultHorizon + 1).settle()
	r.unchanged(func() { r.want(fsm.VerdictStaleTime, c) }) // as every late copy
	if a := r.want(fsm.VerdictAllow, at(*c, r.now)); a.Replayed || a.Remaining != 7 {
		t.Errorf("%+v, want a new charge", a)
	}
}

// A copy that arrives late is never charged: until half the horizon after its fence
// the record of the first is there, later the fence refuses it.
func TestStaleFenceIsRefused(t *testing.T) {
	r := start(t, settings(), perUser(rolling(9, hour)))
	half := fsm.DefaultHorizon / 2
	for now := int64(0); now < 3*fsm.DefaultHorizon; now += second {
		c := r.at(now).check(1, desc("user=a"))
		c.Fence = 0
		if now <= half {
			if v := r.ask(c).Verdict; v == fsm.VerdictStaleTime {
				t.Errorf("stale at %d", now)
			}
			continue
		}
		r.settle()
		r.unchanged(func() {
			if a := r.want(fsm.VerdictStaleTime, c); a.Time != now {
				t.Errorf("stale at %d, and told the time %d", now, a.Time)
			}
		})
	}
	for _, fence := range []int64{r.now - half, r.now - half - 1} {
		want := fsm.VerdictDeny
		if fence < r.now-half {
			want = fsm.VerdictStaleTime
		}
		r.want(want, at(*r.check(1, desc("user=a")), fence))
	}
}

// A fence that no log can hold is a lie, and would outlive the record of its id.
func TestFenceThatNoLogHoldsIsRefused(t *testing.T) {
	r := start(t, settings(), perUser(rolling(9, hour)))
	r.at(minute).tick()
	for _, fence := range []int64{minute + 1, limit.Never, -1, limit.Forever, limit.Forever + minute} {
		r.unchanged(func() { r.want(fsm.VerdictStaleTime, at(*r.check(1, desc("user=a")), fence)) })
	}
}

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
	bare := &replica{tb: t, m: fsm.New()}
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

func TestSecondPolicySetIsRefused(t *testing.T) {
	p := perUser(rolling(3, minute))
	r := start(t, settings(), p)
	one := policy.Set{Policies: []policy.Policy{p}}
	p.Limits = []policy.Limit{rolling(4, minute)}
	two := policy.Set{Policies: []policy.Policy{p}}
	r.want(fsm.VerdictAllow, r.check(3, desc("user=a")))
	r.unchanged(func() {
		if a := r.apply(fsm.PoliciesEntry(r.header(), version, one.Canonical())); a.Refusal != fsm.Accepted {
			t.Errorf("the same set again: refusal %d", a.Refusal)
		}
		for name, e := range map[string][]byte{
			"other policies":               fsm.PoliciesEntry(r.header(), version, two.Canonical()),
			"other policies, next version": fsm.PoliciesEntry(r.header(), fsm.Version{Epoch: 1, Number: 2}, two.Canonical()),
			"same policies, next version":  fsm.PoliciesEntry(r.header(), fsm.Version{Epoch: 1, Number: 2}, one.Canonical()),
		} {
			if a := r.apply(e); a.Refusal != fsm.RefusedSet {
				t.Errorf("%s: refusal %d", name, a.Refusal)
			}
		}
		r.want(fsm.VerdictDeny, r.check(1, desc("user=a")))
	})
	if _, v := r.m.Set(); v != version || r.m.SetHash() != one.Hash() {
		t.Errorf("version %v", v)
	}
}

// The leader compiled the set, so a replica that can't is of other software: it
// must not go on without the set that the others enforce.
func TestAReplicaThatCantCompileALoggedSetStops(t *testing.T) {
	invalid := policy.Set{Policies: []policy.Policy{perUser()}}
	for name, canonical := range map[string][]byte{
		"nothing": nil, "not canonical": []byte("{ }"), "no limit": invalid.Canonical(),
	} {
		r := &replica{tb: t, m: fsm.New()}
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
	r := &replica{tb: t, m: fsm.New()}
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
