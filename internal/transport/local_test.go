package transport_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

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
