package partition_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// A leader that froze for 10 s must not believe that it still leads, nor that
// ten seconds passed.
func TestCLKAFrozenLeaderWaitsForAMajorityAndItsTimeStandsStill(t *testing.T) {
	for _, jump := range []time.Duration{10 * time.Second, -10 * time.Second} {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
			before := r.ask(cl.request("three", "u1"))
			if before.Result != partition.Denied {
				t.Fatalf("got %s", name(before.Result))
			}
			synctest.Wait() // nothing is on its way that could be sent and answered after the jump
			r.clock.jump(jump)
			if o := r.ask(cl.request("three", "u1")); o.Result != partition.NoQuorum {
				t.Errorf("in the moment of waking: %s", name(o.Result))
			}
			pass(200 * time.Millisecond) // heartbeats
			o := r.ask(cl.request("three", "u1"))
			if o.Result != partition.Denied {
				t.Errorf("a majority has answered: %s", name(o.Result))
			}
			if d := o.Time - before.Time; d < 0 || d > int64(200*time.Millisecond) {
				t.Errorf("decision time advanced by %v in 200 ms and a freeze", time.Duration(d))
			}
			if o := r.ask(cl.request("many", "u1")); o.Result != partition.Allowed || o.Time-before.Time > int64(200*time.Millisecond) {
				t.Errorf("an allow: %s, %v later", name(o.Result), time.Duration(o.Time-before.Time))
			}
		})
	}
}

// The same, cut off: what was true before it froze is no longer its to tell.
func TestCLKAFrozenLeaderThatIsAloneStaysSilent(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		cl.isolate(r)
		r.clock.jump(10 * time.Second)
		for range 100 {
			if o := r.ask(cl.request("three", "u1")); o.Result != partition.NoQuorum && o.Result != partition.NotLeader {
				t.Fatalf("got %s", name(o.Result))
			}
			pass(10 * time.Millisecond)
		}
	})
}

// Idle or not, a leader logs its time at least every five seconds: an outage
// costs no more than itself and these.
func TestTimeIsLoggedAtLeastEveryFiveSeconds(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		last, changed := r.group.Load().Status().Now, time.Now()
		for range 3000 {
			pass(10 * time.Millisecond)
			if now := r.group.Load().Status().Now; now != last {
				last, changed = now, time.Now()
			}
			if time.Since(changed) > 5*time.Second {
				t.Fatal("nothing was logged for more than five seconds")
			}
		}
	})
}

// A leader that an outage stopped proposes under its old term, late, when another
// leads: its clock counted the outage, which the partition's time did not. Apply
// refuses the entry, and the next leader must not go on from its stamp.
func TestARefusedStampIsNoTime(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		a := cl.leader()
		stamped, begun := a.group.Load().Status(), cl.now()
		for _, r := range cl.others(a) {
			r.stop()
		}
		pass(45 * time.Second)
		for _, r := range cl.others(a) {
			r.start()
		}
		cl.isolate(a)
		b := cl.leader(cl.others(a)...)
		cl.network.Heal()
		pass(time.Second)
		b.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		first, logged := cl.now(), b.group.Load().Status().Now
		late := stamped.Now + (cl.now()-begun)*1999/2000
		if late < logged+int64(30*time.Second) {
			t.Fatalf("the old clock shows %d, decision time is %d: no outage was tried", late, logged)
		}
		if err := b.group.Load().ProposeRaw(fsm.Tick(fsm.Header{Term: stamped.Term, Time: late, Seq: 999})); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		b.stop()
		c := cl.leader()
		if d := c.group.Load().Status().Now - logged; d > cl.now()-first {
			t.Errorf("decision time advanced by %v in %v", time.Duration(d), time.Duration(cl.now()-first))
		}
		pass(15 * time.Second)
		if o := c.ask(cl.request("three", "u1")); o.Result != partition.Denied {
			t.Errorf("a fourth of three per minute, %v after the third: %s", time.Duration(cl.now()-first), name(o.Result))
		}
	})
}

// moment is an admission: its decision time, and between which true times its
// entry was stamped.
type moment struct{ decided, from, to int64 }

// TestDecisionTimeIsNeverFasterThanTrueTime lets leaders come and go, clocks run
// and jump, and compares every pair of admissions.
func TestDecisionTimeIsNeverFasterThanTrueTime(t *testing.T) {
	fastest, n := 0.0, 0
	seeds(t, 12, func(t *testing.T, rng *rand.Rand) {
		inBubble(t, func(cl *cluster) {
			for _, r := range cl.replicas {
				r.clock.run(rng.Int64N(1001) - 500)
				r.disk.slow(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
			var moments []moment
			for range 80 {
				disturb(cl, rng)
				for range 3 {
					pass(time.Duration(rng.IntN(400)) * time.Millisecond)
					s := cl.replicas[rng.IntN(3)].submit(cl.request("other", "u1"))[0]
					if o := s.wait(); o.Result == partition.NotLeader {
						for _, r := range cl.replicas {
							if r.id == o.Leader {
								s = r.submit(cl.request("other", "u1"))[0]
							}
						}
					}
					if s.wait().Result == partition.Allowed {
						moments = append(moments, moment{s.Time, s.begun, s.ended})
					}
				}
			}
			if len(moments) < 50 {
				t.Errorf("only %d admissions", len(moments))
			}
			for i, a := range moments {
				for _, b := range moments[i+1:] {
					if b.decided < a.decided {
						t.Fatalf("decision time went back from %d to %d", a.decided, b.decided)
					}
					if b.decided-a.decided > b.to-a.from+2 {
						t.Fatalf("decision time advanced by %d ns while at most %d passed", b.decided-a.decided, b.to-a.from)
					}
				}
			}
			first, last := moments[0], moments[len(moments)-1]
			fastest, n = max(fastest, float64(last.decided-first.decided)/float64(last.to-first.from)), n+1
		})
	})
	if n > 3 && fastest < 0.7 {
		t.Errorf("decision time ran at %.2f of true time at best: the property was hardly tried", fastest)
	}
}

// disturb does one thing that happens to replicas.
func disturb(cl *cluster, rng *rand.Rand) {
	r := cl.replicas[rng.IntN(3)]
	switch rng.IntN(12) {
	case 0:
		if l := leading(cl.replicas); l != nil {
			cl.isolate(l)
		}
	case 1:
		cl.cut(r, cl.replicas[rng.IntN(3)])
	case 2, 3, 4:
		cl.network.Heal()
	case 5:
		r.stop()
	case 6, 7:
		for _, r := range cl.replicas {
			if r.group.Load() == nil {
				r.start()
			}
		}
	case 8:
		r.clock.jump([]time.Duration{10 * time.Second, 1100 * time.Millisecond, -time.Second}[rng.IntN(3)])
	case 9, 10:
		if g := r.group.Load(); g != nil {
			_ = g.Compact() // may find nothing new
		}
	}
	for _, r := range cl.replicas {
		r.restartIfEnded()
	}
	if rng.IntN(3) == 0 {
		pass(2 * time.Second) // time to elect
	}
}
