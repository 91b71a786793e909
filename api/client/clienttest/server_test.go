package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/client/clienttest"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

const users = `
policies:
- {name: users, domain: api, key: [user], limits: [{name: per-minute, rollingWindow: {limit: 2, window: 60s}}]}
- {name: hosts, domain: api, key: [host], limits: [{name: per-minute, rollingWindow: {limit: 3, window: 60s}}]}
domains:
- {name: open, onNoMatch: Allow}
- {name: strict, required: [user]}
`

// start starts a cluster and a client of it, in a bubble of virtual time.
func start(t *testing.T, cfg clienttest.Config, f func(*testing.T, *clienttest.Server, *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := clienttest.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, err := client.New(s.ClientConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f(t, s, c)
	})
}

func check(domain string, pairs ...string) *quotav1.CheckRequest {
	m := &quotav1.CheckRequest{Domain: domain}
	for i := 0; i < len(pairs); i += 2 {
		m.Descriptors = append(m.Descriptors, &quotav1.Descriptor{Entries: []*quotav1.Entry{{Name: pairs[i], Value: []byte(pairs[i+1])}}})
	}
	return m
}

// said is an answer in a few words.
func said(a *quotav1.Answer, err error) string {
	var u *client.Unavailable
	switch {
	case errors.As(err, &u):
		return strings.TrimPrefix(u.Reason.String(), "FAILURE_REASON_")
	case err != nil:
		return err.Error()
	}
	text := strings.ToLower(strings.TrimPrefix(a.GetDecision().String(), "DECISION_"))
	if a.Remaining != nil {
		text += fmt.Sprintf(" %d", a.GetRemaining())
	}
	if a.GetReason() > quotav1.Reason_REASON_LIMIT {
		text += " " + strings.TrimPrefix(a.GetReason().String(), "REASON_")
	}
	if a.RetryAfterS != nil {
		text += fmt.Sprintf(" retry %d", a.GetRetryAfterS())
	}
	if a.GetReplayed() {
		text += " replayed"
	}
	return text
}

// TestItDecidesAsACluster for one partition and for several.
func TestItDecidesAsACluster(t *testing.T) {
	for _, partitions := range []int{0, 7} {
		start(t, clienttest.Config{Policies: users, Partitions: partitions}, func(t *testing.T, s *clienttest.Server, c *client.Client) {
			costly := check("api", "user", "c")
			costly.Cost = 3
			named := check("api", "user", "d")
			named.DecisionId = []byte("0123456789abcdef")
			other := check("api", "user", "e")
			other.DecisionId = named.DecisionId
			for i, step := range []struct {
				question *quotav1.CheckRequest
				advance  time.Duration
				want     string
			}{
				{check("api", "user", "a"), 0, "allow 1"},
				{check("api", "user", "a", "host", "h"), time.Second, "allow 0"},
				{check("api", "user", "a", "host", "h"), 0, "deny 0 retry 60"},
				{check("api", "host", "h"), 0, "allow 1"},
				{check("api", "user", "a"), 59 * time.Second, "allow 0"},
				{check("api", "user", "b", "user", "b"), time.Hour, "allow 0"}, // so long that what was known of time is too old
				{costly, 0, "deny 2 COST_EXCEEDS_LIMIT"},
				{named, 0, "allow 1"},
				{named, 0, "allow 1 replayed"},
				{check("api", "nothing", "n"), 0, "deny NO_POLICY"},
				{check("open", "nothing", "n"), 0, "allow NO_MATCH_ALLOWED"},
				{check("nowhere", "user", "a"), 0, "deny UNKNOWN_DOMAIN"},
				{check("strict", "nothing", "n"), 0, "INVALID_ARGUMENT"},
				{check("", "user", "a"), 0, "INVALID_ARGUMENT"},
				{check("api"), 0, "INVALID_ARGUMENT"},
			} {
				s.Advance(step.advance)
				if got := said(c.Check(context.Background(), step.question)); got != step.want {
					t.Errorf("%d partitions, step %d: %s, not %s", partitions, i, got, step.want)
				}
			}
			if partitions == 0 {
				if got := said(c.Check(context.Background(), other)); got != "DECISION_ID_CONFLICT" {
					t.Errorf("an id for another check: %s", got)
				}
			}
		})
	}
}

// TestInspectSaysWhatIsUsed.
func TestInspectSaysWhatIsUsed(t *testing.T) {
	start(t, clienttest.Config{Policies: users, Partitions: 3}, func(t *testing.T, s *clienttest.Server, c *client.Client) {
		if got := said(c.Check(context.Background(), check("api", "user", "a"))); got != "allow 1" {
			t.Error(got)
		}
		s.Advance(20 * time.Second)
		r, err := c.Inspect(context.Background(), &quotav1.InspectRequest{Domain: "api", Descriptor_: check("", "user", "a").Descriptors[0]})
		if err != nil || len(r.GetLimits()) != 1 {
			t.Fatalf("%v, %v", r, err)
		}
		if u := r.GetLimits()[0]; u.GetUsed() != 1 || u.GetLeft() != 1 || u.GetLimit() != 2 || u.GetFullInNs() != 40e9 || u.GetPolicy() != "default/users" {
			t.Errorf("%v", u)
		}
		r, err = c.Inspect(context.Background(), &quotav1.InspectRequest{Domain: "api", Descriptor_: check("", "nothing", "a").Descriptors[0]})
		if err != nil || len(r.GetLimits()) != 0 || r.GetReason() != quotav1.Reason_REASON_NO_POLICY {
			t.Errorf("%v, %v", r, err)
		}
	})
}

// TestFailuresArePlayed, each once and in order.
func TestFailuresArePlayed(t *testing.T) {
	start(t, clienttest.Config{Policies: users}, func(t *testing.T, s *clienttest.Server, c *client.Client) {
		for name := range quotav1.FailureReason_value {
			reason := quotav1.FailureReason(quotav1.FailureReason_value[name])
			s.Advance(time.Minute)
			synctest.Wait() // the client has heard of it: with a fence of before, what is unknown stays that
			s.FailNext(reason)
			got := said(c.Check(context.Background(), check("api", "user", "a")))
			switch reason {
			case quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, quotav1.FailureReason_FAILURE_REASON_OVERLOADED,
				quotav1.FailureReason_FAILURE_REASON_MEMORY, quotav1.FailureReason_FAILURE_REASON_QUARANTINE,
				quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT, quotav1.FailureReason_FAILURE_REASON_DEADLINE,
				quotav1.FailureReason_FAILURE_REASON_NOT_SUPPORTED, quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED:
				if want := strings.TrimPrefix(name, "FAILURE_REASON_"); got != want {
					t.Errorf("%s: %s", name, got)
				}
			default: // the client asks again, and has its answer
				if got != "allow 1" && reason != quotav1.FailureReason_FAILURE_REASON_NOT_LEADER {
					t.Errorf("%s: %s", name, got)
				}
			}
		}
	})
}

// TestALostAnswerIsFoundAgain, and charged once.
func TestALostAnswerIsFoundAgain(t *testing.T) {
	start(t, clienttest.Config{Policies: users}, func(t *testing.T, s *clienttest.Server, c *client.Client) {
		s.LoseNext()
		if got := said(c.Check(context.Background(), check("api", "user", "a"))); got != "allow 1 replayed" {
			t.Error(got)
		}
		s.DropStreams()
		synctest.Wait()
		if got := said(c.Check(context.Background(), check("api", "user", "a"))); got != "allow 0" {
			t.Error(got)
		}
	})
}

// TestWaitGoesByTheClustersClock.
func TestWaitGoesByTheClustersClock(t *testing.T) {
	start(t, clienttest.Config{Policies: users}, func(t *testing.T, s *clienttest.Server, c *client.Client) {
		both := check("api", "user", "a", "user", "a")
		if got := said(c.Check(context.Background(), both)); got != "allow 0" {
			t.Error(got)
		}
		got := make(chan string)
		go func() { got <- said(c.Wait(context.Background(), both)) }()
		if err := s.AwaitWaiting(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		s.Advance(60 * time.Second)
		synctest.Wait()
		select {
		case early := <-got:
			t.Errorf("%s before the advised wait", early)
		default:
		}
		s.Advance(time.Second)
		if answer := <-got; answer != "allow 0" {
			t.Error(answer)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.AwaitWaiting(ended, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestPoliciesAreThoseOfAFile, and what is wrong with them is said.
func TestPoliciesAreThoseOfAFile(t *testing.T) {
	if _, err := clienttest.Start(clienttest.Config{Policies: "policies: [{name: a}]"}); err == nil || !strings.Contains(err.Error(), "policies:1") {
		t.Errorf("a policy without limits: %v", err)
	}
	if _, err := clienttest.Start(clienttest.Config{Policies: users, Partitions: 4097}); err == nil {
		t.Error("4,097 partitions")
	}
	start(t, clienttest.Config{Policies: users}, func(t *testing.T, s *clienttest.Server, _ *client.Client) {
		if err := s.SetPolicies("policies: 3"); err == nil {
			t.Error("policies that are none")
		}
	})
}

// TestAChangeOfPoliciesKeepsUsage, is what the next check meets, and is refused where a cluster refuses it.
func TestAChangeOfPoliciesKeepsUsage(t *testing.T) {
	start(t, clienttest.Config{Policies: users, Partitions: 4}, func(t *testing.T, s *clienttest.Server, c *client.Client) {
		ask := func(want string) {
			t.Helper()
			if got := said(c.Check(context.Background(), check("api", "user", "a"))); got != want {
				t.Errorf("%s, not %s", got, want)
			}
		}
		ask("allow 1")
		ask("allow 0")
		ask("deny 0 retry 61")
		if err := s.SetPolicies(strings.Replace(users, "limit: 2", "limit: 4", 1)); err != nil {
			t.Fatal(err)
		}
		// The client may have the older set still: then the leader says how it resolves the check.
		if got := said(c.Check(context.Background(), check("api", "user", "b"))); got != "allow 3" {
			t.Error(got)
		}
		synctest.Wait() // the client has the set: until then it may remember the denial
		ask("allow 1")
		if err := s.SetPolicies(users); err != nil {
			t.Fatal(err)
		}
		ask("deny 0 retry 61")
		if err := s.SetPolicies(strings.Replace(users, "window: 60s", "window: 90s", 1)); err == nil || !strings.Contains(err.Error(), "window") {
			t.Errorf("a window changes, which no cluster of this version does: %v", err)
		}
		synctest.Wait()
		ask("deny 0 retry 61")
	})
}

// TestItIsReachedByTCPToo.
func TestItIsReachedByTCPToo(t *testing.T) {
	s, err := clienttest.Start(clienttest.Config{Policies: users})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	address, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := client.Dial(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := said(conn.Check(t.Context(), check("api", "user", "a"))); got != "allow 1" {
		t.Error(got)
	}
	c, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := said(c.Check(t.Context(), check("api", "user", "a"))); got != "allow 0" {
		t.Error(got)
	}
	s.Close()
	if _, err := s.Listen(); err == nil {
		t.Error("a closed server listens")
	}
}
