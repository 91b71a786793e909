package partition_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/transport"
)

// choked is a transport on which requests with entries get lost, as on a link that is too slow for them, while
// heartbeats find their way.
type choked struct {
	partition.Transport
	on    atomic.Bool
	lost  atomic.Int64
	bare  atomic.Bool // the others' logs seem to hold nothing
	beats atomic.Int64
}

func (c *choked) AppendEntries(id raft.ServerID, to raft.ServerAddress, asked *raft.AppendEntriesRequest, got *raft.AppendEntriesResponse) error {
	if c.on.Load() && len(asked.Entries) > 0 {
		c.lost.Add(1)
		pass(5 * time.Second)
		return transport.ErrDeadline
	}
	err := c.Transport.AppendEntries(id, to, asked, got)
	if err == nil && c.on.Load() {
		c.beats.Add(1)
	}
	if c.bare.Load() {
		got.LastLog = 0
	}
	return err
}

// choking puts such a transport under each replica, by the replica's id.
func choking(links map[string]*choked) func(*cluster) {
	return tuned(func(c *partition.Config) {
		links[c.ID] = &choked{Transport: c.Transport}
		c.Transport = links[c.ID]
	})
}

// state is what Raft says of the replica.
func (r *replica) state() raft.RaftState { return r.group.Load().RaftState() }

// A leader whose followers hear its heartbeats and get none of its entries leads on, as Raft sees it, for ever. It
// hands over, which can't help as nobody has all of its log, and then ends; the others elect and admit.
func TestALeaderWhoseEntriesGetLostEnds(t *testing.T) {
	links := map[string]*choked{}
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		r.want("three", "u1", partition.Allowed)
		link := links[r.id]
		link.on.Store(true)
		if o := r.ask(cl.request("three", "u1")); o.Result != partition.Unknown {
			t.Fatalf("got %s", name(o.Result))
		}
		pass(30 * time.Second)
		if r.state() != raft.Leader || link.lost.Load() < 2 || link.beats.Load() < 100 || len(r.ends()) > 0 {
			t.Fatalf("after 35 s it is a %s, %d requests were lost, %d heartbeats not, it ended with %v",
				r.state(), link.lost.Load(), link.beats.Load(), r.ends())
		}
		for len(r.ends()) == 0 && cl.now() < int64(2*time.Minute) {
			pass(time.Second)
		}
		if ends := r.ends(); len(ends) != 1 || !errors.Is(ends[0], partition.ErrStalled) {
			t.Fatalf("ended with %v", ends)
		}
		if n := gathered(t, r.registry)["quorate_stalls_total"]; n != 1 {
			t.Errorf("it handed over %v times", n)
		}
		r.stop()
		cl.leader().want("three", "u1", partition.Allowed, partition.Allowed, partition.Denied)
	}, choking(links))
}

// It doesn't end where that would help nobody: without it there would be no leader at all.
func TestALeaderThatNobodyCanFollowStays(t *testing.T) {
	links := map[string]*choked{}
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		links[r.id].bare.Store(true)
		links[r.id].on.Store(true)
		pass(2 * time.Minute)
		if r.state() != raft.Leader || links[r.id].lost.Load() == 0 || len(r.ends()) > 0 {
			t.Errorf("it is a %s, %d requests were lost, it ended with %v", r.state(), links[r.id].lost.Load(), r.ends())
		}
		links[r.id].on.Store(false)
		pass(30 * time.Second)
		cl.leader().want("three", "u1", partition.Allowed)
	}, choking(links))
}

// A leader whose apply hangs hands over: the others apply what it can't.
func TestALeaderWhoseApplyHangsHandsOver(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		released, hung := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		defer release()
		s := cl.call(cl.request("three", "u1"))
		answered := s.Done
		s.Done = func(c *partition.Call) { // runs on Raft's goroutine that applies, which is never to wait for a caller
			close(hung)
			<-released
			answered(c)
		}
		r.group.Load().Submit(s.Call)
		<-hung
		pass(15 * time.Second)
		if r.state() != raft.Leader {
			t.Fatalf("it is a %s before anything was done: hardly tried", r.state())
		}
		pass(15 * time.Second)
		next := cl.leader(cl.others(r)...)
		if r.state() == raft.Leader {
			t.Error("it leads on")
		}
		next.want("three", "u1", partition.Allowed, partition.Allowed, partition.Denied)
		release()
		s.wait()
		cl.same()
		if ends := r.ends(); len(ends) > 0 {
			t.Errorf("it ended with %v", ends)
		}
	})
}

// What else keeps a leader's entries from being committed, somebody else sees.
func TestWhatElseKeepsEntriesFromBeingCommittedIsSeenElsewhere(t *testing.T) {
	// A follower that stores entries answers nothing meanwhile, heartbeats neither: Raft steps down.
	t.Run("both followers' disks hang", func(t *testing.T) {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			for _, o := range cl.others(r) {
				o.disk.slow(15 * time.Second)
			}
			s := r.submit(cl.request("three", "u1"))[0]
			pass(3 * time.Second)
			if r.state() == raft.Leader {
				t.Error("it leads on")
			}
			if o := s.wait(); o.Result != partition.Unknown {
				t.Errorf("got %s", name(o.Result))
			}
			for _, o := range cl.others(r) {
				o.disk.slow(0)
			}
			pass(30 * time.Second)
			cl.leader().want("many", "u1", partition.Allowed)
		})
	})
	// A leader's own store that hangs is found by its guard.
	t.Run("the leader's disk hangs", func(t *testing.T) {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			r.disk.slow(40 * time.Second)
			r.submit(cl.request("three", "u1"))
			for len(r.ends()) == 0 && cl.now() < int64(30*time.Second) {
				pass(time.Second)
			}
			if ends := r.ends(); len(ends) != 1 || !errors.Is(ends[0], partition.ErrStuckDisk) {
				t.Errorf("ended with %v", ends)
			}
			r.disk.slow(0)
			r.stop()
			cl.leader().want("many", "u1", partition.Allowed)
		})
	})
	// Without a majority Raft steps down.
	t.Run("the followers are cut off", func(t *testing.T) {
		inBubble(t, func(cl *cluster) {
			r := cl.leader()
			cl.isolate(r)
			if pass(3 * time.Second); r.state() == raft.Leader {
				t.Error("it leads on")
			}
			cl.network.Heal()
		})
	})
}

// A leader that is merely idle, slow or frozen is not stalled.
func TestASlowLeaderIsNotStalled(t *testing.T) {
	for what, then := range map[string]func(cl *cluster, r *replica){
		"idle": func(*cluster, *replica) { pass(3 * time.Minute) },
		"slow": func(cl *cluster, r *replica) {
			for _, o := range cl.replicas {
				o.disk.slow(300 * time.Millisecond)
			}
			for i := range 100 {
				r.submit(cl.request("open", fmt.Sprint("u", i)))
				pass(time.Second)
			}
		},
		"frozen": func(cl *cluster, r *replica) {
			for _, o := range cl.replicas {
				o.disk.slow(300 * time.Millisecond)
			}
			pass(2 * time.Second) // for whatever is in flight already
			r.submit(cl.request("open", "u"))
			pass(200 * time.Millisecond)
			r.clock.jump(30 * time.Second) // as a process that was stopped amid its entry sees it
			pass(time.Second)
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(cl *cluster) {
				r := cl.leader()
				then(cl, r)
				if n := gathered(t, r.registry)["quorate_stalls_total"]; n != 0 || r.state() != raft.Leader || len(r.ends()) > 0 {
					t.Errorf("%v stalls; it is a %s, ended with %v", n, r.state(), r.ends())
				}
			})
		})
	}
}
