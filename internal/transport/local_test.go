package transport_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

// answer plays a replica's main loop: it answers every request with f until the test ends.
func answer(t *testing.T, l *transport.Local, f func(raft.RPC) (any, error)) {
	t.Helper()
	stop := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case rpc := <-l.Consumer():
				resp, err := f(rpc)
				rpc.Respond(resp, err)
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); loop.Wait() })
}

func success(rpc raft.RPC) (any, error) {
	return &raft.AppendEntriesResponse{Term: rpc.Command.(*raft.AppendEntriesRequest).Term, Success: true}, nil
}

func join(t *testing.T, n *transport.Network, address raft.ServerAddress) *transport.Local {
	t.Helper()
	l, err := n.Join(string(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func pair(t *testing.T) (n *transport.Network, a, b *transport.Local) {
	t.Helper()
	n = transport.NewNetwork(transport.Options{})
	return n, join(t, n, "a"), join(t, n, "b")
}

func heartbeat(l *transport.Local, to raft.ServerAddress, term uint64) error {
	return l.AppendEntries(raft.ServerID(to), to, &raft.AppendEntriesRequest{Term: term}, new(raft.AppendEntriesResponse))
}

// The fast path is refused: whatever handler Raft sets, a heartbeat arrives where all else does.
func TestHeartbeatsGoThroughConsumer(t *testing.T) {
	_, a, b := pair(t)
	b.SetHeartbeatHandler(func(raft.RPC) { t.Error("a heartbeat took the fast path") })
	answer(t, b, success)
	var resp raft.AppendEntriesResponse
	if err := a.AppendEntries("b", "b", &raft.AppendEntriesRequest{Term: 3}, &resp); err != nil || !resp.Success || resp.Term != 3 {
		t.Errorf("got %+v, %v", resp, err)
	}
}

func TestEveryRequestReachesItsPeerAndBringsTheAnswerBack(t *testing.T) {
	_, a, b := pair(t)
	answer(t, b, func(rpc raft.RPC) (any, error) {
		switch c := rpc.Command.(type) {
		case *raft.RequestVoteRequest:
			return &raft.RequestVoteResponse{Term: c.Term, Granted: true}, nil
		case *raft.RequestPreVoteRequest:
			return &raft.RequestPreVoteResponse{Term: c.Term, Granted: true}, nil
		case *raft.TimeoutNowRequest:
			return nil, errors.New("not now")
		}
		return "nonsense", nil
	})
	var vote raft.RequestVoteResponse
	if err := a.RequestVote("b", "b", &raft.RequestVoteRequest{Term: 4}, &vote); err != nil || !vote.Granted || vote.Term != 4 {
		t.Errorf("vote: %+v, %v", vote, err)
	}
	var pre raft.RequestPreVoteResponse
	if err := a.RequestPreVote("b", "b", &raft.RequestPreVoteRequest{Term: 5}, &pre); err != nil || !pre.Granted || pre.Term != 5 {
		t.Errorf("pre-vote: %+v, %v", pre, err)
	}
	if err := a.TimeoutNow("b", "b", &raft.TimeoutNowRequest{}, new(raft.TimeoutNowResponse)); err == nil || err.Error() != "not now" {
		t.Errorf("the peer's error got lost: %v", err)
	}
	if err := heartbeat(a, "b", 1); err == nil {
		t.Error("an answer of another kind was accepted")
	}
}

func TestAddressesAreIdentities(t *testing.T) {
	n, a, _ := pair(t)
	if got := a.DecodePeer(a.EncodePeer("an-id", "node-1-0af3")); got != "node-1-0af3" || a.LocalAddr() != "a" {
		t.Errorf("got %q and %q", got, a.LocalAddr())
	}
	if _, err := n.Join("a"); !errors.Is(err, transport.ErrTaken) {
		t.Errorf("a taken address: %v", err)
	}
	a.Close()
	a.Close()
	again, err := n.Join("a")
	if err != nil {
		t.Fatalf("the address of a closed transport: %v", err)
	}
	a.Close() // the old one must not take the new one's place away
	if _, err := n.Join("a"); !errors.Is(err, transport.ErrTaken) {
		t.Errorf("after closing the old one again: %v", err)
	}
	again.Close()
	if _, err := a.AppendEntriesPipeline("b", "b"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Errorf("pipeline: %v", err)
	}
}

// In a bubble time stands still while anything can run, so "at once" is exact.
func TestUnreachablePeersFailAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(n *transport.Network, a, b *transport.Local)
		want error
	}{
		{"absent", func(_ *transport.Network, _, b *transport.Local) { b.Close() }, transport.ErrUnreachable},
		{"cut", func(n *transport.Network, _, _ *transport.Local) { n.Cut("a", "b") }, transport.ErrUnreachable},
		{"the way back is cut", func(n *transport.Network, _, _ *transport.Local) { n.Cut("b", "a") }, transport.ErrUnreachable},
		{"isolated", func(n *transport.Network, _, _ *transport.Local) { n.Isolate("b") }, transport.ErrUnreachable},
		{"itself closed", func(_ *transport.Network, a, _ *transport.Local) { a.Close() }, transport.ErrClosed},
		{"healed", func(n *transport.Network, _, _ *transport.Local) { n.Isolate("b"); n.Heal() }, nil},
		{"another pair is cut", func(n *transport.Network, _, _ *transport.Local) { n.Cut("a", "c"); n.Isolate("c") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, a, b := pair(t)
				answer(t, b, success)
				tc.do(n, a, b)
				begun := time.Now()
				if err := heartbeat(a, "b", 1); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if d := time.Since(begun); d != 0 {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}

// A one-way cut lets requests through and loses the answers, as a broken link does: the peer acts.
func TestACutWayBackStillDelivers(t *testing.T) {
	n, a, b := pair(t)
	arrived := 0
	answer(t, b, func(rpc raft.RPC) (any, error) { arrived++; return success(rpc) })
	n.Cut("b", "a")
	if err := heartbeat(a, "b", 1); !errors.Is(err, transport.ErrUnreachable) || arrived != 1 {
		t.Errorf("arrived %d, got %v", arrived, err)
	}
}

func TestAPeerThatDoesNotAnswerCostsTheDeadlineAndNoMore(t *testing.T) {
	t.Run("never takes the request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, a, _ := pair(t)
			begun := time.Now()
			if err := heartbeat(a, "b", 1); !errors.Is(err, transport.ErrDeadline) || time.Since(begun) != 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		})
	})
	t.Run("takes it and never answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, a, b := pair(t)
			var rpc raft.RPC
			var peer sync.WaitGroup
			peer.Go(func() { rpc = <-b.Consumer() })
			begun := time.Now()
			if err := heartbeat(a, "b", 1); !errors.Is(err, transport.ErrDeadline) || time.Since(begun) != 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
			peer.Wait()
			rpc.Respond(success(rpc)) // too late, and must not block the peer
		})
	})
}

func TestClosingEitherEndEndsWhatIsInFlight(t *testing.T) {
	for _, which := range []string{"the sender", "the peer"} {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := pair(t)
				var peer sync.WaitGroup
				peer.Go(func() {
					<-b.Consumer() // in flight now
					if which == "the peer" {
						b.Close()
					} else {
						a.Close()
					}
				})
				begun := time.Now()
				if err := heartbeat(a, "b", 1); !errors.Is(err, transport.ErrClosed) || time.Since(begun) != 0 {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
				peer.Wait()
			})
		})
	}
}

// A sender reuses its request after a deadline, and replicas stand for separate machines.
func TestReplicasShareNoMemory(t *testing.T) {
	_, a, b := pair(t)
	sent := &raft.AppendEntriesRequest{Term: 1, Entries: []*raft.Log{
		{Index: 1, Data: []byte("one"), Extensions: []byte("x")}, {Index: 2}, {Index: 3, Data: []byte("three")},
	}}
	var got *raft.AppendEntriesRequest
	answer(t, b, func(rpc raft.RPC) (any, error) {
		got = rpc.Command.(*raft.AppendEntriesRequest)
		return success(rpc)
	})
	if err := a.AppendEntries("b", "b", sent, new(raft.AppendEntriesResponse)); err != nil {
		t.Fatal(err)
	}
	entries := sent.Entries
	sent.Term, sent.Entries[1] = 9, nil
	copy(entries[0].Data, "XXX")
	copy(entries[0].Extensions, "X")
	entries[2].Index = 99
	if got.Term != 1 || got.Entries[1].Index != 2 || got.Entries[1].Data != nil || got.Entries[2].Index != 3 ||
		string(got.Entries[0].Data) != "one" || string(got.Entries[0].Extensions) != "x" || string(got.Entries[2].Data) != "three" {
		t.Errorf("the receiver saw the sender's changes: %+v", got)
	}
	// Nor may appending to one entry reach into the next.
	_ = append(got.Entries[0].Data, "YY"...)
	if string(got.Entries[2].Data) != "three" || string(got.Entries[0].Extensions) != "x" {
		t.Error("the copied entries run into each other")
	}
}

func TestOnAckReportsWhenTheRequestWasSent(t *testing.T) {
	type ack struct {
		peer   raft.ServerID
		term   uint64
		sentAt int64
	}
	for _, tc := range []struct {
		name  string
		reply func(rpc raft.RPC, now *int64) (any, error)
		want  []ack
	}{
		{"a success counts from the send, however long it took",
			func(rpc raft.RPC, now *int64) (any, error) { *now += 499; return success(rpc) }, []ack{{"b", 7, 1000}}},
		{"an answer as old as the bound is not counted",
			func(rpc raft.RPC, now *int64) (any, error) { *now += 500; return success(rpc) }, nil},
		{"a refusal", func(raft.RPC, *int64) (any, error) { return &raft.AppendEntriesResponse{Term: 7}, nil }, nil},
		{"a newer term", func(raft.RPC, *int64) (any, error) {
			return &raft.AppendEntriesResponse{Term: 8, Success: true}, nil
		}, nil},
		{"an error", func(raft.RPC, *int64) (any, error) { return nil, errors.New("no") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, a, b := pair(t)
			now := int64(1000)
			answer(t, b, func(rpc raft.RPC) (any, error) { return tc.reply(rpc, &now) })
			var got []ack
			a.OnAck(transport.Acks{
				Now:    func() int64 { return now },
				MaxAge: 500,
				Acked:  func(peer raft.ServerID, term uint64, sentAt int64) { got = append(got, ack{peer, term, sentAt}) },
			})
			_ = heartbeat(a, "b", 7)
			if len(got) != len(tc.want) || len(got) == 1 && got[0] != tc.want[0] {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestSnapshotsAreStreamed(t *testing.T) {
	_, a, b := pair(t)
	want := bytes.Repeat([]byte("snapshot"), 1<<17) // 1 MiB: more than any buffer on the way
	answer(t, b, func(rpc raft.RPC) (any, error) {
		got, err := io.ReadAll(rpc.Reader)
		return &raft.InstallSnapshotResponse{Term: rpc.Command.(*raft.InstallSnapshotRequest).Term, Success: bytes.Equal(got, want)}, err
	})
	var resp raft.InstallSnapshotResponse
	req := &raft.InstallSnapshotRequest{Term: 2, Size: int64(len(want))}
	if err := a.InstallSnapshot("b", "b", req, &resp, bytes.NewReader(want)); err != nil || !resp.Success || resp.Term != 2 {
		t.Errorf("got %+v, %v", resp, err)
	}
}

// endless is a snapshot that never ends, and notices being read after its owner closed it.
type endless struct {
	mu     sync.Mutex
	closed bool
	misuse bool
}

func (e *endless) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.misuse = e.misuse || e.closed
	return len(p), nil
}

func (e *endless) close() (misused bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return e.misuse
}

// A peer that takes too long keeps reading while the sender has given up: its reads must fail, and
// must not reach the snapshot that the sender closes.
func TestAGivenUpSnapshotIsNotReadAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		readErr := make(chan error, 1)
		answer(t, b, func(rpc raft.RPC) (any, error) {
			buffer := make([]byte, 4096)
			for {
				if _, err := rpc.Reader.Read(buffer); err != nil {
					readErr <- err
					return nil, err
				}
				time.Sleep(time.Second) // of the bubble
			}
		})
		data, begun := &endless{}, time.Now()
		req := &raft.InstallSnapshotRequest{Size: 2 << 20}
		err := a.InstallSnapshot("b", "b", req, new(raft.InstallSnapshotResponse), data)
		data.close()
		if !errors.Is(err, transport.ErrDeadline) || time.Since(begun) != 32*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := <-readErr; err == nil {
			t.Error("the peer read on")
		}
		if data.close() {
			t.Error("the snapshot was read after the sender closed it")
		}
	})
}

func TestABrokenSnapshotReachesThePeerAsAnError(t *testing.T) {
	_, a, b := pair(t)
	broken := errors.New("disk")
	answer(t, b, func(rpc raft.RPC) (any, error) {
		_, err := io.ReadAll(rpc.Reader)
		return nil, err
	})
	data := io.MultiReader(bytes.NewReader([]byte("some")), failing{broken})
	if err := a.InstallSnapshot("b", "b", &raft.InstallSnapshotRequest{}, new(raft.InstallSnapshotResponse), data); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func BenchmarkAppendEntries16KiB(b *testing.B) {
	n := transport.NewNetwork(transport.Options{})
	from, _ := n.Join("a")
	to, _ := n.Join("b")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rpc := range to.Consumer() {
			if rpc.Command.(*raft.AppendEntriesRequest).Term == 0 {
				rpc.Respond(success(rpc))
				return
			}
			rpc.Respond(success(rpc))
		}
	}()
	req := &raft.AppendEntriesRequest{Term: 1, Entries: []*raft.Log{{Index: 1, Data: make([]byte, 16<<10)}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := from.AppendEntries("b", "b", req, new(raft.AppendEntriesResponse)); err != nil {
			b.Fatal(err)
		}
	}
	_ = heartbeat(from, "b", 0)
	<-done
}
