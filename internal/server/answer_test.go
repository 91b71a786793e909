package server_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// TestAnswersSayAllThatIsKnown: an allow and denials to the field, but for the id.
func TestAnswersSayAllThatIsKnown(t *testing.T) {
	for r, want := range map[partition.Result]*quotav1.Answer{
		partition.Allowed: {
			Decision: quotav1.Decision_DECISION_ALLOW, Policy: "media/conversions", LimitName: "per-minute", Limit: proto.Uint64(3),
			Remaining: proto.Uint64(2), WindowNs: 60 * second, ResetNs: proto.Int64(50 * second), WholeAmountNs: proto.Int64(60 * second),
		},
		partition.Denied: {
			Decision: quotav1.Decision_DECISION_DENY, Reason: quotav1.Reason_REASON_LIMIT,
			Policy: "media/conversions", LimitName: "per-minute", Limit: proto.Uint64(3), Remaining: proto.Uint64(0),
			RetryAfterS: proto.Int64(31), WaitNs: proto.Int64(30 * second), WindowNs: 60 * second, ResetNs: proto.Int64(50 * second), WholeAmountNs: proto.Int64(60 * second),
		},
		partition.NoPolicy: {Decision: quotav1.Decision_DECISION_DENY, Reason: quotav1.Reason_REASON_NO_POLICY},
	} {
		want.DecisionTimeNs, want.Partition, want.Epoch, want.SetVersion = 100*second, 7, 2, 3
		response, err := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(r) })).Service().Check(t.Context(), checkOf("u42"))
		if err != nil {
			t.Fatal(err)
		}
		got := response.GetAnswer()
		if len(got.GetDecisionId()) != 16 {
			t.Errorf("result %d: the id %x", r, got.GetDecisionId())
		}
		if got.DecisionId = nil; !proto.Equal(got, want) {
			t.Errorf("result %d: %v, want %v", r, got, want)
		}
	}
}

// TestEveryAnswerHasTheSameFields: the first, a middle, the last and the denied answer, under each of the four
// algorithms. A denial says how long to wait beside them.
func TestEveryAnswerHasTheSameFields(t *testing.T) {
	want := []string{"decision", "decision_id", "epoch", "limit", "limit_name", "policy", "remaining", "reset_ns", "set_version", "whole_amount_ns", "window_ns"}
	for _, spec := range []limit.Spec{
		{Algorithm: limit.RollingWindow, Amount: 3, Window: 60 * second},
		{Algorithm: limit.TokenBucket, Amount: 3, Window: 20 * second, Refill: 1},
		{Algorithm: limit.SlidingWindowCounter, Amount: 3, Window: 60 * second},
		{Algorithm: limit.FixedWindow, Amount: 3, Window: 60 * second},
	} {
		ledger := newLedger(spec)
		n := newNode(ledger)
		for i, left := range []uint64{2, 1, 0, 0} {
			ledger.now = int64(i+1) * second
			response, err := n.Service().Check(t.Context(), checkOf("u42"))
			if err != nil {
				t.Fatal(err)
			}
			a := response.GetAnswer()
			fields := fieldsOf(a)
			if i == 3 {
				for _, one := range []string{"reason", "retry_after_s", "wait_ns"} {
					if _, ok := fields[one]; !ok {
						t.Errorf("%v: the denial has no %s", spec.Algorithm, one)
					}
					delete(fields, one)
				}
			}
			delete(fields, "decision_time_ns")
			if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
				t.Errorf("%v, answer %d: fields %q, want %q", spec.Algorithm, i, got, want)
			}
			if a.GetLimit() != 3 || a.GetRemaining() != left || a.GetResetNs() < 1 || a.GetWholeAmountNs() != 60*second || a.GetDecisionTimeNs() != ledger.now {
				t.Errorf("%v, answer %d: %v", spec.Algorithm, i, a)
			}
		}
	}
}

// TestWholeAmountIsTheTimeThatAnEmptyLimitTakes: a window; of a bucket what its refill needs, where that is known and
// is whole nanoseconds.
func TestWholeAmountIsTheTimeThatAnEmptyLimitTakes(t *testing.T) {
	bucket := policy.Limit{Algorithm: limit.TokenBucket, Window: 60 * second, Refill: 1}
	with := func(change func(*policy.Limit)) policy.Limit { l := bucket; change(&l); return l }
	own := func(a policy.Amount) []policy.Override { return []policy.Override{{Amounts: []policy.Amount{a}}} }
	for name, c := range map[string]struct {
		limit     policy.Limit
		amount    uint64
		overrides []policy.Override
		want      int64 // 0: absent
	}{
		"a window":                      {policy.Limit{Algorithm: limit.RollingWindow, Window: second / 2}, 3, nil, second / 2},
		"a window of a huge amount":     {policy.Limit{Algorithm: limit.FixedWindow, Window: second}, limit.MaxAmount, nil, second},
		"a bucket":                      {bucket, 3, nil, 180 * second},
		"an uneven bucket":              {with(func(l *policy.Limit) { l.Refill = 8 }), 3, nil, 22*second + second/2},
		"no whole nanoseconds":          {with(func(l *policy.Limit) { l.Refill = 7 }), 3, nil, 0},
		"the longest that can be told":  {with(func(l *policy.Limit) { l.Window = 1 }), limit.MaxAmount, nil, math.MaxInt64},
		"longer than can be told":       {with(func(l *policy.Limit) { l.Window = 2 }), limit.MaxAmount, nil, 0},
		"much longer":                   {bucket, limit.MaxAmount, nil, 0},
		"a product above 64 bits":       {with(func(l *policy.Limit) { l.Refill = limit.MaxAmount }), limit.MaxAmount, nil, 60 * second},
		"without a refill":              {with(func(l *policy.Limit) { l.Refill = 0 }), 3, nil, 0},
		"a limit of 0":                  {bucket, 0, nil, 0},
		"an override's amount":          {bucket, 5, own(policy.Amount{Limit: "per-minute", Amount: 5}), 300 * second},
		"an override's refill":          {bucket, 3, own(policy.Amount{Limit: "per-minute", Amount: 3, Refill: 2}), 0},
		"an override's period":          {bucket, 3, own(policy.Amount{Limit: "per-minute", Amount: 3, Period: second}), 0},
		"another limit's refill":        {bucket, 3, own(policy.Amount{Limit: "other", Amount: 3, Refill: 2}), 180 * second},
		"more overrides than looked at": {bucket, 3, make([]policy.Override, 65), 0},
		"a window with many overrides":  {policy.Limit{Algorithm: limit.RollingWindow, Window: second}, 3, make([]policy.Override, 65), second},
	} {
		n := newNode(answering(func(*partition.Call) partition.Outcome {
			o, p := outcomeOf(partition.Allowed), *perMinute
			c.limit.Name = "per-minute"
			p.Limits, p.Overrides = []policy.Limit{c.limit}, c.overrides
			o.Policy, o.Answer.Amount = &p, c.amount
			return o
		}))
		response, err := n.Service().Check(t.Context(), checkOf("u42"))
		if err != nil {
			t.Fatal(err)
		}
		a := response.GetAnswer()
		if a.GetWholeAmountNs() != c.want || (a.WholeAmountNs == nil) != (c.want == 0) {
			t.Errorf("%s: %v, want %d", name, a.WholeAmountNs, c.want)
		}
	}
}

// fieldsOf names the fields that a message has.
func fieldsOf(m proto.Message) map[string]struct{} {
	fields := map[string]struct{}{}
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields[string(f.Name())] = struct{}{}
		return true
	})
	return fields
}

// TestAReplayedAllowOmitsWhatWasNotRecorded instead of making it up.
func TestAReplayedAllowOmitsWhatWasNotRecorded(t *testing.T) {
	n := newNode(answering(func(*partition.Call) partition.Outcome {
		o := outcomeOf(partition.Allowed)
		o.Answer.Replayed, o.Answer.Amount, o.Answer.FullAt = true, 0, 0
		return o
	}))
	response, err := n.Service().Check(t.Context(), checkOf("u42"))
	if err != nil {
		t.Fatal(err)
	}
	if a := response.GetAnswer(); !a.GetReplayed() || a.Limit != nil || a.ResetNs != nil || a.WholeAmountNs != nil || a.GetRemaining() != 2 {
		t.Errorf("answer %v", a)
	}
}

// strange are values that stores, logs and headers have choked on.
var strange = []string{
	"a", " ", "a b", "\t", "\r\n", "\r\nSet-Cookie: x=1", "\x00", "a\x00", "\x7f", "\x1b[31m", `"`, "'", "%", "%25", "%00",
	"\\", "ü", "u\u0308", "🦉", "\xff", "\xff\xfe", "a=b&c", "a/b", "null", "../../etc",
}

// TestStrangeValuesAreKeysOfTheirOwn: each has its own allowance, and gets neither into logs, metrics nor
// messages.
func TestStrangeValuesAreKeysOfTheirOwn(t *testing.T) {
	n := newNode(newLedger(limit.Spec{Algorithm: limit.RollingWindow, Amount: 1, Window: 60 * second}))
	client, _, stop := n.start(t)
	defer stop()
	for i, value := range strange {
		for round, want := range []quotav1.Decision{quotav1.Decision_DECISION_ALLOW, quotav1.Decision_DECISION_DENY} {
			response, err := client.Check(t.Context(), checkOf("mark"+value))
			if err != nil || response.GetAnswer().GetDecision() != want {
				t.Errorf("value %d %q, round %d: %v (%v)", i, value, round, response, err)
			}
			if strings.Contains(response.String(), "mark") {
				t.Errorf("value %q is in the answer %v", value, response)
			}
		}
	}
	_, err := client.Check(t.Context(), checkOf("mark"+strings.Repeat("v", 2000)))
	if f := failureIn(t, err); strings.Contains(f.String(), "mark") || f.GetReason() != quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT {
		t.Errorf("a value beyond the bound: %v", f)
	}
	if log := n.log.String(); log != "" {
		t.Errorf("the log has %q", log)
	}
	if strings.Contains(n.ops(t, "/metrics").body, "mark") {
		t.Error("a value is in the metrics")
	}
}

// TestMET01KeysGrowNoMetrics, nor do domains and paths: as many series as before, whatever is asked.
func TestMET01KeysGrowNoMetrics(t *testing.T) {
	n := newNode(newLedger(limit.Spec{Algorithm: limit.RollingWindow, Amount: 1, Window: 60 * second}))
	before := n.series(t)
	r := rand.New(rand.NewPCG(3, 3)) // what is asked doesn't matter, so the seed is fixed
	for range 1000 {
		m := checkOf(fmt.Sprint(r.Uint64()))
		m.Domain = fmt.Sprint(r.Uint64())
		if _, err := n.Service().Check(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		n.ops(t, fmt.Sprintf("/%x?%x=%x", r.Uint64(), r.Uint32(), r.Uint64()))
	}
	if after := n.series(t); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
}

func (n *node) series(t *testing.T) (series int) {
	t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		series += len(f.GetMetric())
	}
	return series
}

// TestADefectCostsOneCall and is counted; nobody takes it for a decision.
func TestADefectCostsOneCall(t *testing.T) {
	broken := true
	n := newNode(answering(func(*partition.Call) partition.Outcome {
		if broken {
			panic("a defect")
		}
		return outcomeOf(partition.Allowed)
	}))
	client, _, stop := n.start(t)
	defer stop()
	if _, err := client.Check(t.Context(), checkOf("u42")); status.Code(err) != codes.Internal {
		t.Errorf("the call ends with %v", err)
	}
	broken = false
	if _, err := client.Check(t.Context(), checkOf("u42")); err != nil {
		t.Errorf("the next one: %v", err)
	}
	if !strings.Contains(n.ops(t, "/metrics").body, `quorate_panics_total{front="grpc"} 1`) || !strings.Contains(n.log.String(), "a defect") {
		t.Error("not counted, or not logged")
	}
}
