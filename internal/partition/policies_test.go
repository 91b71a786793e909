package partition_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// reordered is the set with its policies the other way round, and a domain before all others, so that every place is
// another one.
func reordered(s policy.Set) policy.Set {
	s = s.Clone()
	slices.Reverse(s.Policies)
	first := s.Clone().Policies[0]
	first.Name, first.Quota, first.Domain = "a-new-one", "", "a-new-one"
	s.Policies = append([]policy.Policy{first}, s.Policies...)
	return s
}

// limited is the set with another amount of a domain's first limit.
func limited(s policy.Set, domain string, amount uint64) policy.Set {
	s = s.Clone()
	i := slices.IndexFunc(s.Policies, func(p policy.Policy) bool { return p.Domain == domain })
	s.Policies[i].Limits[0].Amount = amount
	return s
}

func (r *replica) change(s policy.Set) fsm.Version {
	r.cluster.t.Helper()
	v, err := r.group.Load().ChangePolicies(context.Background(), s, nil)
	if err != nil {
		r.cluster.t.Fatalf("change the policies: %v", err)
	}
	return v
}

func TestSetsAreOrderedOneAfterAnother(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		g := r.group.Load()
		r.want("three", "u1", partition.Allowed, partition.Allowed)
		raised := limited(cl.set, "three", 5)
		one, two := fsm.Version{Epoch: 1, Number: 1}, fsm.Version{Epoch: 1, Number: 2}
		for _, expected := range []fsm.Version{{}, two, {Epoch: 2, Number: 1}} {
			if _, err := g.ChangePolicies(context.Background(), raised, &expected); !errors.Is(err, partition.ErrSetVersion) {
				t.Errorf("expecting %v: %v", expected, err)
			}
			if err := g.CheckPolicies(raised, &expected); !errors.Is(err, partition.ErrSetVersion) {
				t.Errorf("asked about %v: %v", expected, err)
			}
		}
		if err := g.CheckPolicies(raised, &one); err != nil {
			t.Errorf("asked: %v", err)
		}
		if v, err := g.ChangePolicies(context.Background(), raised, &one); err != nil || v != two {
			t.Fatalf("version %v: %v", v, err)
		}
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		// Once more, as after a lost answer: nothing is logged for it.
		index := g.LastIndex()
		if v, err := g.ChangePolicies(context.Background(), raised, &one); err != nil || v != two {
			t.Errorf("once more: version %v: %v", v, err)
		}
		if got := g.LastIndex(); got != index {
			t.Errorf("%d entries for the set in force", got-index)
		}
		if v := r.change(cl.set); v != (fsm.Version{Epoch: 1, Number: 3}) {
			t.Errorf("version %v", v)
		}
		cl.same()
	})
}

func TestAChangeIsRefusedByNameOrSentToTheLeader(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		g := cl.leader().group.Load()
		index := g.LastIndex()
		longer := cl.set.Clone()
		longer.Policies[0].Limits[0].Window = int64(time.Hour)
		invalid := cl.set.Clone()
		invalid.Policies[1].Limits = nil
		for path, s := range map[string]policy.Set{"policies[0].limits[0].rollingWindow.window": longer, "policies[1].limits": invalid} {
			var problems policy.Problems
			if _, err := g.ChangePolicies(context.Background(), s, nil); !errors.As(err, &problems) || problems[0].Path != path {
				t.Errorf("%s: %v", path, err)
			}
			if err := g.CheckPolicies(s, nil); !errors.As(err, &problems) || problems[0].Path != path {
				t.Errorf("asked: %s: %v", path, err)
			}
		}
		if got := g.LastIndex(); got != index {
			t.Errorf("%d entries for sets that are refused", got-index)
		}
		for _, r := range cl.others(cl.leader()) {
			var elsewhere *partition.NotLeaderError
			_, err := r.group.Load().ChangePolicies(context.Background(), limited(cl.set, "three", 5), nil)
			if !errors.As(err, &elsewhere) || elsewhere.Leader != cl.leader().id {
				t.Errorf("at a follower: %v", err)
			}
		}
	})
}

// What no replica could compile is never logged: it would stop them all.
func TestASetOfAnotherPartitionIsAdopted(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		g := r.group.Load()
		r.want("three", "u1", partition.Allowed, partition.Allowed)
		five := fsm.Version{Epoch: 1, Number: 5}
		raised, invalid, longer := limited(cl.set, "three", 5), cl.set.Clone(), cl.set.Clone()
		invalid.Policies[1].Limits = nil
		longer.Policies[0].Limits[0].Window = int64(time.Hour)
		index := g.LastIndex()
		for name, canonical := range map[string][]byte{"no set": []byte("{}"), "an invalid one": invalid.Canonical(), "one under which usage can't go on": longer.Canonical()} {
			if err := g.AdoptPolicies(context.Background(), five, canonical); err == nil {
				t.Errorf("%s is adopted", name)
			}
		}
		for _, old := range []fsm.Version{{Epoch: 1, Number: 1}, {Number: 9}} {
			if err := g.AdoptPolicies(context.Background(), old, raised.Canonical()); err != nil {
				t.Errorf("%v, which isn't newer: %v", old, err)
			}
		}
		if got := g.LastIndex(); got != index {
			t.Errorf("%d entries for sets that aren't adopted", got-index)
		}
		if err := cl.others(r)[0].group.Load().AdoptPolicies(context.Background(), five, raised.Canonical()); !errors.Is(err, raft.ErrNotLeader) {
			t.Errorf("at a follower: %v", err)
		}
		if err := g.AdoptPolicies(context.Background(), five, raised.Canonical()); err != nil {
			t.Fatal(err)
		}
		if _, v := g.Enforced(); v != five {
			t.Errorf("in force is %v", v)
		}
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		cl.same()
	})
}

// A check that was resolved under a set, and waits while another comes into force, is resolved anew before it goes into
// the log: its places mean other policies by then.
func TestCallsThatWaitedWhileTheSetChangedAreResolvedAnew(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		waiting := []*sent{cl.call(cl.request("three", "u1")), cl.call(cl.request("many", "u2"))}
		conclude := r.group.Load().Look(waiting[0].Call, waiting[1].Call)
		r.change(reordered(cl.set))
		conclude()
		for i, s := range waiting {
			if o := s.wait(); o.Result != partition.Allowed || o.Policy.Domain != s.Domain || o.Version != 2 {
				t.Errorf("call %d: %s of %v under version %d", i, name(o.Result), o.Policy, o.Version)
			}
		}
		if a, b := r.used("three", "u1", 0), r.used("many", "u2", 0); a != 2 || b != 1 {
			t.Errorf("%d and %d used, want 2 and 1", a, b)
		}
		cl.same()
	})
}

// A batch that comes behind a change in the log is refused whole, by all replicas, and its calls are decided all the
// same, those that joined them too.
func TestCallsOfABatchBehindAChangeAreDecidedAnew(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		for _, o := range cl.replicas {
			o.disk.slow(50 * time.Millisecond)
		}
		changed := make(chan fsm.Version)
		go func() { changed <- r.change(reordered(cl.set)) }()
		pass(10 * time.Millisecond) // the change is in the log, and not in force
		q := cl.request("three", "u1")
		knows := cl.request("many", "u2")
		knows.Asked = &partition.Resolution{Version: fsm.Version{Epoch: 1, Number: 1}}
		other := r.ask(cl.asks("many", "u2"))
		knows.Asked.Policies = other.Resolution.Policies
		all := r.submit(q, q, cl.request("many", "u3"), knows)
		if _, v := r.group.Load().Enforced(); v.Number != 1 {
			t.Fatalf("version %d is in force already", v.Number)
		}
		<-changed
		for i, s := range all {
			if o := s.wait(); o.Result != partition.Allowed || o.Policy.Domain != s.Domain || o.Version != 2 {
				t.Errorf("call %d: %s of %v under version %d", i, name(o.Result), o.Policy, o.Version)
			}
		}
		if a, b := r.used("three", "u1", 0), r.used("many", "u2", 0); a != 2 || b != 1 {
			t.Errorf("%d and %d used, want 2 and 1", a, b)
		}
		cl.same()
	})
}

// asks is a request whose asker knows nothing, and is told.
func (cl *cluster) asks(domain, principal string) partition.Request {
	q := cl.request(domain, principal)
	q.Asked = &partition.Resolution{}
	return q
}

// POL-11: who resolved a check under another version is told, and an asker that is ahead waits; no version has an
// allowance of its own.
func TestPOL11EveryVersionDrawsOnOneAllowance(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		q := cl.asks("three", "u1")
		known := r.ask(q).Resolution
		if known == nil || known.Version.Number != 1 {
			t.Fatalf("resolution %+v", known)
		}
		r.change(limited(cl.set, "three", 2))
		old := cl.request("three", "u1")
		old.Asked = known
		o := r.ask(old)
		if o.Result != partition.StalePolicy || o.Resolution.Version.Number != 2 {
			t.Fatalf("resolved under the version before: %s, %+v", name(o.Result), o.Resolution)
		}
		ahead := cl.request("three", "u1")
		ahead.Asked = &partition.Resolution{Version: fsm.Version{Epoch: 1, Number: 3}, Policies: known.Policies}
		if o := r.ask(ahead); o.Result != partition.Pending {
			t.Errorf("resolved under the version after: %s", name(o.Result))
		}
		old.Asked = o.Resolution
		if o := r.ask(old); o.Result != partition.Allowed {
			t.Errorf("asked again with the leader's resolution, same id: %s", name(o.Result))
		}
		r.want("three", "u1", partition.Denied)
		if used := r.used("three", "u1", 0); used != 2 {
			t.Errorf("%d used, want 2", used)
		}
	})
}

// A call whose resolution another set has made wrong is told so, and is charged to nothing.
func TestACallThatKnewAnotherSetIsToldTheLeadersResolution(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		q := cl.asks("three", "u1")
		known := r.ask(q).Resolution
		waits := cl.request("three", "u1")
		waits.Asked = known
		s := cl.call(waits)
		conclude := r.group.Load().Look(s.Call)
		r.change(limited(cl.set, "three", 2))
		conclude()
		if o := s.wait(); o.Result != partition.StalePolicy || o.Resolution == nil || o.Resolution.Version.Number != 2 {
			t.Errorf("%s, %+v", name(o.Result), o.Resolution)
		}
		if used := r.used("three", "u1", 0); used != 0 {
			t.Errorf("%d used, want nothing", used)
		}
	})
}

func TestACallIsResolvedAnewOnlySoOften(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		for before, want := range map[int]partition.Result{2: partition.Allowed, 3: partition.StalePolicy} {
			s := cl.call(cl.request("three", "u1"))
			r.group.Load().SubmitAnew(s.Call, before)
			if o := s.wait(); o.Result != want {
				t.Errorf("resolved anew %d times before: %s", before, name(o.Result))
			}
		}
	})
}

// A replayed allow whose policy is gone speaks of no limit.
func TestAnAllowIsReplayedWhoseLimitIsGone(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		q := cl.request("three", "u1")
		if o := r.ask(q); o.Result != partition.Allowed {
			t.Fatal(name(o.Result))
		}
		s := cl.set.Clone()
		wider := s.Policies[0]
		wider.Name, wider.Quota = "wider", "wider"
		s.Policies[0] = wider
		r.change(s)
		o := r.ask(q)
		if o.Result != partition.Allowed || !o.Answer.Replayed || o.Policy != nil {
			t.Errorf("%s, replayed %t, of %v", name(o.Result), o.Answer.Replayed, o.Policy)
		}
		if _, ok := o.Reset(); ok {
			t.Error("it says when a limit is full that it doesn't speak of")
		}
		if used := r.used("three", "u1", 0); used != 0 {
			t.Errorf("%d used of the new policy", used)
		}
	})
}

// A set is kept by whoever leads next.
func TestASetOutlivesItsLeader(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed)
		r.change(reordered(limited(cl.set, "three", 4)))
		r.stop()
		next := cl.leader()
		next.want("three", "u1", partition.Allowed, partition.Allowed, partition.Denied)
		next.change(cl.set)
		next.want("three", "u1", partition.Denied)
		r.start()
		cl.same()
	})
}

// TestChangesUnderLoadAdmitNoMore: sets change all the time, while replicas are cut off and stopped and clocks jump.
// Every allow met the amount that it was told, with all that was allowed in the window before it.
func TestChangesUnderLoadAdmitNoMore(t *testing.T) {
	seeds(t, 15, func(t *testing.T, rng *rand.Rand) {
		inBubble(t, func(cl *cluster) {
			var all []*sent
			changes := 0
			for range 60 {
				disturb(cl, rng)
				for range 4 {
					all = append(all, burst(cl, rng)...)
					if l := leading(cl.replicas); l != nil && rng.IntN(2) == 0 && changed(l, cl, rng) {
						changes++
					}
					pass(time.Duration(rng.IntN(100)) * time.Millisecond)
				}
			}
			(&history{cl: cl}).calm()
			for _, s := range all {
				s.wait()
			}
			cl.leader()
			cl.same()
			if held := hold(t, all); held < 50 || changes < 10 {
				t.Errorf("%d allows through %d changes", held, changes)
			}
		})
	})
}

func burst(cl *cluster, rng *rand.Rand) (all []*sent) {
	r := cl.replicas[rng.IntN(3)]
	if l := leading(cl.replicas); l != nil {
		r = l
	}
	for range 1 + rng.IntN(6) {
		all = append(all, r.submit(cl.request("counted", hotKeys[rng.IntN(len(hotKeys))]))...)
	}
	return all
}

// changed tries to change the set, and reports whether it has.
func changed(l *replica, cl *cluster, rng *rand.Rand) bool {
	s := limited(cl.set, "counted", 2+rng.Uint64N(6))
	switch rng.IntN(4) {
	case 0:
		s = reordered(s)
	case 1:
		s.Policies = slices.DeleteFunc(s.Policies, func(p policy.Policy) bool { return p.Domain == "other" })
	case 2:
		rng.Shuffle(len(s.Policies), func(i, j int) { s.Policies[i], s.Policies[j] = s.Policies[j], s.Policies[i] })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := l.group.Load().ChangePolicies(ctx, s, nil)
	return err == nil
}

// hold holds every allow to the amount that it was told. Allows of one instant came in an order that isn't known, so
// each counts with those before that instant only.
func hold(t *testing.T, all []*sent) (held int) {
	t.Helper()
	for _, s := range all {
		if s.Result != partition.Allowed || s.Outcome.Policy.Domain != "counted" || s.Answer.Limit != 0 {
			continue
		}
		held++
		units := uint64(1)
		for _, o := range all {
			same := string(o.Descriptors[0][0].Value) == string(s.Descriptors[0][0].Value)
			if o != s && same && o.Result == partition.Allowed && o.Time < s.Time && s.Time-o.Time < s.Limit().Window {
				units++
			}
		}
		if units > s.Answer.Amount {
			t.Errorf("at %d: %d units of %s, the limit was %d", s.Time, units, s.Descriptors[0][0].Value, s.Answer.Amount)
		}
	}
	return held
}
