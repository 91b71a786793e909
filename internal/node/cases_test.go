package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// per is a set with one policy: so many in a rolling window, for each principal.
func per(amount uint64, window time.Duration) policy.Set {
	s := threePerMinute()
	s.Policies[0].Limits[0] = policy.Limit{Name: "some", Algorithm: limit.RollingWindow, Amount: amount, Window: int64(window)}
	return s
}

// question asks for one unit of a principal.
func question(name string) *quotav1.CheckRequest {
	return &quotav1.CheckRequest{Domain: "video", Descriptors: []*quotav1.Descriptor{{
		Entries: []*quotav1.Entry{{Name: "principal", Value: []byte(name)}},
	}}}
}

// client is one that is told of some nodes, all if none is named. Only says that it reaches no others.
func (tr *trio) client(only bool, names ...string) *client.Client {
	tr.t.Helper()
	if len(names) == 0 {
		names = tr.names
	}
	var addresses []string
	for _, n := range names {
		addresses = append(addresses, tr.grpc[n])
	}
	c, err := client.New(client.Config{Addresses: addresses, Log: logger(), Dialer: func(ctx context.Context, address string) (net.Conn, error) {
		if only && !slices.Contains(addresses, address) {
			return nil, errors.New("cut")
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}})
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(c.Close)
	return c
}

// front is a gateway.
type front struct {
	*gateway.Server
	client *client.Client
}

func newFront(c *client.Client) front {
	return front{gateway.New(gateway.Config{Asker: c, Log: logger(), Registry: prometheus.NewRegistry()}), c}
}

// reply is what a front says over HTTP.
type reply struct {
	status     int
	retryAfter string
	Decision   string
	RetryAfter int64 `json:"retry_after"`
	Time       int64 `json:"decision_time_ns"`
}

func (f front) ask(t *testing.T, name string) reply {
	t.Helper()
	w := httptest.NewRecorder()
	f.Front().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/check?domain=video&principal="+name, nil))
	r := reply{status: w.Code, retryAfter: w.Header().Get("Retry-After")}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return r
}

// probe returns what asks one node over the wire, without a client's help.
func (tr *trio) probe(name string) func(*quotav1.CheckRequest) (*quotav1.Answer, *quotav1.Failure) {
	tr.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+tr.grpc[name], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() { _ = conn.Close() })
	return func(q *quotav1.CheckRequest) (*quotav1.Answer, *quotav1.Failure) {
		tr.t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r, err := quotav1.NewQuotaClient(conn).Check(ctx, q)
		if err == nil {
			return r.GetAnswer(), nil
		}
		for _, d := range status.Convert(err).Details() {
			if f, ok := d.(*quotav1.Failure); ok && codes.Code(f.GetCode()) == status.Code(err) {
				return nil, f
			}
		}
		tr.t.Fatalf("%s: %v", name, err)
		return nil, nil
	}
}

// decide asks until there is a decision, with one id.
func (tr *trio) decide(c *client.Client, name string) (a *quotav1.Answer) {
	tr.t.Helper()
	q := question(name)
	tr.until("a decision", func() bool {
		var err error
		var u *client.Unavailable
		if a, err = c.Check(tr.t.Context(), q); errors.As(err, &u) {
			q.DecisionId = u.DecisionID
		}
		return err == nil
	})
	return a
}

// decider asks the nodes without a client's help until one of them decides and the others name it.
func (tr *trio) decider(name string) (a *quotav1.Answer) {
	tr.t.Helper()
	probes := map[string]func(*quotav1.CheckRequest) (*quotav1.Answer, *quotav1.Failure){}
	for _, n := range tr.names {
		probes[n] = tr.probe(n)
	}
	tr.until("one node to decide", func() bool {
		decides, named := "", []string{}
		for _, n := range tr.names {
			answer, f := probes[n](question(name))
			switch {
			case answer != nil:
				a, decides = answer, tr.grpc[n]
			case f.GetReason() == quotav1.FailureReason_FAILURE_REASON_NOT_LEADER:
				named = append(named, f.GetNotLeader().GetLeader())
			}
		}
		return decides != "" && len(named) == 2 && named[0] == decides && named[1] == decides
	})
	return a
}

// RA-04: whichever node or front is asked, the wait is the one that the leader has counted out, or the answer is
// none.
func TestRA04TheWaitIsTheSameWhoeverIsAsked(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.everywhere()
	byOne := tr.client(false, "n1")
	first := tr.decide(byOne, "u1").GetDecisionTimeNs()
	tr.decide(byOne, "u1")
	tr.decide(byOne, "u1")
	sound := func(who string, at, seconds int64) {
		t.Helper()
		left := first + int64(time.Minute) - at
		if least := (left + 1e9 - 1) / 1e9; seconds < least || seconds > least+1 {
			t.Errorf("%s: retry after %d s, the first of three leaves the window in %v", who, seconds, time.Duration(left))
		}
	}
	a := tr.decider("u1")
	sound("the leader", a.GetDecisionTimeNs(), a.GetRetryAfterS())
	if a.GetWaitNs() != first+int64(time.Minute)-a.GetDecisionTimeNs() {
		t.Errorf("the leader has it wait for %v", time.Duration(a.GetWaitNs()))
	}
	for _, name := range tr.names {
		f := newFront(tr.client(false, name))
		tr.until("a front of "+name, f.client.Ready)
		for range 2 { // the second denial is remembered
			r := f.ask(t, "u1")
			if sound("the front of "+name, r.Time, r.RetryAfter); r.status != http.StatusTooManyRequests || r.retryAfter != fmt.Sprint(r.RetryAfter) {
				t.Errorf("the front of %s: %+v", name, r)
			}
		}
	}
}

// RACE-04: whichever node is asked, once is once.
func TestRACE04OneIsAllowedWhicheverNodeIsAsked(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(per(1, 30*time.Second))
	tr.everywhere()
	clients := []*client.Client{tr.client(false, "n1"), tr.client(false, "n2"), tr.client(false, "n3")}
	for user := range 3 { // over all partitions
		allowed := 0
		for i := range 30 {
			if tr.decide(clients[i%3], fmt.Sprint("u", user)).GetDecision() == quotav1.Decision_DECISION_ALLOW {
				allowed++
			}
		}
		if allowed != 1 {
			t.Errorf("%d of 30 allowed, want 1", allowed)
		}
	}
	for user := range 3 {
		if a := tr.decider(fmt.Sprint("u", user)); a.GetDecision() != quotav1.Decision_DECISION_DENY {
			t.Errorf("asked node by node: %v", a)
		}
	}
}

// RACE-05: three gateways, each asking for as much as fits in all, get together what fits.
func TestRACE05ThreeGatewaysHaveOneAllowance(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(per(60, time.Minute))
	tr.everywhere()
	var mu sync.Mutex
	var askers sync.WaitGroup
	allowed, denied := 0, 0
	for _, name := range tr.names {
		c := tr.client(false, name)
		for range 6 {
			askers.Go(func() {
				for range 10 {
					a := tr.decide(c, "u1")
					mu.Lock()
					if a.GetDecision() == quotav1.Decision_DECISION_ALLOW {
						allowed++
					} else {
						denied++
					}
					mu.Unlock()
				}
			})
		}
	}
	askers.Wait()
	if allowed != 60 || denied != 120 {
		t.Errorf("%d allowed and %d denied, want 60 and 120", allowed, denied)
	}
}
