package gateway

import (
	"errors"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// meaning is what one outcome is called on each front.
type meaning struct {
	answer  quotav1.Decision      // unspecified: no decision
	code    codes.Code            // over gRPC, without a decision
	failure quotav1.FailureReason // over gRPC, without a decision
	status  int                   // over HTTP
	// decision and word are the JSON answer's decision and reason; empty is null.
	decision, word string
	// again: the same question is worth asking in a second. A 503 says so in any case, since HTTP callers
	// can't do better.
	again bool
	// hidden: no caller of a gateway is told what a node said.
	hidden  bool
	message string // for people
}

const (
	allow       = "allow"
	deny        = "deny"
	unavailable = "unavailable"
)

// decisions is the one map from the reasons of answers to what callers see. Each reason goes with one decision.
var decisions = [...]meaning{
	quotav1.Reason_REASON_UNSPECIFIED: {answer: quotav1.Decision_DECISION_ALLOW, status: http.StatusOK, decision: allow},
	quotav1.Reason_REASON_NO_MATCH_ALLOWED: {answer: quotav1.Decision_DECISION_ALLOW, status: http.StatusOK, decision: allow,
		word: "no_match", message: "no policy matches, and the domain allows that"},
	quotav1.Reason_REASON_LIMIT: {answer: quotav1.Decision_DECISION_DENY, status: http.StatusTooManyRequests, decision: deny,
		word: "limit", message: "too little is left of a limit"},
	quotav1.Reason_REASON_COST_EXCEEDS_LIMIT: {answer: quotav1.Decision_DECISION_DENY, status: http.StatusTooManyRequests, decision: deny,
		word: "cost_exceeds_limit", message: "the cost is above a limit and can never fit"},
	quotav1.Reason_REASON_NO_POLICY: {answer: quotav1.Decision_DECISION_DENY, status: http.StatusForbidden, decision: deny,
		word: "no_policy", message: "no policy matches, and the domain denies that"},
	quotav1.Reason_REASON_UNKNOWN_DOMAIN: {answer: quotav1.Decision_DECISION_DENY, status: http.StatusForbidden, decision: deny,
		word: "unknown_domain", message: "no policy and no domain entry names the domain"},
}

// failures is the one map from what keeps a question from being decided to what callers see.
var failures = [...]meaning{
	quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT: {status: http.StatusBadRequest, word: "invalid_argument", code: codes.InvalidArgument,
		failure: quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, message: "bad input"},
	quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED: {status: http.StatusBadRequest, word: "not_supported", code: codes.Unimplemented,
		failure: quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED, message: "not supported"},
	quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED: {status: http.StatusForbidden, word: "permission_denied", code: codes.PermissionDenied,
		failure: quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED, message: "no certificate on the way may ask in this domain"},
	quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT: {status: http.StatusConflict, word: "decision_id_conflict", code: codes.AlreadyExists,
		failure: quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT, message: "the decision id stands for another check"},

	quotav1.FailureReason_FAILURE_REASON_STALE_TIME:     notReady,
	quotav1.FailureReason_FAILURE_REASON_STALE_POLICY:   notReady,
	quotav1.FailureReason_FAILURE_REASON_NOT_LEADER:     notReady,
	quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING: notReady,

	quotav1.FailureReason_FAILURE_REASON_NO_QUORUM: {status: http.StatusServiceUnavailable, decision: unavailable, word: "no_quorum", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, message: "no leader has heard a majority of the replicas lately"},
	quotav1.FailureReason_FAILURE_REASON_CLOCK: {status: http.StatusServiceUnavailable, decision: unavailable, word: "clock", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_CLOCK, message: "the leader can't vouch for its clock"},
	quotav1.FailureReason_FAILURE_REASON_OVERLOADED: {status: http.StatusServiceUnavailable, decision: unavailable, word: "overloaded", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_OVERLOADED, message: "the queue is full, or the deadline can't be met"},
	quotav1.FailureReason_FAILURE_REASON_DEADLINE: {status: http.StatusServiceUnavailable, decision: unavailable, word: "deadline", code: codes.DeadlineExceeded, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_DEADLINE, message: "the deadline passed before the check was put into an entry"},
	quotav1.FailureReason_FAILURE_REASON_MEMORY: {status: http.StatusServiceUnavailable, decision: unavailable, word: "memory", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_MEMORY, message: "no room to remember another allow"},
	quotav1.FailureReason_FAILURE_REASON_QUARANTINE: {status: http.StatusServiceUnavailable, decision: unavailable, word: "quarantine", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_QUARANTINE, message: "what was admitted before a rewind is not known and counts as used up"},
	quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN: {status: http.StatusServiceUnavailable, decision: unavailable, word: "outcome_unknown", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, message: "the check may have been charged, or may yet be"},
	quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN: {status: http.StatusServiceUnavailable, decision: unavailable, word: "shutting_down", code: codes.Unavailable, again: true,
		failure: quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN, message: "the gateway or the node that was asked is stopping"},
}

// notReady stands for what only a gateway has to know. Each of these proves that nothing was consumed, which
// NO_QUORUM says too.
var notReady = meaning{status: http.StatusServiceUnavailable, decision: unavailable, word: "not_ready", code: codes.Unavailable, again: true, hidden: true,
	failure: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, message: "leadership or policies are changing hands"}

// meaningOf returns the row of a failure. A reason that the table lacks leaves open what happened.
func meaningOf(r quotav1.FailureReason) *meaning {
	if r < 0 || int(r) >= len(failures) || failures[r].status == 0 {
		r = quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN
	}
	return &failures[r]
}

// decisionOf returns the row of an answer, nil if its decision and its reason don't go together as this
// version knows them: then nobody here can tell what was decided.
func decisionOf(a *quotav1.Answer) *meaning {
	r := a.GetReason()
	if a == nil || r < 0 || int(r) >= len(decisions) || decisions[r].answer != a.GetDecision() {
		return nil
	}
	return &decisions[r]
}

// outcome is what became of a question.
type outcome struct {
	*meaning
	answer  *quotav1.Answer // of a decision
	message string          // for people
	retry   int64           // seconds; 0: asking again is no use, or not known to be
	id      []byte          // the check's; empty: it was refused before it had one
}

// decided says that there is a decision to tell.
func (o *outcome) decided() bool { return o.answer != nil }

// label is the outcome as metrics call it.
func (o *outcome) label() string {
	if o.word == "" {
		return o.decision
	}
	return o.word
}

// failed is the outcome of that reason; an empty message stands for the reason's own.
func failed(r quotav1.FailureReason, message string) outcome {
	o := outcome{meaning: meaningOf(r), message: message}
	if message == "" || o.hidden {
		o.message = o.meaning.message
	}
	if o.again {
		o.retry = 1
	}
	return o
}

// unknown is the outcome of which nobody knows what happened.
func unknown() outcome { return failed(quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, "") }

// lost is the outcome of an answer that can't be passed on. Its id still names the check.
func lost(a *quotav1.Answer) outcome {
	o := unknown()
	if id := a.GetDecisionId(); len(id) == idLen {
		o.id = id
	}
	return o
}

// judge makes an outcome of what an Asker returned.
func judge(a *quotav1.Answer, err error) outcome {
	if err != nil {
		return failureIn(err)
	}
	m := decisionOf(a)
	if m == nil {
		return lost(a)
	}
	o := outcome{meaning: m, answer: a, message: m.message, id: a.GetDecisionId()}
	if a.RetryAfterS != nil && m.answer == quotav1.Decision_DECISION_DENY {
		o.retry = max(1, a.GetRetryAfterS())
	}
	return o
}

// failureIn is what an Asker's error comes to. One that doesn't say why, as that of a context that ended, leaves
// open what happened.
func failureIn(err error) outcome {
	u := new(client.Unavailable)
	if !errors.As(err, &u) {
		return unknown()
	}
	o := failed(u.Reason, u.Message)
	o.id = u.DecisionID
	if u.RetryAfter > 0 && !o.hidden {
		o.retry = int64((u.RetryAfter-1)/time.Second) + 1
	}
	return o
}
