package client

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// Unavailable says that there is no decision. The work must not be done.
type Unavailable struct {
	// Code tells kinds apart: INVALID_ARGUMENT is bad input, ALREADY_EXISTS an id that stands for another
	// check, PERMISSION_DENIED and UNAUTHENTICATED a right that is missing, UNIMPLEMENTED what this version
	// doesn't decide. Under all others the same question may have an answer later.
	Code codes.Code
	// Reason is FAILURE_REASON_UNSPECIFIED where no node said why: then the outcome is unknown, as with
	// FAILURE_REASON_OUTCOME_UNKNOWN. With every other one nothing was consumed, and nothing will be.
	Reason  quotav1.FailureReason
	Message string
	// RetryAfter is when asking again is worth while, in whole seconds; 0 where nobody said.
	RetryAfter time.Duration
	// DecisionID is the check's id, 16 bytes: its caller's, or else the one that the client made. Empty where the
	// check was refused before it had one, and of an inspection.
	DecisionID []byte
}

// Error is the message; its wording is no contract.
func (u *Unavailable) Error() string { return u.Message }

// unavailable takes the failure out of a status.
func unavailable(err error) error {
	s := status.Convert(err)
	if f := failureIn(s); f != nil {
		return unavailableOf(f)
	}
	return &Unavailable{Code: s.Code(), Message: fmt.Sprintf("%s: %s", s.Code(), s.Message())}
}

func failureIn(s *status.Status) *quotav1.Failure {
	for _, detail := range s.Details() {
		if f, ok := detail.(*quotav1.Failure); ok {
			return f
		}
	}
	return nil
}

func unavailableOf(f *quotav1.Failure) *Unavailable {
	return &Unavailable{
		Code: codes.Code(f.GetCode()), Reason: f.GetReason(), Message: f.GetMessage(),
		RetryAfter: time.Duration(f.GetRetryAfterS()) * time.Second,
	}
}

// of names the check that u speaks of. The id is a copy: the question may still be on its way.
func (u *Unavailable) of(id [16]byte) *Unavailable {
	u.DecisionID = id[:]
	return u
}

// mayBeCharged says that the outcome is unknown.
func (u *Unavailable) mayBeCharged() bool {
	return u.Reason == outcomeUnknown || u.Reason == quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED
}
