package partition_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// Raft drops what it has committed and not yet applied when it is shut down, and
// never answers for it. Whoever waits must be told all the same, and nothing may
// be left behind.
func TestClosingWaitsForWhatIsCommittedAndNotYetApplied(t *testing.T) {
	for range 10 {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			s := cl.call(cl.request("three", "u1"))
			s.Done = func(*partition.Call) {
				pass(50 * time.Millisecond) // holds up Raft's applying
				s.answers.Add(1)
			}
			r.group.Load().Submit(s.Call)
			pass(time.Millisecond)
			rest := r.submit(cl.request("three", "u1"))
			pass(10 * time.Millisecond)
			r.stop()
			if o := rest[0].wait(); o.Result != partition.Allowed {
				t.Errorf("got %s", name(o.Result))
			}
		})
	}
}

func TestClosingUnderLoadEndsEveryCallOnce(t *testing.T) {
	seeds(t, 20, func(t *testing.T, rng *rand.Rand) {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			for _, o := range cl.replicas {
				o.disk.slow(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
			stop := make(chan struct{})
			var load sync.WaitGroup
			for i := range 20 {
				load.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						r.submit(cl.request("open", time.Duration(i).String()))[0].wait()
						if n%5 == 0 {
							pass(100 * time.Microsecond)
						}
					}
				})
			}
			pass(time.Duration(rng.IntN(20_000)) * time.Microsecond)
			r.stop()
			close(stop)
			load.Wait()
			counts := tally(cl.sent)
			for _, never := range []string{"deny/limit", "unavailable/no_quorum"} {
				if counts[never] > 0 {
					t.Errorf("%v", counts)
				}
			}
		})
	})
}

// A request to a peer that hangs has a deadline of seconds, a snapshot one of
// minutes: too long to wait for at a stop.
func TestClosingWaitsForNoPeerThatHangs(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		cl.others(r)[0].disk.slow(30 * time.Second)
		r.want("three", "u1", partition.Allowed)
		pass(time.Second)
		begun := cl.now()
		r.stop()
		if took := time.Duration(cl.now() - begun); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// One that gives up waiting for entries, since its disk hangs, leaves nobody to
// wait in its place.
func TestClosingLeavesNobodyToWaitForADiskThatHangs(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.disk.slow(10 * time.Second)
		s := r.submit(cl.request("three", "u1"))[0]
		pass(time.Millisecond)
		var stopped sync.WaitGroup
		stopped.Go(r.stop)
		pass(6 * time.Second) // it waits for 5
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !bytes.Contains(stacks, []byte("partition.(*Group).stopRaft")) {
			t.Error("it isn't past its wait: nothing was tried")
		}
		created := []byte("created by github.com/quorate/quorate/internal/partition.(*Group).")
		waiting := bytes.Count(stacks, created)
		waiting -= bytes.Count(stacks, append(created, "apply in "...)) // only Raft can end these
		if waiting != 0 {
			t.Errorf("%d others still wait:\n%s", waiting, stacks)
		}
		stopped.Wait()
		if o := s.wait(); o.Result != partition.Unknown {
			t.Errorf("got %s", name(o.Result))
		}
	})
}

func TestAGroupThatClosesTakesNoMoreCalls(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		g := r.group.Load()
		r.stop()
		s := cl.call(cl.request("three", "u1"))
		g.Submit(s.Call)
		if o := s.wait(); o.Result != partition.Stopping {
			t.Errorf("got %s", name(o.Result))
		}
		if err := g.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
	})
}

// A fate that Raft doesn't tell in time is unknown; and when it is told after
// all, nobody hears it a second time.
func TestAnOutcomeThatComesAfterTheWaitIsNotHeardTwice(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 100*time.Millisecond)
		q := cl.request("three", "u1")
		s := r.submit(q)[0]
		if o := s.wait(); o.Result != partition.Unknown {
			t.Fatalf("got %s", name(o.Result))
		}
		pass(time.Second)
		if o := r.ask(q); o.Result != partition.Allowed || !o.Answer.Replayed {
			t.Errorf("the same id: %s", name(o.Result))
		}
	}, tuned(func(c *partition.Config) { c.GiveUp = 10 * time.Millisecond }))
}

// The same in the same moment: an apply and the end of the wait meet.
func TestAnAnswerAndTheEndOfTheWaitMeet(t *testing.T) {
	seeds(t, 1, func(t *testing.T, rng *rand.Rand) {
		inBubble(t, func(cl *cluster) {
			g := cl.leader().group.Load()
			met := 0
			for range 1000 {
				spins := rng.IntN(200)
				s := cl.leader().submit(cl.request("open", "u1"))[0]
				for range spins { // the apply comes after about as long
					runtime.Gosched()
				}
				for s.answers.Load() == 0 {
					g.Settle(g.Seq(), errors.New("gave up"))
				}
				if s.Result == partition.Unknown {
					met++
				}
			}
			t.Logf("the end of the wait came first %d times of 1000", met)
		})
	})
}

func TestAFollowerFarBehindGetsASnapshot(t *testing.T) {
	for _, files := range []bool{false, true} {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			behind := cl.others(r)[0]
			behind.stop()
			for i := range 300 {
				r.want("open", time.Duration(i%50).String(), partition.Allowed)
			}
			r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
			if err := r.group.Load().Compact(); err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				r.want("open", time.Duration(i).String(), partition.Allowed)
			}
			behind.start()
			pass(5 * time.Second)
			cl.same()
			if got, want := behind.group.Load().SnapshotIndex(), r.group.Load().SnapshotIndex(); got != want || got == "0" {
				t.Errorf("its state began at entry %s, the leader's snapshot is of %s", got, want)
			}
			// And what it knows is all there is to know.
			r.stop()
			if r = cl.leader(); len(behind.ends()) > 0 {
				t.Errorf("ended with %v", behind.ends())
			}
			r.want("three", "u1", partition.Denied)
		}, func(cl *cluster) { cl.files = files })
	}
}

// What a majority acknowledged after one of it was sent a snapshot must be there
// after that one's next start: it may be the only one left that knows.
func TestASnapshotThatWasInstalledCostsNothingThatCameAfterIt(t *testing.T) {
	for _, files := range []bool{false, true} {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			behind, other := cl.others(r)[0], cl.others(r)[1]
			behind.stop()
			for i := range 100 {
				r.want("open", time.Duration(i).String(), partition.Allowed)
			}
			if err := r.group.Load().Compact(); err != nil {
				t.Fatal(err)
			}
			behind.start()
			pass(5 * time.Second)
			cl.same()
			other.stop()
			r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
			r.stop()
			behind.stop()
			behind.start()
			other.start()
			cl.leader().want("three", "u1", partition.Denied)
		}, func(cl *cluster) { cl.files = files })
	}
}

func TestUsageAndIDsSurviveARestartOfAll(t *testing.T) {
	for _, files := range []bool{false, true} {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			q := cl.request("three", "u1")
			q.Unfenced, q.Fence = false, r.group.Load().Status().Now
			first := r.ask(q)
			r.want("three", "u1", partition.Allowed, partition.Allowed)
			for _, r := range cl.replicas {
				r.stop()
			}
			pass(time.Hour) // nobody can say how long it was
			for _, r := range cl.replicas {
				r.start()
			}
			r = cl.leader()
			if o := r.ask(q); o.Result != partition.Allowed || !o.Answer.Replayed || o.Time != first.Time {
				t.Errorf("the same id: %s", name(o.Result))
			}
			r.want("three", "u1", partition.Denied)
			if n := r.used("three", "u1", 0); n != 3 {
				t.Errorf("%d used", n)
			}
			cl.same()
		}, func(cl *cluster) { cl.files = files })
	}
}

func TestAStoreErrorEndsOneReplicaAndTheOthersElect(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		noSpace := errors.New("no space left on device")
		r.disk.fail(noSpace)
		q := cl.request("three", "u1")
		q.Unfenced, q.Fence = false, r.group.Load().Status().Now
		if o := r.ask(q); o.Result != partition.Unknown {
			t.Errorf("the check that met the error: %s", name(o.Result))
		}
		if ends := r.ends(); len(ends) != 1 || !errors.Is(ends[0], noSpace) {
			t.Errorf("ended with %v", ends)
		}
		cl.isolate(r) // its process is gone
		next := cl.leader(cl.others(r)...)
		if o := next.ask(q); o.Result != partition.Allowed {
			t.Errorf("the same id at the next leader: %s", name(o.Result))
		}
		next.want("three", "u1", partition.Allowed, partition.Denied)
	})
}

func TestAReplicaThatDivergedEndsAtTheNextCheckpoint(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		pass(time.Second)
		odd := cl.others(r)[0]
		synctest.Wait() // Raft's own goroutine, which applies otherwise, is at rest
		odd.group.Load().Tamper(func(m *fsm.Machine) {
			_, version := m.Set()
			set, _ := m.Set()
			domain, _ := set.Domain(set.Policy(0).Domain)
			check := fsm.Check{ID: fsm.ID{9}, Fence: m.Now(), Domain: int32(domain), Charges: []fsm.Charge{{Tier: -1, Override: -1, Cost: 1, Key: []byte("\x02u9")}}}
			entry := fsm.BatchEntry(fsm.Header{Time: m.Now(), Term: m.Term()}, version, []*fsm.Check{&check})
			a, err := m.Apply(m.Index(), m.Term(), entry)
			if err != nil || a.Refusal != fsm.Accepted || a.Answers[0].Verdict != fsm.VerdictAllow {
				t.Errorf("could not tamper: %v, %+v", err, a)
			}
		})
		for range 20 {
			pass(time.Second)
			r.want("many", "u1", partition.Allowed)
		}
		if ends := odd.ends(); len(ends) != 1 || !errors.Is(ends[0], fsm.ErrDiverged) {
			t.Errorf("ended with %v", ends)
		}
		for _, o := range cl.others(odd) {
			if len(o.ends()) != 0 {
				t.Errorf("replica %s ended with %v", o.id, o.ends())
			}
		}
		if got := odd.group.Load().RaftState(); got == raft.Leader {
			t.Error("it leads")
		}
	}, tuned(func(c *partition.Config) { c.CheckpointEvery = 2 * time.Second }))
}
