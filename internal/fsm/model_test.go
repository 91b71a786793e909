package fsm_test

import (
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// TestMachineDecidesAsTheOracle plays random logs under random policies and compares
// every answer, whole, with that of the slow oracle.
func TestMachineDecidesAsTheOracle(t *testing.T) {
	seeds := 60
	if testing.Short() || raceEnabled {
		seeds = 20
	}
	decided := map[fsm.Verdict]int{}
	replayed := 0
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		h := newHistory(t, seeded(seed))
		for range 120 {
			h.step()
		}
		for v, n := range h.verdicts {
			decided[v] += n
		}
		replayed += h.replayed
	})
	for v, word := range words {
		if decided[v] == 0 && v != fsm.VerdictMemory && v != fsm.VerdictNotOwned {
			t.Errorf("no check of any history got the verdict %s", word)
		}
	}
	t.Logf("%d allowed, %d of them replayed; %d denied", decided[fsm.VerdictAllow], replayed, decided[fsm.VerdictDeny])
}

// TestFullMachineForgetsNothing: under small bounds every answer but "no memory" is
// still the oracle's, which never forgets, and no check leads beyond the bounds.
func TestFullMachineForgetsNothing(t *testing.T) {
	refused := 0
	eachSeed(t, 15, func(t *testing.T, seed uint64) {
		c := seeded(seed)
		s := settings()
		s.DomainBound = 400 + c.Uint64N(2000)
		s.Bound = s.DomainBound + c.Uint64N(1000)
		h := newHistoryOf(t, c, s)
		for range 100 {
			before, set := h.m.Memory().Bytes, h.v
			h.step()
			// Policies can be changed in a full machine too, which remembers those that are deleted.
			if now := h.m.Memory().Bytes; now > max(s.Bound, before) && h.v == set {
				t.Errorf("entry %d: %d bytes, the bound is %d", h.index, now, s.Bound)
			}
		}
		refused += h.verdicts[fsm.VerdictMemory]
	})
	if refused == 0 {
		t.Error("no check of any history met a bound")
	}
}

// TestNoWindowHoldsMoreThanItsLimit counts the promise itself: of what the machine has
// accepted, no interval of a rolling limit's length holds more than its amount. Every
// history has such a limit, the same for everybody.
func TestNoWindowHoldsMoreThanItsLimit(t *testing.T) {
	seeds := 40
	if raceEnabled {
		seeds = 10
	}
	windows := 0
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		c := seeded(seed)
		set := plainSet(c)
		h := newHistoryWith(t, c, settings(), set)
		h.steady = true
		for range 80 {
			h.step()
		}
		for i, p := range set.Policies {
			for _, l := range p.Limits {
				if l.Algorithm == limit.RollingWindow {
					windows += h.overAdmitted(h.oracle.quotas[i], l)
				}
			}
		}
	})
	t.Logf("%d windows", windows)
	if windows < 5*seeds {
		t.Errorf("only %d windows to look at in %d histories", windows, seeds)
	}
}

// plainSet is a random set without tiers and overrides, in which everybody in the domain
// "a" has a rolling limit that lets something through.
func plainSet(c choices) policy.Set {
	for {
		set := randomSet(c)
		found := false
		for i := range set.Policies {
			p := &set.Policies[i]
			p.Tiers, p.Overrides = nil, nil
			banned := slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return l.Amount == 0 })
			rolls := slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return l.Algorithm == limit.RollingWindow })
			found = found || p.Domain == "a" && len(p.Match) == 0 && rolls && !banned
		}
		if _, err := policy.Compile(set); err == nil && found {
			return set
		}
	}
}

// overAdmitted looks at the interval that begins with each event; any other that
// held more would hold the events of one of these.
func (h *history) overAdmitted(quota string, l policy.Limit) (windows int) {
	for k, events := range h.admitted {
		if k.quota != quota {
			continue
		}
		for _, from := range events {
			windows++
			got := sum(events, func(e event) bool { return e.time >= from.time && e.time-from.time < l.Window })
			if got > l.Amount {
				h.tb.Errorf("key %q: %d units within %d ns from %d, the limit is %d", k.values, got, l.Window, from.time, l.Amount)
			}
		}
	}
	return windows
}

// TestAnswersFromMemoryAreThoseOfTheLog: what a leader may say without a log entry, a
// denial or a recorded allow, is what the entry would have said, and nothing else is
// said from memory.
func TestAnswersFromMemoryAreThoseOfTheLog(t *testing.T) {
	denied, recalled := 0, 0
	eachSeed(t, 10, func(t *testing.T, seed uint64) {
		h := newHistory(t, seeded(seed))
		for range 60 {
			h.step()
			h.now = h.m.Now() + pick(h.choices, 0, 1, h.Int64N(second), h.Int64N(minute))
			h.tick() // what is too old to be recalled goes
			h.oracle.advance(h.now)
			h.oracle.forget(16384)
			c := h.question()
			c.Fence = h.now
			if len(h.sent) > 0 && h.oneIn(3) {
				if again, ok := h.resent(pick(h.choices, h.sent...)); ok {
					c = again
				}
			}
			hash := h.m.StateHash()
			memory, said := h.m.Recall(c)
			if said {
				recalled++
			} else if memory, said = h.m.Refuse(c, h.now); said {
				denied++
			}
			if h.m.StateHash() != hash {
				t.Error("reading changed the state")
			}
			got := h.ask(c)
			h.compare(c, got)
			switch {
			case got.Verdict == fsm.VerdictStaleTime: // the leader looks at that in the log only
			case said && memory != got:
				t.Errorf("from memory %+v, from the log %+v", memory, got)
			case !said && got.Verdict == fsm.VerdictDeny:
				t.Errorf("a denial was not seen coming: %+v", got)
			}
		}
	})
	if denied == 0 || recalled == 0 {
		t.Errorf("%d denials and %d recorded answers from memory", denied, recalled)
	}
}

// A history is a random log, and what the oracle makes of it.
type history struct {
	choices
	*replica
	set      policy.Set
	steady   bool // the set doesn't change
	sizes    bool // it changes in capacities only
	former   []policy.Policy
	oracle   *oracle
	asked    map[*fsm.Check]asked
	sent     []*fsm.Check // of late, to be sent again
	verdicts map[fsm.Verdict]int
	switches map[fsm.Refusal]int
	replayed int
	held     int             // admissions that were held to a limit of their time
	admitted map[key][]event // by what the machine answered
}

// asked is what a check was resolved from.
type asked struct {
	domain      string
	cost        uint64
	descriptors []keyspace.Descriptor
}

func newHistory(tb testing.TB, c choices) *history {
	s := settings()
	s.Horizon = pick(c, 2, 20*second, minute)
	return newHistoryOf(tb, c, s)
}

func newHistoryOf(tb testing.TB, c choices, s fsm.Settings) *history {
	return newHistoryWith(tb, c, s, randomSet(c))
}

func newHistoryWith(tb testing.TB, c choices, s fsm.Settings, set policy.Set) *history {
	h := &history{
		choices: c, set: set, verdicts: map[fsm.Verdict]int{}, switches: map[fsm.Refusal]int{},
		admitted: map[key][]event{}, asked: map[*fsm.Check]asked{},
	}
	h.replica = start(tb, s, h.set.Policies...)
	h.oracle = newOracle(h.set, s.Horizon)
	return h
}

// step writes one entry. Most are batches; some are of a wrong term or resolved
// under a wrong set, and must change nothing but the time where the term is right.
func (h *history) step() {
	h.now = max(0, h.now+h.pause())
	head, v := h.header(), h.v
	switch h.IntN(29) {
	case 0:
		h.lead()
		h.oracle.advance(h.now)
	case 1:
		h.tick()
		h.oracle.advance(h.now)
		h.oracle.forget(16384)
	case 2:
		head.Term = h.term + pick(h.choices, uint64(1), ^uint64(0))
		h.refused(fsm.RefusedTerm, head, v)
	case 3:
		v.Number += pick(h.choices, uint64(1), ^uint64(0))
		h.oracle.advance(h.now)
		h.refused(fsm.RefusedVersion, head, v)
	case 4:
		if a := h.apply(fsm.CheckpointEntry(head, h.m.LastCheckpoint())); a.Diverged {
			h.tb.Errorf("entry %d: a machine differs from itself", h.index)
		}
		h.oracle.advance(h.now)
	case 5, 6, 7:
		if !h.steady {
			h.tick() // the time of the change is what is remembered by
			h.oracle.advance(h.now)
			h.oracle.forget(16384)
			h.reform()
		}
	case 8:
		h.oracle.advance(h.now)
		h.level(head)
	default:
		h.oracle.advance(h.now)
		h.batch(h.checks())
	}
}

// level orders any level, which counts only if it is above the one in force, and changes nothing that is decided.
func (h *history) level(head fsm.Header) {
	was, level := h.m.Level(), h.Uint64N(newest+1)
	a, now := h.apply(fsm.LevelEntry(head, level)), max(was, level)
	if raised := a.Refusal == fsm.Accepted; raised != (level > was) || h.m.Level() != now {
		h.tb.Errorf("entry %d: level %d at level %d: refusal %d, then level %d", h.index, level, was, a.Refusal, h.m.Level())
	}
}

// pause is how far the leader's clock moves between entries; also not at all, far enough
// for everything to be forgotten, and (which only a broken leader does) back.
func (h *history) pause() int64 {
	if h.oneIn(80) {
		return policy.TombstoneLife + h.Int64N(hour)
	}
	switch h.IntN(8) {
	case 0, 1:
		return 0
	case 2:
		return -h.Int64N(3 * second)
	case 3:
		return h.Int64N(10 * minute)
	case 4:
		return h.Int64N(3)
	}
	return h.Int64N(4 * second)
}

func (h *history) refused(want fsm.Refusal, head fsm.Header, v fsm.Version) {
	a := h.apply(fsm.BatchEntry(head, v, h.checks()))
	if a.Refusal != want || len(a.Answers) > 0 {
		h.tb.Errorf("entry %d: refusal %d with %d answers, want %d", h.index, a.Refusal, len(a.Answers), want)
	}
}

func (h *history) batch(checks []*fsm.Check) {
	charges := 0
	for _, c := range checks {
		charges += len(c.Charges)
	}
	h.oracle.forget(64 + charges) // what a batch takes out at most
	for i, got := range h.decide(checks...) {
		h.compare(checks[i], got)
	}
}

func (h *history) compare(c *fsm.Check, got fsm.Answer) {
	h.verdicts[got.Verdict]++
	if got.Verdict == fsm.VerdictAllow && !got.Replayed {
		h.admit(c, got.Time)
	}
	h.oracle.full = got.Verdict == fsm.VerdictMemory // which bounds are the machine's own business
	want := h.oracle.decide(c)
	if want.Replayed {
		h.replayed++
	}
	if got != want {
		h.tb.Errorf("entry %d at %d: check %x of %v\n got %+v\nwant %+v", h.index, h.m.Now(), c.ID, c.Charges, got, want)
	}
}

// admit counts what the machine let through, and holds it to the promise: the windows of all finite rolling limits
// that the check met, of whatever sets the other events in them are, hold no more than the amount that it met.
func (h *history) admit(c *fsm.Check, now int64) {
	for i := range c.Charges {
		k := h.oracle.keyOf(&c.Charges[i])
		h.admitted[k] = append(h.admitted[k], event{now, c.Charges[i].Cost, nil})
	}
	for i := range c.Charges {
		ch := &c.Charges[i]
		for l := range h.oracle.policies[ch.Policy].Limits {
			w := h.oracle.law(ch, l)
			if w.algorithm != limit.RollingWindow || w.unlimited {
				continue
			}
			h.held++
			if got := sum(h.admitted[w.key], func(e event) bool { return e.time > now-w.window }); got > w.amount {
				h.tb.Errorf("entry %d at %d: %d units of %v within %d ns, the limit is %d", h.index, now, got, w.key, w.window, w.amount)
			}
		}
	}
}

// checks are new questions, some ids sent again, some ids abused.
func (h *history) checks() []*fsm.Check {
	var list []*fsm.Check
	for range h.IntN(13) {
		c := h.question()
		if len(h.sent) > 0 && h.oneIn(3) {
			old := pick(h.choices, h.sent...)
			again, ok := h.resent(old)
			switch {
			case h.oneIn(4): // another question under a known id
				c.ID, c.Fence = old.ID, old.Fence
			case ok: // the same, perhaps too late
				c = again
			}
		}
		list = append(list, c)
		h.sent = append(h.sent, c)
	}
	h.sent = h.sent[max(0, len(h.sent)-20):]
	return list
}

// resent is the check as it is resolved now, which it may not be any more.
func (h *history) resent(c *fsm.Check) (*fsm.Check, bool) {
	a := h.asked[c]
	again, ok := h.resolve(a.domain, a.cost, a.descriptors)
	if !ok {
		return nil, false
	}
	again.ID, again.Fence = c.ID, c.Fence
	h.asked[again] = a
	return again, true
}

func (h *history) question() *fsm.Check {
	for {
		descriptors := make([]keyspace.Descriptor, 1+h.IntN(2)*h.IntN(3))
		for i := range descriptors {
			descriptors[i] = h.descriptor()
		}
		if len(descriptors) > 1 && h.oneIn(2) {
			descriptors[1] = descriptors[0] // the same key twice
		}
		a := asked{pick(h.choices, "a", "a", "b", "c"), 1 + h.Uint64N(3)*h.Uint64N(2), descriptors}
		if h.oneIn(20) {
			a.cost = pick(h.choices, limit.MaxAmount, limit.MaxAmount-1, limit.MaxAmount/2+1)
		}
		c, ok := h.resolve(a.domain, a.cost, descriptors)
		if !ok {
			continue
		}
		h.asked[c] = a
		s, _ := h.m.Settings()
		if h.oneIn(20) {
			c.Fence += pick(h.choices, 1, 5*second, -1, -s.Horizon/2, -s.Horizon/2-1, -c.Fence-1, -1<<63)
		}
		return c
	}
}

func (h *history) descriptor() keyspace.Descriptor {
	entries := []string{"user=" + pick(h.choices, "u0", "u1", "u2"), "class=" + pick(h.choices, "x", "y")}
	entries = append(entries, pick(h.choices, nil, []string{"tier=pro"}, []string{"tier=max"})...)
	entries = append(entries, pick(h.choices, nil, nil, []string{"op=search"})...)
	return desc(entries...)
}
