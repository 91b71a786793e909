package server_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/server"
)

type watching = grpc.ServerStreamingClient[quotav1.WatchResponse]

func watch(t *testing.T, ctx context.Context, conn *grpc.ClientConn, ownOnly bool) watching {
	t.Helper()
	w, err := quotav1.NewRoutingClient(conn).Watch(ctx, &quotav1.WatchRequest{OwnOnly: ownOnly})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestAWatchGetsTheNewsInOrder, whole, and goes on.
func TestAWatchGetsTheNewsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &scene{news: []*quotav1.WatchResponse{
			{Cluster: cluster}, {Partitions: []*quotav1.PartitionRoute{{Partition: 1}}}, {Policies: &quotav1.PolicySetPart{Last: true}},
		}}
		_, conn, stop := newNodeWith(&script{}, withCluster(c)).start(t)
		defer nothingRuns(t)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := watch(t, ctx, conn, false)
		for i, want := range c.news {
			if m, err := w.Recv(); err != nil || m.String() != want.String() {
				t.Errorf("news %d: %v, %v", i, m, err)
			}
		}
		time.Sleep(time.Hour)
		cancel()
		if _, err := w.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("ends with %v", err)
		}
	})
}

// TestTooManyWatchesAreRefused; nodes have places of their own, and a place that is left is free again.
func TestTooManyWatchesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeWith(&script{}, withCluster(&scene{news: []*quotav1.WatchResponse{{}}}))
		conns, stop := n.serve(t, server.MaxWatches/server.MaxStreams+2)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range server.MaxWatches {
			if _, err := watch(t, ctx, conns[i/server.MaxStreams], false).Recv(); err != nil {
				t.Fatalf("watch %d: %v", i, err)
			}
		}
		last := conns[len(conns)-1]
		if _, err := watch(t, t.Context(), last, false).Recv(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more: %v", err)
		}
		if _, err := watch(t, ctx, last, true).Recv(); err != nil {
			t.Errorf("a node: %v", err)
		}
		cancel()
		synctest.Wait()
		if err := watchError(t, last, false); err != nil {
			t.Errorf("a place that was left: %v", err)
		}
	})
}

// TestStopEndsWatches at once, and tells them why: they hold up nobody.
func TestStopEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeWith(&script{}, withCluster(&scene{news: []*quotav1.WatchResponse{{}}}))
		conns, _ := n.serve(t, 1)
		w := watch(t, t.Context(), conns[0], false)
		if _, err := w.Recv(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if err := n.Stop(ctx); err != nil || time.Since(start) > time.Second {
			t.Errorf("stop: %v after %v", err, time.Since(start))
		}
		_, err := w.Recv()
		if f := failureIn(t, err); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN || status.Code(err) != codes.Unavailable {
			t.Errorf("ends with %v", err)
		}
		if err := conns[0].Close(); err != nil {
			t.Error(err)
		}
	})
	nothingRuns(t)
}

// TestWithoutAClusterItsServicesAreNotServed.
func TestWithoutAClusterItsServicesAreNotServed(t *testing.T) {
	_, conn, stop := newNode(&script{}).start(t)
	defer stop()
	if err := watchError(t, conn, false); status.Code(err) != codes.Unimplemented {
		t.Errorf("routing: %v", err)
	}
	if _, err := quotav1.NewAdminClient(conn).Status(t.Context(), &quotav1.StatusRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("admin: %v", err)
	}
	if _, err := quotav1.NewPeerClient(conn).Describe(t.Context(), &quotav1.DescribeRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("peer: %v", err)
	}
	if _, err := applyText(t, conn, nil, ""); status.Code(err) != codes.Unimplemented || errors.Is(err, io.EOF) {
		t.Errorf("apply: %v", err)
	}
}
