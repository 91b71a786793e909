package server_test

import (
	"math"
	"math/big"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/server"
)

// seen is what callers see of an outcome. Numbers of seconds: 0 is none.
type seen struct {
	code    codes.Code
	answer  quotav1.Decision
	reason  quotav1.Reason
	failure quotav1.FailureReason
	retry   int64
}

// translations is the contract, row by row.
var translations = map[partition.Result]seen{
	partition.Allowed:        {answer: quotav1.Decision_DECISION_ALLOW},
	partition.NoMatchAllowed: {answer: quotav1.Decision_DECISION_ALLOW, reason: quotav1.Reason_REASON_NO_MATCH_ALLOWED},
	partition.Denied:         {answer: quotav1.Decision_DECISION_DENY, reason: quotav1.Reason_REASON_LIMIT, retry: 31},
	partition.Exceeded:       {answer: quotav1.Decision_DECISION_DENY, reason: quotav1.Reason_REASON_COST_EXCEEDS_LIMIT},
	partition.NoPolicy:       {answer: quotav1.Decision_DECISION_DENY, reason: quotav1.Reason_REASON_NO_POLICY},
	partition.UnknownDomain:  {answer: quotav1.Decision_DECISION_DENY, reason: quotav1.Reason_REASON_UNKNOWN_DOMAIN},
	partition.WouldAllow:     {answer: quotav1.Decision_DECISION_WOULD_ALLOW},

	partition.Invalid:      {code: codes.InvalidArgument, failure: quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT},
	partition.NotSupported: {code: codes.Unimplemented, failure: quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED},
	partition.Conflict:     {code: codes.AlreadyExists, failure: quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT},

	partition.StaleTime:   {code: codes.FailedPrecondition, failure: quotav1.FailureReason_FAILURE_REASON_STALE_TIME},
	partition.StalePolicy: {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_STALE_POLICY},
	partition.NotLeader:   {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_NOT_LEADER},
	partition.Pending:     {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_POLICY_PENDING, retry: 1},
	partition.NoQuorum:    {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, retry: 1},
	partition.Clock:       {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_CLOCK, retry: 1},
	partition.Overloaded:  {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_OVERLOADED, retry: 1},
	partition.Late:        {code: codes.DeadlineExceeded, failure: quotav1.FailureReason_FAILURE_REASON_DEADLINE, retry: 1},
	partition.Memory:      {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_MEMORY, retry: 1},
	partition.Unknown:     {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, retry: 1},
	partition.Stopping:    {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN, retry: 1},

	// Not results: nobody knows what they mean, so nobody knows what happened.
	0:                        {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, retry: 1},
	partition.WouldAllow + 1: {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, retry: 1},
	math.MaxUint8:            {code: codes.Unavailable, failure: quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, retry: 1},
}

// outcomeOf is an outcome of a limit of 3 per minute, 30 s before enough has left.
func outcomeOf(r partition.Result) partition.Outcome {
	o := partition.Outcome{Result: r, Time: 100 * second, Partition: 7, Epoch: 2, Version: 3}
	o.Answer = fsm.Answer{Time: 100 * second, At: limit.Never, FullAt: 150 * second, Amount: 3}
	switch r {
	case partition.Allowed:
		o.Policy, o.Answer.Remaining, o.Answer.At = perMinute, 2, o.Time
	case partition.Denied:
		o.Policy, o.Answer.At = perMinute, 130*second
	case partition.Exceeded:
		o.Policy = perMinute
	}
	return o
}

// TestEveryResultHasOneMeaning walks every result.
func TestEveryResultHasOneMeaning(t *testing.T) {
	for r := partition.Allowed; r <= partition.WouldAllow; r++ {
		if _, ok := translations[r]; !ok {
			t.Errorf("result %d is not in the contract", r)
		}
	}
	for r, want := range translations {
		n := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(r) }))
		if got := ask(t, n); got != want {
			t.Errorf("result %d: %+v, want %+v", r, got, want)
		}
	}
}

// ask sends one check and says what comes of it.
func ask(t *testing.T, n *node) seen {
	t.Helper()
	response, err := n.Service().Check(t.Context(), checkOf("u42"))
	if err == nil {
		a := response.GetAnswer()
		return seen{answer: a.GetDecision(), reason: a.GetReason(), retry: a.GetRetryAfterS()}
	}
	f := failureIn(t, err)
	if codes.Code(f.GetCode()) != status.Code(err) {
		t.Errorf("the failure says %d, its status %v", f.GetCode(), status.Code(err))
	}
	if f.GetMessage() == "" {
		t.Error("a failure without a message")
	}
	return seen{code: status.Code(err), failure: f.GetReason(), retry: f.GetRetryAfterS()}
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
		Entries: []*quotav1.Entry{{Name: "principal", Value: []byte(principal)}},
	}}}
}

// TestEveryReasonOfTheContractIsSentOrKnownNotToBe walks the enums of the wire contract.
func TestEveryReasonOfTheContractIsSentOrKnownNotToBe(t *testing.T) {
	sent := map[quotav1.FailureReason]bool{
		quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED: true, // never sent
		quotav1.FailureReason_FAILURE_REASON_QUARANTINE:  true, // nothing rewinds yet
		// no result: the server's own, see TestWhoMayAskInWhichDomain
		quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED: true,
	}
	reasons := map[quotav1.Reason]bool{}
	for _, s := range translations {
		sent[s.failure] = true
		reasons[s.reason] = true
	}
	for v, name := range quotav1.FailureReason_name {
		if !sent[quotav1.FailureReason(v)] {
			t.Errorf("no result gives %s", name)
		}
	}
	for v, name := range quotav1.Reason_name {
		if !reasons[quotav1.Reason(v)] {
			t.Errorf("no result gives %s", name)
		}
	}
}

// TestOnlyAnAllowReadsAsOne: of all values that a result can have, two are an allow.
func TestOnlyAnAllowReadsAsOne(t *testing.T) {
	for r := range 1 + math.MaxUint8 {
		result := partition.Result(r)
		n := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(result) }))
		want := result == partition.Allowed || result == partition.NoMatchAllowed
		response, err := n.Service().Check(t.Context(), checkOf("u42"))
		if got := err == nil && response.GetAnswer().GetDecision() == quotav1.Decision_DECISION_ALLOW; got != want {
			t.Errorf("result %d: allowed is %v", r, got)
		}
	}
}

// TestRA09RetryAfterIsWholeSecondsUp: digits only, the ceiling of the wait with 0.2 % on top, so at most
// one second more than the bare ceiling, and at least 1.
func TestRA09RetryAfterIsWholeSecondsUp(t *testing.T) {
	for wait, want := range map[int64]int64{
		1: 1, second / 1000: 1, 998_003_992: 1, 998_003_993: 2, second: 2, second + 1: 2, 299_997_000_000: 301,
		30 * second: 31, 60 * second: 61, 500 * second: 501, 500*second + 1: 502, 3600 * second: 3608,
	} {
		o := partition.Outcome{Result: partition.Denied}
		o.Answer.Time, o.Answer.At = 5*second, 5*second+wait
		got := server.Advice(&o)
		if got != want || got != adviceByRationals(wait) {
			t.Errorf("wait of %d ns: %d s, want %d, by rationals %d", wait, got, want, adviceByRationals(wait))
		}
		if bare := limit.WholeSeconds(wait); got < bare || wait < 400*second && got > bare+1 {
			t.Errorf("wait of %d ns: %d s, bare %d", wait, got, bare)
		}
	}
	o := partition.Outcome{Result: partition.Denied}
	if o.Answer.At = math.MaxInt64 - 1; server.Advice(&o) != 9_223_372_037 {
		t.Errorf("the longest wait is told as %d s", server.Advice(&o))
	}
	n := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Denied) }))
	response, err := n.Service().Check(t.Context(), checkOf("u42"))
	if a := response.GetAnswer(); err != nil || a.GetRetryAfterS() != 31 || a.GetWaitNs() != 30*second {
		t.Errorf("answer %v (%v)", a, err)
	}
}

// adviceByRationals is the slow way: wait × 1.002 s, rounded up.
func adviceByRationals(wait int64) int64 {
	exact := new(big.Rat).Mul(big.NewRat(wait, second), big.NewRat(1002, 1000))
	whole := new(big.Int).Quo(exact.Num(), exact.Denom())
	if !exact.IsInt() {
		whole.Add(whole, big.NewInt(1))
	}
	return max(1, whole.Int64())
}

// TestFailuresCarryWhatTheirReasonPromises: where to ask, when, and with what resolution.
func TestFailuresCarryWhatTheirReasonPromises(t *testing.T) {
	resolution := &partition.Resolution{Policies: []partition.Resolved{{
		Namespace: "media", Name: "conversions", Revision: 0x0102030405060708, Key: []byte("key"), Partition: 7,
	}}, Version: fsm.Version{Epoch: 2, Number: 5}}
	failure := func(r partition.Result) *quotav1.Failure {
		n := newNode(answering(func(*partition.Call) partition.Outcome {
			o := outcomeOf(r)
			o.Resolution, o.Detail = resolution, "what exactly"
			return o
		}))
		_, err := n.Service().Check(t.Context(), checkOf("u42"))
		return failureIn(t, err)
	}
	if f := failure(partition.StaleTime); f.GetStaleTime().GetDecisionTimeNs() != 100*second || f.GetPartition() != 7 {
		t.Errorf("stale time: %v", f)
	}
	if f := failure(partition.NotLeader); f.GetNotLeader() == nil || f.GetNotLeader().GetLeader() != "" {
		t.Errorf("not leader: %v", f)
	}
	if f := failure(partition.Stopping); f.Partition != nil {
		t.Errorf("a check that was refused before it had a partition names one: %v", f)
	}
	if f := failure(partition.NotSupported); f.GetMessage() != "not supported: what exactly" {
		t.Errorf("message %q", f.GetMessage())
	}
	f := failure(partition.StalePolicy)
	p := f.GetStalePolicy().GetResolution().GetPolicies()
	if r := f.GetStalePolicy().GetResolution(); r.GetSetEpoch() != 2 || r.GetSetVersion() != 5 {
		t.Errorf("stale policy: %v", f)
	}
	if f.GetStalePolicy().GetSetVersion() != 3 || len(p) != 1 || p[0].GetPolicy() != "media/conversions" ||
		string(p[0].GetRevision()) != "\x01\x02\x03\x04\x05\x06\x07\x08" || string(p[0].GetKey()) != "key" || p[0].GetPartition() != 7 {
		t.Errorf("stale policy: %v", f)
	}
}

// TestNotLeaderNamesWhereTheLeaderAnswers, as the cluster knows it by its id; a leader that nobody knows has no
// address.
func TestNotLeaderNamesWhereTheLeaderAnswers(t *testing.T) {
	for leader, want := range map[string]string{idOfN2: "n2.example:8081", idOfN3: "", "": ""} {
		d := answering(func(*partition.Call) partition.Outcome {
			o := outcomeOf(partition.NotLeader)
			o.Leader = leader
			return o
		})
		n := newNodeWith(d, withCluster(&scene{addresses: map[string]string{idOfN2: "n2.example:8081"}}))
		_, err := n.Service().Check(t.Context(), checkOf("u42"))
		if f := failureIn(t, err); f.GetNotLeader() == nil || f.GetNotLeader().GetLeader() != want {
			t.Errorf("leader %q: %v", leader, f)
		}
	}
}

// TestWhoOnlyLooksIsNeverLetIn: whatever comes of a peek, it is no allow, on its own or in a stream.
func TestWhoOnlyLooksIsNeverLetIn(t *testing.T) {
	for r, want := range map[partition.Result]quotav1.Decision{
		partition.WouldAllow:     quotav1.Decision_DECISION_WOULD_ALLOW,
		partition.Allowed:        quotav1.Decision_DECISION_WOULD_ALLOW, // an id has it recorded
		partition.NoMatchAllowed: quotav1.Decision_DECISION_WOULD_ALLOW,
		partition.Denied:         quotav1.Decision_DECISION_DENY,
		partition.NoPolicy:       quotav1.Decision_DECISION_DENY,
	} {
		d := answering(func(*partition.Call) partition.Outcome { return outcomeOf(r) })
		inBubble(t, d, func(t *testing.T, n *node, s stream) {
			m := checkOf("u42")
			m.Peek = true
			alone, err := n.Service().Check(t.Context(), m)
			if err != nil || alone.GetAnswer().GetDecision() != want {
				t.Errorf("result %d: %v, %v", r, alone, err)
			}
			send(t, s, &quotav1.CheckStreamRequest{Checks: []*quotav1.TaggedCheck{{Check: m}}})
			answers, _ := receive(t, s, 1)
			if got := answers[0].GetAnswer(); got.GetDecision() != want || got.GetDecisionTimeNs() != 100*second || got.GetPartition() != 7 {
				t.Errorf("result %d in a stream: %v", r, got)
			}
		})
	}
}
