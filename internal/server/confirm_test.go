package server_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// confirmation asks for what is certain, and returns the only message.
func confirmation(t *testing.T, ctx context.Context, conn *grpc.ClientConn) *quotav1.GetPoliciesResponse {
	t.Helper()
	stream, err := quotav1.NewAdminClient(conn).GetPolicies(ctx, &quotav1.GetPoliciesRequest{Confirm: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if more, err := stream.Recv(); err == nil {
		t.Errorf("there is more: %v", more)
	}
	return m
}

// TestWhoAsksForConfirmationHearsNothingElse: no set, and no version of hearsay.
func TestWhoAsksForConfirmationHearsNothingElse(t *testing.T) {
	c := applying(nil)
	c.confirmed = &quotav1.GetPoliciesResponse{
		ClusterId: bytes.Repeat([]byte{1}, 16), ClusterPartitions: 3,
		Partitions: []*quotav1.PartitionVersion{{Partition: 2, Version: &quotav1.SetVersion{Epoch: 1, Number: 7}, Term: 4}},
	}
	if m := confirmation(t, t.Context(), onCluster(t, c)); !proto.Equal(m, c.confirmed) {
		t.Errorf("%v", m)
	}
}

// TestConfirmationEndsBeforeTheCall, so that what is confirmed arrives, and within 5 s; when the node stops, at once.
func TestConfirmationEndsBeforeTheCall(t *testing.T) {
	for name, tc := range map[string]struct{ given, want time.Duration }{
		"a deadline": {2 * time.Second, 1800 * time.Millisecond}, "a far one": {time.Minute, 5 * time.Second}, "none": {0, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, conn, stop := newNodeWith(&script{}, withCluster(applying(nil))).start(t)
			defer stop()
			ctx, cancel := context.WithCancel(t.Context())
			if tc.given > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), tc.given)
			}
			defer cancel()
			begun := time.Now()
			if m := confirmation(t, ctx, conn); m.GetClusterPartitions() != 3 || len(m.GetPartitions()) > 0 {
				t.Errorf("%s: %v", name, m)
			}
			if took := time.Since(begun); took < tc.want-time.Millisecond || took > tc.want+time.Millisecond {
				t.Errorf("%s: %v of the bubble's time, want %v", name, took, tc.want)
			}
		})
	}
}
