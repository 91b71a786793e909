package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
)

// seen is what callers see of an outcome. Numbers of seconds: 0 is none.
type seen struct {
	code      codes.Code
	failure   quotav1.FailureReason
	retryGRPC int64

	status    int
	decision  string
	word      string
	retryHTTP int64
}

// down is what callers see of what is unavailable.
func down(code codes.Code, failure quotav1.FailureReason, word string) seen {
	return seen{code: code, failure: failure, retryGRPC: 1, status: 503, decision: "unavailable", word: word, retryHTTP: 1}
}

var lost = down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, "outcome_unknown")

// translations is the contract of failures, row by row.
var translations = map[quotav1.FailureReason]seen{
	quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT: {code: codes.InvalidArgument,
		failure: quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, status: 400, word: "invalid_argument"},
	quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED: {code: codes.Unimplemented,
		failure: quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED, status: 400, word: "not_supported"},
	quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED: {code: codes.PermissionDenied,
		failure: quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED, status: 403, word: "permission_denied"},
	quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT: {code: codes.AlreadyExists,
		failure: quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT, status: 409, word: "decision_id_conflict"},

	// What no caller of a gateway is told.
	quotav1.FailureReason_FAILURE_REASON_NOT_LEADER:     down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, "not_ready"),
	quotav1.FailureReason_FAILURE_REASON_STALE_POLICY:   down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, "not_ready"),
	quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING: down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, "not_ready"),
	quotav1.FailureReason_FAILURE_REASON_STALE_TIME:     down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, "not_ready"),

	quotav1.FailureReason_FAILURE_REASON_NO_QUORUM:     down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, "no_quorum"),
	quotav1.FailureReason_FAILURE_REASON_CLOCK:         down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_CLOCK, "clock"),
	quotav1.FailureReason_FAILURE_REASON_OVERLOADED:    down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_OVERLOADED, "overloaded"),
	quotav1.FailureReason_FAILURE_REASON_DEADLINE:      down(codes.DeadlineExceeded, quotav1.FailureReason_FAILURE_REASON_DEADLINE, "deadline"),
	quotav1.FailureReason_FAILURE_REASON_MEMORY:        down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_MEMORY, "memory"),
	quotav1.FailureReason_FAILURE_REASON_QUARANTINE:    down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_QUARANTINE, "quarantine"),
	quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN: down(codes.Unavailable, quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN, "shutting_down"),

	// Nobody knows what happened.
	quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN: lost,
	quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED:     lost,
	-1:            lost,
	99:            lost,
	math.MaxInt32: lost,
	math.MinInt32: lost,
}

// TestEveryFailureHasOneMeaning walks every reason over gRPC and over HTTP.
func TestEveryFailureHasOneMeaning(t *testing.T) {
	for v, name := range quotav1.FailureReason_name {
		if _, ok := translations[quotav1.FailureReason(v)]; !ok {
			t.Errorf("%s is not in the contract", name)
		}
	}
	for r, want := range translations {
		s := newStand(failing(r, "what the node says"))
		a := s.get(t, "/check?principal=u42")
		_, err := s.Service().Check(t.Context(), checkOf("u42"))
		f := failureIn(t, err)
		got := seen{
			code: status.Code(err), failure: f.GetReason(), retryGRPC: f.GetRetryAfterS(),
			status: a.status, decision: text(a.Decision), word: text(a.Reason),
		}
		if a.RetryAfter != nil {
			got.retryHTTP = *a.RetryAfter
		}
		if got != want {
			t.Errorf("%v: %+v, want %+v", r, got, want)
		}
		if codes.Code(f.GetCode()) != status.Code(err) || f.GetMessage() == "" || f.GetMessage() != text(a.Message) {
			t.Errorf("%v: the failure %v, its status %v, over HTTP %q", r, f, status.Code(err), text(a.Message))
		}
		if told := f.GetMessage() == "what the node says"; told == (want.word == "not_ready") {
			t.Errorf("%v: the message is %q", r, f.GetMessage())
		}
	}
}

// TestNoCallerSeesWhatOnlyAGatewayHasToKnow: not a word, not a reason, not a detail of it.
func TestNoCallerSeesWhatOnlyAGatewayHasToKnow(t *testing.T) {
	for _, r := range []quotav1.FailureReason{
		quotav1.FailureReason_FAILURE_REASON_STALE_POLICY, quotav1.FailureReason_FAILURE_REASON_NOT_LEADER,
		quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING, quotav1.FailureReason_FAILURE_REASON_STALE_TIME,
	} {
		s := newStand(failing(r, "ask n2.example:8081"))
		a := s.get(t, "/check?principal=u42")
		_, err := s.Service().Check(t.Context(), checkOf("u42"))
		f := failureIn(t, err)
		if f.GetReason() == r || f.GetDetail() != nil || strings.Contains(f.GetMessage()+a.body, "n2.example") || a.status != http.StatusServiceUnavailable {
			t.Errorf("%v: %v, %s", r, f, a.body)
		}
	}
}

// TestDecisionsOverBothFronts: each reason with its decision, its status and its word.
func TestDecisionsOverBothFronts(t *testing.T) {
	never := denied()
	never.Reason, never.RetryAfterS, never.WaitNs = quotav1.Reason_REASON_COST_EXCEEDS_LIMIT, nil, nil
	for _, c := range []struct {
		answer *quotav1.Answer
		want   seen
	}{
		{allowed(), seen{status: 200, decision: "allow"}},
		{unmatched(quotav1.Decision_DECISION_ALLOW, quotav1.Reason_REASON_NO_MATCH_ALLOWED), seen{status: 200, decision: "allow", word: "no_match"}},
		{denied(), seen{status: 429, decision: "deny", word: "limit", retryHTTP: 31}},
		{never, seen{status: 429, decision: "deny", word: "cost_exceeds_limit"}},
		{unmatched(quotav1.Decision_DECISION_DENY, quotav1.Reason_REASON_NO_POLICY), seen{status: 403, decision: "deny", word: "no_policy"}},
		{unmatched(quotav1.Decision_DECISION_DENY, quotav1.Reason_REASON_UNKNOWN_DOMAIN), seen{status: 403, decision: "deny", word: "unknown_domain"}},
	} {
		s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) { return c.answer, nil }))
		a := s.get(t, "/check?principal=u42")
		got := seen{status: a.status, decision: text(a.Decision), word: text(a.Reason)}
		if a.RetryAfter != nil {
			got.retryHTTP = *a.RetryAfter
		}
		if got != c.want {
			t.Errorf("%v: %+v, want %+v", c.answer.GetReason(), got, c.want)
		}
		response, err := s.Service().Check(t.Context(), checkOf("u42"))
		if err != nil || response.GetAnswer() != c.answer {
			t.Errorf("%v over gRPC: %v, %v", c.answer.GetReason(), response, err)
		}
	}
}

// TestOnlyAnAllowReadsAsOne: of all decisions with all reasons, two are passed on as an allow, four as a denial, and
// whatever else a node may say, though it be of a newer version, is none.
func TestOnlyAnAllowReadsAsOne(t *testing.T) {
	decisions := map[string]bool{
		"1 0": true, "1 5": true, // allowed; allowed without a match
		"2 1": false, "2 2": false, "2 3": false, "2 4": false,
	}
	for d := int32(-1); d < 9; d++ {
		for r := int32(-1); r < 9; r++ {
			s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) {
				a := allowed()
				a.Decision, a.Reason = quotav1.Decision(d), quotav1.Reason(r)
				return a, nil
			}))
			allows, decided := decisions[fmt.Sprint(d, r)]
			a := s.get(t, "/check?principal=u42")
			if got := a.status == http.StatusOK; got != allows || got != (text(a.Decision) == "allow") {
				t.Errorf("decision %d with reason %d over HTTP: status %d, %s", d, r, a.status, a.body)
			}
			response, err := s.Service().Check(t.Context(), checkOf("u42"))
			if got := err == nil; got != decided {
				t.Errorf("decision %d with reason %d over gRPC: %v, %v", d, r, response, err)
			}
			if !decided && (text(a.Reason) != "outcome_unknown" || failureIn(t, err).GetReason() != quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN) {
				t.Errorf("decision %d with reason %d: %s, %v", d, r, a.body, err)
			}
		}
	}
}

// TestWhatSaysNothingIsNoAllow: no answer, an error of no kind that is known, and the end of a context leave open
// what happened.
func TestWhatSaysNothingIsNoAllow(t *testing.T) {
	for name, err := range map[string]error{
		"no answer": nil, "some error": errors.New("some"), "canceled": context.Canceled, "too late": context.DeadlineExceeded,
		"an empty failure": &client.Unavailable{},
	} {
		s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) { return nil, err }))
		if a := s.get(t, "/check?principal=u42"); a.status != http.StatusServiceUnavailable || text(a.Reason) != "outcome_unknown" {
			t.Errorf("%s: status %d, %s", name, a.status, a.body)
		}
		_, failed := s.Service().Check(t.Context(), checkOf("u42"))
		if f := failureIn(t, failed); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN {
			t.Errorf("%s: %v", name, f)
		}
	}
	// An answer beside an error is none, whatever it says.
	s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) { return allowed(), errors.New("some") }))
	if a := s.get(t, "/check?principal=u42"); a.status != http.StatusServiceUnavailable {
		t.Errorf("an allow with an error: status %d", a.status)
	}
}

// TestAnAllowThatComesTooLateIsNone: the caller has given up, and whoever reads it later must not go on.
func TestAnAllowThatComesTooLateIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &asker{domains: []string{"video-api"}, check: func(ctx context.Context, _ *quotav1.CheckRequest) (*quotav1.Answer, error) {
			<-ctx.Done()
			a := allowed()
			a.DecisionId = []byte("0123456789abcdef")
			return a, nil
		}}
		s := newStand(late)
		start := time.Now()
		a := s.get(t, "/check?principal=u42")
		if took := time.Since(start); took != gateway.FrontTimeout || a.status != http.StatusServiceUnavailable || text(a.Reason) != "outcome_unknown" ||
			text(a.ID) != "30313233343536373839616263646566" {
			t.Errorf("status %d after %v: %s", a.status, took, a.body)
		}
		start = time.Now()
		_, err := s.Service().Check(t.Context(), checkOf("u42"))
		if f := failureIn(t, err); time.Since(start) != gateway.MaxTimeout || f.GetReason() != quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN {
			t.Errorf("over gRPC: %v after %v", f, time.Since(start))
		}
	})
}

// TestANodesAdviceGoesOn: whole seconds, rounded up; over HTTP a 503 always says 1.
func TestANodesAdviceGoesOn(t *testing.T) {
	for wait, want := range map[time.Duration]int64{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 30 * time.Second: 30} {
		s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) {
			return nil, &client.Unavailable{Reason: quotav1.FailureReason_FAILURE_REASON_MEMORY, RetryAfter: wait}
		}))
		_, err := s.Service().Check(t.Context(), checkOf("u42"))
		if f := failureIn(t, err); f.GetRetryAfterS() != want {
			t.Errorf("%v: %v", wait, f)
		}
		if a := s.get(t, "/check?principal=u42"); text(a.RetryAfter) != "1" {
			t.Errorf("%v: Retry-After %s", wait, text(a.RetryAfter))
		}
	}
}

// failureIn takes the failure out of the status of a unary call.
func failureIn(t *testing.T, err error) *quotav1.Failure {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if f, ok := d.(*quotav1.Failure); ok {
			return f
		}
	}
	t.Fatalf("no failure comes with %v", err)
	return nil
}

func checkOf(principal string) *quotav1.CheckRequest {
	return &quotav1.CheckRequest{Domain: "video-api", Descriptors: []*quotav1.Descriptor{{
		Entries: []*quotav1.Entry{entry("principal", principal)},
	}}}
}

func entry(name, value string) *quotav1.Entry {
	return &quotav1.Entry{Name: name, Value: []byte(value)}
}
