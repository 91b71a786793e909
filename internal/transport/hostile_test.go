package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

// knock connects to n2 without a word.
func (p *linked) knock(t *testing.T, as string) net.Conn {
	t.Helper()
	c, err := p.net.dialFrom(as)(context.Background(), "n2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// closedWithin reports whether the other end closes the connection within d.
func closedWithin(c net.Conn, d time.Duration) bool {
	begun := time.Now()
	_ = c.SetReadDeadline(begun.Add(d + time.Hour))
	_, err := io.Copy(io.Discard, c)
	var timeout net.Error
	return time.Since(begun) <= d && !(errors.As(err, &timeout) && timeout.Timeout())
}

// healthy proves that n2 still serves n1.
func (p *linked) healthy(t *testing.T) {
	t.Helper()
	begun := time.Now()
	if err := heartbeat(p.r1, address("n2"), 1); err != nil || time.Since(begun) != 0 {
		t.Errorf("an honest peer: %v after %v", err, time.Since(begun))
	}
}

// trickle writes one byte now and then, until the connection or the test ends.
func trickle(t *testing.T, c net.Conn, b []byte, every time.Duration) {
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range b {
			if _, err := c.Write(b[i : i+1]); err != nil {
				return
			}
			select {
			case <-time.After(every):
			case <-t.Context().Done():
				return
			}
		}
	})
	t.Cleanup(writer.Wait)
}

func TestStrangersAreRefused(t *testing.T) {
	other := [16]byte{9}
	for _, tc := range []struct {
		name   string
		within time.Duration
		do     func(t *testing.T, c net.Conn)
	}{
		{"garbage", 0, func(_ *testing.T, c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte{200}, 201)) }},
		{"another protocol", 0, func(_ *testing.T, c net.Conn) {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: n2.quorate.svc.cluster.local:7070\r\nAccept: */*\r\n\r\n")
		}},
		{"silence", 5 * time.Second, func(*testing.T, net.Conn) {}},
		{"a hello that trickles", 5 * time.Second, func(t *testing.T, c net.Conn) {
			trickle(t, c, bytes.Repeat([]byte{60}, 61), 4*time.Second)
		}},
		{"half a hello", 0, func(_ *testing.T, c net.Conn) { _, _ = c.Write([]byte{60, 1}); c.Close() }},
		{"another cluster", 0, func(_ *testing.T, c net.Conn) { _ = transport.SayHello(c, transport.ForRequests, other, "n1", "n2") }},
		{"another node was meant", 0, func(_ *testing.T, c net.Conn) { _ = transport.SayHello(c, transport.ForRequests, cluster, "n1", "n3") }},
		{"itself", 0, func(_ *testing.T, c net.Conn) { _ = transport.SayHello(c, transport.ForRequests, cluster, "n2", "n2") }},
		{"no node's name", 0, func(_ *testing.T, c net.Conn) {
			_ = transport.SayHello(c, transport.ForRequests, cluster, "../n1", "n2")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := link(t)
				answer(t, p.r2, success)
				c := p.knock(t, "n9")
				begun := time.Now()
				tc.do(t, c)
				if !closedWithin(c, tc.within) {
					t.Errorf("open after %v", time.Since(begun))
				}
				synctest.Wait()
				if n := p.l2.Refused(); n != 1 {
					t.Errorf("counted %d", n)
				}
				p.healthy(t)
				if s := p.l2.Peers(); len(s) != 1 {
					t.Errorf("remembered %+v", s)
				}
			})
		})
	}
}

// Strangers that never say hello take a bounded number of places, for a bounded time.
func TestACrowdOfStrangersIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		answer(t, p.r2, success)
		p.healthy(t)
		for range 200 {
			p.knock(t, "n9")
		}
		synctest.Wait()
		if n := p.l2.Refused(); n != 200-128 {
			t.Errorf("%d were refused at once", n)
		}
		p.healthy(t) // it is connected already
		time.Sleep(5*time.Second + time.Millisecond)
		if n := p.l2.Refused(); n != 200 {
			t.Errorf("%d were refused at last", n)
		}
	})
}

// A peer that said hello and then breaks the protocol loses its link, and nobody else notices.
func TestAPeerThatBreaksTheProtocolIsCutOff(t *testing.T) {
	good := transport.RequestFrame(1, 1, string(server("n2")), &raft.AppendEntriesRequest{})
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 0xff // how many entries
	shot := transport.RequestFrame(1, 1, string(server("n2")), &raft.InstallSnapshotRequest{})
	const part = transport.MaxFragment
	for name, b := range map[string][]byte{
		"garbage":                    bytes.Repeat([]byte{200}, 100),
		"a frame too long":           transport.Frame(transport.KindRequest, 1, 1, part+1, 0),
		"a message too long":         transport.Frame(transport.KindRequest, 1, 1, part, 64<<20),
		"an answer nobody asked for": append(transport.Frame(transport.KindAnswer, 1, 1, 1, 0), 1),
		"a pong":                     transport.Frame(transport.KindPong, 0, 0, 0, 0),
		"a chunk":                    append(transport.Frame(transport.KindChunk, 0, 0, 1, 0), 1),
		"a request that isn't one":   append(transport.Frame(transport.KindRequest, 1, 1, 1, 0), 99),
		"a request cut short":        broken,
		"a snapshot on this link":    shot,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := link(t)
				answer(t, p.r2, success)
				c := p.knock(t, "n9")
				if err := transport.SayHello(c, transport.ForRequests, cluster, "n9", "n2"); err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write(b)
				if !closedWithin(c, 0) {
					t.Error("the link is still there")
				}
				p.healthy(t)
			})
		})
	}
	t.Run("a frame that trickles", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := link(t)
			answer(t, p.r2, success)
			c := p.knock(t, "n9")
			if err := transport.SayHello(c, transport.ForRequests, cluster, "n9", "n2"); err != nil {
				t.Fatal(err)
			}
			trickle(t, c, good, time.Second)
			if !closedWithin(c, 5*time.Second) {
				t.Error("the link is still there")
			}
			p.healthy(t)
		})
	})
}

// Messages of ever more groups that never end, or for groups that aren't here, take no memory.
func TestMessagesForNobodyAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		answer(t, p.r2, success)
		c := p.knock(t, "n9")
		if err := transport.SayHello(c, transport.ForRequests, cluster, "n9", "n2"); err != nil {
			t.Fatal(err)
		}
		part := append(transport.Frame(transport.KindRequest, 0, 1, transport.MaxFragment, 1), make([]byte, transport.MaxFragment)...)
		written := 0
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for ; written < 5000; written++ {
			if written == 4000 {
				synctest.Wait()
				runtime.GC()
				runtime.ReadMemStats(&now)
				if kept := int64(now.HeapAlloc) - int64(before.HeapAlloc); kept > 64<<20 {
					t.Errorf("%d MiB for %d groups", kept>>20, written)
				}
			}
			group := uint32(100 + written)
			copy(part[12:], []byte{byte(group >> 24), byte(group >> 16), byte(group >> 8), byte(group)})
			if _, err := c.Write(part); err != nil {
				break
			}
		}
		if written < 4096 || written > 4100 {
			t.Errorf("cut off after %d groups", written)
		}
		p.healthy(t)
	})
}

// A peer that sends requests and doesn't read the answers is cut off, and has cost little.
func TestAPeerThatDoesNotReadIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		answer(t, p.r2, success)
		c := p.knock(t, "n9")
		if err := transport.SayHello(c, transport.ForRequests, cluster, "n9", "n2"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for id := uint64(1); ; id++ {
			// An impostor's, so that each is answered.
			if _, err := c.Write(transport.RequestFrame(1, id, string(server("n2")), &raft.AppendEntriesRequest{})); err != nil {
				break
			}
			if id == 100_000 {
				t.Fatal("still there")
			}
		}
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("cut off after %v", d)
		}
		p.healthy(t)
	})
}

// A peer that floods a replica whose main loop is stuck is told so; what is kept is bounded in number and
// in bytes.
func TestWhatWaitsForAReplicaIsBounded(t *testing.T) {
	for _, tc := range []struct{ size, most int }{{0, 8 + 1}, {40 << 10, 2 + 1}} { // and the one at the clerk's
		synctest.Test(t, func(t *testing.T) {
			p := link(t, func(o *transport.LinkOptions) { o.QueueMessages, o.QueueBytes = 8, 100<<10 })
			c := p.knock(t, "n9")
			if err := transport.SayHello(c, transport.ForRequests, cluster, "n9", "n2"); err != nil {
				t.Fatal(err)
			}
			header := raft.RPCHeader{ID: []byte(server("n9")), Addr: []byte(server("n9"))}
			const sent = 20
			for id := range uint64(sent) {
				req := &raft.AppendEntriesRequest{RPCHeader: header, Entries: []*raft.Log{{Data: make([]byte, tc.size)}}}
				if _, err := c.Write(transport.RequestFrame(1, id, string(server("n2")), req)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if s := state(t, p.l2, "n9"); s.Busy < sent-uint64(tc.most) || s.Busy > sent-2 || !s.Accepted {
				t.Errorf("%d bytes each: %+v", tc.size, s)
			}
		})
	}
}

// pose lets a test play node n2 towards n1, frame by frame, on each connection that n1 makes.
func (p *linked) pose(t *testing.T, play func(c net.Conn, id uint64)) {
	t.Helper()
	p.l2.Close()
	listener := p.net.listen("n2")
	var actors sync.WaitGroup
	actors.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			actors.Go(func() {
				defer c.Close()
				if transport.Welcome(c, cluster, "n2") != nil {
					return
				}
				for {
					kind, id, length, err := transport.ReadFrame(c)
					if err != nil {
						return
					}
					if _, err := io.CopyN(io.Discard, c, int64(length)); err != nil {
						return
					}
					if kind == transport.KindRequest {
						play(c, id)
					} else if _, err := c.Write(transport.Frame(transport.KindPong, 0, 0, 0, 0)); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { listener.Close(); p.net.cut("n2"); actors.Wait() })
}

func TestALateAnswerIsDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := link(t)
		p.pose(t, func(c net.Conn, id uint64) {
			time.Sleep(3 * time.Second)
			_, _ = c.Write(transport.AnswerFrame(1, id, &raft.AppendEntriesResponse{Term: 1, Success: true}))
		})
		p.r1.OnAck(transport.Acks{
			Now: func() int64 { return time.Now().UnixNano() }, MaxAge: int64(time.Hour),
			Acked: func(raft.ServerID, uint64, int64) { t.Error("a late answer was counted as one in time") },
		})
		if err := heartbeat(p.r1, address("n2"), 1); !errors.Is(err, transport.ErrDeadline) {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Second)
		if s := state(t, p.l1, "n2"); s.Late != 1 || !s.Connected {
			t.Errorf("%+v", s)
		}
	})
}

func TestAServerThatBreaksTheProtocolIsLeft(t *testing.T) {
	yes := &raft.AppendEntriesResponse{Term: 1, Success: true}
	for name, play := range map[string]func(id uint64) []byte{
		"an answer to a request that was never made": func(id uint64) []byte { return transport.AnswerFrame(1, id+1, yes) },
		"an answer to no request":                    func(uint64) []byte { return transport.AnswerFrame(1, 0, yes) },
		"an answer of another group":                 func(id uint64) []byte { return transport.AnswerFrame(2, id, yes) },
		"an answer too long": func(id uint64) []byte {
			return transport.Frame(transport.KindAnswer, 1, id, transport.MaxFragment+1, 0)
		},
		"a request": func(id uint64) []byte {
			return transport.RequestFrame(1, id, string(server("n1")), &raft.TimeoutNowRequest{})
		},
		"garbage": func(uint64) []byte { return bytes.Repeat([]byte{200}, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := link(t)
				p.pose(t, func(c net.Conn, id uint64) { _, _ = c.Write(play(id)) })
				begun := time.Now()
				if err := heartbeat(p.r1, address("n2"), 1); !errors.Is(err, transport.ErrUnreachable) || time.Since(begun) != 0 {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
			})
		})
	}
	t.Run("an answer that can't be read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := link(t)
			p.pose(t, func(c net.Conn, id uint64) {
				_, _ = c.Write(transport.AnswerFrame(1, id, &raft.InstallSnapshotResponse{}))
			})
			if err := heartbeat(p.r1, address("n2"), 1); err == nil {
				t.Error("accepted")
			}
		})
	})
}

// A snapshot's bytes are counted by who receives them: more or fewer than announced never reach Raft
// as a whole, and neither does a stream that breaks off.
func TestASnapshotOfAHostilePeer(t *testing.T) {
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(server("n9")), Addr: []byte(server("n9"))}
	request := func(size int64) []byte {
		return transport.RequestFrame(1, 1, string(server("n2")), &raft.InstallSnapshotRequest{RPCHeader: header, Size: size})
	}
	chunk := append(transport.Frame(transport.KindChunk, 0, 0, 4, 0), "four"...)
	end := transport.Frame(transport.KindEnd, 0, 0, 0, 0)
	ping := transport.Frame(transport.KindPing, 0, 0, 0, 0)
	for _, tc := range []struct {
		name  string
		parts [][]byte
		reach bool // whether Raft hears of it
		whole bool
	}{
		{"an honest one", [][]byte{request(8), chunk, chunk, end}, true, true},
		{"too long", [][]byte{request(7), chunk, chunk, end}, true, false},
		{"too short", [][]byte{request(9), chunk, chunk, end}, true, false},
		{"broken off", [][]byte{request(8), chunk}, true, false},
		{"broken off before its end", [][]byte{request(8), chunk, chunk}, true, false},
		{"something else between", [][]byte{request(8), chunk, ping, chunk, end}, true, false},
		{"a negative size", [][]byte{request(-1), end}, false, false},
		{"no snapshot", [][]byte{transport.RequestFrame(1, 1, string(server("n2")), &raft.TimeoutNowRequest{RPCHeader: header})}, false, false},
		{"chunks at once", [][]byte{chunk, end}, false, false},
		{"nothing", nil, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := link(t)
				reached, whole, readErr := false, false, error(nil)
				answer(t, p.r2, func(rpc raft.RPC) (any, error) {
					if rpc.Reader == nil {
						return success(rpc)
					}
					got, err := io.ReadAll(rpc.Reader)
					reached, whole, readErr = true, err == nil && string(got) == "fourfour", err
					return &raft.InstallSnapshotResponse{Success: whole}, err
				})
				c := p.knock(t, "n9")
				if err := transport.SayHello(c, transport.ForSnapshot, cluster, "n9", "n2"); err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = io.Copy(io.Discard, c) }()
				for _, b := range tc.parts {
					_, _ = c.Write(b)
				}
				synctest.Wait()
				c.Close()
				synctest.Wait()
				if reached != tc.reach || whole != tc.whole || reached && (readErr == nil) != tc.whole {
					t.Errorf("reached %v, whole %v, %v", reached, whole, readErr)
				}
				p.healthy(t)
			})
		})
	}
}
