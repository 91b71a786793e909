package cluster_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

// The domain, and what a descriptor says beside its account, in the policies of hourlyText.
const (
	domain   = "video-api"
	apiClass = "convert"
)

// hourlyText is a policy file under which an allowance outlives any test.
func hourlyText(limit int) string {
	return fmt.Sprintf(`policies:
- name: conversions
  domain: %s
  match: {api_class: %s}
  key: [principal]
  limits:
  - {name: hourly, rollingWindow: {limit: %d, window: 1h}}
`, domain, apiClass, limit)
}

func descriptorOf(account string) *quotav1.Descriptor {
	return &quotav1.Descriptor{Entries: []*quotav1.Entry{
		{Name: "principal", Value: []byte(account)}, {Name: "api_class", Value: []byte(apiClass)},
	}}
}

// allow is an allow that somebody was told of.
type allow struct {
	account   string
	partition uint32
	at        int64 // decision time
}

// inDoubt is a question of which nobody knows what became.
type inDoubt struct {
	account string
	since   time.Time
}

// ledger is what askers were told. Its promises are those of the cluster: no key gets more than its limit, what
// was allowed stays so, and is charged once.
type ledger struct {
	limit int
	pace  time.Duration // what each asker waits between two questions

	mu      sync.Mutex
	allows  map[string]allow   // by decision id
	open    map[string]inDoubt // by decision id: nobody knows what became of it
	lost    map[string]int     // unknown outcomes that nobody can ask for again, by account
	failed  map[string]int     // those that consumed nothing, by reason
	denials int
	doubts  int // unknown outcomes, in all
}

func newLedger(limit int) *ledger {
	return &ledger{limit: limit, pace: pace, allows: map[string]allow{}, open: map[string]inDoubt{}, lost: map[string]int{}, failed: map[string]int{}}
}

// someAccount is one of few whose allowance is soon used up, or one of so many that they have some left in any
// test.
func someAccount() string {
	if rand.N(3) == 0 {
		return fmt.Sprintf("hot-%d", rand.N(6))
	}
	return fmt.Sprintf("account-%d", rand.N(600))
}

// load asks for random accounts until its end: some askers through the client, some through the front of a
// gateway.
type load struct {
	*ledger
	askers sync.WaitGroup
	stop   context.CancelFunc
}

// pace leaves time for what a test does while there is load.
const pace = 12 * time.Millisecond

// drive begins a load. Where an outcome is unknown, the same id asks again at once, as it has to.
func (l *ledger) drive(t *testing.T, c *client.Client, front string) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	d := &load{ledger: l, stop: stop}
	asker := func(ask func(account string)) {
		d.askers.Go(func() {
			for ctx.Err() == nil {
				ask(someAccount())
				time.Sleep(l.pace)
			}
		})
	}
	for range 6 {
		asker(func(account string) {
			id := newID()
			l.ask(t, c, id, account)
			l.recover(ctx, t, c, id)
		})
		asker(func(account string) { l.recover(ctx, t, c, l.get(t, front, account)) })
	}
	t.Cleanup(d.end)
	return d
}

// end returns once every asker has its last answer.
func (d *load) end() {
	d.stop()
	d.askers.Wait()
}

func newID() string {
	var id [16]byte
	for i := range id {
		id[i] = byte(rand.N(256))
	}
	return string(id[:])
}

const askWithin = 2 * time.Second

// ask asks through the client, and notes what comes of it.
func (l *ledger) ask(t *testing.T, c *client.Client, id, account string) (a *quotav1.Answer) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	a, err := c.Check(ctx, &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{descriptorOf(account)}, DecisionId: []byte(id)})
	l.mu.Lock()
	defer l.mu.Unlock()
	var u *client.Unavailable
	switch {
	case err == nil && string(a.GetDecisionId()) != id:
		t.Errorf("asked under id %x, answered under %x: %v", id, a.GetDecisionId(), a)
	case err == nil && a.GetDecision() == quotav1.Decision_DECISION_ALLOW:
		delete(l.open, id)
		l.note(t, id, allow{account, a.GetPartition(), a.GetDecisionTimeNs()}, a.GetReplayed())
	case err == nil:
		delete(l.open, id)
		l.denials++
	case !errors.As(err, &u):
		t.Errorf("an error that is no *client.Unavailable: %v", err)
	case u.Reason == quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN || u.Reason == quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED:
		l.doubt(id, account)
	default:
		l.failed[u.Reason.String()]++
	}
	return a
}

// doubt notes that nobody knows what became of an id; the mutex is held.
func (l *ledger) doubt(id, account string) {
	l.doubts++
	if _, known := l.open[id]; !known {
		l.open[id] = inDoubt{account, time.Now()}
	}
}

// recover asks again while the outcome of the id is unknown and an allow would be remembered, or until ctx ends.
func (l *ledger) recover(ctx context.Context, t *testing.T, c *client.Client, id string) {
	for ctx.Err() == nil {
		l.mu.Lock()
		d, open := l.open[id]
		if open && time.Since(d.since) > horizon-askWithin {
			delete(l.open, id)
			l.lost[d.account]++
			open = false
		}
		l.mu.Unlock()
		if !open || l.ask(t, c, id, d.account) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// note notes an allow; the mutex is held. One that comes again is the one of before.
func (l *ledger) note(t *testing.T, id string, a allow, replayed bool) {
	if was, known := l.allows[id]; known && (!replayed || was != a) {
		t.Errorf("id %x was allowed as %+v, and then as %+v, replayed: %v", id, was, a, replayed)
	}
	l.allows[id] = a
}

// fullAnswer is what a front says, with when and where it was decided.
type fullAnswer struct {
	Decision     string
	Reason       string
	ID           *string
	Partition    *uint32
	DecisionTime *int64 `json:"decision_time_ns"`
	Replayed     bool
}

// get asks at a front, which chooses the id itself, and returns the id.
func (l *ledger) get(t *testing.T, front, account string) (id string) {
	a, status := getOnce(t, front, account)
	id = bytesOf(a.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case status == allowed && (a.Decision != "allow" || len(id) != 16 || a.DecisionTime == nil || a.Partition == nil):
		t.Errorf("status 200 with %+v", a)
	case status == allowed:
		l.note(t, id, allow{account, *a.Partition, *a.DecisionTime}, a.Replayed)
	case status == denied:
		l.denials++
	case status != unavailable:
		t.Errorf("status %d with %+v", status, a)
	case a.Reason != "outcome_unknown":
		l.failed["http "+a.Reason]++
	case id == "":
		l.lost[account]++
	default:
		l.doubt(id, account)
	}
	return id
}

func getOnce(t *testing.T, front, account string) (a fullAnswer, status int) {
	response, err := http.Get("http://" + front + "/check?principal=" + account + "&api_class=" + apiClass)
	if err != nil {
		t.Errorf("the front can't be asked: %v", err)
		return a, 0
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		t.Errorf("the front's answer can't be read: %v", err)
	}
	return a, response.StatusCode
}

func bytesOf(id *string) string {
	if id == nil {
		return ""
	}
	b, err := hex.DecodeString(*id)
	if err != nil {
		return ""
	}
	return string(b)
}

// told is how many allows somebody was told of.
func (l *ledger) told() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.allows)
}

// awaitAllows waits until that many more were allowed.
func (l *ledger) awaitAllows(t *testing.T, more int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Logf("%d allows, %d denials, %d outcomes unknown; failed: %v", len(l.allows), l.denials, len(l.open), l.failed)
		}
	}()
	want := l.told() + more
	rig.Eventually(t, fmt.Sprintf("%d allows", more), func() bool { return l.told() >= want })
}
