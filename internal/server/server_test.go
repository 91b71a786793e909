package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/server"
)

const second = int64(1_000_000_000)

// script is a Decider that does what the test says.
type script struct {
	submit  func(calls []*partition.Call)
	inspect func(domain string, d keyspace.Descriptor) partition.Inspection
}

func (s *script) Submit(calls ...*partition.Call) { s.submit(calls) }

func (s *script) Inspect(domain string, d keyspace.Descriptor) partition.Inspection {
	return s.inspect(domain, d)
}

// answering is a script that gives every call the outcome that f has for it.
func answering(f func(*partition.Call) partition.Outcome) *script {
	return &script{submit: func(calls []*partition.Call) {
		for _, c := range calls {
			finish(c, f(c))
		}
	}}
}

func finish(c *partition.Call, o partition.Outcome) {
	c.Outcome = o
	c.Done(c)
}

// perMinute is the policy that outcomes made up by tests speak of.
var perMinute = &policy.Policy{
	Name: "conversions", Namespace: "media", Quota: "conversions", Domain: "video-api", Key: []string{"principal"},
	Limits: []policy.Limit{{Name: "per-minute", Algorithm: limit.RollingWindow, Amount: 3, Window: 60 * second}},
}

// ledger is a Decider with one policy of one limit, by package limit alone, on a clock that the test moves.
type ledger struct {
	policy *policy.Policy
	spec   limit.Spec
	mu     sync.Mutex
	now    int64
	keys   map[string]*limit.Usage
}

func newLedger(spec limit.Spec) *ledger {
	p := *perMinute
	p.Limits = []policy.Limit{{
		Name: "per-minute", Algorithm: spec.Algorithm, Amount: spec.Amount, Window: spec.Window, Refill: spec.Refill,
	}}
	return &ledger{policy: &p, spec: spec, keys: map[string]*limit.Usage{}}
}

func (l *ledger) Submit(calls ...*partition.Call) {
	for _, c := range calls {
		finish(c, l.decide(c))
	}
}

func (l *ledger) decide(c *partition.Call) partition.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := string(keyspace.AppendQuotaKey(nil, "", "", c.Descriptors[0]))
	u := l.keys[key]
	if u == nil {
		u = &limit.Usage{Log: limit.InitLog(make([]byte, 4096)), KnownSince: limit.Forever}
		l.keys[key] = u
	}
	d := l.spec.Peek(*u, l.now, c.Cost)
	o := partition.Outcome{Policy: l.policy, Time: l.now, Epoch: 1, Version: 1, Result: partition.Denied}
	switch {
	case d.Allowed && l.spec.Algorithm == limit.RollingWindow:
		u.Log.Append(l.now, c.Cost)
		o.Result = partition.Allowed
	case d.Allowed:
		u.State = l.spec.Charge(u.State, l.now, c.Cost)
		o.Result = partition.Allowed
	case c.Cost > l.spec.Amount:
		o.Result = partition.Exceeded
	}
	o.Answer.Amount, o.Answer.Remaining = l.spec.Amount, d.Remaining
	o.Answer.Time, o.Answer.At, o.Answer.FullAt = l.now, d.At, l.spec.FullAt(*u, l.now)
	return o
}

func (l *ledger) Inspect(string, keyspace.Descriptor) partition.Inspection {
	return partition.Inspection{Outcome: partition.Outcome{Result: partition.NoPolicy}}
}

// node is a Server with what tests look at.
type node struct {
	*server.Server
	registry *prometheus.Registry
	log      *safeBuffer
	domains  []string
	unready  string // why it isn't ready; empty: it is
	clock    int64
}

func (n *node) isReady() (ok bool, why string) { return n.unready == "", n.unready }

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

func newNode(d server.Decider) *node { return newNodeWith(d, func(*server.Config) {}) }

// newNodeWith is newNode with another configuration.
func newNodeWith(d server.Decider, change func(*server.Config)) *node {
	n := &node{registry: prometheus.NewRegistry(), log: &safeBuffer{}, domains: []string{"video-api"}, clock: 100 * second}
	cfg := server.Config{
		Decider: d, Domains: func() []string { return n.domains }, Monotonic: func() int64 { return n.clock },
		Ready: n.isReady, Log: slog.New(slog.NewTextHandler(n.log, nil)), Registry: n.registry,
	}
	change(&cfg)
	n.Server = server.New(cfg)
	return n
}

// start serves in memory and returns a client and a function that stops everything.
func (n *node) start(t *testing.T) (quotav1.QuotaClient, *grpc.ClientConn, func()) {
	t.Helper()
	conns, stop := n.serve(t, 1)
	return quotav1.NewQuotaClient(conns[0]), conns[0], stop
}

// serve is start for several connections.
func (n *node) serve(t *testing.T, count int) (conns []*grpc.ClientConn, stop func()) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	n.Start(server.Listeners{GRPC: l, Ops: bufconn.Listen(1 << 10)})
	for range count {
		conn, err := grpc.NewClient("passthrough:///node",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(server.MaxMessage)),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	return conns, func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for _, conn := range conns {
			if err := conn.Close(); err != nil {
				t.Errorf("close a connection: %v", err)
			}
		}
		if err := n.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}
