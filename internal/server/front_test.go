package server_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/server"
)

// TestAnswersOverHTTPSayAllThatIsKnown: an allow and a denial to the byte, but for the id.
func TestAnswersOverHTTPSayAllThatIsKnown(t *testing.T) {
	for r, want := range map[partition.Result]string{
		partition.Allowed: `{"decision":"allow","reason":null,"message":null,"policy":"media/conversions","limit":3,` +
			`"limit_name":"per-minute","remaining":2,"retry_after":null,"decision_time_ns":100000000000,"partition":7,"epoch":2,"replayed":false,"id":"ID"}`,
		partition.Denied: `{"decision":"deny","reason":"limit","message":"too little is left of a limit","policy":"media/conversions","limit":3,` +
			`"limit_name":"per-minute","remaining":0,"retry_after":31,"decision_time_ns":100000000000,"partition":7,"epoch":2,"replayed":false,"id":"ID"}`,
		partition.NoPolicy: `{"decision":"deny","reason":"no_policy","message":"no policy matches, and the domain denies that","policy":null,"limit":null,` +
			`"limit_name":null,"remaining":null,"retry_after":null,"decision_time_ns":100000000000,"partition":7,"epoch":2,"replayed":false,"id":"ID"}`,
		partition.NoQuorum: `{"decision":"unavailable","reason":"no_quorum","message":"no leader has heard a majority of the replicas lately","policy":null,"limit":null,` +
			`"limit_name":null,"remaining":null,"retry_after":1,"decision_time_ns":null,"partition":null,"epoch":null,"replayed":null,"id":"ID"}`,
	} {
		n := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(r) }))
		a := n.get(t, "/check?principal=u42")
		if len(text(a.ID)) != 32 {
			t.Fatalf("id %q", text(a.ID))
		}
		if got := strings.TrimSuffix(strings.Replace(a.body, text(a.ID), "ID", 1), "\n"); got != want {
			t.Errorf("result %d:\n%s\nwant\n%s", r, got, want)
		}
	}
}

// TestRateLimitFields: draft-ietf-httpapi-ratelimit-headers-10, from the outcome of each kind of limit.
func TestRateLimitFields(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(l *limitChange)
		policy, left string
	}{
		{"rolling window", func(*limitChange) {}, `"per-minute";q=3;w=60`, `"per-minute";r=2;t=50`},
		{"a part of a second rounds up", func(l *limitChange) { l.fullAt = 100*second + 1 }, `"per-minute";q=3;w=60`, `"per-minute";r=2;t=1`},
		{"all there", func(l *limitChange) { l.fullAt = 100 * second }, `"per-minute";q=3;w=60`, `"per-minute";r=2;t=0`},
		{"never again", func(l *limitChange) { l.fullAt = limit.Never }, `"per-minute";q=3;w=60`, `"per-minute";r=2`},
		{"not whole seconds", func(l *limitChange) { l.window = second / 2 }, `"per-minute";q=3`, `"per-minute";r=2;t=50`},
		{"a bucket fills in three periods", func(l *limitChange) { l.algorithm, l.refill = limit.TokenBucket, 1 }, `"per-minute";q=3;w=180`, `"per-minute";r=2;t=50`},
		{"a bucket fills in no whole seconds", func(l *limitChange) { l.algorithm, l.refill = limit.TokenBucket, 7 }, `"per-minute";q=3`, `"per-minute";r=2;t=50`},
		{"a huge bucket", func(l *limitChange) { l.algorithm, l.refill, l.amount = limit.TokenBucket, 1, limit.MaxAmount }, `"per-minute";q=999999999999999`, `"per-minute";r=2;t=50`},
		{"unlimited", func(l *limitChange) { l.unlimited = true }, "", ""},
	} {
		l := limitChange{algorithm: limit.RollingWindow, window: 60 * second, amount: 3, fullAt: 150 * second}
		c.change(&l)
		a := newNode(answering(l.outcome)).get(t, "/check?principal=u42")
		if got := a.header.Get("RateLimit-Policy"); got != c.policy {
			t.Errorf("%s: RateLimit-Policy %s, want %s", c.name, got, c.policy)
		}
		if got := a.header.Get("RateLimit"); got != c.left {
			t.Errorf("%s: RateLimit %s, want %s", c.name, got, c.left)
		}
	}
}

// limitChange is an allow's limit, to be varied.
type limitChange struct {
	algorithm      limit.Algorithm
	window, fullAt int64
	refill, amount uint64
	unlimited      bool
}

func (l *limitChange) outcome(*partition.Call) partition.Outcome {
	o := outcomeOf(partition.Allowed)
	p := *perMinute
	p.Limits = slices.Clone(p.Limits)
	p.Limits[0].Algorithm, p.Limits[0].Window, p.Limits[0].Refill = l.algorithm, l.window, l.refill
	o.Policy, o.Answer.Amount, o.Answer.FullAt, o.Answer.Unlimited = &p, l.amount, l.fullAt, l.unlimited
	return o
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
		n := newNode(ledger)
		for i, left := range []uint64{2, 1, 0, 0} {
			ledger.now = int64(i) * second
			a := n.get(t, "/check?principal=u42")
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

// TestAReplayedAllowOmitsWhatWasNotRecorded instead of making it up.
func TestAReplayedAllowOmitsWhatWasNotRecorded(t *testing.T) {
	n := newNode(answering(func(*partition.Call) partition.Outcome {
		o := outcomeOf(partition.Allowed)
		o.Answer.Replayed, o.Answer.Amount, o.Answer.FullAt = true, 0, 0
		return o
	}))
	a := n.get(t, "/check?principal=u42")
	if text(a.Replayed) != "true" || a.Limit != nil || text(a.Remaining) != "2" || a.header.Get("RateLimit") != "" {
		t.Errorf("answer %s", a.body)
	}
	response, err := n.Service().Check(t.Context(), checkOf("u42"))
	if err != nil {
		t.Fatal(err)
	}
	if a := response.GetAnswer(); !a.GetReplayed() || a.Limit != nil || a.ResetNs != nil || a.GetRemaining() != 2 {
		t.Errorf("answer %v", a)
	}
}

// TestCOST06CostsThatAreNoCost are bad input wherever they come, and ask for nothing.
func TestCOST06CostsThatAreNoCost(t *testing.T) {
	for _, cost := range []string{
		"-1", "-9223372036854775808", "0", "1.5", "", "%2B1", "1e3", "0x1", "1_0", "%201", "null", "9223372036854775808", "18446744073709551616",
	} {
		var asked recorder
		a := asked.node().get(t, "/check?principal=u42&cost="+cost)
		if a.status != http.StatusBadRequest || !strings.HasPrefix(text(a.Message), "cost: ") || a.Decision != nil || len(asked.requests) != 0 {
			t.Errorf("cost=%s: status %d, %s", cost, a.status, a.body)
		}
	}
	for _, cost := range []string{
		"-1", "-9223372036854775808", "0", "1.5", `""`, `"1"`, `"1.5"`, "1.0", "1e3", "true", "[1]", "{}", "9223372036854775808", "-0",
	} {
		var asked recorder
		a := asked.node().post(t, `{"descriptors":[{"principal":"u42"}],"cost":`+cost+`}`)
		if a.status != http.StatusBadRequest || !strings.HasPrefix(text(a.Message), "cost: ") || len(asked.requests) != 0 {
			t.Errorf("%s: status %d, %s", cost, a.status, a.body)
		}
	}
	for target, want := range map[string]uint64{
		"/check?principal=u42": 1, "/check?cost=7": 7, "/check?cost=9223372036854775807": limit.MaxAmount,
	} {
		var asked recorder
		if a := asked.node().get(t, target); a.status != http.StatusOK || asked.requests[0].Cost != want {
			t.Errorf("%s: status %d", target, a.status)
		}
	}
	for body, want := range map[string]uint64{
		`{"descriptors":[{}]}`: 1, `{"descriptors":[{}],"cost":null}`: 1, `{"cost":9223372036854775807,"descriptors":[{}]}`: limit.MaxAmount,
	} {
		var asked recorder
		if a := asked.node().post(t, body); a.status != http.StatusOK || asked.requests[0].Cost != want {
			t.Errorf("%s: status %d", body, a.status)
		}
	}
}

// TestCOST07NegativeCostsRefundNothing: after one, what was used up is still used up.
// TestNothingOfARequestIsIgnored: a cost in the place that isn't read would be charged as 1.
func TestNothingOfARequestIsIgnored(t *testing.T) {
	var asked recorder
	n := asked.node()
	post := httptest.NewRequest(http.MethodPost, "/check?cost=3", strings.NewReader(`{"descriptors":[{"a":"1"}]}`))
	post.Header.Set("Content-Type", "application/json")
	get := httptest.NewRequest(http.MethodGet, "/check?a=1", strings.NewReader(`{"cost":3}`))
	for _, r := range []*http.Request{post, get} {
		if a := n.do(t, r); a.status != http.StatusBadRequest || len(asked.requests) > 0 {
			t.Errorf("%s: %+v", r.Method, a)
		}
	}
}

func TestCOST07NegativeCostsRefundNothing(t *testing.T) {
	ledger := newLedger(limit.Spec{Algorithm: limit.RollingWindow, Amount: 3, Window: 60 * second})
	n := newNode(ledger)
	if a := n.get(t, "/check?principal=u42&cost=3"); a.status != http.StatusOK {
		t.Fatalf("status %d", a.status)
	}
	ledger.now = second
	if a := n.get(t, "/check?principal=u42&cost=-1"); a.status != http.StatusBadRequest {
		t.Fatalf("status %d", a.status)
	}
	ledger.now = 2 * second
	a := n.get(t, "/check?principal=u42")
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
	n := newNode(newLedger(limit.Spec{Algorithm: limit.RollingWindow, Amount: 1, Window: 60 * second}))
	marked := func(value string) string { return "mark" + value }
	for i, value := range strange {
		target := "/check?" + url.Values{"principal": {marked(value)}}.Encode()
		for round, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			a := n.get(t, target)
			if a.status != want {
				t.Errorf("value %d %q, round %d: status %d", i, value, round, a.status)
			}
			if text := fmt.Sprint(a.header, a.body); strings.Contains(text, "mark") {
				t.Errorf("value %q is in the answer %s", value, text)
			}
		}
	}
	if a := n.get(t, "/check?"+url.QueryEscape("mark\r\nx: y\x1b")+"="+strings.Repeat("v", 2000)); a.status != http.StatusBadRequest ||
		strings.ContainsAny(strings.TrimSuffix(a.body, "\n"), "\r\n\x1b") {
		t.Errorf("a strange name: status %d, %q", a.status, a.body)
	}
	if log := n.log.String(); log != "" {
		t.Errorf("the log has %q", log)
	}
	if strings.Contains(n.ops(t, "/metrics").body, "mark") {
		t.Error("a value is in the metrics")
	}
}

// TestMET03RandomURLsGrowNoMetrics: ten thousand of them, and as many series as before.
func TestMET03RandomURLsGrowNoMetrics(t *testing.T) {
	n := newNode(newLedger(limit.Spec{Algorithm: limit.RollingWindow, Amount: 1, Window: 60 * second}))
	visit := func(target string) {
		w := httptest.NewRecorder()
		n.Front().ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		w = httptest.NewRecorder()
		n.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	}
	for _, target := range []string{"/", "/check?a=1", "/check?a=1", "/check?cost=0"} {
		visit(target)
	}
	before := n.series(t)
	r := rand.New(rand.NewPCG(3, 3)) // what the URLs are doesn't matter, so the seed is fixed
	for range 10_000 {
		visit(fmt.Sprintf("/%x/%x?%x=%x", r.Uint64(), r.Uint32(), r.Uint32(), r.Uint64()))
		visit(fmt.Sprintf("/check?a=1&cost=%d", r.IntN(2)))
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

// TestTheFrontResendsUnderTheSameID where leadership may have changed hands, a bounded number of times.
func TestTheFrontResendsUnderTheSameID(t *testing.T) {
	for name, c := range map[string]struct {
		results []partition.Result
		want    string
		sends   int
	}{
		"no leader, then one":            {[]partition.Result{partition.NotLeader, partition.Allowed}, "", 2},
		"no leader for long":             {[]partition.Result{partition.NotLeader, partition.NotLeader, partition.NotLeader}, "not_ready", 3},
		"unknown, then found":            {[]partition.Result{partition.Unknown, partition.Allowed}, "", 2},
		"unknown, then denied":           {[]partition.Result{partition.Unknown, partition.Denied}, "limit", 2},
		"unknown for long":               {[]partition.Result{partition.Unknown, partition.Unknown, partition.Unknown}, "outcome_unknown", 3},
		"unknown stays so without more":  {[]partition.Result{partition.Unknown, partition.NoQuorum, partition.Overloaded}, "outcome_unknown", 3},
		"no leader, unknown, then found": {[]partition.Result{partition.NotLeader, partition.Unknown, partition.Allowed}, "", 3},
		"no quorum is not asked again":   {[]partition.Result{partition.NoQuorum}, "no_quorum", 1},
		"a denial is not asked again":    {[]partition.Result{partition.Denied}, "limit", 1},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { resends(t, c.results, c.want, c.sends) }) })
	}
}

func resends(t *testing.T, results []partition.Result, word string, sends int) {
	var sent []partition.Request
	n := newNode(&script{submit: func(calls []*partition.Call) {
		c := calls[0]
		sent = append(sent, c.Request)
		if c.Unfenced {
			c.Fence = int64(len(sent)) // as a leader does
		}
		finish(c, outcomeOf(results[len(sent)-1]))
	}})
	a := n.get(t, "/check?principal=u42")
	if text(a.Reason) != word || len(sent) != sends || sends > server.FrontAttempts {
		t.Errorf("reason %q after %d sends, want %q after %d", text(a.Reason), len(sent), word, sends)
	}
	fence := int64(0)
	for i, r := range sent {
		if r.ID != sent[0].ID || r.Deadline != sent[0].Deadline || r.Unfenced != (fence == 0) || fence > 0 && r.Fence != fence {
			t.Errorf("send %d: %+v, the first %+v", i, r, sent[0])
		}
		if results[i] == partition.Unknown && fence == 0 {
			fence = int64(i + 1)
		}
	}
}

// TestTheFrontGivesUpAtItsDeadline: an answer that never comes is an unknown outcome after two seconds.
func TestTheFrontGivesUpAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deadline int64
		n := newNode(&script{submit: func(calls []*partition.Call) { deadline = calls[0].Deadline }})
		start := time.Now()
		a := n.get(t, "/check?principal=u42")
		if took := time.Since(start); took != server.FrontTimeout || a.status != http.StatusServiceUnavailable || text(a.Reason) != "outcome_unknown" {
			t.Errorf("status %d after %v: %s", a.status, took, a.body)
		}
		if deadline != n.clock+int64(server.FrontTimeout) {
			t.Errorf("deadline %d", deadline)
		}
	})
}

// TestADefectCostsOneRequest and is counted.
func TestADefectCostsOneRequest(t *testing.T) {
	broken := true
	n := newNode(answering(func(*partition.Call) partition.Outcome {
		if broken {
			panic("a defect")
		}
		return outcomeOf(partition.Allowed)
	}))
	if a := n.get(t, "/check?principal=u42"); a.status != http.StatusInternalServerError || text(a.Reason) != "internal" || a.Decision != nil {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	broken = false
	if a := n.get(t, "/check?principal=u42"); a.status != http.StatusOK {
		t.Errorf("the next one: status %d", a.status)
	}
	if !strings.Contains(n.ops(t, "/metrics").body, `quorate_panics_total{front="http"} 1`) || !strings.Contains(n.log.String(), "a defect") {
		t.Error("not counted, or not logged")
	}
}
