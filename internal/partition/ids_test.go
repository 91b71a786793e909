package partition_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

func TestRACE01ConcurrentChecksAreAllowedExactlyAsManyAsFit(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		for _, n := range []int{10, 1000} {
			var all []*sent
			var mu sync.Mutex
			var askers sync.WaitGroup
			key := time.Duration(n).String()
			for range n {
				askers.Go(func() {
					s := r.submit(cl.request("three", key))
					mu.Lock()
					defer mu.Unlock()
					all = append(all, s...)
				})
			}
			askers.Wait()
			if got := tally(all); got["allow/limit"] != 3 || got["deny/limit"] != n-3 {
				t.Errorf("%d at once: %v", n, got)
			}
		}
	})
}

func TestRACE02AFreshKeyLosesNoHit(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		for key := range 200 {
			qs := make([]partition.Request, 20)
			for i := range qs {
				qs[i] = cl.request("three", time.Duration(key).String())
			}
			if got := tally(r.submit(qs...)); got["allow/limit"] != 3 || got["deny/limit"] != 17 {
				t.Fatalf("key %d: %v", key, got)
			}
		}
	})
}

// Whoever is asked, one allowance is there: the others name the leader.
func TestRACE05ThreeReplicasHaveOneAllowance(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		leader := cl.leader()
		pass(time.Second) // all have heard who leads
		allowed := 0
		for i := range 180 {
			q := cl.request("many", "u1")
			asked := cl.replicas[i%3]
			o := asked.ask(q)
			if asked != leader {
				if o.Result != partition.NotLeader || o.Leader != leader.id {
					t.Fatalf("a follower answered %s, leader %q", name(o.Result), o.Leader)
				}
				o = leader.ask(q)
			}
			if o.Result == partition.Allowed {
				allowed++
			}
		}
		if allowed != 60 {
			t.Errorf("%d allowed of 180, want 60", allowed)
		}
	})
}

func TestDED01ALostReplyIsRecoveredAndSpendsNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		q := cl.request("three", "u1")
		if o := r.ask(q); o.Result != partition.Allowed || o.Answer.Replayed || o.Answer.Remaining != 2 {
			t.Fatalf("got %s, %+v", name(o.Result), o.Answer)
		}
		for _, wait := range []time.Duration{time.Second, 58 * time.Second} {
			pass(wait)
			if o := r.ask(q); o.Result != partition.Allowed || !o.Answer.Replayed || o.Answer.Remaining != 2 {
				t.Errorf("%v later: %s, %+v", wait, name(o.Result), o.Answer)
			}
		}
		if n := r.used("three", "u1", 0); n != 1 {
			t.Errorf("%d used", n)
		}
	}, func(cl *cluster) { cl.settings.Horizon = 120e9 })
}

// An unavailable answer is no answer: nothing remembers it.
func TestDED08AfterAnUnavailableAnswerTheSameIDIsDecided(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		fence := r.group.Load().Status().Now
		cl.isolate(r)
		inFlight, late := cl.request("three", "u1"), cl.request("three", "u1")
		for _, q := range []*partition.Request{&inFlight, &late} {
			q.Unfenced, q.Fence = false, fence
		}
		lost := r.submit(inFlight)[0]
		pass(2 * time.Second)
		if o := lost.wait(); o.Result != partition.Unknown {
			t.Fatalf("in flight when cut off: %s", name(o.Result))
		}
		if o := r.ask(late); o.Result != partition.NoQuorum && o.Result != partition.NotLeader {
			t.Fatalf("cut off: %s", name(o.Result))
		}
		cl.network.Heal()
		pass(3 * time.Second)
		r = cl.leader()
		for _, q := range []partition.Request{inFlight, late} {
			if o := r.ask(q); o.Result != partition.Allowed {
				t.Errorf("quorum is back: %s", name(o.Result))
			}
		}
		if n := r.used("three", "u1", 0); n != 2 {
			t.Errorf("%d used by two ids", n)
		}
	})
}

// DED-11 leaves open whether a denial is kept for its id. Here it isn't: an id
// names one allow, so a denied one asks anew, and gets it once there is room.
func TestDED11ADeniedIDAsksAnew(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		dear := cl.request("three", "u1")
		dear.Cost = 4
		if o := r.ask(dear); o.Result != partition.Exceeded || o.Wait() != 0 {
			t.Errorf("cost above the limit: %s, wait %d", name(o.Result), o.Wait())
		}
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
		q := cl.request("three", "u1")
		o := r.ask(q)
		if o.Result != partition.Denied {
			t.Fatalf("got %s", name(o.Result))
		}
		pass(time.Duration(o.Wait()) * 1002 / 1000) // as long as callers are told to wait
		if o := r.ask(q); o.Result != partition.Allowed || o.Answer.Replayed {
			t.Errorf("the same id once there is room: %s", name(o.Result))
		}
	})
}

// A copy that comes late must not be charged again once its id is forgotten.
func TestAFenceKeepsLateCopiesOut(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("many", "u1", partition.Allowed)
		q := cl.request("many", "u1")
		q.Unfenced, q.Fence = false, r.group.Load().Status().Now
		first := r.ask(q)
		if first.Result != partition.Allowed {
			t.Fatalf("got %s", name(first.Result))
		}
		fresh := cl.request("many", "u1")
		fresh.Unfenced, fresh.Fence = false, q.Fence
		replayed, stale := 0, 0
		for range 60 {
			pass(500 * time.Millisecond)
			switch o := r.ask(q); {
			case o.Result == partition.Allowed && o.Answer.Replayed && o.Time == first.Time && stale == 0:
				replayed++
			case o.Result == partition.StaleTime:
				stale++
			default:
				t.Fatalf("after %d replays and %d refusals: %s", replayed, stale, name(o.Result))
			}
		}
		// The horizon is 20 s of decision time, and may be longer by what an idle leader takes to log it.
		if replayed < 39 || replayed > 50 {
			t.Errorf("replayed for %d half seconds", replayed)
		}
		o := r.ask(fresh)
		if o.Result != partition.StaleTime || o.Time < first.Time+15e9 {
			t.Errorf("a first send with a fence of 30 s ago: %s at %d", name(o.Result), o.Time)
		}
		unfenced := cl.request("many", "u1")
		unfenced.Fence = 1 // overruled
		if o := r.ask(unfenced); o.Result != partition.Allowed {
			t.Errorf("unfenced: %s", name(o.Result))
		}
		ahead := cl.request("many", "u1")
		ahead.Unfenced, ahead.Fence = false, o.Time+3600e9
		if o := r.ask(ahead); o.Result != partition.StaleTime {
			t.Errorf("a fence that was never logged: %s", name(o.Result))
		}
		if n := r.used("many", "u1", 0); n != 3 {
			t.Errorf("%d used, want 3", n)
		}
	})
}

// A call may be submitted again by its owner: it is a new question.
func TestACallThatIsSubmittedAgainIsANewQuestion(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
		results := make(chan partition.Result, 1)
		c := &partition.Call{Request: cl.request("three", "u1"), Done: func(c *partition.Call) { results <- c.Result }}
		r.group.Load().Submit(c)
		if got := <-results; got != partition.Denied {
			t.Fatalf("got %s", name(got))
		}
		pass(61 * time.Second)
		r.group.Load().Submit(c)
		if got := <-results; got != partition.Allowed {
			t.Errorf("a minute later: %s", name(got))
		}
	})
}

func TestAFullMemoryRefusesAndForgetsNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		var full partition.Outcome
		keys := 0
		for ; keys < 1000; keys++ {
			if full = r.ask(cl.request("three", time.Duration(keys).String())); full.Result != partition.Allowed {
				break
			}
		}
		if full.Result != partition.Memory || keys < 10 {
			t.Fatalf("after %d keys: %s", keys, name(full.Result))
		}
		index := r.group.Load().LastIndex()
		r.want("three", "a fresh one", partition.Memory)
		if got := r.group.Load().LastIndex(); got != index {
			t.Error("what state shows to have no room made an entry")
		}
		for i := range keys {
			if n := r.used("three", time.Duration(i).String(), 0); n != 1 {
				t.Errorf("key %d: %d used", i, n)
			}
		}
	}, func(cl *cluster) { cl.settings.Bound, cl.settings.DomainBound = 10_000, 10_000 })
}

// Whoever learned of leadership in a term that is over must not spoil the lease
// of the one that is on.
func TestALateLookAtAGapLeavesTheLeaseToTheTermThatIsOn(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		r.clock.jump(10 * time.Second)
		r.group.Load().StampOf(1)
		pass(300 * time.Millisecond) // heartbeats
		r.want("three", "u1", partition.Denied)
	})
}

func TestADamagedReplicaAnswersNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		g := r.group.Load()
		if err := g.ProposeRaw([]byte("no entry of ours")); err != nil {
			t.Fatal(err)
		}
		for _, r := range cl.replicas {
			pass(time.Second)
			if ends := r.ends(); len(ends) != 1 || !errors.Is(ends[0], fsm.ErrDamaged) {
				t.Errorf("replica %s ended with %v", r.id, ends)
			}
		}
		if o := r.ask(cl.request("three", "u1")); o.Result != partition.Stopping && o.Result != partition.NotLeader {
			t.Errorf("got %s", name(o.Result))
		}
		if in := g.Inspect("three", principalIs("u1")); in.Result != partition.Stopping {
			t.Errorf("inspect: result %d", in.Result)
		}
	})
}
