package fsm_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/policy"
)

func user(i int) keyspace.Descriptor { return desc("user=" + strconv.Itoa(i)) }

// fill asks once for each of n users, a full batch per entry and per step of the clock.
func (r *replica) fill(n int, step int64) (allowed int) {
	r.tb.Helper()
	var checks []*fsm.Check
	for i := range n {
		checks = append(checks, r.check(1, user(i)))
		if len(checks) < fsm.MaxChecks && i < n-1 {
			continue
		}
		for _, a := range r.at(r.now + step).decide(checks...) {
			if a.Verdict == fsm.VerdictAllow {
				allowed++
			}
		}
		checks, r.log = checks[:0], nil // the log isn't what is measured
	}
	return allowed
}

// keysInTests is how many keys stand for the million of the benchmark.
func keysInTests() int {
	if testing.Short() || raceEnabled {
		return 30_000
	}
	return 150_000
}

func heap() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// MEM-01: after window and horizon an idle partition holds nothing any more, by its
// own count and by the heap's.
func TestMEM01IdleKeysAreReclaimed(t *testing.T) {
	n := keysInTests()
	for _, l := range []policy.Limit{rolling(3, minute), bucket(3, 1, minute)} {
		t.Run(l.Name, func(t *testing.T) {
			r := start(t, settings(), perUser(l))
			twin := start(t, settings(), perUser(l))
			base := heap()
			if got := r.fill(n, 1e8); got != n {
				t.Fatalf("%d of %d allowed", got, n)
			}
			full, mem := heap(), r.m.Memory()
			if mem.Keys != n || full-base < int64(n)*40 {
				t.Fatalf("%d keys in %d bytes of heap", mem.Keys, full-base)
			}
			r.at(r.now + minute + fsm.DefaultHorizon).settle()
			if mem := r.m.Memory(); mem.Bytes != 0 || mem.Keys != 0 || mem.Records != 0 {
				t.Errorf("left over: %+v", mem)
			}
			if left := heap() - base; left > 1<<20 {
				t.Errorf("%d bytes of heap left of %d", left, full-base)
			}
			// Nothing but the moment and the count of records tells it from a fresh one.
			if a, b := len(usage(t, r.m)), len(usage(t, twin.m)); a != b {
				t.Errorf("its snapshot holds %d bytes, a fresh one's %d", a, b)
			}
			runtime.KeepAlive(r)
		})
	}
}

// MEM-02: at the bound new keys find no room, and keys that are used up stay denied.
func TestMEM02FullMachineRefusesNewKeysAndForgetsNoOldOnes(t *testing.T) {
	s := settings()
	s.Bound, s.DomainBound = 1<<20, 1<<20
	r := start(t, s, perUser(rolling(1, hour)))
	n := r.fill(20_000, 0)
	if n < 5000 || n == 20_000 {
		t.Fatalf("%d keys fit 1 MiB", n)
	}
	r.at(second)
	r.unchanged(func() {
		for i := range 1000 {
			r.want(fsm.VerdictMemory, r.check(1, user(20_000+i)))
		}
		for i := range n {
			if a := r.want(fsm.VerdictDeny, r.check(1, user(i))); a.At != hour {
				t.Fatalf("user %d denied until %d", i, a.At)
			}
		}
	})
	// The decision records leave first; what room they leave goes to new keys.
	r.at(minute).settle()
	r.want(fsm.VerdictAllow, r.check(1, user(30_000)))
}

func TestDomainBoundLeavesOtherDomainsAlone(t *testing.T) {
	one, two := perUser(rolling(9, hour)), perUser(rolling(9, hour))
	one.Domain, two.Domain, two.Name = "one", "two", "q"
	s := settings()
	s.Bound, s.DomainBound = 10_000, 4000
	r := start(t, s, one, two)
	refused := func(domain string) bool {
		for i := range 100 {
			if r.ask(r.checkIn(domain, 1, user(i))).Verdict == fsm.VerdictMemory {
				return true
			}
		}
		return false
	}
	if !refused("one") {
		t.Fatal("a domain's bound of 4000 bytes holds 100 keys")
	}
	r.want(fsm.VerdictAllow, r.checkIn("two", 1, user(0)))
	if before := r.m.Memory().Bytes; before > 4000+200 {
		t.Errorf("%d bytes", before)
	}
	if !refused("two") {
		t.Error("the other domain has no bound")
	}
}

// MEM-13: room is made by state that no longer matters, and by nothing else.
func TestMEM13AgedOutKeysMakeRoom(t *testing.T) {
	for _, l := range []policy.Limit{rolling(1, 30*second), bucket(1, 1, 30*second)} {
		s := settings()
		s.Bound, s.DomainBound, s.Horizon = 4000, 4000, 2
		r := start(t, s, perUser(l))
		r.decide(r.check(1, user(0)), r.check(1, user(1)))
		n := 2
		for r.at(r.now+second/4).ask(r.late(1, user(n))).Verdict == fsm.VerdictAllow {
			n++
		}
		if r.now > 25*second {
			t.Fatalf("%s: %d keys fit", l.Name, n)
		}
		r.at(30*second - 1).settle()
		r.want(fsm.VerdictMemory, r.late(1, user(5000)))
		r.want(fsm.VerdictDeny, r.late(1, user(0)))
		r.at(30*second).want(fsm.VerdictAllow, r.late(1, user(5000)))
		for i := 2; i < n; i++ {
			r.want(fsm.VerdictDeny, r.late(1, user(i)))
		}
	}
}

// What a batch's own turn of reclaiming leaves is still tried before a check is
// refused: here that turn goes to keys of another domain, which were due before.
func TestRoomIsMadeBeforeACheckIsRefused(t *testing.T) {
	one, two := perUser(rolling(1, second)), perUser(rolling(1, second))
	one.Domain, two.Domain, two.Name = "one", "two", "q"
	s := settings()
	s.Bound, s.DomainBound, s.Horizon = 40_000, 16_000, 2
	r := start(t, s, one, two)
	for i := range 100 {
		r.want(fsm.VerdictAllow, r.checkIn("one", 1, user(i)))
	}
	for i := range 1000 {
		r.now++
		r.ask(r.checkIn("two", 1, user(i)))
	}
	r.at(second - 1)
	full := r.checkIn("two", 1, user(-1))
	full.Fence = r.now
	r.want(fsm.VerdictMemory, full)
	r.at(2 * second)
	full.Fence = r.now
	r.want(fsm.VerdictAllow, full)
	if left := r.m.Memory().Keys; left < 100 {
		t.Errorf("%d keys are left: all were reclaimed by the batch itself", left)
	}
}

// The key that goes to make room may be one of those that are asked about: it is then a
// new one, for which there must be room, and its slot another key's.
func TestRoomMayBeMadeByTheKeyThatIsAsked(t *testing.T) {
	one, two := perUser(rolling(1, second)), perUser(rolling(200, second))
	one.Domain, two.Domain, two.Name = "one", "two", "q"
	s := settings()
	s.Bound, s.DomainBound, s.Horizon = 40_000, 16_000, hour
	r := start(t, s, one, two)
	for i := range 100 { // more than a batch of one check reclaims by itself
		r.want(fsm.VerdictAllow, r.checkIn("one", 1, user(i)))
	}
	r.at(second / 2)
	for range 40 {
		r.want(fsm.VerdictAllow, r.checkIn("two", 1, user(0)))
	}
	for i := 0; r.ask(r.checkIn("two", 1, user(i))).Verdict == fsm.VerdictAllow; i++ {
	}
	r.at(2 * second)
	keys := r.m.Memory().Keys
	r.want(fsm.VerdictAllow, r.checkIn("two", 7, user(-1), user(0)))
	if gone := keys + 2 - r.m.Memory().Keys; gone != 101 {
		t.Errorf("%d keys went, want those of the other domain and the one asked about", gone)
	}
	for _, i := range []int{-1, 0} {
		if used := r.used(r.checkIn("two", 1, user(i))); used != 7 {
			t.Errorf("user %d: %d units used, want 7", i, used)
		}
	}
	clone(t, r.m)
}

// The bounds hold to the byte: a check finds room if and only if the record, the key, an
// event and a marker fit.
func TestBoundHoldsToTheLastByte(t *testing.T) {
	const record, key, event = 48, 64, 8
	c := start(t, settings(), perUser(rolling(3, hour))).check(1, user(1))
	need := uint64(record + key + len(c.Charges[0].Key) + 2*event)
	for _, short := range []uint64{0, 1} {
		for name, set := range map[string]func(s *fsm.Settings){
			"in all":   func(s *fsm.Settings) { s.Bound, s.DomainBound = need-short, need-short },
			"a domain": func(s *fsm.Settings) { s.DomainBound = need - short },
		} {
			s := settings()
			set(&s)
			r := start(t, s, perUser(rolling(3, hour)))
			want := fsm.VerdictAllow
			if short > 0 {
				want = fsm.VerdictMemory
			}
			if _, refused := r.m.Refuse(c, 0); refused != (short > 0) {
				t.Errorf("%s, %d bytes short: refused from memory %t", name, short, refused)
			}
			r.want(want, c)
		}
	}
}

// A leader says "no room" without an entry only if an entry could make none.
func TestNoRoomFromMemoryOnlyIfNothingCouldMakeRoom(t *testing.T) {
	s := settings()
	s.Bound, s.DomainBound = 4000, 4000
	r := start(t, s, perUser(rolling(1, 30*second)))
	r.fill(100, 0)
	for _, step := range []struct {
		now  int64
		room bool
	}{
		{0, false}, {fsm.DefaultHorizon, false},
		{fsm.DefaultHorizon + 1, true}, // decision records have served their time
		{30 * second, true},            // so have keys
	} {
		c := r.at(step.now).late(1, user(1000))
		if a, refused := r.m.Refuse(c, r.now); refused == step.room || refused && a.Verdict != fsm.VerdictMemory {
			t.Errorf("at %d: refused %t, %s", step.now, refused, words[a.Verdict])
		}
	}
	r.want(fsm.VerdictAllow, r.late(1, user(1000)))
}

// MEM-03: keys that aged out go though nothing is ever allowed.
func TestMEM03KeysAreReclaimedWhenAllTrafficIsDenied(t *testing.T) {
	r := start(t, settings(), perUser(rolling(1, minute)))
	const n = 20_000
	r.fill(n, 0)
	if again := r.fill(n, 0); again != 0 {
		t.Errorf("%d allowed twice", again)
	}
	r.at(minute-1).want(fsm.VerdictDeny, r.late(1, user(0)))
	hot := perHot(r)
	for batches := 0; r.m.Memory().Keys > 1; batches++ {
		if batches > n {
			t.Fatalf("%d keys left", r.m.Memory().Keys)
		}
		for _, a := range r.at(r.now + second).decide(hot()...) {
			if a.Verdict == fsm.VerdictMemory {
				t.Fatal("no memory")
			}
		}
	}
}

// perHot keeps one key denied: a batch of a hundred checks for it.
func perHot(r *replica) func() []*fsm.Check {
	return func() (checks []*fsm.Check) {
		for range 100 {
			checks = append(checks, at(*r.check(1, user(-1)), r.m.Now()))
		}
		return checks
	}
}

// MEM-11: keys of many windows, each gone on its own terms.
func TestMEM11EveryKeyExpiresOnItsOwnTerms(t *testing.T) {
	windows := []int64{1, 2, 3, 5, 8, 60, 61, 120, 600, 3599, 3600}
	var policies []policy.Policy
	for i, w := range windows {
		p := perUser(rolling(1, w*second))
		if i%3 == 1 {
			p = perUser(bucket(1, 1, w*second))
		}
		p.Name = fmt.Sprint("w", w)
		p.Match = []keyspace.Entry{{Name: "w", Value: fmt.Sprint(w)}}
		policies = append(policies, p)
	}
	r := start(t, settings(), policies...)
	const users = 90
	ask := func(w int64, i int) *fsm.Check {
		return r.late(1, desc(fmt.Sprint("w=", w), fmt.Sprint("user=", i)))
	}
	for i := range users {
		for _, w := range windows {
			r.want(fsm.VerdictAllow, ask(w, i))
		}
	}
	for _, w := range windows {
		r.at(w*second - 1).settle()
		r.want(fsm.VerdictDeny, ask(w, 0))
		live := 0
		for _, o := range windows {
			if o >= w {
				live += users
			}
		}
		if got := r.m.Memory().Keys; got != live {
			t.Errorf("just before %d s: %d keys, want %d", w, got, live)
		}
		r.at(w * second).settle()
		if got := r.m.Memory().Keys; got != live-users {
			t.Errorf("at %d s: %d keys, want %d", w, got, live-users)
		}
	}
}

// A key that is used all the time is filed anew, never dropped.
func TestKeyInUseOutlivesItsTurn(t *testing.T) {
	r := start(t, settings(), perUser(rolling(5, 10*second)))
	for now := int64(0); now < hour; now += 2 * second {
		c := r.at(now).check(1, user(0))
		r.want(fsm.VerdictAllow, c)
		if now >= 8*second {
			if used := r.used(c); used != 5 {
				t.Fatalf("at %d: %d units used, want 5", now, used)
			}
		}
		r.settle()
	}
}

// An unlimited key records what it does, and yet its history is bounded by what its
// policy's amounts could ever need.
func TestUnlimitedKeysKeepABoundedHistory(t *testing.T) {
	p := perUser(rolling(100, hour))
	p.Tiers = []policy.Tier{{When: []keyspace.Entry{{Name: "tier", Value: "none"}}, Amounts: []policy.Amount{{Limit: "rolling", Unlimited: true}}}}
	s := settings()
	s.Horizon = 2
	r := start(t, s, p)
	most := uint64(0)
	for i := range 20_000 {
		c := r.at(int64(i)*second/10).check(1, desc("user=a", "tier=none"))
		c.Fence = r.now
		r.want(fsm.VerdictAllow, c)
		most = max(most, r.m.Memory().Bytes)
	}
	if most > 1500 {
		t.Errorf("%d bytes for a key that needs 100 events", most)
	}
	if a := r.want(fsm.VerdictDeny, r.check(1, desc("user=a"))); a.At != 19_900*second/10+hour {
		t.Errorf("without the tier denied until %d", a.At)
	}
}

// A batch takes out at least as much as it can put in, so that garbage never piles up
// under load, also with many keys to a check.
func TestReclaimingKeepsUpWithTheLoad(t *testing.T) {
	p := perUser(rolling(1, second))
	s := settings()
	s.Horizon = 2
	r := start(t, s, p)
	for i := range 200 {
		var ds []keyspace.Descriptor
		for j := range keyspace.MaxDescriptors {
			ds = append(ds, user(i*keyspace.MaxDescriptors+j))
		}
		var checks []*fsm.Check
		for j := range 20 {
			for k := range ds {
				ds[k] = user((i*20+j)*len(ds) + k)
			}
			checks = append(checks, at(*r.check(1, ds...), r.m.Now()))
		}
		for _, a := range r.at(r.now + second).decide(checks...) {
			if a.Verdict == fsm.VerdictStaleTime {
				continue
			}
		}
		if keys := r.m.Memory().Keys; keys > 3*20*len(ds) {
			t.Fatalf("after %d batches %d keys wait", i, keys)
		}
	}
}

// The bytes that bounds are set in are near to those of the heap.
func TestLogicalBytesFollowRealBytes(t *testing.T) {
	const n = 30_000
	for name, l := range map[string]policy.Limit{"rolling": rolling(3, hour), "bucket": bucket(3, 3, hour)} {
		s := settings()
		r := start(t, s, perUser(l))
		base := heap()
		r.fill(n, 1e6)
		r.fill(n, 1e6)
		r.fill(n, 1e6)
		real, logical := heap()-base, int64(r.m.Memory().Bytes)
		t.Logf("%s: %d bytes of heap, %d counted", name, real, logical)
		if real > logical*5/4 || real < logical/2 {
			t.Errorf("%s: %d bytes of heap for %d that are counted", name, real, logical)
		}
		runtime.KeepAlive(r)
	}
}
