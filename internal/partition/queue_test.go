package partition_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

func TestTheQueueTakesTurnsBetweenDomainsAndKeepsTheirOrder(t *testing.T) {
	q := partition.NewQueue(100)
	var calls []*partition.Call
	for _, domain := range []int32{1, 1, 1, 1, 2, 2, 3} {
		c := partition.InDomain(domain)
		calls = append(calls, c)
		if displaced := q.Push(c); displaced != nil {
			t.Fatal("displaced below the bound")
		}
	}
	for i, want := range []int{0, 4, 6, 1, 5, 2, 3} {
		if got := q.Pop(); got != calls[want] {
			t.Fatalf("call %d out is of domain %d, want the %d. that went in", i, partition.DomainOf(got), want)
		}
	}
	if q.Len() != 0 {
		t.Errorf("%d left", q.Len())
	}
}

// A domain that asks for ten times its share loses its own calls, the newest
// first, and its neighbour none.
func TestAFullQueueDisplacesTheNewestOfTheLongestLine(t *testing.T) {
	q := partition.NewQueue(100)
	lost := map[int32]int{}
	push := func(domain int32) *partition.Call {
		c := partition.InDomain(domain)
		if displaced := q.Push(c); displaced != nil {
			lost[partition.DomainOf(displaced)]++
			if displaced != c && partition.DomainOf(displaced) == domain {
				t.Fatal("a domain displaced its own")
			}
		}
		if q.Len() > 100 {
			t.Fatalf("%d in a queue of 100", q.Len())
		}
		return c
	}
	first := push(1)
	for i := range 500 {
		push(1)
		if i%10 == 0 {
			push(2)
		}
	}
	if lost[1] != 451 || lost[2] != 0 {
		t.Errorf("lost %v", lost)
	}
	if q.Pop() != first {
		t.Error("the oldest call of the longest line was displaced")
	}
}

// A queue is a list per domain, the domains in turn.
func TestTheQueueEqualsItsModel(t *testing.T) {
	seeds(t, 20, func(t *testing.T, rng *rand.Rand) {
		bound := 1 + rng.IntN(30)
		q := partition.NewQueue(bound)
		lines, turns, total := map[int32][]*partition.Call{}, []int32(nil), 0
		for range 5000 {
			if total > 0 && rng.IntN(5) < 2 {
				d := turns[0]
				turns = turns[1:]
				want := lines[d][0]
				if lines[d] = lines[d][1:]; len(lines[d]) > 0 {
					turns = append(turns, d)
				}
				total--
				if got := q.Pop(); got != want {
					t.Fatal("popped another call")
				}
				continue
			}
			d := int32(rng.IntN(4) * rng.IntN(3))
			c := partition.InDomain(d)
			var want *partition.Call
			if total == bound {
				longest := turns[0]
				for _, o := range turns {
					if len(lines[o]) > len(lines[longest]) {
						longest = o
					}
				}
				if n := len(lines[longest]); n <= len(lines[d])+1 {
					want = c
				} else {
					want, lines[longest] = lines[longest][n-1], lines[longest][:n-1]
					total--
				}
			}
			if want != c {
				if len(lines[d]) == 0 {
					turns = append(turns, d)
				}
				lines[d] = append(lines[d], c)
				total++
			}
			if got := q.Push(c); got != want {
				t.Fatal("displaced another call")
			}
			if q.Len() != total || total > bound {
				t.Fatalf("%d in the queue, want %d of at most %d", q.Len(), total, bound)
			}
		}
	})
}

// slowFollowers holds the log up: each entry takes as long as a follower's disk.
func slowFollowers(cl *cluster, leader *replica, d time.Duration) {
	for _, r := range cl.others(leader) {
		r.disk.slow(d)
	}
}

// While one entry is in flight checks gather until there are 64; while two are, until one has landed, and the next entry
// has them all.
func TestTwoEntriesAreInFlightAndTheRestGathers(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 200*time.Millisecond)
		index, begun := r.group.Load().LastIndex(), cl.now()
		var all []*sent
		for i := range 500 {
			all = append(all, r.submit(cl.request("open", time.Duration(i).String()))...)
			pass(50 * time.Microsecond)
			if batches, _ := r.group.Load().Load(); batches > 2 {
				t.Fatalf("%d entries in flight", batches)
			}
		}
		if batches, queued := r.group.Load().Load(); batches != 2 || queued != 500-1-64 {
			t.Errorf("%d in flight and %d gathered", batches, queued)
		}
		if got := tally(all); got["allow/limit"] != 500 {
			t.Errorf("%v", got)
		}
		if n := r.group.Load().LastIndex() - index; n > 4 {
			t.Errorf("%d entries for 500 checks", n)
		}
		if took := time.Duration(cl.now() - begun); took > 700*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// Few checks go out together once the entry in flight has landed: an entry of their own would cost as much as that one.
func TestFewChecksWaitForTheEntryInFlight(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 200*time.Millisecond)
		all := r.submit(cl.request("open", "first"))
		pass(time.Millisecond)
		index, begun := r.group.Load().LastIndex(), cl.now()
		for i := range 63 {
			all = append(all, r.submit(cl.request("open", time.Duration(i).String()))...)
		}
		pass(time.Millisecond)
		if batches, queued := r.group.Load().Load(); batches != 1 || queued != 63 {
			t.Errorf("%d in flight and %d gathered", batches, queued)
		}
		if got := tally(all); got["allow/limit"] != 64 {
			t.Errorf("%v", got)
		}
		if n := r.group.Load().LastIndex() - index; n != 1 {
			t.Errorf("%d entries for 63 checks", n)
		}
		if took := time.Duration(cl.now() - begun); took > 500*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// An entry that took longer than the log needs stood in line. What stands in line then gets a moment, in which a few
// checks wait for others to share the next entry; 64 don't, nor does who asks alone.
func TestAfterAnEntryThatStoodInLineFewChecksWaitAMoment(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		principal := 0
		submit := func(n int) (all []*sent) {
			for range n {
				principal++
				all = append(all, r.submit(cl.request("open", time.Duration(principal).String()))...)
			}
			return all
		}
		inFlight := func(after time.Duration, batches, queued int) {
			t.Helper()
			pass(after)
			if b, q := r.group.Load().Load(); b != batches || q != queued {
				t.Errorf("%d in flight and %d gathered, want %d and %d", b, q, batches, queued)
			}
		}
		tally(submit(2)) // what the log needs
		slowFollowers(cl, r, 100*time.Millisecond)

		tally(submit(1))
		alone := submit(1)
		inFlight(time.Microsecond, 1, 0)
		tally(alone)

		submit(1)
		pass(time.Millisecond)
		tally(submit(2)) // they share the second entry
		few := submit(1)
		inFlight(4*time.Millisecond, 0, 1)
		inFlight(2*time.Millisecond, 1, 0)
		tally(few)

		submit(1)
		pass(time.Millisecond)
		tally(submit(2))
		many := submit(64)
		inFlight(time.Microsecond, 1, 0)
		if got := tally(many); got["allow/limit"] != 64 {
			t.Errorf("%v", got)
		}
	})
}

// The bound holds in a Group too, and so does fairness: the domain at ten times
// its share gets its refusals at once, the other none.
func TestOverloadIsToldAtOnceToTheDomainThatCausesIt(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 100*time.Millisecond)
		var greedy, modest []*sent
		for i := range 4000 {
			key := time.Duration(i).String()
			greedy = append(greedy, r.submit(cl.request("open", key))...)
			if i%10 == 0 {
				modest = append(modest, r.submit(cl.request("other", key))...)
			}
			if _, queued := r.group.Load().Load(); queued > 1000 {
				t.Fatalf("%d calls wait", queued)
			}
		}
		if got := tally(modest); got["allow/limit"] != 400 {
			t.Errorf("the modest domain: %v", got)
		}
		got := tally(greedy)
		// Of 4,400 at most a thousand wait, and two batches of 1,024 are in the log's hands.
		if got["unavailable/overloaded"] < 4400-1000-2*1024 || got["allow/limit"]+got["unavailable/overloaded"] != 4000 {
			t.Errorf("the greedy domain: %v", got)
		}
		for _, s := range greedy {
			if s.Result == partition.Overloaded && s.ended != s.begun {
				t.Fatal("an overloaded check was kept waiting")
			}
		}
	}, tuned(func(c *partition.Config) { c.Queue = 1000 }))
}

// MEM-12: a hot exhausted key is denied from memory and takes no place in the log.
func TestMEM12AHotExhaustedKeyStarvesNobody(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "hot", partition.Allowed, partition.Allowed, partition.Allowed)
		slowFollowers(cl, r, 5*time.Millisecond)
		index := r.group.Load().LastIndex()
		var hot, rest []*sent
		for i := range 200 {
			for range 50 {
				hot = append(hot, r.submit(cl.request("three", "hot"))...)
			}
			rest = append(rest, r.submit(cl.request("three", time.Duration(i).String()))...)
			pass(time.Millisecond)
		}
		if got := tally(hot); got["deny/limit"] != len(hot) {
			t.Errorf("hot: %v", got)
		}
		if got := tally(rest); got["allow/limit"] != len(rest) {
			t.Errorf("rest: %v", got)
		}
		for _, s := range rest {
			if took := time.Duration(s.ended - s.begun); took > 20*time.Millisecond {
				t.Fatalf("one of the rest took %v", took)
			}
		}
		if n := r.group.Load().LastIndex() - index; n > 200 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestADeadlineThatCannotBeMetIsRefusedAtOnce(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 200*time.Millisecond)
		for i := range 30 { // until the leader knows how long an entry takes
			r.ask(cl.request("open", time.Duration(i).String()))
		}
		ahead := r.submit(cl.request("open", "a"))
		pass(time.Millisecond)
		ahead = append(ahead, r.submit(cl.request("open", "b"))...)
		pass(time.Millisecond)
		within := func(d time.Duration) *sent {
			q := cl.request("open", "c")
			q.Deadline = r.clock.Monotonic() + int64(d)
			return r.submit(q)[0]
		}
		hopeless, fine := within(100*time.Millisecond), within(time.Second)
		if o := hopeless.wait(); o.Result != partition.Overloaded || hopeless.begun != hopeless.ended {
			t.Errorf("with 100 ms left: %s after %v", name(o.Result), time.Duration(hopeless.ended-hopeless.begun))
		}
		if got := tally(append(ahead, fine)); got["allow/limit"] != 3 {
			t.Errorf("with a second left: %v", got)
		}
		if n := r.used("open", "c", 0); n != 1 {
			t.Errorf("%d used", n)
		}
	})
}

// An idle leader that was slow before must not refuse for ever.
func TestAnIdleLeaderTriesWhateverItsPast(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 400*time.Millisecond)
		for i := range 30 {
			r.ask(cl.request("open", time.Duration(i).String()))
		}
		slowFollowers(cl, r, 0)
		for range 10 {
			q := cl.request("open", "u1")
			q.Deadline = r.clock.Monotonic() + int64(time.Millisecond)
			if o := r.ask(q); o.Result != partition.Allowed {
				t.Fatalf("got %s", name(o.Result))
			}
		}
	})
}

func TestADeadlineThatPassesInTheQueueConsumesNothing(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 200*time.Millisecond)
		ahead := r.submit(cl.request("open", "a"))
		pass(time.Millisecond)
		ahead = append(ahead, r.submit(cl.request("open", "b"))...)
		pass(time.Millisecond)
		q := cl.request("three", "u1")
		q.Deadline = r.clock.Monotonic() + int64(50*time.Millisecond)
		if o := r.ask(q); o.Result != partition.Late {
			t.Errorf("got %s", name(o.Result))
		}
		tally(ahead)
		for _, r := range cl.replicas { // what they read back is what was logged
			r.stop()
		}
		for _, r := range cl.replicas {
			r.disk.slow(0)
			r.start()
		}
		r = cl.leader()
		if n := r.used("three", "u1", 0); n != 0 {
			t.Errorf("%d used", n)
		}
		q.Deadline = 0 // who was late may ask again
		if o := r.ask(q); o.Result != partition.Allowed || o.Answer.Replayed {
			t.Errorf("asked again: %s", name(o.Result))
		}
	})
}

// Calls that missed their deadline are told by the leader's round; one that
// closes before its round tells them too.
func TestClosingTellsThoseWhoWereLate(t *testing.T) {
	for range 20 {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			slowFollowers(cl, r, 105*time.Millisecond)
			r.submit(cl.request("open", "a"))
			pass(time.Millisecond)
			r.submit(cl.request("open", "b"))
			pass(time.Millisecond)
			q := cl.request("open", "c")
			q.Deadline = r.clock.Monotonic() + int64(50*time.Millisecond)
			s := r.submit(q)[0]
			for s.answers.Load() == 0 {
				if _, queued := r.group.Load().Load(); queued == 0 {
					r.stop() // whoever was late must have been told: finish looks
					return
				}
				pass(time.Microsecond * 100)
			}
		})
	}
}

// Entries travel in frames that have a bound.
func TestABatchIsSealedBeforeItIsTooLarge(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		slowFollowers(cl, r, 100*time.Millisecond)
		for _, length := range []int{5, 1000} {
			var all []*sent
			for i := range 3000 {
				all = append(all, r.submit(cl.request("open", fmt.Sprintf("%0*d", length, i)))...)
			}
			if got := tally(all); got["allow/limit"] != 3000 {
				t.Errorf("%v", got)
			}
		}
		largest, last := 0, r.group.Load().LastIndex()
		for i := uint64(1); i <= last; i++ {
			var l raft.Log
			if err := r.disk.GetLog(i, &l); err != nil {
				t.Fatal(err)
			}
			largest = max(largest, len(l.Data))
		}
		if largest < 1<<20 || largest > 1<<20+2048 {
			t.Errorf("the largest entry has %d bytes", largest)
		}
	})
}
