package partition_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// Copies of an id share their answer; it is worth deciding for as long as one of
// them waits.
func TestTheMostPatientCopyOfAnIDCounts(t *testing.T) {
	for _, tc := range []struct {
		what string
		left []time.Duration // 0: no deadline
		want partition.Result
	}{
		{"the second waits longer", []time.Duration{50 * time.Millisecond, 500 * time.Millisecond}, partition.Allowed},
		{"the second waits for ever", []time.Duration{50 * time.Millisecond, 0}, partition.Allowed},
		{"the first waits for ever", []time.Duration{0, 50 * time.Millisecond}, partition.Allowed},
		{"neither waits long enough", []time.Duration{50 * time.Millisecond, 60 * time.Millisecond}, partition.Late},
	} {
		t.Run(tc.what, func(t *testing.T) {
			inBubble(t, func(cl *cluster) {
				r := cl.leader()
				slowFollowers(cl, r, 200*time.Millisecond)
				r.submit(cl.request("open", "a"))
				pass(time.Millisecond)
				r.submit(cl.request("open", "b"))
				pass(time.Millisecond)
				q := cl.request("three", "u1")
				var copies []*sent
				for _, left := range tc.left {
					q.Deadline = 0
					if left != 0 {
						q.Deadline = r.clock.Monotonic() + int64(left)
					}
					copies = append(copies, r.submit(q)...)
				}
				if got := tally(copies); got[name(tc.want)] != 2 {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// crowd makes as many copies of an id wait as may, and shows that one more may not.
func (r *replica) crowd(q partition.Request, bound int) (waiting []*sent) {
	t := r.cluster.t
	t.Helper()
	all := r.submit(slices.Repeat([]partition.Request{q}, 1+bound+1)...)
	if last := all[1+bound]; last.answers.Load() != 1 || last.Result != partition.Overloaded {
		t.Errorf("one more than may wait: %s", name(last.Result))
	}
	for _, s := range all[:1+bound] {
		if s.answers.Load() != 0 {
			t.Fatalf("one that may wait: %s", name(s.Result))
		}
	}
	return all[:1+bound]
}

// occupy puts two entries in flight, so that the rest gathers.
func (r *replica) occupy() (ahead []*sent) {
	for range 2 {
		ahead = append(ahead, r.submit(r.cluster.request("open", "ahead"))...)
		pass(time.Millisecond)
	}
	return ahead
}

// Copies of ids in flight take no place in the queue, and have a bound of their
// own: beyond it they are told at once. However those they wait for end, the next
// ones find room.
func TestCopiesBeyondTheBoundAreRefusedAtOnce(t *testing.T) {
	const bound = 10
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 200*time.Millisecond)
		end := func(what string, all []*sent, want partition.Result) {
			t.Helper()
			if got := tally(all); got[name(want)] != len(all) {
				t.Errorf("%s: %v", what, got)
			}
		}
		end("decided", r.crowd(cl.request("open", "u1"), bound), partition.Allowed)

		ahead := r.occupy()
		q := cl.request("open", "u1")
		q.Deadline = r.clock.Monotonic() + int64(100*time.Millisecond)
		end("late", r.crowd(q, bound), partition.Late)
		end("ahead of the late", ahead, partition.Allowed)

		ahead = r.occupy()
		for range bound - 1 {
			ahead = append(ahead, r.submit(cl.request("open", "u1"))...)
		}
		q = cl.request("open", "u1")
		displaced := r.crowd(q, bound)
		ahead = append(ahead, r.submit(cl.request("other", "u1"))...) // takes the place of the newest
		end("displaced", displaced, partition.Overloaded)
		end("ahead of the displaced", ahead, partition.Allowed)
		end("the id that was displaced", r.crowd(q, bound), partition.Allowed)

		r.occupy()
		waiting, g := r.crowd(cl.request("open", "u1"), bound), r.group.Load()
		g.Believe(g.Status().Term - 1) // until it looks, and begins anew
		end("its leader stepped down", waiting, partition.NoQuorum)
		if cl.leader() != r {
			t.Fatal("another leads")
		}
		end("after that", r.crowd(cl.request("open", "u1"), bound), partition.Allowed)
	}, tuned(func(c *partition.Config) { c.Queue, c.Gather = bound, 1 }))
}

// A call's owner may use it for another question. Those who joined it for the
// first one are gone.
func TestACallThatIsSubmittedAgainHasNoCopiesYet(t *testing.T) {
	const bound = 10
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 100*time.Millisecond)
		c := &partition.Call{}
		submit := func() (answered chan struct{}) {
			answered = make(chan struct{})
			c.Request, c.Done = cl.request("open", "u1"), func(*partition.Call) { close(answered) }
			r.group.Load().Submit(c)
			return answered
		}
		for range 3 {
			answered := submit()
			if got := tally(r.submit(slices.Repeat([]partition.Request{c.Request}, 2*bound)...)); got["allow/limit"] != bound {
				t.Errorf("of %d copies with room for %d: %v", 2*bound, bound, got)
			}
			<-answered
			<-submit()
		}
	}, tuned(func(c *partition.Config) { c.Queue = bound }))
}
