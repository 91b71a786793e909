package node_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// kill ends a node as a crash does for everybody else: it is silent at once, and hands nothing over. Bury closes what
// is left of it.
func (tr *trio) kill(name string) (bury func()) {
	tr.t.Helper()
	tr.isolate(name)
	tr.mu.Lock()
	m := tr.nodes[name]
	delete(tr.nodes, name)
	tr.mu.Unlock()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.server.Stop(ended) // it says that it broke what was open
	closed := sync.OnceFunc(func() {
		if err := m.Close(); err != nil {
			tr.t.Errorf("close %s: %v", name, err)
		}
	})
	tr.t.Cleanup(closed)
	return closed
}

// load asks for one key all the time, through clients, each check with one id until its outcome is known.
type load struct {
	tr   *trio
	stop chan struct{}
	wg   sync.WaitGroup

	mu sync.Mutex
	at map[string]int64 // decision times of allows, by id
	n  int              // definite answers
}

func (tr *trio) load(askers int) *load {
	l := &load{tr: tr, stop: make(chan struct{}), at: map[string]int64{}}
	for i := range askers {
		c := tr.client(false)
		l.wg.Go(func() {
			for i := i; ; i++ {
				select {
				case <-l.stop:
					return
				case <-time.After(5 * time.Millisecond):
					l.ask(c)
				}
			}
		})
	}
	return l
}

// ask asks once, and again while it isn't told whether it was charged.
func (l *load) ask(c *client.Client) {
	q := question("hot")
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		a, err := c.Check(context.Background(), q)
		var u *client.Unavailable
		if errors.As(err, &u) {
			q.DecisionId = u.DecisionID
			if u.Reason != quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN && u.Reason != quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED {
				return
			}
			continue
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.n++
		if a.GetDecision() == quotav1.Decision_DECISION_ALLOW {
			l.at[string(a.GetDecisionId())] = a.GetDecisionTimeNs()
		}
		return
	}
}

// end ends it, and holds what was admitted to the limit.
func (l *load) end(amount int, window time.Duration) {
	l.tr.t.Helper()
	close(l.stop)
	l.wg.Wait()
	times := slices.SortedFunc(maps.Values(l.at), cmp.Compare)
	for i := amount; i < len(times); i++ {
		if d := times[i] - times[i-amount]; d < int64(window) {
			l.tr.t.Errorf("%d admissions within %v", amount+1, time.Duration(d))
		}
	}
	l.tr.t.Logf("%d answers, %d allows", l.n, len(times))
	if len(times) < 2*amount {
		l.tr.t.Errorf("%d admissions: hardly tried", len(times))
	}
}

// FAIL-04: a leader is killed again and again under load. Each time another one answers, within few elections, and
// none of the clients has to be started anew.
func TestFAIL04AnotherLeaderAnswersAfterFewElections(t *testing.T) {
	t.Parallel()
	times := 8
	if testing.Short() {
		times = 2
	}
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(per(4, 500*time.Millisecond))
	tr.everywhere()
	l := tr.load(4)
	watching := tr.client(false)
	var longest time.Duration
	most := uint64(0)
	for round := range times {
		tr.until("a leader and all nodes up", func() bool { return tr.whole() })
		was := tr.route()
		begun := time.Now()
		bury := tr.kill(was.GetLeader())
		tr.decide(watching, fmt.Sprint("fresh", round)) // allowed or denied, if only it is definite
		longest = max(longest, time.Since(begun))
		now := was
		tr.until("news of a term after the dead leader's", func() bool { // on a busy machine a moment after the answer
			now = tr.route()
			return now.GetTerm() > was.GetTerm()
		})
		most = max(most, now.GetTerm()-was.GetTerm())
		bury()
		tr.heal()
		tr.start(was.GetLeader())
	}
	t.Logf("%d leaders killed: the longest wait for an answer was %v, the most elections %d", times, longest, most)
	if most > 5 {
		t.Errorf("%d elections until an answer", most)
	}
	l.end(4, 500*time.Millisecond)
}

// route is the newest way to the only partition that any node knows.
func (tr *trio) route() (best *quotav1.PartitionRoute) {
	for _, m := range tr.running() {
		for _, p := range m.Status().GetPartitions() {
			if r := p.GetRoute(); best == nil || r.GetTerm() > best.GetTerm() {
				best = r
			}
		}
	}
	return best
}

// whole tells whether all nodes are up and ready.
func (tr *trio) whole() bool {
	for _, name := range tr.names {
		m := tr.node(name)
		if m == nil {
			return false
		}
		state, _ := m.State()
		if ok, _ := m.Ready(); !ok || state != "up" || !m.Leading() {
			return false
		}
	}
	return true
}

// FAIL-09, the short form over real links: they come and go under load on one key.
func TestFAIL09LinksThatComeAndGoAdmitNoMore(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(per(4, 500*time.Millisecond))
	tr.everywhere()
	l := tr.load(6)
	rng := rand.New(rand.NewPCG(9, 9))
	for range 12 {
		if rng.IntN(3) == 0 {
			tr.heal()
		} else {
			tr.isolate(tr.names[rng.IntN(3)])
		}
		<-time.After(time.Duration(200+rng.IntN(600)) * time.Millisecond)
	}
	tr.heal()
	tr.until("all nodes up", tr.whole)
	tr.decide(tr.client(false), "fresh")
	l.end(4, 500*time.Millisecond)
}
