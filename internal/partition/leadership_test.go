package partition_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
)

// Before its first entry is applied a leader doesn't know what was decided last,
// nor what time it is. It must not even deny.
func TestANewLeaderAnswersNothingBeforeItsFirstEntryIsApplied(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		old := cl.leader()
		old.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		for _, r := range cl.replicas {
			r.disk.slow(100 * time.Millisecond)
		}
		cl.isolate(old)
		looks := 0
		for range 20_000 {
			pass(time.Millisecond)
			for _, r := range cl.others(old) {
				g := r.group.Load()
				leads := g.RaftState() == raft.Leader
				noMatch := cl.request("open", "")
				noMatch.Descriptors[0] = descriptor("tenant", "t1")
				all := r.submit(cl.request("three", "u1"), cl.request("three", "u2"), noMatch, cl.request("nowhere", "u1"))
				in := g.Inspect("three", principalIs("u1"))
				if g.Leading() {
					if looks < 50 {
						t.Errorf("only %d looks at a leader that isn't ready", looks)
					}
					return
				}
				if leads {
					looks++
				}
				for i, s := range all {
					if o := s.wait(); o.Result != partition.NoQuorum && o.Result != partition.NotLeader {
						t.Fatalf("check %d: %s", i, name(o.Result))
					}
				}
				if in.Result != partition.NoQuorum && in.Result != partition.NotLeader {
					t.Fatalf("inspect: %s", name(in.Result))
				}
			}
		}
		t.Fatal("no leader")
	})
}

// crowd keeps asking, each of its members with a new id, until it is told to
// stop; what stays unknown it asks again wherever somebody leads.
type crowd struct {
	cl   *cluster
	stop chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	all  []*sent
	open []partition.Request // ids whose outcome is unknown
}

func gather(cl *cluster, members int, principal func(member int) string) *crowd {
	c := &crowd{cl: cl, stop: make(chan struct{})}
	for i := range members {
		c.wg.Go(func() { c.member(i, principal(i)) })
	}
	return c
}

func (c *crowd) member(i int, principal string) {
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(time.Duration(1+i%3) * time.Millisecond):
		}
		r := c.cl.leader()
		g := r.group.Load()
		if g == nil {
			continue
		}
		q := c.cl.request("counted", principal)
		q.Unfenced, q.Fence = false, g.Status().Now
		s := r.submit(q)[0]
		s.wait()
		c.mu.Lock()
		c.all = append(c.all, s)
		if s.Result == partition.Unknown {
			c.open = append(c.open, q)
		}
		c.mu.Unlock()
	}
}

func (c *crowd) disperse() {
	close(c.stop)
	c.wg.Wait()
}

// TestALeaderLostUnderLoad: each call ends once; what stays unknown is recovered
// with the same id, and what was charged is what was allowed.
func TestALeaderLostUnderLoadLosesNoAllow(t *testing.T) {
	seeds(t, 5, func(t *testing.T, rng *rand.Rand) {
		inBubble(t, func(cl *cluster) {
			for _, r := range cl.replicas {
				r.disk.slow(time.Duration(1+rng.IntN(5)) * time.Millisecond)
			}
			c := gather(cl, 10, func(i int) string { return string(rune('a' + i%5)) })
			for range 3 {
				pass(time.Duration(500+rng.IntN(1000)) * time.Millisecond)
				cl.isolate(cl.leader())
				pass(3 * time.Second)
				cl.network.Heal()
			}
			pass(time.Second)
			c.disperse()
			allowed := map[string]uint64{}
			unknown := 0
			count := func(o partition.Outcome, q partition.Request) {
				switch o.Result {
				case partition.Allowed:
					v, _ := q.Descriptors[0].Get("principal")
					allowed[v]++
				case partition.Unknown:
					unknown++
				case partition.Denied, partition.NotLeader, partition.NoQuorum:
				default:
					t.Errorf("a call ended as %s", name(o.Result))
				}
			}
			for _, s := range c.all {
				count(s.Outcome, s.Request)
			}
			if unknown == 0 {
				t.Log("no outcome was unknown")
			}
			r := cl.leader()
			for _, q := range c.open {
				count(r.ask(q), q)
			}
			for principal, n := range allowed {
				if used := r.used("counted", principal, 1); used != n {
					t.Errorf("%s: %d ids are allowed and %d events are recorded", principal, n, used)
				}
			}
			cl.same()
		})
	})
}

// Whatever a replica believes, an entry counts only in the term that it was
// stamped in.
func TestAStaleBeliefAdmitsNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		g := r.group.Load()
		g.Believe(g.Status().Term - 1)
		index := g.LastIndex()
		if o := r.ask(cl.request("three", "u1")); o.Result != partition.NotLeader && o.Result != partition.NoQuorum {
			t.Errorf("got %s", name(o.Result))
		}
		if g.LastIndex() == index {
			t.Error("nothing was logged: the belief was not tried")
		}
		pass(time.Second)
		r = cl.leader()
		if n := r.used("three", "u1", 0); n != 1 {
			t.Errorf("%d used", n)
		}
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Denied)
		cl.same()
	})
}

// A proposal of an earlier term that gets into the log late is refused whole too,
// and nobody goes on from its stamp.
func TestALateProposalAdmitsNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		old := cl.leader()
		old.want("three", "u1", partition.Allowed)
		var l raft.Log
		if err := old.disk.GetLog(old.group.Load().LastIndex(), &l); err != nil {
			t.Fatal(err)
		}
		old.stop()
		r := cl.leader()
		entry := l.Data[:len(l.Data):len(l.Data)]
		h, err := fsm.ParseHeader(entry)
		if err != nil || h.Kind != fsm.KindBatch {
			t.Fatalf("entry %d is %+v, %v", l.Index, h, err)
		}
		r.want("many", "u1", partition.Allowed) // so that what is logged is the present
		before, begun := r.group.Load().Status(), cl.now()
		h.Time += int64(time.Hour)
		for _, late := range [][]byte{entry, fsm.Tick(h), fsm.First(h)} {
			if err := r.group.Load().ProposeRaw(late); err != nil {
				t.Fatal(err)
			}
		}
		if after := r.group.Load().Status(); after.Now != before.Now || r.used("three", "u1", 0) != 1 {
			t.Errorf("decision time %d became %d, %d used", before.Now, after.Now, r.used("three", "u1", 0))
		}
		cl.same()
		old.start()
		for range 3 { // whoever leads next, started anew or not
			r.stop()
			next := cl.leader()
			r.start()
			if d := next.group.Load().Status().Now - before.Now; d > cl.now()-begun {
				t.Fatalf("decision time advanced by %v in %v", time.Duration(d), time.Duration(cl.now()-begun))
			}
			r = next
		}
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Denied)
	})
}

// Two leaders may give their entries the same number. What the one's entry was
// answered is nothing that the other's callers asked.
func TestAnotherLeadersEntryOfTheSameNumberAnswersNobodyHere(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		was, g := cl.others(r)[0].group.Load(), r.group.Load()
		s := cl.call(cl.request("three", "u2"))
		was.Await(g.Status().Term-1, g.Seq()+1, s.Call)
		r.want("three", "u1", partition.Allowed)
		cl.same()
		if o := s.wait(); o.Result != partition.Unknown {
			t.Errorf("got %s", name(o.Result))
		}
		if n := r.used("three", "u2", 0); n != 0 {
			t.Errorf("%d used", n)
		}
	})
}

// Who learned of its leadership before it ended seals nothing after it: the queue
// is the next term's.
func TestNothingIsSealedForATermThatIsOver(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		was := cl.others(r)[0].group.Load()
		s := cl.call(cl.request("three", "u1"))
		if n := was.Seal(r.group.Load().Status().Term-1, s.Call); n != 0 {
			t.Errorf("%d checks were sealed", n)
		}
	})
}

// A leadership's time begins with the first entry that it stamped itself, of its
// own term; no other makes it ready.
func TestOnlyItsOwnFirstEntryMakesALeaderReady(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		old := cl.leader()
		seqs := map[*replica]uint64{}
		for _, r := range cl.replicas {
			seqs[r] = r.group.Load().Seq()
			r.disk.slow(100 * time.Millisecond)
		}
		cl.isolate(old)
		for range 20_000 {
			pass(time.Millisecond)
			for _, r := range cl.others(old) {
				g := r.group.Load()
				if g.RaftState() != raft.Leader || g.Seq() == seqs[r] {
					continue
				}
				if g.Leading() {
					t.Fatal("it was ready before anybody looked")
				}
				h := fsm.Header{Kind: fsm.KindFirst, Term: g.Status().Term, Seq: g.Seq(), Time: 1}
				for _, other := range []fsm.Header{
					{Kind: h.Kind, Term: h.Term - 1, Seq: h.Seq, Time: h.Time},
					{Kind: h.Kind, Term: h.Term, Seq: h.Seq + 1, Time: h.Time},
				} {
					if g.Applied(fsm.Applied{Header: other}); g.Leading() {
						t.Errorf("with %+v, its own is %+v", other, h)
					}
				}
				if cl.leader(r); t.Failed() {
					return
				}
				r.want("three", "u1", partition.Allowed)
				return
			}
		}
		t.Fatal("no leader")
	})
}

func TestALeaderThatLosesAndRegainsItsPlaceGoesOn(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
		for n := range 3 {
			term := r.group.Load().Status().Term
			cl.isolate(r)
			pass(time.Second) // it gives up; the others may have elected
			cl.network.Heal()
			for _, o := range cl.others(r) {
				o.stop()
			}
			cl.others(r)[n%2].start()
			next := cl.leader()
			if got := next.group.Load().Status().Term; got <= term {
				t.Fatalf("term %d after %d", got, term)
			}
			pass(200 * time.Millisecond)
			next.want("three", "u1", partition.Denied)
			cl.others(r)[1-n%2].start()
			next.want("many", "u1", partition.Allowed)
		}
	})
}

// Without a majority nothing is answered: from memory no longer than the lease
// lasts, from the log not at all.
func TestAMinorityRefuses(t *testing.T) {
	for _, tc := range []struct {
		what string
		cut  func(cl *cluster, leader, other *replica)
	}{
		{"both ways", func(cl *cluster, l, o *replica) { cl.cut(l, o); cl.cut(o, l) }},
		{"it can't be heard", func(cl *cluster, l, o *replica) { cl.cut(l, o) }},
		{"it can't hear", func(cl *cluster, l, o *replica) { cl.cut(o, l) }},
	} {
		t.Run(tc.what, func(t *testing.T) {
			inBubble(t, func(cl *cluster) {
				r := cl.leader()
				r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
				for _, o := range cl.others(r) {
					tc.cut(cl, r, o)
				}
				begun := time.Now()
				denied := 0
				for time.Since(begun) < 5*time.Second {
					o := r.ask(cl.request("three", "u1"))
					in := r.group.Load().Inspect("three", principalIs("u1"))
					for _, result := range []partition.Result{o.Result, in.Result} {
						switch result {
						case partition.Denied, partition.Allowed: // Allowed is inspect's
							denied++
							if result == o.Result && result == partition.Allowed {
								t.Fatal("a minority allowed")
							}
							if d := time.Since(begun); d >= 500*time.Millisecond {
								t.Fatalf("answered from memory %v after it was cut off", d)
							}
						case partition.NoQuorum, partition.NotLeader:
						default:
							t.Fatalf("got %s", name(result))
						}
					}
					pass(5 * time.Millisecond)
				}
				if denied == 0 {
					t.Error("it never had a lease")
				}
				cl.network.Heal()
				pass(3 * time.Second)
				cl.leader().want("three", "u1", partition.Denied)
			})
		})
	}
}

// A leader that can't propose, because its disk keeps Raft's main loop, says that
// it can't answer now. "Ask the leader, me" would send the asker round in circles.
func TestNoReplicaNamesItselfAsTheLeaderToAsk(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.disk.slow(3 * time.Second)
		r.submit(cl.request("three", "u1"))
		pass(time.Millisecond)
		s := r.submit(cl.request("three", "u1"))[0]
		if o := s.wait(); o.Result != partition.NoQuorum || o.Leader != "" {
			t.Errorf("got %s, leader %q", name(o.Result), o.Leader)
		}
		if took := time.Duration(s.ended - s.begun); took > 1100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		r.disk.slow(0)
	}, tuned(func(c *partition.Config) { c.Gather = 1 }))
}
