package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
	"github.com/quorate/quorate/internal/limit"
)

// TestAnswersOverHTTPSayAllThatIsKnown: an allow, denials and a failure to the byte, but for the id.
func TestAnswersOverHTTPSayAllThatIsKnown(t *testing.T) {
	quorum := &client.Unavailable{
		Reason: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, Message: "no leader has heard a majority of the replicas lately", RetryAfter: time.Second,
	}
	named := &client.Unavailable{
		Reason: quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN, Message: "the way broke", DecisionID: []byte("0123456789abcde\xff"),
	}
	for _, c := range []struct {
		answer *quotav1.Answer
		err    error
		want   string
	}{
		{allowed(), nil, `{"decision":"allow","reason":null,"message":null,"policy":"media/conversions","limit":3,` +
			`"limit_name":"per-minute","remaining":2,"retry_after":null,"decision_time_ns":100000000000,"partition":7,"epoch":2,"replayed":false,"id":"ID"}`},
		{denied(), nil, `{"decision":"deny","reason":"limit","message":"too little is left of a limit","policy":"media/conversions","limit":3,` +
			`"limit_name":"per-minute","remaining":0,"retry_after":31,"decision_time_ns":100000000000,"partition":7,"epoch":2,"replayed":false,"id":"ID"}`},
		{unmatched(quotav1.Decision_DECISION_DENY, quotav1.Reason_REASON_NO_POLICY), nil,
			`{"decision":"deny","reason":"no_policy","message":"no policy matches, and the domain denies that","policy":null,"limit":null,` +
				`"limit_name":null,"remaining":null,"retry_after":null,"decision_time_ns":100000000000,"partition":7,"epoch":2,"replayed":false,"id":"ID"}`},
		{nil, named, `{"decision":"unavailable","reason":"outcome_unknown","message":"the way broke","policy":null,"limit":null,` +
			`"limit_name":null,"remaining":null,"retry_after":1,"decision_time_ns":null,"partition":null,"epoch":null,"replayed":null,"id":"303132333435363738396162636465ff"}`},
		{nil, quorum, `{"decision":"unavailable","reason":"no_quorum","message":"no leader has heard a majority of the replicas lately","policy":null,"limit":null,` +
			`"limit_name":null,"remaining":null,"retry_after":1,"decision_time_ns":null,"partition":null,"epoch":null,"replayed":null,"id":null}`},
	} {
		s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) { return c.answer, c.err }))
		a := s.get(t, "/check?principal=u42")
		if c.answer != nil && text(a.ID) != fmt.Sprintf("%x", c.answer.GetDecisionId()) {
			t.Fatalf("id %q", text(a.ID))
		}
		got := strings.TrimSuffix(a.body, "\n")
		if c.answer != nil {
			got = strings.Replace(got, `"id":"`+text(a.ID), `"id":"ID`, 1)
		}
		if got != c.want {
			t.Errorf("\n%s\nwant\n%s", got, c.want)
		}
	}
}

// TestNoCallerOverHTTPChoosesADecisionID: whatever it sends, the Asker gets none and makes one.
func TestNoCallerOverHTTPChoosesADecisionID(t *testing.T) {
	s := newStand(allowing())
	id := "30313233343536373839616263646566"
	r := httptest.NewRequest(http.MethodGet, "/check?id="+id+"&decision_id="+id, nil)
	for _, name := range []string{"X-Request-Id", "Decision-Id", "X-Decision-Id", "Idempotency-Key"} {
		r.Header.Set(name, id)
	}
	if a := s.do(t, r); a.status != http.StatusOK || text(a.ID) == id || len(text(a.ID)) != 32 || len(s.asker.asked[0].GetDecisionId()) != 0 {
		t.Errorf("status %d, id %s", a.status, text(a.ID))
	}
	if a := s.post(t, `{"descriptors":[{}],"decision_id":"`+id+`"}`); a.status != http.StatusBadRequest {
		t.Errorf("in a body: status %d", a.status)
	}
}

// TestRateLimitFields: draft-ietf-httpapi-ratelimit-headers-10.
func TestRateLimitFields(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(a *quotav1.Answer)
		policy, left string
	}{
		{"rolling window", func(*quotav1.Answer) {}, `"per-minute";q=3;w=60`, `"per-minute";r=2;t=50`},
		{"a part of a second rounds up", func(a *quotav1.Answer) { a.ResetNs = proto.Int64(1) }, `"per-minute";q=3;w=60`, `"per-minute";r=2;t=1`},
		{"all there", func(a *quotav1.Answer) { a.ResetNs = proto.Int64(0) }, `"per-minute";q=3;w=60`, `"per-minute";r=2;t=0`},
		{"never again", func(a *quotav1.Answer) { a.ResetNs = nil }, `"per-minute";q=3;w=60`, `"per-minute";r=2`},
		{"not whole seconds", func(a *quotav1.Answer) { a.WholeAmountNs = proto.Int64(second / 2) }, `"per-minute";q=3`, `"per-minute";r=2;t=50`},
		{"a bucket fills in three periods", func(a *quotav1.Answer) { a.WholeAmountNs = proto.Int64(180 * second) }, `"per-minute";q=3;w=180`, `"per-minute";r=2;t=50`},
		{"a bucket fills in no whole nanoseconds", func(a *quotav1.Answer) { a.WholeAmountNs = nil }, `"per-minute";q=3`, `"per-minute";r=2;t=50`},
		{"no time at all", func(a *quotav1.Answer) { a.WholeAmountNs = proto.Int64(0) }, `"per-minute";q=3`, `"per-minute";r=2;t=50`},
		{"less than none", func(a *quotav1.Answer) { a.WholeAmountNs = proto.Int64(-60 * second) }, `"per-minute";q=3`, `"per-minute";r=2;t=50`},
		{"huge", func(a *quotav1.Answer) {
			a.Limit, a.WholeAmountNs = proto.Uint64(limit.MaxAmount), proto.Int64(math.MaxInt64/second*second)
		}, `"per-minute";q=999999999999999;w=9223372036`, `"per-minute";r=2;t=50`},
		{"unlimited", func(a *quotav1.Answer) { a.Unlimited, a.Limit, a.Remaining, a.ResetNs = true, nil, nil, nil }, "", ""},
	} {
		s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) {
			a := allowed()
			c.change(a)
			return a, nil
		}))
		a := s.get(t, "/check?principal=u42")
		if got := a.header.Get("RateLimit-Policy"); got != c.policy {
			t.Errorf("%s: RateLimit-Policy %s, want %s", c.name, got, c.policy)
		}
		if got := a.header.Get("RateLimit"); got != c.left {
			t.Errorf("%s: RateLimit %s, want %s", c.name, got, c.left)
		}
	}
}

// TestRA11EveryAnswerHasTheSameFields: the first, a middle, the last and the denied answer, under each of
// the four algorithms.
func TestRA11EveryAnswerHasTheSameFields(t *testing.T) {
	want := []string{"Cache-Control", "Content-Type", "Ratelimit", "Ratelimit-Policy"}
	for _, spec := range []limit.Spec{
		{Algorithm: limit.RollingWindow, Amount: 3, Window: 60 * second},
		{Algorithm: limit.TokenBucket, Amount: 3, Window: 20 * second, Refill: 1},
		{Algorithm: limit.SlidingWindowCounter, Amount: 3, Window: 60 * second},
		{Algorithm: limit.FixedWindow, Amount: 3, Window: 60 * second},
	} {
		ledger := newLedger(spec)
		s := newStand(ledger.asker())
		for i, left := range []uint64{2, 1, 0, 0} {
			ledger.now = int64(i) * second
			a := s.get(t, "/check?principal=u42")
			fields := slices.Sorted(maps.Keys(a.header))
			status := http.StatusOK
			if i == 3 {
				status = http.StatusTooManyRequests
				fields = slices.DeleteFunc(fields, func(f string) bool { return f == "Retry-After" })
			}
			if a.status != status || !slices.Equal(fields, want) {
				t.Errorf("%v, answer %d: status %d, fields %q", spec.Algorithm, i, a.status, fields)
			}
			if got := a.header.Get("RateLimit-Policy"); got != `"per-minute";q=3;w=60` {
				t.Errorf("%v, answer %d: RateLimit-Policy %s", spec.Algorithm, i, got)
			}
			var r, seconds uint64
			if got, err := fmt.Sscanf(a.header.Get("RateLimit"), `"per-minute";r=%d;t=%d`, &r, &seconds); got != 2 || r != left || seconds < 1 {
				t.Errorf("%v, answer %d: RateLimit %s (%v)", spec.Algorithm, i, a.header.Get("RateLimit"), err)
			}
			if a.Limit == nil || *a.Limit != 3 || a.Remaining == nil || *a.Remaining != left || a.LimitName == nil || a.Policy == nil || a.DecisionTime == nil {
				t.Errorf("%v, answer %d: %s", spec.Algorithm, i, a.body)
			}
		}
	}
}

// TestRA08ResetOfAFixedWindow: on the boundary second, right behind it and right before the end, never 0 and never
// negative.
func TestRA08ResetOfAFixedWindow(t *testing.T) {
	for at, want := range map[int64]string{120 * second: "60", 120*second + second/2: "60", 179 * second: "1", 180*second - second/1000: "1"} {
		ledger := newLedger(limit.Spec{Algorithm: limit.FixedWindow, Amount: 50, Window: 60 * second})
		ledger.now = at
		s := newStand(ledger.asker())
		if a := s.get(t, "/check?principal=u42"); a.header.Get("RateLimit") != `"per-minute";r=49;t=`+want {
			t.Errorf("at %d ns: RateLimit %s", at, a.header.Get("RateLimit"))
		}
		if a := s.get(t, "/check?principal=u42&cost=50"); a.status != http.StatusTooManyRequests || *a.RetryAfter < 1 || !strings.HasSuffix(a.header.Get("RateLimit"), ";t="+want) {
			t.Errorf("at %d ns: Retry-After %s, RateLimit %s", at, text(a.RetryAfter), a.header.Get("RateLimit"))
		}
	}
}

// TestRA09RetryAfterIsWholeSeconds: digits only, as the leader has it, at least 1, and none with an allow.
func TestRA09RetryAfterIsWholeSeconds(t *testing.T) {
	for told, want := range map[int64]string{1: "1", 2: "2", 301: "301", 9_223_372_037: "9223372037", 0: "1", -5: "1"} {
		s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) {
			a := denied()
			a.RetryAfterS = proto.Int64(told)
			return a, nil
		}))
		a := s.get(t, "/check?principal=u42")
		if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != want {
			t.Errorf("%d s: status %d, Retry-After %q", told, a.status, a.header.Get("Retry-After"))
		}
	}
	s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) {
		a := allowed()
		a.RetryAfterS = proto.Int64(5)
		return a, nil
	}))
	if a := s.get(t, "/check?principal=u42"); a.status != http.StatusOK || a.RetryAfter != nil {
		t.Errorf("an allow: status %d, Retry-After %s", a.status, text(a.RetryAfter))
	}
}

// TestAReplayedAllowOmitsWhatWasNotRecorded instead of making it up.
func TestAReplayedAllowOmitsWhatWasNotRecorded(t *testing.T) {
	s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) {
		a := allowed()
		a.Replayed, a.Limit, a.ResetNs, a.WholeAmountNs = true, nil, nil, nil
		return a, nil
	}))
	a := s.get(t, "/check?principal=u42")
	if text(a.Replayed) != "true" || a.Limit != nil || text(a.Remaining) != "2" || a.header.Get("RateLimit") != "" {
		t.Errorf("answer %s", a.body)
	}
}

// TestCOST06CostsThatAreNoCost are bad input wherever they come, and ask for nothing.
func TestCOST06CostsThatAreNoCost(t *testing.T) {
	for _, cost := range []string{
		"-1", "-9223372036854775808", "0", "1.5", "", "%2B1", "1e3", "0x1", "1_0", "%201", "null", "9223372036854775808", "18446744073709551616",
	} {
		s := newStand(allowing())
		a := s.get(t, "/check?principal=u42&cost="+cost)
		if a.status != http.StatusBadRequest || !strings.HasPrefix(text(a.Message), "cost: ") || a.Decision != nil || len(s.asker.asked) != 0 {
			t.Errorf("cost=%s: status %d, %s", cost, a.status, a.body)
		}
	}
	for _, cost := range []string{
		"-1", "-9223372036854775808", "0", "1.5", `""`, `"1"`, `"1.5"`, "1.0", "1e3", "true", "[1]", "{}", "9223372036854775808", "-0",
	} {
		s := newStand(allowing())
		a := s.post(t, `{"descriptors":[{"principal":"u42"}],"cost":`+cost+`}`)
		if a.status != http.StatusBadRequest || !strings.HasPrefix(text(a.Message), "cost: ") || len(s.asker.asked) != 0 {
			t.Errorf("%s: status %d, %s", cost, a.status, a.body)
		}
	}
	for target, want := range map[string]uint64{
		"/check?principal=u42": 1, "/check?cost=7": 7, "/check?cost=9223372036854775807": limit.MaxAmount,
	} {
		s := newStand(allowing())
		if a := s.get(t, target); a.status != http.StatusOK || s.asker.asked[0].GetCost() != want {
			t.Errorf("%s: status %d", target, a.status)
		}
	}
	for body, want := range map[string]uint64{
		`{"descriptors":[{}]}`: 1, `{"descriptors":[{}],"cost":null}`: 1, `{"cost":9223372036854775807,"descriptors":[{}]}`: limit.MaxAmount,
	} {
		s := newStand(allowing())
		if a := s.post(t, body); a.status != http.StatusOK || s.asker.asked[0].GetCost() != want {
			t.Errorf("%s: status %d", body, a.status)
		}
	}
}

// TestNothingOfARequestIsIgnored: a cost in the place that isn't read would be charged as 1.
func TestNothingOfARequestIsIgnored(t *testing.T) {
	s := newStand(allowing())
	post := httptest.NewRequest(http.MethodPost, "/check?cost=3", strings.NewReader(`{"descriptors":[{"a":"1"}]}`))
	post.Header.Set("Content-Type", "application/json")
	get := httptest.NewRequest(http.MethodGet, "/check?a=1", strings.NewReader(`{"cost":3}`))
	for _, r := range []*http.Request{post, get} {
		if a := s.do(t, r); a.status != http.StatusBadRequest || len(s.asker.asked) > 0 {
			t.Errorf("%s: %+v", r.Method, a)
		}
	}
}

// TestCOST07NegativeCostsRefundNothing: after one, what was used up is still used up.
func TestCOST07NegativeCostsRefundNothing(t *testing.T) {
	ledger := newLedger(limit.Spec{Algorithm: limit.RollingWindow, Amount: 3, Window: 60 * second})
	s := newStand(ledger.asker())
	if a := s.get(t, "/check?principal=u42&cost=3"); a.status != http.StatusOK {
		t.Fatalf("status %d", a.status)
	}
	ledger.now = second
	if a := s.get(t, "/check?principal=u42&cost=-1"); a.status != http.StatusBadRequest {
		t.Fatalf("status %d", a.status)
	}
	ledger.now = 2 * second
	a := s.get(t, "/check?principal=u42")
	if a.status != http.StatusTooManyRequests || text(a.RetryAfter) != "59" { // 58 s, and 0.2 %
		t.Errorf("status %d, Retry-After %s", a.status, text(a.RetryAfter))
	}
}

// strange are values that stores, logs and headers have choked on.
var strange = []string{
	"a", " ", "a b", "\t", "\r\n", "\r\nSet-Cookie: x=1", "\x00", "a\x00", "\x7f", "\x1b[31m", `"`, "'", "%", "%25", "%00",
	"\\", "ü", "u\u0308", "🦉", "\xff", "\xff\xfe", "a=b&c", "a/b", "null", "../../etc",
}

// TestKEY09StrangeValuesAreKeysOfTheirOwn: each is its own key, gets neither a 500 nor into logs, metrics,
// headers or messages.
func TestKEY09StrangeValuesAreKeysOfTheirOwn(t *testing.T) {
	s := newStand(newLedger(limit.Spec{Algorithm: limit.RollingWindow, Amount: 1, Window: 60 * second}).asker())
	marked := func(value string) string { return "mark" + value }
	for i, value := range strange {
		target := "/check?" + url.Values{"principal": {marked(value)}}.Encode()
		for round, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			a := s.get(t, target)
			if a.status != want {
				t.Errorf("value %d %q, round %d: status %d", i, value, round, a.status)
			}
			if text := fmt.Sprint(a.header, a.body); strings.Contains(text, "mark") {
				t.Errorf("value %q is in the answer %s", value, text)
			}
		}
	}
	if a := s.get(t, "/check?"+url.QueryEscape("mark\r\nx: y\x1b")+"="+strings.Repeat("v", 2000)); a.status != http.StatusBadRequest ||
		strings.ContainsAny(strings.TrimSuffix(a.body, "\n"), "\r\n\x1b") {
		t.Errorf("a strange name: status %d, %q", a.status, a.body)
	}
	if log := s.log.String(); log != "" {
		t.Errorf("the log has %q", log)
	}
	if strings.Contains(s.ops(t, "/metrics").body, "mark") {
		t.Error("a value is in the metrics")
	}
}

// TestMET03RandomURLsGrowNoMetrics: ten thousand of them, and as many series as before.
func TestMET03RandomURLsGrowNoMetrics(t *testing.T) {
	s := newStand(newLedger(limit.Spec{Algorithm: limit.RollingWindow, Amount: 1, Window: 60 * second}).asker())
	visit := func(target string) {
		w := httptest.NewRecorder()
		s.Front().ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		w = httptest.NewRecorder()
		s.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	}
	for _, target := range []string{"/", "/check?a=1", "/check?a=1", "/check?cost=0"} {
		visit(target)
	}
	before := s.series(t)
	r := rand.New(rand.NewPCG(3, 3)) // what the URLs are doesn't matter, so the seed is fixed
	for range 10_000 {
		visit(fmt.Sprintf("/%x/%x?%x=%x", r.Uint64(), r.Uint32(), r.Uint32(), r.Uint64()))
		visit(fmt.Sprintf("/check?a=1&cost=%d", r.IntN(2)))
	}
	if after := s.series(t); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
}

func (s *stand) series(t *testing.T) (series int) {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		series += len(f.GetMetric())
	}
	return series
}

// TestTheFrontGivesUpAtItsDeadline: an answer that never comes is an unknown outcome after two seconds.
func TestTheFrontGivesUpAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left time.Duration
		s := newStand(&asker{domains: []string{"video-api"}, check: func(ctx context.Context, _ *quotav1.CheckRequest) (*quotav1.Answer, error) {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		start := time.Now()
		a := s.get(t, "/check?principal=u42")
		if took := time.Since(start); took != gateway.FrontTimeout || left != took || a.status != http.StatusServiceUnavailable || text(a.Reason) != "outcome_unknown" {
			t.Errorf("status %d after %v: %s", a.status, took, a.body)
		}
	})
}

// TestACallerThatIsGoneEndsItsCheck: nobody is asked on behalf of nobody.
func TestACallerThatIsGoneEndsItsCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		s := newStand(&asker{domains: []string{"video-api"}, check: func(ctx context.Context, _ *quotav1.CheckRequest) (*quotav1.Answer, error) {
			<-ctx.Done()
			ended = ctx.Err()
			return nil, ended
		}})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("gone"))
		defer cancel()
		start := time.Now()
		s.do(t, httptest.NewRequest(http.MethodGet, "/check?principal=u42", nil).WithContext(ctx))
		if time.Since(start) != time.Second || ended == nil {
			t.Errorf("%v after %v", ended, time.Since(start))
		}
	})
}

// TestADefectCostsOneRequest and is counted.
func TestADefectCostsOneRequest(t *testing.T) {
	broken := true
	s := newStand(answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) {
		if broken {
			panic("a defect")
		}
		return allowed(), nil
	}))
	if a := s.get(t, "/check?principal=u42"); a.status != http.StatusInternalServerError || text(a.Reason) != "internal" || a.Decision != nil {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	broken = false
	if a := s.get(t, "/check?principal=u42"); a.status != http.StatusOK {
		t.Errorf("the next one: status %d", a.status)
	}
	metrics := s.ops(t, "/metrics").body
	if !strings.Contains(metrics, `quorate_gateway_panics_total{front="http"} 1`) || !strings.Contains(s.log.String(), "a defect") {
		t.Error("not counted, or not logged")
	}
	if !strings.Contains(metrics, "quorate_gateway_in_flight 0") {
		t.Error("the request that broke is still in flight")
	}
}
