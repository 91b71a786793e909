package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/gateway"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
)

const second = int64(1_000_000_000)

// asker is a gateway.Asker that does what the test says, and keeps what it is asked.
type asker struct {
	check   func(ctx context.Context, m *quotav1.CheckRequest) (*quotav1.Answer, error)
	inspect func(ctx context.Context, m *quotav1.InspectRequest) (*quotav1.InspectResponse, error)

	mu        sync.Mutex
	domains   []string
	unready   bool
	asked     []*quotav1.CheckRequest
	inspected []*quotav1.InspectRequest
}

func (a *asker) Check(ctx context.Context, m *quotav1.CheckRequest) (*quotav1.Answer, error) {
	a.mu.Lock()
	a.asked = append(a.asked, m)
	a.mu.Unlock()
	return a.check(ctx, m)
}

func (a *asker) Inspect(ctx context.Context, m *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	a.mu.Lock()
	a.inspected = append(a.inspected, m)
	a.mu.Unlock()
	return a.inspect(ctx, m)
}

func (a *asker) Domains() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.domains
}

func (a *asker) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.unready
}

func (a *asker) setReady(ready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unready = !ready
}

// answering is an asker that gives every check the answer that f has for it, under the id that it is given, or one that
// it makes.
func answering(f func(*quotav1.CheckRequest) (*quotav1.Answer, error)) *asker {
	return &asker{
		domains: []string{"video-api"},
		check: func(_ context.Context, m *quotav1.CheckRequest) (*quotav1.Answer, error) {
			a, err := f(m)
			if a != nil && len(a.GetDecisionId()) == 0 {
				a.DecisionId = m.GetDecisionId()
			}
			if a != nil && len(a.GetDecisionId()) == 0 {
				a.DecisionId = []byte(rand.Text()[:16])
			}
			return a, err
		},
		inspect: func(context.Context, *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
			return &quotav1.InspectResponse{Partition: 7}, nil
		},
	}
}

// allowing is an asker that allows everything.
func allowing() *asker {
	return answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) { return allowed(), nil })
}

// failing is an asker that fails for that reason, as a node says it.
func failing(r quotav1.FailureReason, message string) *asker {
	return answering(func(*quotav1.CheckRequest) (*quotav1.Answer, error) {
		return nil, &client.Unavailable{Reason: r, Message: message}
	})
}

// allowed is an allow of a limit of 3 per minute.
func allowed() *quotav1.Answer {
	return &quotav1.Answer{
		Decision: quotav1.Decision_DECISION_ALLOW, Policy: "media/conversions", LimitName: "per-minute",
		Limit: proto.Uint64(3), Remaining: proto.Uint64(2), WindowNs: 60 * second, ResetNs: proto.Int64(50 * second),
		WholeAmountNs:  proto.Int64(60 * second),
		DecisionTimeNs: 100 * second, Partition: 7, Epoch: 2, SetVersion: 3,
	}
}

// denied is its denial, 30 s before enough has left.
func denied() *quotav1.Answer {
	a := allowed()
	a.Decision, a.Reason, a.Remaining = quotav1.Decision_DECISION_DENY, quotav1.Reason_REASON_LIMIT, proto.Uint64(0)
	a.WaitNs, a.RetryAfterS = proto.Int64(30*second), proto.Int64(31)
	return a
}

// unmatched is an answer that no limit took part in.
func unmatched(d quotav1.Decision, r quotav1.Reason) *quotav1.Answer {
	return &quotav1.Answer{Decision: d, Reason: r, DecisionTimeNs: 100 * second, Partition: 7, Epoch: 2, SetVersion: 3}
}

// ledger is one policy of one limit, by package limit alone, on a clock that the test moves.
type ledger struct {
	spec limit.Spec
	mu   sync.Mutex
	now  int64
	keys map[string]*limit.Usage
}

func newLedger(spec limit.Spec) *ledger { return &ledger{spec: spec, keys: map[string]*limit.Usage{}} }

func (l *ledger) asker() *asker { return answering(l.decide) }

func (l *ledger) decide(m *quotav1.CheckRequest) (*quotav1.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.usage(m.GetDescriptors()[0])
	d := l.spec.Peek(*u, l.now, m.GetCost())
	a := denied()
	a.Limit, a.Remaining, a.WindowNs = proto.Uint64(l.spec.Amount), proto.Uint64(d.Remaining), l.spec.Window
	a.DecisionTimeNs, a.WholeAmountNs = l.now, proto.Int64(l.spec.Window)
	if l.spec.Algorithm == limit.TokenBucket {
		a.WholeAmountNs = proto.Int64(l.spec.Window * int64(l.spec.Amount) / int64(l.spec.Refill))
	}
	switch {
	case d.Allowed:
		a.Decision, a.Reason, a.WaitNs, a.RetryAfterS = quotav1.Decision_DECISION_ALLOW, 0, nil, nil
		if l.spec.Algorithm == limit.RollingWindow {
			u.Log.Append(l.now, m.GetCost())
		} else {
			u.State = l.spec.Charge(u.State, l.now, m.GetCost())
		}
	case d.At == limit.Never:
		a.Reason, a.WaitNs, a.RetryAfterS = quotav1.Reason_REASON_COST_EXCEEDS_LIMIT, nil, nil
	default:
		wait := d.At - l.now
		a.WaitNs, a.RetryAfterS = proto.Int64(wait), proto.Int64(limit.WholeSeconds(wait+(wait-1)/500+1))
	}
	a.ResetNs = proto.Int64(l.spec.FullAt(*u, l.now) - l.now)
	return a, nil
}

func (l *ledger) usage(m *quotav1.Descriptor) *limit.Usage {
	var entries []keyspace.Entry
	for _, e := range m.GetEntries() {
		entries = append(entries, keyspace.Entry{Name: e.GetName(), Value: string(e.GetValue())})
	}
	key := string(keyspace.AppendQuotaKey(nil, "", "", entries))
	if l.keys[key] == nil {
		l.keys[key] = &limit.Usage{Log: limit.InitLog(make([]byte, 4096)), KnownSince: limit.Forever}
	}
	return l.keys[key]
}

// stand is a Server with what tests look at.
type stand struct {
	*gateway.Server
	asker    *asker
	registry *prometheus.Registry
	log      *safeBuffer
}

// safeBuffer is a log that many may write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newStand(a *asker, change ...func(*gateway.Config)) *stand {
	s := &stand{asker: a, registry: prometheus.NewRegistry(), log: &safeBuffer{}}
	cfg := gateway.Config{Asker: a, Log: slog.New(slog.NewTextHandler(s.log, nil)), Registry: s.registry}
	for _, c := range change {
		c(&cfg)
	}
	s.Server = gateway.New(cfg)
	return s
}

func with(k *access.Keeper) func(*gateway.Config) { return func(c *gateway.Config) { c.Access = k } }

// start serves in memory and returns a client and a function that stops everything.
func (s *stand) start(t testing.TB, options ...grpc.DialOption) (quotav1.QuotaClient, *grpc.ClientConn, func()) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	s.Start(gateway.Listeners{GRPC: l, HTTP: bufconn.Listen(1 << 10), Ops: bufconn.Listen(1 << 10)})
	conn := dial(t, l, options...)
	return quotav1.NewQuotaClient(conn), conn, func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(conn.Close(), s.Stop(ctx)); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

// dial connects in memory, in clear unless an option says otherwise.
func dial(t testing.TB, l *bufconn.Listener, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(gateway.MaxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}, options...)
	conn, err := grpc.NewClient("passthrough:///gateway", options...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// answer is what /check said.
type answer struct {
	status int
	header http.Header
	body   string

	Decision     *string
	Reason       *string
	Message      *string
	Policy       *string
	Limit        *uint64
	LimitName    *string `json:"limit_name"`
	Remaining    *uint64
	RetryAfter   *int64 `json:"retry_after"`
	DecisionTime *int64 `json:"decision_time_ns"`
	Partition    *uint16
	Epoch        *uint64
	Replayed     *bool
	ID           *string
}

var allKeys = []string{
	"decision", "decision_time_ns", "epoch", "id", "limit", "limit_name", "message", "partition", "policy",
	"reason", "remaining", "replayed", "retry_after",
}

func (s *stand) do(t *testing.T, r *http.Request) answer {
	t.Helper()
	w := httptest.NewRecorder()
	s.Front().ServeHTTP(w, r)
	return readAnswer(t, w.Result())
}

func (s *stand) get(t *testing.T, target string) answer {
	t.Helper()
	return s.do(t, httptest.NewRequest(http.MethodGet, target, nil))
}

func (s *stand) post(t *testing.T, body string) answer {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/check", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return s.do(t, r)
}

// readAnswer reads what every answer must be, whatever its status: one JSON object with all of the keys,
// not to be stored, with Retry-After as its body has it.
func readAnswer(t *testing.T, r *http.Response) answer {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: r.StatusCode, header: r.Header, body: string(body)}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		t.Fatalf("%v in the answer %q", err, body)
	}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, allKeys) {
		t.Errorf("the answer has the keys %q", got)
	}
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatal(err)
	}
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	if got := r.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("status %d with Cache-Control %q", r.StatusCode, got)
	}
	if got := r.Header.Get("Retry-After"); got != text(a.RetryAfter) {
		t.Errorf("Retry-After %q, in the body %q", got, text(a.RetryAfter))
	}
	return a
}

// text is a value that may be null, as text; null is empty.
func text[T any](v *T) string {
	if v == nil {
		return ""
	}
	b, _ := json.Marshal(*v)
	return strings.Trim(string(b), `"`)
}
