package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

func entries(n int) (list []*quotav1.Entry) {
	for i := range n {
		list = append(list, entry(fmt.Sprint("n", i), "v"))
	}
	return list
}

// TestFieldsAreHeldToTheBoundsOfTheContract: at the bound it is asked, beyond it is refused, with the field's path,
// and nothing is asked.
func TestFieldsAreHeldToTheBoundsOfTheContract(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*quotav1.CheckRequest)
		want   string // field and message; empty: fine
	}{
		{"domain at its bound", func(m *quotav1.CheckRequest) { m.Domain = strings.Repeat("d", 253) }, ""},
		{"long domain", func(m *quotav1.CheckRequest) { m.Domain = strings.Repeat("d", 254) }, "domain: has 254 bytes"},
		{"no descriptors", func(m *quotav1.CheckRequest) { m.Descriptors = nil }, "descriptors: has 0 descriptors"},
		{"an empty descriptor", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries = nil }, ""},
		{"16 descriptors", func(m *quotav1.CheckRequest) { m.Descriptors = make([]*quotav1.Descriptor, 16) }, ""},
		{"17 descriptors", func(m *quotav1.CheckRequest) { m.Descriptors = make([]*quotav1.Descriptor, 17) }, "descriptors: has 17"},
		{"16 entries", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries = entries(16) }, ""},
		{"17 entries", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries = entries(17) }, "descriptors[0].entries: has 17 entries"},
		{"no name", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries = append(entries(1), entry("", "v")) }, "descriptors[0].entries[1].name: is empty"},
		{"name at its bound", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Name = strings.Repeat("n", 128) }, ""},
		{"long name", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Name = strings.Repeat("n", 129) }, "descriptors[0].entries[0].name: has 129 bytes"},
		{"a name twice", func(m *quotav1.CheckRequest) {
			m.Descriptors = append(m.Descriptors, &quotav1.Descriptor{Entries: []*quotav1.Entry{entry("z", ""), entry("a", ""), entry("z", "")}})
		}, "descriptors[1].entries[2].name: is that of entries[0] too"},
		{"empty value", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Value = nil }, ""},
		{"value at its bound", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Value = make([]byte, 1024) }, ""},
		{"long value", func(m *quotav1.CheckRequest) { m.Descriptors[0].Entries[0].Value = make([]byte, 1025) }, "descriptors[0].entries[0].value: has 1025 bytes"},
		{"no cost", func(m *quotav1.CheckRequest) { m.Cost = 0 }, ""},
		{"largest cost", func(m *quotav1.CheckRequest) { m.Cost = limit.MaxAmount }, ""},
		{"larger cost", func(m *quotav1.CheckRequest) { m.Cost = limit.MaxAmount + 1 }, "cost: is above 9223372036854775807"},
	} {
		s := newStand(allowing())
		m := checkOf("u42")
		c.change(m)
		sent := proto.CloneOf(m)
		_, err := s.Service().Check(t.Context(), m)
		if c.want == "" {
			if err != nil || len(s.asker.asked) != 1 || !proto.Equal(s.asker.asked[0], sent) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if f := failureIn(t, err); !strings.HasPrefix(f.GetMessage(), c.want) || f.Partition != nil || f.RetryAfterS != nil ||
			f.GetReason() != quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT || status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", c.name, f)
		}
		if len(s.asker.asked) != 0 {
			t.Errorf("%s: was asked all the same", c.name)
		}
	}
}

// TestWhatTheGatewayDoesItselfIsRefused: nothing is accepted and ignored.
func TestWhatTheGatewayDoesItselfIsRefused(t *testing.T) {
	for field, change := range map[string]func(*quotav1.CheckRequest){
		"fence_ns":   func(m *quotav1.CheckRequest) { m.FenceNs = proto.Int64(0) },
		"resolution": func(m *quotav1.CheckRequest) { m.Resolution = &quotav1.Resolution{} },
		"partition":  func(m *quotav1.CheckRequest) { m.Partition = proto.Uint32(0) },
		"peek":       func(m *quotav1.CheckRequest) { m.Peek = true },
	} {
		s := newStand(allowing())
		m := checkOf("u42")
		change(m)
		_, err := s.Service().Check(t.Context(), m)
		f := failureIn(t, err)
		if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(f.GetMessage(), field+": ") ||
			!strings.Contains(f.GetMessage(), "the gateway does this itself") || len(s.asker.asked) != 0 {
			t.Errorf("%s: %v", field, f)
		}
	}
}

// TestTheOnlyDomainMayBeLeftOut: it is filled in; where there are several, nobody guesses; before any is known, nobody
// can tell.
func TestTheOnlyDomainMayBeLeftOut(t *testing.T) {
	for _, domains := range [][]string{{"video-api"}, {"a", "b"}, {}} {
		s := newStand(allowing())
		s.asker.domains = domains
		m := checkOf("u42")
		m.Domain = ""
		_, err := s.Service().Check(t.Context(), m)
		_, inspected := s.Service().Inspect(t.Context(), &quotav1.InspectRequest{Descriptor_: m.Descriptors[0]})
		if len(domains) == 1 {
			if err != nil || inspected != nil || s.asker.asked[0].GetDomain() != "video-api" || s.asker.inspected[0].GetDomain() != "video-api" {
				t.Errorf("one domain: %v, %v", err, inspected)
			}
			continue
		}
		if status.Code(err) != codes.InvalidArgument || status.Code(inspected) != codes.InvalidArgument || len(s.asker.asked)+len(s.asker.inspected) > 0 {
			t.Errorf("%d domains: %v, %v", len(domains), err, inspected)
		}
	}
	s := newStand(allowing())
	s.asker.domains = nil
	s.asker.setReady(false)
	m := checkOf("u42")
	m.Domain = ""
	if _, err := s.Service().Check(t.Context(), m); status.Code(err) != codes.Unavailable || len(s.asker.asked) != 0 {
		t.Errorf("before it is known: %v", err)
	}
}

// TestDED09IDsAreSixteenBytesOrNone: any bytes, passed on byte for byte, and of no other length; where there is none, the
// Asker makes one.
func TestDED09IDsAreSixteenBytesOrNone(t *testing.T) {
	for name, id := range map[string][]byte{
		"none": nil, "plain": []byte("R1R1R1R1R1R1R1R1"), "other case": []byte("r1R1R1R1R1R1R1R1"), "spaces": bytes.Repeat([]byte(" "), 16),
		"NUL": make([]byte, 16), "not UTF-8": bytes.Repeat([]byte{0xff}, 16),
	} {
		s := newStand(allowing())
		m := checkOf("u42")
		m.DecisionId = id
		response, err := s.Service().Check(t.Context(), m)
		if err != nil || id != nil && !bytes.Equal(response.GetAnswer().GetDecisionId(), id) || !bytes.Equal(s.asker.asked[0].GetDecisionId(), id) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int{1, 15, 17, 255, 256, 1 << 20} {
		s := newStand(allowing())
		m := checkOf("u42")
		m.DecisionId = bytes.Repeat([]byte("x"), n)
		_, err := s.Service().Check(t.Context(), m)
		if f := failureIn(t, err); !strings.HasPrefix(f.GetMessage(), "decision_id: has ") || len(s.asker.asked) != 0 {
			t.Errorf("%d bytes: %v", n, f)
		}
	}
}

// TestACheckHasItsCallersDeadline, at most MaxTimeout.
func TestACheckHasItsCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left time.Duration
		s := newStand(&asker{domains: []string{"video-api"}, check: func(ctx context.Context, _ *quotav1.CheckRequest) (*quotav1.Answer, error) {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return allowed(), nil
		}})
		for _, given := range []time.Duration{time.Nanosecond, time.Second, gateway.MaxTimeout, time.Hour, 0} {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			want := gateway.MaxTimeout
			if given > 0 {
				ctx, cancel = context.WithTimeout(ctx, given)
				want = min(given, want)
			}
			if _, err := s.Service().Check(ctx, checkOf("u42")); err != nil {
				t.Fatal(err)
			}
			cancel()
			if left != want {
				t.Errorf("with %v left: %v", given, left)
			}
		}
	})
}

// TestInspectAsksAndTranslates: the answer as it is, and failures as those of a check.
func TestInspectAsksAndTranslates(t *testing.T) {
	s := newStand(allowing())
	question := &quotav1.InspectRequest{Domain: "other", Descriptor_: &quotav1.Descriptor{Entries: []*quotav1.Entry{entry("principal", "u42")}}}
	response, err := s.Service().Inspect(t.Context(), question)
	if err != nil || response.GetPartition() != 7 || !proto.Equal(s.asker.inspected[0], question) {
		t.Errorf("%v, %v", response, err)
	}
	for want, failure := range map[quotav1.FailureReason]error{
		quotav1.FailureReason_FAILURE_REASON_CLOCK:     &client.Unavailable{Reason: quotav1.FailureReason_FAILURE_REASON_CLOCK},
		quotav1.FailureReason_FAILURE_REASON_NO_QUORUM: &client.Unavailable{Reason: quotav1.FailureReason_FAILURE_REASON_NOT_LEADER},
		quotav1.FailureReason_FAILURE_REASON_DEADLINE:  context.DeadlineExceeded,
	} {
		s.asker.inspect = func(context.Context, *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
			return &quotav1.InspectResponse{}, failure
		}
		response, err := s.Service().Inspect(t.Context(), question)
		if f := failureIn(t, err); response != nil || f.GetReason() != want {
			t.Errorf("%v: %v, %v", failure, response, f)
		}
	}
	asked := len(s.asker.inspected)
	_, err = s.Service().Inspect(t.Context(), &quotav1.InspectRequest{Domain: "other", Descriptor_: &quotav1.Descriptor{Entries: entries(17)}})
	if f := failureIn(t, err); f.GetMessage() != "descriptor.entries: has 17 entries, at most 16 are allowed" || len(s.asker.inspected) != asked {
		t.Errorf("%v", f)
	}
}

// TestTooManyQuestionsInFlightAreRefused at once, over every front together, and taken again as soon as one is answered.
func TestTooManyQuestionsInFlightAreRefused(t *testing.T) {
	const most = 3
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		a := answering(nil)
		a.check = func(context.Context, *quotav1.CheckRequest) (*quotav1.Answer, error) {
			<-release
			return allowed(), nil
		}
		s := newStand(a, func(c *gateway.Config) { c.MaxInFlight = most })
		var waiting sync.WaitGroup
		for range most {
			waiting.Go(func() {
				if a := s.get(t, "/check?principal=u42"); a.status != 200 {
					t.Errorf("within the bound: status %d", a.status)
				}
			})
		}
		synctest.Wait()
		over := s.get(t, "/check?principal=u42")
		if over.status != 503 || text(over.Reason) != "overloaded" || text(over.RetryAfter) != "1" {
			t.Errorf("over HTTP: status %d, %s", over.status, over.body)
		}
		_, err := s.Service().Check(t.Context(), checkOf("u42"))
		if f := failureIn(t, err); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_OVERLOADED {
			t.Errorf("over gRPC: %v", f)
		}
		_, err = s.Service().Inspect(t.Context(), &quotav1.InspectRequest{Descriptor_: &quotav1.Descriptor{}})
		if f := failureIn(t, err); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_OVERLOADED {
			t.Errorf("an inspection: %v", f)
		}
		if len(s.asker.asked) != most || len(s.asker.inspected) != 0 {
			t.Errorf("asked %d and %d", len(s.asker.asked), len(s.asker.inspected))
		}
		for _, line := range []string{
			"quorate_gateway_in_flight 3", `quorate_gateway_refused_total{front="http",why="in_flight"} 1`, `quorate_gateway_refused_total{front="grpc",why="in_flight"} 2`,
		} {
			if !strings.Contains(s.ops(t, "/metrics").body, line) {
				t.Errorf("no %s", line)
			}
		}
		close(release)
		waiting.Wait()
		if a := s.get(t, "/check?principal=u42"); a.status != 200 {
			t.Errorf("afterwards: status %d", a.status)
		}
	})
}

// TestAnswersAreCountedByFrontAndWord.
func TestAnswersAreCountedByFrontAndWord(t *testing.T) {
	answers := []*quotav1.Answer{allowed(), denied(), unmatched(quotav1.Decision_DECISION_ALLOW, quotav1.Reason_REASON_NO_MATCH_ALLOWED), nil}
	s := newStand(answering(func(m *quotav1.CheckRequest) (*quotav1.Answer, error) {
		return answers[m.GetCost()-1], nil
	}))
	for i := range answers {
		s.get(t, fmt.Sprint("/check?principal=u42&cost=", i+1))
		m := checkOf("u42")
		m.Cost = uint64(i + 1)
		_, _ = s.Service().Check(t.Context(), m) // only its count matters here
	}
	metrics := s.ops(t, "/metrics").body
	for _, front := range []string{"http", "grpc"} {
		for _, word := range []string{"allow", "limit", "no_match", "outcome_unknown"} {
			if line := fmt.Sprintf(`quorate_gateway_answers_total{answer=%q,front=%q} 1`, word, front); !strings.Contains(metrics, line) {
				t.Errorf("no %s", line)
			}
		}
	}
}

// FuzzCheckRequest: whatever a message holds, it is asked only within its bounds, and what is refused is refused
// without telling a value.
func FuzzCheckRequest(f *testing.F) {
	for _, m := range []*quotav1.CheckRequest{{}, checkOf("u42"), {
		Domain: "d", Cost: 3, DecisionId: make([]byte, 16), FenceNs: proto.Int64(1),
		Descriptors: []*quotav1.Descriptor{{Entries: []*quotav1.Entry{entry("a", "1"), entry("a", "2")}}},
	}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s := newStand(allowing())
	f.Fuzz(func(t *testing.T, b []byte) {
		s.asker.asked = nil
		m := &quotav1.CheckRequest{}
		if proto.Unmarshal(b, m) != nil {
			t.Skip("not a message")
		}
		sent := proto.CloneOf(m)
		if _, err := s.Service().Check(t.Context(), m); err != nil {
			if failure := failureIn(t, err); failure.GetReason() != quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT ||
				failure.GetMessage() == "" || len(s.asker.asked) != 0 {
				t.Fatalf("failure %v after %d checks", failure, len(s.asker.asked))
			}
			return
		}
		got := s.asker.asked[0]
		if sent.Domain == "" {
			sent.Domain = "video-api"
		}
		if !proto.Equal(got, sent) || got.GetCost() > limit.MaxAmount || len(got.GetDomain()) > 253 || len(got.GetDescriptors()) < 1 ||
			len(got.GetDescriptors()) > keyspace.MaxDescriptors || got.FenceNs != nil || got.Resolution != nil || got.Partition != nil || got.Peek {
			t.Fatalf("asked %v", got)
		}
		for _, d := range got.GetDescriptors() {
			if have := values(d); len(have) != len(d.GetEntries()) || len(have) > keyspace.MaxEntries {
				t.Fatalf("asked %v", got)
			}
		}
	})
}
