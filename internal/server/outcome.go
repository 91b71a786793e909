package server

import (
	"math"
	"net/http"

	"google.golang.org/grpc/codes"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
)

// meaning is what one result is called on each side.
type meaning struct {
	answer  quotav1.Decision      // unspecified: no decision
	reason  quotav1.Reason        // of a decision
	code    codes.Code            // without a decision
	failure quotav1.FailureReason // without a decision
	status  int                   // HTTP
	// decision and word are the JSON answer's decision and reason; empty is null.
	decision, word string
	// again: the same question is worth asking in a second. A 503 says so in any case, since HTTP
	// callers can't do better.
	again   bool
	message string // for people; the outcome's detail follows
}

const (
	allow       = "allow"
	deny        = "deny"
	unavailable = "unavailable"
)

// meanings is the one map from results to what callers see.
var meanings = [...]meaning{
	partition.Allowed: {answer: quotav1.Decision_DECISION_ALLOW, status: http.StatusOK, decision: allow},
	partition.NoMatchAllowed: {answer: quotav1.Decision_DECISION_ALLOW, status: http.StatusOK, decision: allow, word: "no_match",
		reason: quotav1.Reason_REASON_NO_MATCH_ALLOWED, message: "no policy matches, and the domain allows that"},
	partition.Denied: {answer: quotav1.Decision_DECISION_DENY, status: http.StatusTooManyRequests, decision: deny, word: "limit",
		reason: quotav1.Reason_REASON_LIMIT, message: "too little is left of a limit"},
	partition.Exceeded: {answer: quotav1.Decision_DECISION_DENY, status: http.StatusTooManyRequests, decision: deny, word: "cost_exceeds_limit",
		reason: quotav1.Reason_REASON_COST_EXCEEDS_LIMIT, message: "the cost is above a limit and can never fit"},
	partition.NoPolicy: {answer: quotav1.Decision_DECISION_DENY, status: http.StatusForbidden, decision: deny, word: "no_policy",
		reason: quotav1.Reason_REASON_NO_POLICY, message: "no policy matches, and the domain denies that"},
	partition.UnknownDomain: {answer: quotav1.Decision_DECISION_DENY, status: http.StatusForbidden, decision: deny, word: "unknown_domain",
		reason: quotav1.Reason_REASON_UNKNOWN_DOMAIN, message: "no policy and no domain entry names the domain"},
	// Nobody can ask to look over HTTP: there it would be the answer to another question.
	partition.WouldAllow: {answer: quotav1.Decision_DECISION_WOULD_ALLOW, status: http.StatusServiceUnavailable,
		decision: unavailable, word: "outcome_unknown", message: "it would be allowed, and nothing was charged"},

	partition.Invalid: {status: http.StatusBadRequest, word: "invalid_argument", code: codes.InvalidArgument,
		failure: quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, message: "bad input"},
	partition.Conflict: {status: http.StatusConflict, word: "decision_id_conflict", code: codes.AlreadyExists,
		failure: quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT, message: "the decision id stands for another check"},
	partition.StaleTime: {status: http.StatusServiceUnavailable, decision: unavailable, word: "not_ready", code: codes.FailedPrecondition,
		failure: quotav1.FailureReason_FAILURE_REASON_STALE_TIME, message: "the check comes too long after its fence"},
	partition.StalePolicy: {status: http.StatusServiceUnavailable, decision: unavailable, word: "not_ready", code: codes.Unavailable,
		failure: quotav1.FailureReason_FAILURE_REASON_STALE_POLICY, message: "the leader resolves the check differently"},
	partition.NotLeader: {status: http.StatusServiceUnavailable, decision: unavailable, word: "not_ready", code: codes.Unavailable,
		failure: quotav1.FailureReason_FAILURE_REASON_NOT_LEADER, message: "another replica leads the partition"},
	partition.NoQuorum: {status: http.StatusServiceUnavailable, decision: unavailable, word: "no_quorum", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, message: "no leader has heard a majority of the replicas lately"},
	partition.Pending: {status: http.StatusServiceUnavailable, decision: unavailable, word: "not_ready", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING, message: "no policy set is in force yet"},
	partition.Clock: {status: http.StatusServiceUnavailable, decision: unavailable, word: "clock", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_CLOCK, message: "the leader can't vouch for its clock"},
	partition.Overloaded: {status: http.StatusServiceUnavailable, decision: unavailable, word: "overloaded", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_OVERLOADED, message: "the queue is full, or the deadline can't be met"},
	partition.Late: {status: http.StatusServiceUnavailable, decision: unavailable, word: "deadline", code: codes.DeadlineExceeded, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_DEADLINE, message: "the deadline passed before the check was put into an entry"},
	partition.Memory: {status: http.StatusServiceUnavailable, decision: unavailable, word: "memory", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_MEMORY, message: "no room to remember another allow"},
	partition.Unknown: {status: http.StatusServiceUnavailable, decision: unavailable, word: "outcome_unknown", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, message: "the check may have been charged, or may yet be"},
	partition.Stopping: {status: http.StatusServiceUnavailable, decision: unavailable, word: "shutting_down", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN, message: "the node is stopping"},
	partition.NotSupported: {status: http.StatusBadRequest, word: "not_supported", code: codes.Unimplemented,
		failure: quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED, message: "not supported"},
}

// meaningOf returns the row of a result. One that the table lacks, and the zero result, leave open what
// happened.
func meaningOf(r partition.Result) *meaning {
	if int(r) >= len(meanings) || meanings[r].status == 0 {
		r = partition.Unknown
	}
	return &meanings[r]
}

// decided says that there is a decision to tell.
func (m *meaning) decided() bool { return m.answer != quotav1.Decision_DECISION_UNSPECIFIED }

// describe is the message for people, with the detail that the outcome has.
func (m *meaning) describe(detail string) string {
	if detail == "" {
		return m.message
	}
	if m.message == "" {
		return detail
	}
	return m.message + ": " + detail
}

// retryAfter is the advice that goes with a live denial: whole seconds, at least 1, rounded up from the
// exact wait and 0.2 % on top, for a caller's clock that is fast and a partition's that is slow. 0: none.
func retryAfter(o *partition.Outcome) int64 {
	wait := o.Wait()
	if wait == 0 {
		return 0
	}
	const share = 500 // 1/500 = 0.2 %
	extra := (wait-1)/share + 1
	if wait > math.MaxInt64-extra {
		return limit.WholeSeconds(math.MaxInt64)
	}
	return limit.WholeSeconds(wait + extra)
}
