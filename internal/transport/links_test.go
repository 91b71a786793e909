package transport_test

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

// state returns what l says of a node.
func state(t *testing.T, l *transport.Links, node string) transport.PeerState {
	t.Helper()
	for _, s := range l.Peers() {
		if s.Node == node {
			return s
		}
	}
	t.Fatalf("nothing is known of %s", node)
	return transport.PeerState{}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*transport.LinkOptions){
		"no name":               func(o *transport.LinkOptions) { o.Self = "" },
		"no DNS label":          func(o *transport.LinkOptions) { o.Self = "n1.example" },
		"no listener":           func(o *transport.LinkOptions) { o.Listener = nil },
		"no way to dial":        func(o *transport.LinkOptions) { o.Dial = nil },
		"TLS for one direction": func(o *transport.LinkOptions) { o.Server = always(nil) },
		"TLS without names":     func(o *transport.LinkOptions) { o.Server, o.Client = always(nil), always(nil) },
		"messages too long":     func(o *transport.LinkOptions) { o.MaxMessage = 1<<30 + 1 },
		"silence too short":     func(o *transport.LinkOptions) { o.Silence = 1500 * time.Millisecond },
		"backoff upside down":   func(o *transport.LinkOptions) { o.BackoffMin = time.Minute },
	} {
		n := newMemNet()
		listener := n.listen("n1")
		o := transport.LinkOptions{Self: "n1", Listener: listener, Dial: n.dialFrom("n1")}
		change(&o)
		if _, err := transport.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if o.Listener == nil {
			continue
		}
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the listener stays open: %v", name, err)
		}
	}
}

func TestAGroupHasOneReplicaHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newMemNet().node(t, "n1")
		first := replica(t, l, "n1", 1)
		if _, err := l.Group(1, server("n1"), locate); !errors.Is(err, transport.ErrTaken) {
			t.Errorf("a second one: %v", err)
		}
		if _, err := l.Group(2, server("n2"), locate); err == nil {
			t.Error("another node's replica was accepted")
		}
		first.Close()
		again := replica(t, l, "n1", 1)
		first.Close() // the old one must not take the new one's place away
		if _, err := l.Group(1, server("n1"), locate); !errors.Is(err, transport.ErrTaken) {
			t.Errorf("after closing the old one again: %v", err)
		}
		l.Close()
		if err := heartbeat(again, address("n2"), 1); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("after the links were closed: %v", err)
		}
		if _, err := l.Group(3, server("n1"), locate); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("a group after that: %v", err)
		}
	})
}

// In a bubble time stands still while anything can run, so "at once" is exact.
func TestWhatCanNotBeReachedFailsAtOnce(t *testing.T) {
	for name, do := range map[string]func(p *linked) (to raft.ServerAddress){
		"a node that isn't known":  func(*linked) raft.ServerAddress { return "n9" },
		"a node that is down":      func(p *linked) raft.ServerAddress { p.net.refuse("n2", true); return address("n2") },
		"a replica that isn't up":  func(p *linked) raft.ServerAddress { p.r2.Close(); return address("n2") },
		"a disk that was replaced": func(*linked) raft.ServerAddress { return "n2-00000000000000bb" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := link(t)
				to := do(p)
				begun := time.Now()
				for range 2 {
					if err := heartbeat(p.r1, to, 1); !errors.Is(err, transport.ErrUnreachable) {
						t.Errorf("got %v", err)
					}
				}
				if _, err := install(p.r1, to, 1, strings.NewReader("x")); !errors.Is(err, transport.ErrUnreachable) {
					t.Errorf("a snapshot: %v", err)
				}
				select {
				case rpc := <-p.r2.Consumer():
					t.Errorf("delivered: %+v", rpc.Command)
				default:
				}
				if d := time.Since(begun); d != 0 {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}

// A disk that was replaced must never get what was meant for the one before.
func TestARequestIsForOneServerIDOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		answer(t, p.r2, success)
		if err := heartbeat(p.r1, "n2-00000000000000bb", 1); !errors.Is(err, transport.ErrUnreachable) {
			t.Errorf("the id before: %v", err)
		}
		if err := heartbeat(p.r1, address("n2"), 1); err != nil {
			t.Errorf("the present one: %v", err)
		}
		if s := state(t, p.l2, "n1"); s.Stray != 1 {
			t.Errorf("counted %d", s.Stray)
		}
	})
}

// A node can speak for its own replicas only, in every field that Raft might read.
func TestAReplicaOfAnotherNodeIsNotBelieved(t *testing.T) {
	own, others := []byte(server("n1")), []byte(server("n3"))
	for name, m := range map[string]raft.AppendEntriesRequest{
		"id and address":     {RPCHeader: raft.RPCHeader{ID: others, Addr: others}},
		"address":            {RPCHeader: raft.RPCHeader{ID: own, Addr: others}},
		"id":                 {RPCHeader: raft.RPCHeader{ID: others, Addr: own}},
		"the older leader":   {RPCHeader: raft.RPCHeader{ID: own, Addr: own}, Leader: others},
		"nobody":             {},
		"a node but no disk": {RPCHeader: raft.RPCHeader{ID: []byte("n1"), Addr: []byte("n1")}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := link(t)
			answer(t, p.r2, func(raft.RPC) (any, error) {
				t.Errorf("%s: delivered", name)
				return nil, nil
			})
			err := p.r1.AppendEntries(server("n2"), address("n2"), &m, new(raft.AppendEntriesResponse))
			if !errors.Is(err, transport.ErrImpostor) {
				t.Errorf("%s: %v", name, err)
			}
			leader := m.Leader //nolint:staticcheck // deprecated, and still read by the library
			vote := raft.RequestVoteRequest{RPCHeader: m.RPCHeader}
			vote.Candidate = leader //nolint:staticcheck // as Leader above
			if err := p.r1.RequestVote(server("n2"), address("n2"), &vote, new(raft.RequestVoteResponse)); !errors.Is(err, transport.ErrImpostor) {
				t.Errorf("%s, vote: %v", name, err)
			}
			shot := raft.InstallSnapshotRequest{RPCHeader: m.RPCHeader, Leader: leader, Size: 1}
			if err := p.r1.InstallSnapshot(server("n2"), address("n2"), &shot, new(raft.InstallSnapshotResponse), strings.NewReader("x")); !errors.Is(err, transport.ErrImpostor) {
				t.Errorf("%s, snapshot: %v", name, err)
			}
			if s := state(t, p.l2, "n1"); s.Impostor != 3 {
				t.Errorf("%s: counted %d", name, s.Impostor)
			}
		})
	}
}

// An answer must be of the replica that was asked: only that one's follows count.
func TestAnAnswerOfAnotherReplicaIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		answer(t, p.r2, func(raft.RPC) (any, error) {
			return &raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ID: []byte(server("n3"))}, Term: 1, Success: true}, nil
		})
		p.r1.OnAck(transport.Acks{
			Now: func() int64 { return 0 }, MaxAge: 1,
			Acked: func(raft.ServerID, uint64, int64) { t.Error("counted") },
		})
		if err := heartbeat(p.r1, address("n2"), 1); err == nil {
			t.Error("accepted")
		}
	})
}

// One group's main loop is stuck, and its peer goes on sending: the other group doesn't notice.
func TestAStuckGroupHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		other1, other2 := replica(t, p.l1, "n1", 2), replica(t, p.l2, "n2", 2)
		answer(t, other2, success)
		var floods sync.WaitGroup
		var busy atomic.Int64
		entries := []*raft.Log{{Data: make([]byte, 1<<20)}}
		for range 70 {
			floods.Go(func() {
				req := &raft.AppendEntriesRequest{RPCHeader: from(p.r1), Entries: entries}
				err := p.r1.AppendEntries(server("n2"), address("n2"), req, new(raft.AppendEntriesResponse))
				if errors.Is(err, transport.ErrBusy) {
					busy.Add(1)
				} else if !errors.Is(err, transport.ErrDeadline) {
					t.Errorf("flood: %v", err)
				}
			})
		}
		for range 100 {
			begun := time.Now()
			if err := heartbeat(other1, address("n2"), 1); err != nil || time.Since(begun) != 0 {
				t.Fatalf("%v after %v", err, time.Since(begun))
			}
			time.Sleep(10 * time.Millisecond)
		}
		floods.Wait()
		here, there := state(t, p.l1, "n2"), state(t, p.l2, "n1")
		if busy.Load() == 0 || uint64(busy.Load()) != here.Busy+there.Busy || here.Queued != 0 {
			t.Errorf("busy %d\n%+v\n%+v", busy.Load(), here, there)
		}
		// What was left on the desk is not delivered when the loop runs again.
		synctest.Wait()
		select {
		case <-p.r2.Consumer():
			t.Error("delivered after its deadline")
		default:
		}
	})
}

// Requests wait behind one that takes the main loop long. When their turn comes, those that nobody
// waits for any more are passed over, though the loop would take them.
func TestARequestThatWaitedTooLongIsNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		var delivered []string
		answer(t, p.r2, func(rpc raft.RPC) (any, error) {
			if len(rpc.Command.(*raft.AppendEntriesRequest).Entries) > 0 {
				time.Sleep(4 * time.Second)
				delivered = append(delivered, "entries")
			} else {
				delivered = append(delivered, "heartbeat")
			}
			return success(rpc)
		})
		var calls sync.WaitGroup
		calls.Go(func() {
			req := &raft.AppendEntriesRequest{RPCHeader: from(p.r1), Entries: []*raft.Log{{}}}
			if err := p.r1.AppendEntries(server("n2"), address("n2"), req, new(raft.AppendEntriesResponse)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 30 {
			calls.Go(func() {
				if err := heartbeat(p.r1, address("n2"), 1); !errors.Is(err, transport.ErrDeadline) {
					t.Errorf("got %v", err)
				}
			})
		}
		calls.Wait()
		synctest.Wait()
		if len(delivered) != 1 {
			t.Errorf("delivered %v", delivered)
		}
	})
}

func TestARequestThatIsTooLargeIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t, func(o *transport.LinkOptions) { o.MaxMessage = 1 << 20 })
		answer(t, p.r2, success)
		send := func(size int) error {
			req := &raft.AppendEntriesRequest{RPCHeader: from(p.r1), Term: 1, Entries: []*raft.Log{{Data: make([]byte, size)}}}
			return p.r1.AppendEntries(server("n2"), address("n2"), req, new(raft.AppendEntriesResponse))
		}
		if err := send(1<<20 - 300); err != nil {
			t.Errorf("one that fits: %v", err)
		}
		if err := send(1 << 20); !errors.Is(err, transport.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
		if s := state(t, p.l1, "n2"); s.Connects != 1 {
			t.Errorf("the link was cut: %+v", s)
		}
	})
}

// Raft counts entries, not bytes. More than fit into a request go in several, each after the one before; where one
// isn't taken, none follows.
func TestMoreEntriesThanFitGoInSeveralRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t, func(o *transport.LinkOptions) { o.MaxMessage = 1 << 20 })
		var mu sync.Mutex
		var got []*raft.Log
		held, requests := uint64(7), 0
		answer(t, p.r2, func(rpc raft.RPC) (any, error) {
			req := rpc.Command.(*raft.AppendEntriesRequest)
			mu.Lock()
			defer mu.Unlock()
			requests++
			takes := req.PrevLogEntry == held && req.PrevLogTerm == 3 && len(got) < 12
			if takes {
				got = append(got, req.Entries...)
				held += uint64(len(req.Entries))
			}
			return &raft.AppendEntriesResponse{Term: req.Term, LastLog: held, Success: takes}, nil
		})
		send := func(n int) *raft.AppendEntriesResponse {
			req := &raft.AppendEntriesRequest{RPCHeader: from(p.r1), Term: 3, PrevLogEntry: held, PrevLogTerm: 3, LeaderCommitIndex: 5}
			for i := range n {
				req.Entries = append(req.Entries, &raft.Log{Index: held + 1 + uint64(i), Term: 3, Data: make([]byte, 200<<10)})
			}
			before := *req
			resp := new(raft.AppendEntriesResponse)
			if err := p.r1.AppendEntries(server("n2"), address("n2"), req, resp); err != nil {
				t.Fatal(err)
			}
			if req.PrevLogEntry != before.PrevLogEntry || len(req.Entries) != n {
				t.Error("the request is Raft's, and has changed")
			}
			return resp
		}
		if resp := send(9); !resp.Success || len(got) != 9 || requests != 5 {
			t.Errorf("%+v with %d entries in %d requests", resp, len(got), requests)
		}
		for i, l := range got {
			if l.Index != 8+uint64(i) {
				t.Errorf("entry %d has index %d", i, l.Index)
			}
		}
		if resp := send(9); resp.Success || len(got) != 13 || requests != 8 {
			t.Errorf("one that isn't taken: %+v with %d entries in %d requests", resp, len(got), requests)
		}
	})
}

// A deadline of a request with entries grows with them.
func TestLargeRequestsHaveMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		for size, want := range map[int]time.Duration{1: 5 * time.Second, 3 << 20: 8 * time.Second} {
			begun := time.Now()
			req := &raft.AppendEntriesRequest{RPCHeader: from(p.r1), Term: 1, Entries: []*raft.Log{{Data: make([]byte, size)}}}
			err := p.r1.AppendEntries(server("n2"), address("n2"), req, new(raft.AppendEntriesResponse))
			if !errors.Is(err, transport.ErrDeadline) || time.Since(begun) != want {
				t.Errorf("%d bytes: %v after %v", size, err, time.Since(begun))
			}
		}
	})
}

// A replica that closes and opens again is served over the link that is there.
func TestAReplicaOpensAgainOnTheSameLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		r2 := p.r2
		for range 3 {
			answer(t, r2, success)
			if err := heartbeat(p.r1, address("n2"), 1); err != nil {
				t.Error(err)
			}
			r2.Close()
			if err := heartbeat(p.r1, address("n2"), 1); !errors.Is(err, transport.ErrUnreachable) {
				t.Errorf("closed: %v", err)
			}
			r2 = replica(t, p.l2, "n2", 1)
		}
		if s := state(t, p.l1, "n2"); s.Connects != 1 {
			t.Errorf("%+v", s)
		}
	})
}
