package partition_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// confirms asks a replica to confirm that it leads, for d.
func (r *replica) confirms(d time.Duration) (partition.Standing, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return r.group.Load().Confirm(ctx)
}

// second is another set than the one that tests begin with.
func (cl *cluster) second() policy.Set {
	set := policies()
	set.Domains = append(set.Domains, policy.Domain{Name: "more"})
	return set
}

func (cl *cluster) change(r *replica, set policy.Set) fsm.Version {
	cl.t.Helper()
	v, err := r.group.Load().ChangePolicies(context.Background(), set, nil)
	if err != nil {
		cl.t.Fatal(err)
	}
	return v
}

// TestALeaderConfirmsWhatItEnforces, and whoever doesn't lead says who does.
func TestALeaderConfirmsWhatItEnforces(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		v := cl.change(r, cl.second())
		s, err := r.confirms(time.Second)
		if err != nil || !s.HasSet || s.Version != v || s.Term != r.group.Load().Status().Term {
			t.Errorf("%+v, %v, want version %+v", s, err, v)
		}
		pass(time.Second)
		for _, o := range cl.others(r) {
			_, err := o.confirms(time.Second)
			if elsewhere := new(partition.NotLeaderError); !errors.As(err, &elsewhere) || elsewhere.Leader != r.id {
				t.Errorf("%s: %v", o.id, err)
			}
		}
	})
}

// TestADeposedLeaderConfirmsNothing: one that was held up while another one was elected, and hasn't heard of it, hears
// the others again and takes itself for the leader. What it enforces is of the past.
func TestADeposedLeaderConfirmsNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		old := cl.leader()
		g := old.group.Load()
		old.disk.slow(8 * time.Second) // Raft's main loop, which would step down, waits for it
		old.submit(cl.request("three", "u1"))
		pass(time.Millisecond)
		cl.isolate(old)
		next := cl.leader(cl.others(old)...)
		v := cl.change(next, cl.second())
		cl.network.Heal()
		s, err := old.confirms(2 * time.Second)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("confirmed %+v, %v, and version %+v is in force", s, err, v)
		}
		if was := g.Standing(); !was.Leading || was.Version == v {
			t.Fatalf("%+v: it doesn't take itself for the leader any more, or knows the new version", was)
		}
		if s, err := next.confirms(time.Second); err != nil || s.Version != v {
			t.Errorf("the new leader: %+v, %v", s, err)
		}
		old.disk.slow(0)
		pass(10 * time.Second)
	})
}

// TestACutOffPartitionIsNotConfirmed, although its leader has a lease and could still answer from memory.
func TestACutOffPartitionIsNotConfirmed(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		pass(time.Second)
		cl.isolate(r)
		if in := r.group.Load().Inspect("three", principalIs("u1")); in.Result != partition.Allowed {
			t.Fatalf("it has no lease: %s", name(in.Result))
		}
		if s, err := r.confirms(300 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("confirmed %+v, %v", s, err)
		}
		if !r.group.Load().Leading() {
			t.Error("it had stepped down: nothing was shown")
		}
		pass(time.Second)
		if s, err := r.confirms(10 * time.Second); !errors.Is(err, raft.ErrNotLeader) {
			t.Errorf("after it gave up: %+v, %v", s, err)
		}
		cl.network.Heal()
		if s, err := cl.leader().confirms(5 * time.Second); err != nil || !s.HasSet {
			t.Errorf("after all is well: %+v, %v", s, err)
		}
	})
}

// TestAnswersThatWereUnderWayConfirmNothing: they are to requests of before the call, and what was frozen may find
// them at its return.
func TestAnswersThatWereUnderWayConfirmNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		pass(time.Second)
		for _, o := range cl.others(r) {
			o.disk.slow(300 * time.Millisecond) // their main loops answer heartbeats late
		}
		s := r.submit(cl.request("three", "u1"))[0]
		pass(250 * time.Millisecond)
		for _, o := range cl.others(r) {
			cl.cut(r, o) // what was sent arrives, and answers do
		}
		begun := cl.now()
		if s, err := r.confirms(240 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("confirmed %+v, %v", s, err)
		}
		if o := s.wait(); o.Result != partition.Allowed || s.ended < begun {
			t.Fatalf("%s at %v: no answer came after the call began at %v", name(o.Result), time.Duration(s.ended), time.Duration(begun))
		}
		if !r.group.Load().Leading() {
			t.Error("it had stepped down: nothing was shown")
		}
		cl.network.Heal()
		for _, o := range cl.others(r) {
			o.disk.slow(0)
		}
		pass(3 * time.Second)
	})
}
