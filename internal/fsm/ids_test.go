package fsm_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
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

// Of a batch of many checks, with one charge or several, every one is recorded under its own id and charged
// to its own keys, whatever order they are asked again in.
func TestEveryCheckOfABatchKeepsItsIDAndItsKeys(t *testing.T) {
	r := start(t, settings(), perUser(rolling(1, minute)))
	user := func(i int) keyspace.Descriptor { return desc(fmt.Sprintf("user=u%d", i)) }
	var checks []*fsm.Check
	for i := range 200 {
		on := []keyspace.Descriptor{user(2 * i)}
		if i%3 == 0 {
			on = append(on, user(2*i+1))
		}
		checks = append(checks, r.check(1, on...))
	}
	r.decide(checks...)
	slices.Reverse(checks)
	for i, a := range r.decide(checks...) {
		if a.Verdict != fsm.VerdictAllow || !a.Replayed {
			t.Fatalf("check %d asked again: %+v", i, a)
		}
	}
	for i, c := range checks {
		for _, ch := range c.Charges {
			if use := r.m.Inspect(nil, &ch, r.m.Now()); use[0].Used != 1 {
				t.Fatalf("a key of check %d has used %d, want 1", i, use[0].Used)
			}
		}
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
