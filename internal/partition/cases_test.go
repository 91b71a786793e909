package partition_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// fenced is a check that may be sent again: its fence is what the leader has logged.
func (cl *cluster) fenced(domain, principal string) partition.Request {
	q := cl.request(domain, principal)
	q.Unfenced, q.Fence = false, cl.leader().group.Load().Status().Now
	return q
}

// FAIL-01: a leader that loses its place between append and answer doesn't know what became of the check. It says
// so, and the same id finds out, once.
func TestFAIL01AnOutcomeThatIsUnknownIsFoundOutWithTheSameID(t *testing.T) {
	for _, tc := range []struct {
		what     string
		cut      func(cl *cluster, leader, other *replica)
		replayed bool
	}{
		{"the others never got it", func(cl *cluster, l, o *replica) { cl.cut(l, o); cl.cut(o, l) }, false},
		{"the others have it", func(cl *cluster, l, o *replica) { cl.cut(o, l) }, true},
	} {
		t.Run(tc.what, func(t *testing.T) {
			inBubble(t, func(cl *cluster) {
				old := cl.leader()
				old.want("three", "u1", partition.Allowed, partition.Allowed)
				q := cl.fenced("three", "u1")
				for _, o := range cl.others(old) {
					tc.cut(cl, old, o)
				}
				if o := old.ask(q); o.Result != partition.Unknown {
					t.Fatalf("the leader that is cut off: %s", name(o.Result))
				}
				next := cl.leader(cl.others(old)...)
				for range 3 {
					o := next.ask(q)
					if o.Result != partition.Allowed || o.Answer.Replayed != tc.replayed {
						t.Fatalf("the same id at the next leader: %s, replayed %t", name(o.Result), o.Answer.Replayed)
					}
					tc.replayed = true
				}
				next.want("three", "u1", partition.Denied, partition.Denied)
				cl.network.Heal()
				pass(3 * time.Second)
				cl.same()
				if used := cl.leader().used("three", "u1", 0); used != 3 {
					t.Errorf("%d used, want 3", used)
				}
			})
		})
	}
}

// FAIL-06: a leader that is cut off from the others, not from its askers, allows nothing, denies no longer than its
// lease lasts, which is over when the next one answers, and its denials bind nobody.
func TestFAIL06ALeaderThatWasDeposedAllowsNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		old := cl.leader()
		old.want("counted", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Allowed)
		cl.isolate(old)
		denied := cl.fenced("counted", "u1")
		if o := old.ask(denied); o.Result != partition.Denied {
			t.Fatalf("within its lease: %s", name(o.Result))
		}
		allows := 0
		for begun := cl.now(); cl.now()-begun < int64(10*time.Second); pass(5 * time.Millisecond) {
			next := leading(cl.others(old))
			for _, user := range []string{"u1", "u2"} {
				s := old.submit(cl.request("counted", user))[0]
				pass(time.Millisecond)
				if next == nil {
					continue
				}
				if o := next.ask(cl.request("counted", user)); o.Result == partition.Allowed {
					allows++
				}
				if o := s.wait(); o.Result <= partition.UnknownDomain {
					t.Fatalf("another one leads, and the old leader answers %s", name(o.Result))
				}
			}
		}
		if allows < 8 {
			t.Fatalf("%d allows of the next leader: hardly tried", allows)
		}
		for range 100 {
			if o := leading(cl.others(old)).ask(denied); o.Result == partition.Allowed && !o.Answer.Replayed {
				return
			}
			pass(50 * time.Millisecond)
		}
		t.Error("an id that the old leader denied is denied for ever")
	}, remembering)
}

// FAIL-09: links come and go for ten minutes, one way or both, while everybody asks for one key. No window of the
// admitted ids, by the times in their answers, holds more than the limit.
func TestFAIL09FlappingLinksAdmitNoMore(t *testing.T) {
	seeds(t, 1, func(t *testing.T, rng *rand.Rand) {
		inBubble(t, func(cl *cluster) {
			first := leading(cl.replicas).group.Load().Status().Term
			var all []*sent
			for end := cl.now() + int64(10*time.Minute); cl.now() < end; {
				a, b := cl.replicas[rng.IntN(3)], cl.replicas[rng.IntN(3)]
				switch rng.IntN(5) {
				case 0:
					cl.cut(a, b)
				case 1:
					cl.cut(a, b)
					cl.cut(b, a)
				case 2:
					cl.isolate(a)
				default:
					cl.network.Heal()
				}
				for range 1 + rng.IntN(12) {
					for _, r := range cl.replicas {
						all = append(all, r.submit(cl.request("counted", "hot"))...)
					}
					pass(time.Duration(rng.IntN(200)) * time.Millisecond)
				}
			}
			cl.network.Heal()
			var times []int64
			for _, s := range all {
				if s.wait().Result == partition.Allowed {
					times = append(times, s.Outcome.Time)
				}
			}
			if fits(t, times); len(times) < 100 {
				t.Errorf("only %d admissions: hardly tried", len(times))
			}
			cl.leader()
			pass(time.Second)
			cl.same()
			t.Logf("%d checks, %d allows, %d terms", len(all), len(times), cl.leader().group.Load().Status().Term-first)
		})
	})
}

// fits holds admissions of one key of "counted" to its first limit.
func fits(t testing.TB, times []int64) {
	t.Helper()
	slices.Sort(times)
	for i := 4; i < len(times); i++ {
		if d := times[i] - times[i-4]; d < int64(3*time.Second) {
			t.Errorf("five admissions within %v", time.Duration(d))
		}
	}
}

// K8S-06: a restart creates no quorum. For ten minutes without one a replica refuses at once, and neither ends nor
// shows the standstill for which a process would be started anew.
func TestK8S06WithoutAQuorumALoopRunsOn(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		cl.leader().want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
		for _, r := range cl.replicas {
			cl.isolate(r)
		}
		pass(2 * time.Second)
		for range 600 {
			pass(time.Second)
			for _, r := range cl.replicas {
				if stood := time.Duration(r.clock.Monotonic() - r.group.Load().Ticked()); stood > 100*time.Millisecond {
					t.Fatalf("the loop of %s has stood still for %v", r.id, stood)
				}
				s := r.submit(cl.request("three", "u1"))[0]
				if o := s.wait(); o.Result != partition.NoQuorum && o.Result != partition.NotLeader || s.ended != s.begun {
					t.Fatalf("%s answers %s after %v", r.id, name(o.Result), time.Duration(s.ended-s.begun))
				}
				if ends := r.ends(); len(ends) > 0 {
					t.Fatalf("%s ended with %v", r.id, ends)
				}
			}
		}
		cl.network.Heal() // ten minutes later the window is empty
		cl.leader().want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
	})
}
