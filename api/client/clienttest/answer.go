package clienttest

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// refusal is a denial that no limit has a part in.
func refusal(reason quotav1.Reason) *quotav1.Answer {
	return &quotav1.Answer{Decision: quotav1.Decision_DECISION_DENY, Reason: reason}
}

// answerOf is what the state machine said, in the words of the wire.
func answerOf(said *fsm.Answer, p *policy.Policy) *quotav1.Answer {
	l := &p.Limits[said.Limit]
	a := &quotav1.Answer{
		Decision: quotav1.Decision_DECISION_ALLOW, Policy: p.Namespace + "/" + p.Name, LimitName: l.Name,
		WindowNs: l.Window, Unlimited: said.Unlimited, Replayed: said.Replayed,
	}
	if said.Verdict == fsm.VerdictDeny {
		deny(a, said)
	}
	if said.Unlimited {
		return a
	}
	a.Remaining = &said.Remaining
	if said.Replayed && said.Amount == 0 { // it isn't known any more
		return a
	}
	a.Limit = &said.Amount
	if said.FullAt != limit.Never {
		now := said.Time
		if said.Replayed {
			now = said.At
		}
		full := max(0, said.FullAt-now)
		a.ResetNs = &full
	}
	return a
}

func deny(a *quotav1.Answer, said *fsm.Answer) {
	a.Decision, a.Reason = quotav1.Decision_DECISION_DENY, quotav1.Reason_REASON_LIMIT
	if said.Exceeds {
		a.Reason = quotav1.Reason_REASON_COST_EXCEEDS_LIMIT
		return
	}
	if said.At == limit.Never {
		return
	}
	wait := max(1, said.At-said.Time)
	advice := limit.WholeSeconds(wait + (wait-1)/500 + 1) // 0.2 % more, as a node has it
	a.WaitNs, a.RetryAfterS = &wait, &advice
}

// failureOf is a verdict that is no decision; nil: it is one.
func failureOf(said *fsm.Answer) *quotav1.Failure {
	switch said.Verdict {
	case fsm.VerdictAllow, fsm.VerdictDeny:
		return nil
	case fsm.VerdictConflict:
		return failure(quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT)
	case fsm.VerdictStaleTime:
		f := failure(quotav1.FailureReason_FAILURE_REASON_STALE_TIME)
		f.Detail = &quotav1.Failure_StaleTime{StaleTime: &quotav1.StaleTime{DecisionTimeNs: said.Time}}
		return f
	case fsm.VerdictMemory:
		return failure(quotav1.FailureReason_FAILURE_REASON_MEMORY)
	}
	return failure(quotav1.FailureReason_FAILURE_REASON_NOT_LEADER)
}

// failure is a failure with the code that goes with its reason.
func failure(reason quotav1.FailureReason) *quotav1.Failure {
	code := codes.Unavailable
	switch reason {
	case quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT:
		code = codes.InvalidArgument
	case quotav1.FailureReason_FAILURE_REASON_STALE_TIME:
		code = codes.FailedPrecondition
	case quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT:
		code = codes.AlreadyExists
	case quotav1.FailureReason_FAILURE_REASON_DEADLINE:
		code = codes.DeadlineExceeded
	case quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED:
		code = codes.Unimplemented
	case quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED:
		code = codes.PermissionDenied
	}
	return &quotav1.Failure{Code: uint32(code), Reason: reason, Message: "clienttest: " + reason.String()}
}

func invalid(message string) *quotav1.Failure {
	f := failure(quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT)
	f.Message = message
	return f
}

// statusOf carries a failure out of a unary call.
func statusOf(f *quotav1.Failure) error {
	s, err := status.New(codes.Code(f.GetCode()), f.GetMessage()).WithDetails(f)
	if err != nil {
		panic("clienttest: " + err.Error()) // no failure has the code OK
	}
	return s.Err()
}

func usageOf(u *fsm.Use, p *policy.Policy, now int64) *quotav1.LimitUsage {
	m := &quotav1.LimitUsage{
		Policy: p.Namespace + "/" + p.Name, LimitName: p.Limits[u.Limit].Name,
		Algorithm: quotav1.Algorithm(u.Spec.Algorithm), Used: u.Used, WindowNs: u.Spec.Window,
	}
	if m.Unlimited = u.Spec.Amount == limit.Unlimited; m.Unlimited {
		return m
	}
	amount, left := u.Spec.Amount, u.Left
	m.Limit, m.Left = &amount, &left
	if u.FullAt != limit.Never {
		full := max(0, u.FullAt-now)
		m.FullInNs = &full
	}
	return m
}
