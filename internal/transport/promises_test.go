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

// What every transport promises to Raft, whichever way it goes.

// carrier is a transport as partition uses it.
type carrier interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
	OnAck(transport.Acks)
}

// form is one way to go.
type form struct {
	name string
	// pair returns transports of the nodes n1 and n2; other shares b's node but is not b's replica.
	pair func(t *testing.T) (a, b carrier)
	// timeout is how long a request without entries may take.
	timeout time.Duration
}

var forms = []form{
	{"Local", func(t *testing.T) (a, b carrier) {
		n := transport.NewNetwork(transport.Options{})
		return join(t, n, address("n1")), join(t, n, address("n2"))
	}, 5 * time.Second},
	{"Links", func(t *testing.T) (a, b carrier) {
		p := link(t)
		return p.r1, p.r2
	}, 2 * time.Second},
}

// eachForm runs a test over every form, in a bubble, where time stands still while anything can run.
func eachForm(t *testing.T, test func(t *testing.T, f form)) {
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, f) })
		})
	}
}

// answer plays a replica's main loop: it answers every request with f until the test ends.
func answer(t *testing.T, l raft.Transport, f func(raft.RPC) (any, error)) {
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

// from is the header that Raft puts before the requests of a replica.
func from(l raft.Transport) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte(l.LocalAddr()), Addr: []byte(l.LocalAddr())}
}

func heartbeat(l raft.Transport, to raft.ServerAddress, term uint64) error {
	return l.AppendEntries(raft.ServerID(to), to, &raft.AppendEntriesRequest{RPCHeader: from(l), Term: term}, new(raft.AppendEntriesResponse))
}

// The fast path is refused: whatever handler Raft sets, a heartbeat arrives where all else does.
func TestHeartbeatsGoThroughConsumer(t *testing.T) {
	eachForm(t, func(t *testing.T, f form) {
		a, b := f.pair(t)
		b.SetHeartbeatHandler(func(raft.RPC) { t.Error("a heartbeat took the fast path") })
		answer(t, b, success)
		var resp raft.AppendEntriesResponse
		req := &raft.AppendEntriesRequest{RPCHeader: from(a), Term: 3}
		if err := a.AppendEntries(server("n2"), b.LocalAddr(), req, &resp); err != nil || !resp.Success || resp.Term != 3 {
			t.Errorf("got %+v, %v", resp, err)
		}
		if _, err := a.AppendEntriesPipeline(server("n2"), b.LocalAddr()); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
			t.Errorf("pipeline: %v", err)
		}
	})
}

func TestEveryRequestReachesItsPeerAndBringsTheAnswerBack(t *testing.T) {
	eachForm(t, func(t *testing.T, f form) {
		a, b := f.pair(t)
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
		id, to := server("n2"), b.LocalAddr()
		var vote raft.RequestVoteResponse
		if err := a.RequestVote(id, to, &raft.RequestVoteRequest{RPCHeader: from(a), Term: 4}, &vote); err != nil || !vote.Granted || vote.Term != 4 {
			t.Errorf("vote: %+v, %v", vote, err)
		}
		var pre raft.RequestPreVoteResponse
		if err := a.RequestPreVote(id, to, &raft.RequestPreVoteRequest{RPCHeader: from(a), Term: 5}, &pre); err != nil || !pre.Granted || pre.Term != 5 {
			t.Errorf("pre-vote: %+v, %v", pre, err)
		}
		if err := a.TimeoutNow(id, to, &raft.TimeoutNowRequest{RPCHeader: from(a)}, new(raft.TimeoutNowResponse)); err == nil || err.Error() != "not now" {
			t.Errorf("the peer's error got lost: %v", err)
		}
		if err := heartbeat(a, to, 1); err == nil {
			t.Error("an answer of another kind was accepted")
		}
	})
}

func TestAPeerThatDoesNotAnswerCostsTheDeadlineAndNoMore(t *testing.T) {
	t.Run("never takes the request", func(t *testing.T) {
		eachForm(t, func(t *testing.T, f form) {
			a, b := f.pair(t)
			begun := time.Now()
			if err := heartbeat(a, b.LocalAddr(), 1); !errors.Is(err, transport.ErrDeadline) || time.Since(begun) != f.timeout {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
			// Nor is it delivered when nobody waits for it any more.
			synctest.Wait()
			select {
			case rpc := <-b.Consumer():
				t.Errorf("delivered after its deadline: %+v", rpc.Command)
			default:
			}
		})
	})
	t.Run("takes it and never answers", func(t *testing.T) {
		eachForm(t, func(t *testing.T, f form) {
			a, b := f.pair(t)
			var rpc raft.RPC
			var peer sync.WaitGroup
			peer.Go(func() { rpc = <-b.Consumer() })
			begun := time.Now()
			if err := heartbeat(a, b.LocalAddr(), 1); !errors.Is(err, transport.ErrDeadline) || time.Since(begun) != f.timeout {
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
			eachForm(t, func(t *testing.T, f form) {
				a, b := f.pair(t)
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
				if err := heartbeat(a, b.LocalAddr(), 1); !errors.Is(err, transport.ErrClosed) || time.Since(begun) != 0 {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
				peer.Wait()
				want := transport.ErrUnreachable
				if which == "the sender" {
					want = transport.ErrClosed
				}
				if err := heartbeat(a, b.LocalAddr(), 1); !errors.Is(err, want) || time.Since(begun) != 0 {
					t.Errorf("afterwards: %v after %v", err, time.Since(begun))
				}
			})
		})
	}
}

// A sender reuses its request after a deadline, and replicas stand for separate machines.
func TestReplicasShareNoMemory(t *testing.T) {
	eachForm(t, func(t *testing.T, f form) {
		a, b := f.pair(t)
		sent := &raft.AppendEntriesRequest{RPCHeader: from(a), Term: 1, Entries: []*raft.Log{
			{Index: 1, Data: []byte("one"), Extensions: []byte("x")}, {Index: 2}, {Index: 3, Data: []byte("three")},
		}}
		var got *raft.AppendEntriesRequest
		answer(t, b, func(rpc raft.RPC) (any, error) {
			got = rpc.Command.(*raft.AppendEntriesRequest)
			return success(rpc)
		})
		if err := a.AppendEntries(server("n2"), b.LocalAddr(), sent, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		entries := sent.Entries
		sent.Term, sent.Entries[1] = 9, nil
		copy(entries[0].Data, "new")
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
		// Nor may a buffer that is used again.
		if err := heartbeat(a, b.LocalAddr(), 1<<63); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOnAckReportsWhenTheRequestWasSent(t *testing.T) {
	type ack struct {
		peer   raft.ServerID
		term   uint64
		sentAt int64
	}
	peer := server("n2")
	for _, tc := range []struct {
		name  string
		reply func(rpc raft.RPC, now *int64) (any, error)
		want  []ack
	}{
		{"a success counts from the send, however long it took",
			func(rpc raft.RPC, now *int64) (any, error) { *now += 499; return success(rpc) }, []ack{{peer, 7, 1000}}},
		{"an answer as old as the bound is not counted",
			func(rpc raft.RPC, now *int64) (any, error) { *now += 500; return success(rpc) }, nil},
		{"a refusal", func(raft.RPC, *int64) (any, error) { return &raft.AppendEntriesResponse{Term: 7}, nil }, nil},
		{"a newer term", func(raft.RPC, *int64) (any, error) {
			return &raft.AppendEntriesResponse{Term: 8, Success: true}, nil
		}, nil},
		{"an error", func(raft.RPC, *int64) (any, error) { return nil, errors.New("no") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, f form) {
				a, b := f.pair(t)
				now := int64(1000)
				answer(t, b, func(rpc raft.RPC) (any, error) { return tc.reply(rpc, &now) })
				var got []ack
				a.OnAck(transport.Acks{
					Now:    func() int64 { return now },
					MaxAge: 500,
					Acked:  func(peer raft.ServerID, term uint64, sentAt int64) { got = append(got, ack{peer, term, sentAt}) },
				})
				_ = heartbeat(a, b.LocalAddr(), 7)
				if len(got) != len(tc.want) || len(got) == 1 && got[0] != tc.want[0] {
					t.Errorf("got %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// install sends a snapshot of size bytes.
func install(a carrier, to raft.ServerAddress, size int, data io.Reader) (resp raft.InstallSnapshotResponse, err error) {
	req := &raft.InstallSnapshotRequest{RPCHeader: from(a), Term: 2, Size: int64(size)}
	err = a.InstallSnapshot(raft.ServerID(to), to, req, &resp, data)
	return resp, err
}

func TestSnapshotsAreStreamed(t *testing.T) {
	for _, size := range []int{0, 1, 1 << 20} { // the last is more than any buffer on the way
		eachForm(t, func(t *testing.T, f form) {
			a, b := f.pair(t)
			want := bytes.Repeat([]byte("x"), size)
			answer(t, b, func(rpc raft.RPC) (any, error) {
				got, err := io.ReadAll(rpc.Reader)
				return &raft.InstallSnapshotResponse{Term: rpc.Command.(*raft.InstallSnapshotRequest).Term, Success: bytes.Equal(got, want)}, err
			})
			if resp, err := install(a, b.LocalAddr(), size, bytes.NewReader(want)); err != nil || !resp.Success || resp.Term != 2 {
				t.Errorf("%d bytes: got %+v, %v", size, resp, err)
			}
		})
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
	eachForm(t, func(t *testing.T, f form) {
		a, b := f.pair(t)
		readErr := make(chan error, 1)
		answer(t, b, func(rpc raft.RPC) (any, error) {
			_, err := io.ReadFull(rpc.Reader, make([]byte, 100<<10))
			time.Sleep(time.Minute) // of the bubble
			if err == nil {
				_, err = io.Copy(io.Discard, rpc.Reader)
			}
			readErr <- err
			return nil, err
		})
		data := &endless{}
		begun := time.Now()
		_, err := install(a, b.LocalAddr(), 2<<20, data)
		data.close()
		if !errors.Is(err, transport.ErrDeadline) || time.Since(begun) > 32*time.Second {
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

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestABrokenSnapshotReachesThePeerAsAnError(t *testing.T) {
	eachForm(t, func(t *testing.T, f form) {
		a, b := f.pair(t)
		broken := errors.New("disk")
		seen := make(chan error, 1)
		answer(t, b, func(rpc raft.RPC) (any, error) {
			_, err := io.ReadAll(rpc.Reader)
			seen <- err
			return nil, err
		})
		data := io.MultiReader(bytes.NewReader([]byte("some")), failing{broken})
		if _, err := install(a, b.LocalAddr(), 100, data); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		select { // it may have been over before the peer took it
		case err := <-seen:
			if err == nil {
				t.Error("the peer took it for whole")
			}
		default:
		}
	})
}
