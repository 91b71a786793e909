package node_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
)

// FAIL-02: a node that is cut off from the others, be it the leader or not, allows nothing, neither of what is used
// up nor of what isn't; a front that reaches only that node says 503, and to come back soon.
func TestFAIL02AMinorityAllowsNothing(t *testing.T) {
	for _, role := range []string{"leader", "follower"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t, only(1))
			tr.start()
			tr.ready().apply(per(10, time.Minute))
			tr.everywhere()
			tr.want("u1", repeat(partition.Allowed, 10)...)
			alone := tr.leader()
			if role == "follower" {
				alone = tr.names[0]
				if alone == tr.node("n1").leaders()[0] {
					alone = tr.names[1]
				}
			}
			f, probe := newFront(tr.client(true, alone)), tr.probe(alone)
			tr.until("the front to be ready", f.client.Ready)
			tr.isolate(alone)
			tr.until("the first refusal", func() bool { _, failure := probe(question("u1")); return failure != nil })
			for i := range 100 {
				user := "u1"
				if i%2 == 1 {
					user = fmt.Sprint("fresh", i)
				}
				a, failure := probe(question(user))
				elsewhere := failure.GetReason() == quotav1.FailureReason_FAILURE_REASON_NOT_LEADER // then there is no need to wait
				if a != nil || codes.Code(failure.GetCode()) != codes.Unavailable || !elsewhere && failure.GetRetryAfterS() != 1 {
					t.Fatalf("check %d of %s: %v, %v", i, user, a, failure)
				}
			}
			if r := f.ask(t, "fresh"); r.status != http.StatusServiceUnavailable || r.retryAfter != "1" || r.Decision != "unavailable" {
				t.Errorf("its front: %+v", r)
			}
			tr.heal()
			tr.leader()
			tr.want("u1", partition.Denied)
		})
	}
}

func repeat(r partition.Result, n int) (list []partition.Result) {
	for range n {
		list = append(list, r)
	}
	return list
}

// FAIL-03: a partition without a majority costs those who ask it their deadline and no more; the others go on. A
// front that starts meanwhile answers for those, isn't ready, and is once the partition is back.
func TestFAIL03APartitionThatIsDownCostsNoOther(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.everywhere()
	old := tr.client(false)
	var dead, live string
	for i := 0; dead == "" || live == ""; i++ {
		user := fmt.Sprint("u", i)
		if tr.decide(old, user).GetPartition() == 1 {
			dead = user
		} else {
			live = user
		}
	}
	logs := func(name string) (path, kept string) {
		path = filepath.Join(tr.dir, name, "p1", "raft.db")
		return path, filepath.Join(tr.dir, name+".kept")
	}
	for _, name := range []string{"n1", "n2"} {
		tr.stop(name)
		path, kept := logs(name)
		if err := errors.Join(os.Rename(path, kept), os.WriteFile(path, []byte("damage"), 0o600)); err != nil {
			t.Fatal(err)
		}
		tr.start(name)
	}
	tr.until("partition 1 without a leader, the others with one", func() bool {
		for _, m := range tr.running() {
			if leads := m.leaders(); leads[0] == "" || leads[1] != "" || leads[2] == "" {
				return false
			}
		}
		return true
	})
	f := newFront(tr.client(false))
	readyz := func() int {
		w := httptest.NewRecorder()
		f.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code
	}
	for range 5 {
		a, took, err := within(t, old, dead, 250*time.Millisecond)
		var u *client.Unavailable
		if !errors.As(err, &u) || u.Code != codes.Unavailable && u.Code != codes.DeadlineExceeded {
			t.Fatalf("asked a partition that is down: %v, %v", a, err)
		}
		t.Logf("refused after %v of 250 ms: %v", took, err)
	}
	tr.until("the others to go on", func() bool {
		a, _, err := within(t, old, live, 250*time.Millisecond)
		return err == nil && (a.GetDecision() == quotav1.Decision_DECISION_DENY || a.GetDecision() == quotav1.Decision_DECISION_ALLOW)
	})
	if r := f.ask(t, dead); r.status != http.StatusServiceUnavailable {
		t.Errorf("the new front, asked what is down: %+v", r)
	}
	tr.until("the new front to answer for the others", func() bool { return f.ask(t, live).status != http.StatusServiceUnavailable })
	if got := readyz(); got != http.StatusServiceUnavailable {
		t.Errorf("the new front's readiness: %d", got)
	}
	for _, name := range []string{"n1", "n2"} {
		tr.stop(name)
		path, kept := logs(name)
		if err := os.Rename(kept, path); err != nil {
			t.Fatal(err)
		}
		tr.start(name)
	}
	tr.until("the new front to be ready", func() bool { return readyz() == http.StatusOK })
	allowed := 1 // by the very first check
	for tr.decide(f.client, dead).GetDecision() == quotav1.Decision_DECISION_ALLOW {
		allowed++
	}
	if allowed > 3 {
		t.Errorf("%d allowed of three", allowed)
	}
}

// within asks with a deadline.
func within(t *testing.T, c *client.Client, name string, d time.Duration) (*quotav1.Answer, time.Duration, error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	begun := time.Now()
	a, err := c.Check(ctx, question(name))
	return a, time.Since(begun), err
}
