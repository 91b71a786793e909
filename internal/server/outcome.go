package server

import (
	"math"

	"google.golang.org/grpc/codes"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
)

// meaning is what one result is called on the wire.
type meaning struct {
	answer  quotav1.Decision      // unspecified: no decision
	reason  quotav1.Reason        // of a decision
	code    codes.Code            // without a decision
	failure quotav1.FailureReason // without a decision
	again   bool                  // the same question is worth asking in a second
	message string                // for people; the outcome's detail follows
}

// meanings is the one map from results to what callers see.
var meanings = [...]meaning{
	partition.Allowed:        {answer: quotav1.Decision_DECISION_ALLOW},
	partition.NoMatchAllowed: {answer: quotav1.Decision_DECISION_ALLOW, reason: quotav1.Reason_REASON_NO_MATCH_ALLOWED},
	partition.Denied:         {answer: quotav1.Decision_DECISION_DENY, reason: quotav1.Reason_REASON_LIMIT},
	partition.Exceeded:       {answer: quotav1.Decision_DECISION_DENY, reason: quotav1.Reason_REASON_COST_EXCEEDS_LIMIT},
	partition.NoPolicy:       {answer: quotav1.Decision_DECISION_DENY, reason: quotav1.Reason_REASON_NO_POLICY},
	partition.UnknownDomain:  {answer: quotav1.Decision_DECISION_DENY, reason: quotav1.Reason_REASON_UNKNOWN_DOMAIN},
	partition.WouldAllow:     {answer: quotav1.Decision_DECISION_WOULD_ALLOW},

	partition.Invalid: {code: codes.InvalidArgument,
		failure: quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, message: "bad input"},
	partition.Conflict: {code: codes.AlreadyExists,
		failure: quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT, message: "the decision id stands for another check"},
	partition.StaleTime: {code: codes.FailedPrecondition,
		failure: quotav1.FailureReason_FAILURE_REASON_STALE_TIME, message: "the check comes too long after its fence"},
	partition.StalePolicy: {code: codes.Unavailable,
		failure: quotav1.FailureReason_FAILURE_REASON_STALE_POLICY, message: "the leader resolves the check differently"},
	partition.NotLeader: {code: codes.Unavailable,
		failure: quotav1.FailureReason_FAILURE_REASON_NOT_LEADER, message: "another replica leads the partition"},
	partition.NoQuorum: {code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, message: "no leader has heard a majority of the replicas lately"},
	partition.Pending: {code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING, message: "no policy set is in force yet"},
	partition.Clock: {code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_CLOCK, message: "the leader can't vouch for its clock"},
	partition.Overloaded: {code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_OVERLOADED, message: "the queue is full, or the deadline can't be met"},
	partition.Late: {code: codes.DeadlineExceeded, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_DEADLINE, message: "the deadline passed before the check was put into an entry"},
	partition.Memory: {code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_MEMORY, message: "no room to remember another allow"},
	partition.Unknown: {code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, message: "the check may have been charged, or may yet be"},
	partition.Stopping: {code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN, message: "the node is stopping"},
	partition.NotSupported: {code: codes.Unimplemented,
		failure: quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED, message: "not supported"},
}

// meaningOf returns the row of a result. One that the table lacks, and the zero result, leave open what
// happened.
func meaningOf(r partition.Result) *meaning {
	if int(r) >= len(meanings) || meanings[r] == (meaning{}) {
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
