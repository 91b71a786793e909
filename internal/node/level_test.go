package node

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/clock"
)

// TestALevelCountsOnlyWhileItsProcessSaysIt: lately, on a watch that is still open, and of that very disk.
func TestALevelCountsOnlyWhileItsProcessSaysIt(t *testing.T) {
	source := &clock.Manual{}
	source.Advance(time.Hour)
	p, other := &peer{name: "n2"}, &peer{name: "n3"}
	n := &Node{source: source, peers: []*peer{p, other}}
	const id = "n2-0123456789abcdef"
	is := func(want uint64, when string) {
		t.Helper()
		if got := n.said(id); got != want {
			t.Errorf("%s: level %d, want %d", when, got, want)
		}
	}
	is(0, "before it said anything")
	p.says(saidLevel{id, 2, source.Monotonic()})
	is(2, "now")
	if got := n.said("n3-0123456789abcdef"); got != 0 {
		t.Errorf("of another: level %d", got)
	}
	source.Advance(2*timesEvery - 1)
	is(2, "a moment ago")
	source.Advance(1)
	is(0, "too long ago")
	p.says(saidLevel{id, 1, source.Monotonic()})
	is(1, "after it went back")
	p.says(saidLevel{"n2-fedcba9876543210", 2, source.Monotonic()})
	is(0, "of a disk that was there before")
	p.says(saidLevel{id, 2, source.Monotonic()})
	p.says(saidLevel{})
	is(0, "after the watch ended")
}

// teller tells a level on a watch, which ends when it is told to.
type teller struct {
	quotav1.UnimplementedRoutingServer
	self *quotav1.NodeStatus
	end  chan struct{}
}

func (o *teller) Watch(_ *quotav1.WatchRequest, stream grpc.ServerStreamingServer[quotav1.WatchResponse]) error {
	if err := stream.Send(&quotav1.WatchResponse{Self: o.self}); err != nil {
		return err
	}
	<-o.end
	return status.Error(codes.Unavailable, "it stops")
}

// TestALevelIsForgottenWithTheWatchThatToldIt: who comes after it at that address may be older software.
func TestALevelIsForgottenWithTheWatchThatToldIt(t *testing.T) {
	const id = "n2-0123456789abcdef"
	o := &teller{self: &quotav1.NodeStatus{Id: id, Level: 2}, end: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	quotav1.RegisterRoutingServer(s, o)
	go func() { _ = s.Serve(listener) }()
	defer s.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	source, p := &clock.Manual{}, &peer{name: "n2", conn: conn}
	source.Advance(time.Hour)
	n := &Node{source: source, peers: []*peer{p}, routes: newRoutes(nil)}

	ended := make(chan error, 1)
	go func() { ended <- n.listenOnce(t.Context(), p) }()
	for late := time.After(30 * time.Second); n.said(id) != 2; {
		select {
		case err := <-ended:
			t.Fatalf("the watch ended: %v", err)
		case <-late:
			t.Fatalf("it said level 2, and %d is known", n.said(id))
		case <-time.After(time.Millisecond):
		}
	}
	close(o.end)
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	if level := n.said(id); level != 0 {
		t.Errorf("after the watch level %d is known", level)
	}
}
