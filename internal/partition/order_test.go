package partition_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// The leader answers in the order of the design: resolution, recorded allow, id
// in flight, denied from memory, queue. Here is a test for each step, and for
// each step before the one behind it.

func TestADifferentResolutionGetsTheLeadersAndTheSameIDGoesOnWithIt(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		q := cl.request("three", "u1")
		q.Asked = &partition.Resolution{}
		o := r.ask(q)
		if o.Result != partition.StalePolicy || o.Resolution == nil || len(o.Resolution.Policies) != 1 {
			t.Fatalf("got %s with %+v", name(o.Result), o.Resolution)
		}
		leaders := o.Resolution.Policies[0]
		if leaders.Name != "three" || leaders.Namespace != "default" || leaders.Revision == 0 || leaders.Partition != 0 {
			t.Errorf("the leader's resolution is %+v", leaders)
		}
		for _, tc := range []struct {
			what   string
			change func(*partition.Resolved)
		}{
			{"policy", func(p *partition.Resolved) { p.Name = "many" }},
			{"namespace", func(p *partition.Resolved) { p.Namespace = "elsewhere" }},
			{"revision", func(p *partition.Resolved) { p.Revision++ }},
			{"key", func(p *partition.Resolved) { p.Key = append(slices.Clone(p.Key), 0) }},
			{"partition", func(p *partition.Resolved) { p.Partition++ }},
			{"descriptor", func(p *partition.Resolved) { p.Descriptor++ }},
		} {
			other := leaders
			tc.change(&other)
			q.Asked = &partition.Resolution{Policies: []partition.Resolved{other}}
			if o := r.ask(q); o.Result != partition.StalePolicy || len(o.Resolution.Policies) != 1 {
				t.Errorf("another %s: %s", tc.what, name(o.Result))
			}
		}
		q.Asked = &partition.Resolution{Policies: []partition.Resolved{leaders, leaders}}
		if o := r.ask(q); o.Result != partition.StalePolicy {
			t.Errorf("another count: %s", name(o.Result))
		}
		q.Asked = &partition.Resolution{Policies: []partition.Resolved{leaders}}
		if o := r.ask(q); o.Result != partition.Allowed || o.Answer.Replayed {
			t.Errorf("the leader's own: %s", name(o.Result))
		}
		if n := r.used("three", "u1", 0); n != 1 {
			t.Errorf("%d used: a stale resolution must consume nothing", n)
		}
	})
}

// An asker that knows of no policy and one that says nothing are two things.
func TestAnEmptyResolutionIsComparedAndAnAbsentOneIsNot(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		noMatch := cl.request("open", "u1")
		noMatch.Descriptors = []keyspace.Descriptor{descriptor("tenant", "t1")}
		match := cl.request("three", "u1")
		for _, tc := range []struct {
			what  string
			q     partition.Request
			asked *partition.Resolution
			want  partition.Result
		}{
			{"no match, says nothing", noMatch, nil, partition.NoMatchAllowed},
			{"no match, knows of none", noMatch, &partition.Resolution{}, partition.NoMatchAllowed},
			{"no match, knows of one", noMatch, &partition.Resolution{Policies: make([]partition.Resolved, 1)}, partition.StalePolicy},
			{"match, knows of none", match, &partition.Resolution{}, partition.StalePolicy},
			{"match, says nothing", match, nil, partition.Allowed},
		} {
			tc.q.Asked = tc.asked
			if o := r.ask(tc.q); o.Result != tc.want {
				t.Errorf("%s: %s", tc.what, name(o.Result))
			}
		}
	})
}

func TestWhatTheSetAloneDecidesMakesNoEntry(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u0", partition.Allowed) // the lease begins with its commit
		index := r.group.Load().LastIndex()
		for _, tc := range []struct {
			domain string
			d      keyspace.Descriptor
			want   partition.Result
			detail string
		}{
			{"nowhere", principalIs("u1"), partition.UnknownDomain, ""},
			{"three", descriptor("tenant", "t1"), partition.NoPolicy, ""},
			{"open", descriptor("tenant", "t1"), partition.NoMatchAllowed, ""},
			{"strict", descriptor("tenant", "t1"), partition.NoMatchAllowed, ""},
			{"strict", principalIs("u1"), partition.Invalid, "domain strict requires entry tenant"},
		} {
			q := cl.request(tc.domain, "")
			q.Descriptors = []keyspace.Descriptor{tc.d}
			if o := r.ask(q); o.Result != tc.want || o.Detail != tc.detail || o.Time == 0 || o.Epoch != 1 || o.Version != 1 {
				t.Errorf("%s %v: %s, %+v", tc.domain, tc.d, name(o.Result), o)
			}
		}
		if got := r.group.Load().LastIndex(); got != index {
			t.Errorf("%d entries for checks that no policy matches", got-index)
		}
	})
}

// Bad input is the caller's mistake wherever it is found: it needs no majority.
// All else that a leader says without the log does.
func TestOnlyBadInputIsAnsweredWithoutALease(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		recorded := cl.request("many", "u1")
		r.ask(recorded)
		cl.isolate(r)
		pass(500 * time.Millisecond) // the length of the lease
		strict := cl.request("strict", "u1")
		wrongResolution := cl.request("three", "u1")
		wrongResolution.Asked = &partition.Resolution{}
		for i, q := range []partition.Request{recorded, wrongResolution, cl.request("three", "u1"), cl.request("nowhere", "u1")} {
			if o := r.ask(q); o.Result != partition.NoQuorum && o.Result != partition.NotLeader {
				t.Errorf("check %d without a lease: %s", i, name(o.Result))
			}
		}
		if r.group.Load().Leading() {
			if o := r.ask(strict); o.Result != partition.Invalid {
				t.Errorf("bad input without a lease: %s", name(o.Result))
			}
		}
	})
}

func TestARecordedAllowIsReplayedThoughTheKeyIsFull(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		q := cl.request("three", "u1")
		first := r.ask(q)
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Denied)
		pass(time.Second)
		index := r.group.Load().LastIndex()
		o := r.ask(q)
		if o.Result != partition.Allowed || !o.Answer.Replayed || o.Time != first.Time || o.Answer.Remaining != first.Answer.Remaining {
			t.Errorf("got %s, %+v; first was %+v", name(o.Result), o.Answer, first.Answer)
		}
		if r.group.Load().LastIndex() != index || r.used("three", "u1", 0) != 3 {
			t.Errorf("a replay made an entry or was charged")
		}
	})
}

func TestTheSameIDForSomethingElseIsAConflict(t *testing.T) { // DED-02
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		q := cl.request("many", "u1")
		dearer, another := q, q
		dearer.Cost = 2
		another.Descriptors = []keyspace.Descriptor{principalIs("u2")}
		both := r.submit(q, dearer, another) // in flight
		if o := both[0].wait(); o.Result != partition.Allowed {
			t.Fatalf("got %s", name(o.Result))
		}
		for _, s := range both[1:] {
			if o := s.wait(); o.Result != partition.Conflict {
				t.Errorf("in flight: %s", name(o.Result))
			}
		}
		for _, other := range []partition.Request{dearer, another} {
			if o := r.ask(other); o.Result != partition.Conflict {
				t.Errorf("recorded: %s", name(o.Result))
			}
		}
		elsewhere := q // an id is unique within its domain
		elsewhere.Domain = "three"
		if o := r.ask(elsewhere); o.Result != partition.Allowed || o.Answer.Replayed {
			t.Errorf("another domain: %s", name(o.Result))
		}
		if o := r.ask(q); o.Result != partition.Allowed || !o.Answer.Replayed {
			t.Errorf("the first one again: %s", name(o.Result))
		}
		if a, b := r.used("many", "u1", 0), r.used("many", "u2", 0); a != 1 || b != 0 {
			t.Errorf("%d and %d used, want 1 and 0", a, b)
		}
	})
}

// DED-04: a hundred copies of one id, on a key with one place left and on a full one.
func TestAHundredCopiesOfAnIDAreOneEvent(t *testing.T) {
	for _, tc := range []struct {
		what   string
		before int
		want   partition.Result
	}{
		{"one place left", 2, partition.Allowed},
		{"full", 3, partition.Denied},
	} {
		t.Run(tc.what, func(t *testing.T) {
			inBubble(t, func(cl *cluster) {
				r := cl.leader()
				for range tc.before {
					r.want("three", "u1", partition.Allowed)
				}
				index := r.group.Load().LastIndex()
				q := cl.request("three", "u1")
				copies := slices.Repeat([]partition.Request{q}, 50)
				all := r.submit(copies...)
				var askers sync.WaitGroup
				more := make([]*sent, 50)
				for i := range more {
					askers.Go(func() { more[i] = r.submit(q)[0] })
				}
				askers.Wait()
				first := all[0].wait()
				for _, s := range append(all, more...) {
					o := s.wait()
					o.Answer.Replayed, o.Answer.At = false, first.Answer.At // who came after the apply is told so
					if o.Result != tc.want || o.Time != first.Time || o.Answer != first.Answer {
						t.Fatalf("a copy got %s %+v, the first one %s %+v", name(o.Result), o.Answer, name(first.Result), first.Answer)
					}
				}
				if n := r.used("three", "u1", 0); n != 3 {
					t.Errorf("%d used, want 3", n)
				}
				// A copy that looked just before the apply and queued just after it makes an entry, and is told
				// of the record there. A denial never does.
				if entries := r.group.Load().LastIndex() - index; tc.want == partition.Denied && entries != 0 {
					t.Errorf("%d entries", entries)
				}
			})
		})
	}
}

func TestCopiesOfAnIDInFlightTakeNoPlaceInTheLog(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 100*time.Millisecond)
		q := cl.request("three", "u1")
		all := r.submit(q)
		for range 9 {
			pass(10 * time.Millisecond)
			all = append(all, r.submit(q)...)
		}
		for _, s := range all {
			if o := s.wait(); o.Result != partition.Allowed || o.Answer.Replayed {
				t.Errorf("a copy in flight got %s, replayed: %v", name(o.Result), o.Answer.Replayed)
			}
		}
		if got := gathered(t, r.registry); got["quorate_batch_checks sum"] != 1 {
			t.Errorf("%v checks were logged for one id", got["quorate_batch_checks sum"])
		}
	})
}

// A copy of an id looks at a full key; before it is answered, there is room and
// another copy gets the allow. The id has its answer, and it is no denial.
func TestACopyThatAnAllowOvertakesIsNotDenied(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		q := cl.request("three", "u1")
		slow := cl.call(q)
		conclude := r.group.Load().Look(slow.Call)
		pass(61 * time.Second)
		first := r.ask(q)
		conclude()
		o := slow.wait()
		if first.Result != partition.Allowed || o.Result != partition.Allowed || !o.Answer.Replayed || o.Time != first.Time {
			t.Errorf("%s at %d, then %s at %d", name(first.Result), first.Time, name(o.Result), o.Time)
		}
		if n := r.used("three", "u1", 0); n != 1 {
			t.Errorf("%d used", n)
		}
	})
}

func TestADenialFromMemoryMakesNoEntryAndTakesNoTime(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
		index, begun := r.group.Load().LastIndex(), cl.now()
		o := r.ask(cl.request("three", "u1"))
		if o.Result != partition.Denied || o.Wait() <= 0 || o.Wait() > 60e9 || o.Policy.Name != "three" || o.Limit().Amount != 3 {
			t.Errorf("got %s, wait %d, of %+v", name(o.Result), o.Wait(), o.Policy)
		}
		if r.group.Load().LastIndex() != index || cl.now() != begun {
			t.Errorf("a denial from memory made %d entries and took %d ns", r.group.Load().LastIndex()-index, cl.now()-begun)
		}
	})
}

// A leader must not wait for anything but the log.
func TestNoTimerDelaysALoneCheck(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		for range 20 {
			begun := cl.now()
			r.want("many", "u1", partition.Allowed)
			if took := cl.now() - begun; took != 0 {
				t.Fatalf("took %v of the bubble's time on disks and links that take none", time.Duration(took))
			}
		}
	})
}

func TestSeveralDescriptorsAreOneCommand(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed)
		q := cl.request("three", "")
		q.Descriptors = []keyspace.Descriptor{principalIs("u1"), principalIs("u2"), principalIs("u1")}
		if o := r.ask(q); o.Result != partition.Denied {
			t.Errorf("two more of u1: %s", name(o.Result))
		}
		if n := r.used("three", "u2", 0); n != 0 {
			t.Errorf("u2 used %d of a check that was denied", n)
		}
		q = cl.request("three", "")
		q.Descriptors = []keyspace.Descriptor{principalIs("u1"), principalIs("u2")}
		if o := r.ask(q); o.Result != partition.Allowed {
			t.Errorf("one more of each: %s", name(o.Result))
		}
	})
}

func TestNothingIsAnsweredBeforeThePolicySet(t *testing.T) {
	inNewBubble(t, t.TempDir(), func(cl *cluster) {
		r := cl.leader()
		if o := r.ask(cl.request("three", "u1")); o.Result != partition.Pending {
			t.Errorf("got %s", name(o.Result))
		}
		if in := r.group.Load().Inspect("three", principalIs("u1")); in.Result != partition.Pending {
			t.Errorf("inspect: %s", name(in.Result))
		}
		cl.adopt()
		r.want("three", "u1", partition.Allowed)
	})
}

func TestAnotherPolicySetIsRefusedAndTheSameOneIsFine(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		g := cl.leader().group.Load()
		if err := g.SetPolicies(context.Background(), fsm.Version{Epoch: 1, Number: 1}, cl.set); err != nil {
			t.Errorf("the same: %v", err)
		}
		other := policy.Set{Policies: cl.set.Policies[:1]}
		if err := g.SetPolicies(context.Background(), fsm.Version{Epoch: 1, Number: 2}, other); !errors.Is(err, partition.ErrOtherSet) {
			t.Errorf("another: %v", err)
		}
		if err := cl.others(cl.leader())[0].group.Load().SetPolicies(context.Background(), fsm.Version{Epoch: 1, Number: 1}, cl.set); err == nil {
			t.Error("a follower accepted a policy set")
		}
	})
}
