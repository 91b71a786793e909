package power_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

// asked is one question, with what became of it and when. Times are of the wall clock, as strace's are.
type asked struct {
	id, account    string
	sent, answered int64 // answered 0: nobody knows what became of it
	allowed        bool
	at             int64 // decision time of an allow
}

// crowd asks for few accounts that are soon used up and for many that are not, until its end.
type crowd struct {
	client *client.Client
	stop   context.CancelFunc
	askers sync.WaitGroup

	mu  sync.Mutex
	all []asked
}

const askers = 8

func gather(t *testing.T, c *client.Client) *crowd {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &crowd{client: c, stop: stop}
	for i := range askers {
		w.askers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for ctx.Err() == nil {
				w.ask(ctx, someAccount(rng))
			}
		})
	}
	t.Cleanup(w.disperse)
	return w
}

func someAccount(rng *rand.Rand) string {
	if rng.IntN(3) == 0 {
		return fmt.Sprint("hot-", rng.IntN(4))
	}
	return fmt.Sprint("account-", rng.IntN(300))
}

func (w *crowd) ask(ctx context.Context, account string) {
	const within = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	q := asked{id: newID(), account: account, sent: time.Now().UnixNano()}
	a, err := w.client.Check(ctx, question(q))
	if err == nil {
		q.answered, q.allowed, q.at = time.Now().UnixNano(), a.GetDecision() == quotav1.Decision_DECISION_ALLOW, a.GetDecisionTimeNs()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, q)
}

func question(q asked) *quotav1.CheckRequest {
	return &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{descriptor(q.account)}, DecisionId: []byte(q.id)}
}

// disperse returns once every asker has its last answer.
func (w *crowd) disperse() {
	w.stop()
	w.askers.Wait()
}

// awaitAllows waits until so many more have been allowed.
func (w *crowd) awaitAllows(t *testing.T, more int) {
	t.Helper()
	from := w.allows()
	rig.Eventually(t, fmt.Sprint(more, " more allows"), func() bool { return w.allows() >= from+more })
}

func (w *crowd) allows() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.all {
		if q.allowed {
			n++
		}
	}
	return n
}

// failedSince counts the questions asked since then that nobody answered.
func (w *crowd) failedSince(then int64) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.all {
		if q.sent > then && q.answered == 0 {
			n++
		}
	}
	return n
}

// owed is what a cluster must know of an account after power was lost: at least what was told to be allowed until then,
// at most also what was asked and not answered.
type owed struct{ least, most int }

func (w *crowd) owed(cut int64) map[string]owed {
	all := map[string]owed{}
	for _, q := range w.all {
		o := all[q.account]
		switch told := q.answered > 0 && q.answered <= cut; {
		case told && q.allowed:
			o.least++
			o.most++
		case !told && q.sent <= cut && (q.allowed || q.answered == 0):
			o.most++
		}
		all[q.account] = o
	}
	return all
}

// told are the allows that were told of before the cut.
func (w *crowd) told(cut int64) (list []asked) {
	for _, q := range w.all {
		if q.allowed && q.answered <= cut {
			list = append(list, q)
		}
	}
	return list
}
