package client

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// The reasons, shorter.
const (
	invalidArgument = quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT
	notLeader       = quotav1.FailureReason_FAILURE_REASON_NOT_LEADER
	noQuorum        = quotav1.FailureReason_FAILURE_REASON_NO_QUORUM
	clockDoubted    = quotav1.FailureReason_FAILURE_REASON_CLOCK
	overloaded      = quotav1.FailureReason_FAILURE_REASON_OVERLOADED
	noMemory        = quotav1.FailureReason_FAILURE_REASON_MEMORY
	quarantine      = quotav1.FailureReason_FAILURE_REASON_QUARANTINE
	stalePolicy     = quotav1.FailureReason_FAILURE_REASON_STALE_POLICY
	policyPending   = quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING
	staleTime       = quotav1.FailureReason_FAILURE_REASON_STALE_TIME
	idConflict      = quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT
	outcomeUnknown  = quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN
	shuttingDown    = quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN
	pastDeadline    = quotav1.FailureReason_FAILURE_REASON_DEADLINE
	notSupported    = quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED
	notPermitted    = quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED
)

// own is a failure that the client itself finds; asking again in a second is worth while.
func own(reason quotav1.FailureReason, message string) *quotav1.Failure {
	code, second := codes.Unavailable, int64(1)
	if reason == pastDeadline {
		code = codes.DeadlineExceeded
	}
	return &quotav1.Failure{Code: uint32(code), Reason: reason, Message: message, RetryAfterS: &second}
}

// step says how a check goes on after a failure.
type step uint8

const (
	stop      step = iota // it ends here
	elsewhere             // another node leads
	again                 // nothing was consumed; the same question may have an answer soon
	uncertain             // it may have been charged: the same id finds out
	dangling              // it may have been charged, and asking again is no use
)

// stepAfter is the step after a node's failure. One whose reason this version doesn't know leaves the outcome
// open; its code says whether asking again is worth while.
func stepAfter(f *quotav1.Failure) step {
	switch f.GetReason() {
	case notLeader:
		return elsewhere
	case noQuorum, clockDoubted, policyPending, shuttingDown:
		return again
	case outcomeUnknown, quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED:
		return uncertain
	case invalidArgument, overloaded, noMemory, quarantine, stalePolicy, staleTime, idConflict, pastDeadline,
		notSupported, notPermitted:
		return stop
	}
	switch codes.Code(f.GetCode()) {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.Aborted, codes.Canceled:
		return uncertain
	}
	return dangling
}

// jitter spreads a pause over its upper half, so that those who failed together don't come back together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
