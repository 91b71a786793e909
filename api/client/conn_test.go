package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// node answers as the test says.
type node struct {
	quotav1.UnimplementedQuotaServer
	answer  *quotav1.CheckResponse
	failure error
	asked   *quotav1.CheckRequest
	count   int
	left    time.Duration
}

func (n *node) Check(ctx context.Context, m *quotav1.CheckRequest) (*quotav1.CheckResponse, error) {
	n.asked = m
	n.count++
	if deadline, ok := ctx.Deadline(); ok {
		n.left = time.Until(deadline)
	}
	return n.answer, n.failure
}

func (n *node) Inspect(context.Context, *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	return &quotav1.InspectResponse{Partition: 7}, n.failure
}

// dial serves n on this machine and connects to it.
func dial(t *testing.T, n *node) *client.Conn {
	t.Helper()
	c, err := client.Dial(serve(t, n), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// serve serves n on this machine until the test's end.
func serve(t *testing.T, n *node) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	quotav1.RegisterQuotaServer(s, n)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func decided(d quotav1.Decision) *quotav1.CheckResponse {
	return &quotav1.CheckResponse{Answer: &quotav1.Answer{Decision: d}}
}

// TestOnlyDecisionsAreAnswers: what doesn't decide, or not in a way that is known, is an error.
func TestOnlyDecisionsAreAnswers(t *testing.T) {
	n := &node{}
	c := dial(t, n)
	for _, d := range []quotav1.Decision{quotav1.Decision_DECISION_ALLOW, quotav1.Decision_DECISION_DENY} {
		n.answer = decided(d)
		if a, err := c.Check(t.Context(), &quotav1.CheckRequest{Domain: "d"}); err != nil || a.GetDecision() != d {
			t.Errorf("%v: %v, %v", d, a, err)
		}
		if n.asked.GetDomain() != "d" {
			t.Errorf("asked %v", n.asked)
		}
	}
	for _, r := range []*quotav1.CheckResponse{{}, decided(0), decided(99)} {
		n.answer = r
		a, err := c.Check(t.Context(), &quotav1.CheckRequest{})
		var u *client.Unavailable
		if a != nil || !errors.As(err, &u) || u.Reason != 0 {
			t.Errorf("%v is taken for the answer %v (%v)", r, a, err)
		}
	}
}

// TestAFailureSaysWhyAndWhenToAskAgain.
func TestAFailureSaysWhyAndWhenToAskAgain(t *testing.T) {
	second := int64(1)
	s, err := status.New(codes.Unavailable, "no majority").WithDetails(&quotav1.Failure{
		Code: uint32(codes.Unavailable), Reason: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, Message: "no majority", RetryAfterS: &second,
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{failure: s.Err()}
	c := dial(t, n)
	_, checking := c.Check(t.Context(), &quotav1.CheckRequest{})
	_, inspecting := c.Inspect(t.Context(), &quotav1.InspectRequest{})
	for _, err := range []error{checking, inspecting} {
		var u *client.Unavailable
		if !errors.As(err, &u) || u.Reason != quotav1.FailureReason_FAILURE_REASON_NO_QUORUM || u.RetryAfter != time.Second || u.Error() != "no majority" {
			t.Errorf("%#v", err)
		}
	}
	n.failure = status.Error(codes.Internal, "a defect")
	if _, err := c.Check(t.Context(), &quotav1.CheckRequest{}); err == nil || err.Error() != "Internal: a defect" {
		t.Errorf("a status without a failure: %v", err)
	}
	n.failure = nil
	if r, err := c.Inspect(t.Context(), &quotav1.InspectRequest{}); err != nil || r.GetPartition() != 7 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestADeadlineGoesAlong as the time that is left.
func TestADeadlineGoesAlong(t *testing.T) {
	n := &node{answer: decided(quotav1.Decision_DECISION_ALLOW)}
	c := dial(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := c.Check(ctx, &quotav1.CheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if n.left <= 50*time.Minute || n.left > time.Hour {
		t.Errorf("%v left", n.left)
	}
}

// TestOnlyThisMachineIsDialled: nothing is sent in clear to another one.
func TestOnlyThisMachineIsDialled(t *testing.T) {
	for address, local := range map[string]bool{
		"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, "192.0.2.1:1": false, "0.0.0.0:1": false, ":1": false,
	} {
		c, err := client.Dial(address, nil)
		if local != (err == nil) || !local && !errors.Is(err, client.ErrNotLocal) {
			t.Errorf("%s: %v", address, err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
	if _, err := client.Dial("127.0.0.1", nil); err == nil || !strings.Contains(err.Error(), "missing port") {
		t.Errorf("no port: %v", err)
	}
}

// TestAConnIsSentOnToTheLeader under the same id, three times at most, and never in clear to another machine.
func TestAConnIsSentOnToTheLeader(t *testing.T) {
	leader := &node{answer: decided(quotav1.Decision_DECISION_ALLOW)}
	at := serve(t, leader)
	follower := &node{failure: sentOn(at).status()}
	c := dial(t, follower)
	question := &quotav1.CheckRequest{Domain: "d"}
	if a, err := c.Check(t.Context(), question); err != nil || a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
		t.Errorf("%v, %v", a, err)
	}
	if id := leader.asked.GetDecisionId(); len(id) != 16 || string(id) != string(follower.asked.GetDecisionId()) || leader.asked.FenceNs != nil {
		t.Errorf("asked %v, then %v", follower.asked, leader.asked)
	}
	if len(question.GetDecisionId()) != 0 {
		t.Error("the caller's question is changed")
	}
	if r, err := c.Inspect(t.Context(), &quotav1.InspectRequest{}); err != nil || r.GetPartition() != 7 {
		t.Errorf("%v, %v", r, err)
	}
	follower.failure = sentOn("192.0.2.1:1").status()
	if _, err := c.Check(t.Context(), question); err == nil || !strings.Contains(err.Error(), "certificates") {
		t.Errorf("sent on to another machine: %v", err)
	}
	leader.failure = sentOn(at).status()
	follower.failure = leader.failure
	leader.count = 0
	if _, err := c.Check(t.Context(), question); reasonOf(err) != "NOT_LEADER" || leader.count != 3 {
		t.Errorf("sent on %d times: %v", leader.count, err)
	}
}
