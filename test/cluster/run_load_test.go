package cluster_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
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

// ledger is what askers were told. Its promises are those of the cluster: no key gets more than its limit, what
// was allowed stays so, and is charged once.
type ledger struct {
	limit int

	mu      sync.Mutex
	allows  map[string]allow  // by decision id
	open    map[string]string // ids of which nobody knows what became, and their accounts
	lost    map[string]int    // unknown outcomes without an id, by account
	failed  map[string]int    // those that consumed nothing, by reason
	denials int
}

func newLedger(limit int) *ledger {
	return &ledger{limit: limit, allows: map[string]allow{}, open: map[string]string{}, lost: map[string]int{}, failed: map[string]int{}}
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

// pace is what each asker waits between two questions, so that there is load during all of a test, and time for
// what the test does.
const pace = 12 * time.Millisecond

// drive begins a load. The client may be nil, the front empty.
func (l *ledger) drive(t *testing.T, c *client.Client, front string) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	d := &load{ledger: l, stop: stop}
	asker := func(ask func(account string)) {
		d.askers.Go(func() {
			for ctx.Err() == nil {
				ask(someAccount())
				time.Sleep(pace)
			}
		})
	}
	for range 6 {
		if c != nil {
			asker(func(account string) { l.ask(t, c, newID(), account) })
		}
		if front != "" {
			asker(func(account string) { l.get(t, front, account) })
		}
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
		l.open[id] = account
	default:
		l.failed[u.Reason.String()]++
	}
	return a
}

// note notes an allow; the mutex is held. One that comes again is the one of before.
func (l *ledger) note(t *testing.T, id string, a allow, replayed bool) {
	if was, known := l.allows[id]; known && (!replayed || was != a) {
		t.Errorf("id %x was allowed as %+v, and then as %+v, replayed: %v", id, was, a, replayed)
	}
	l.allows[id] = a
}

// front's answer, with what says when and where it was decided.
type fullAnswer struct {
	Decision     string
	Reason       string
	ID           *string
	Partition    *uint32
	DecisionTime *int64 `json:"decision_time_ns"`
	Replayed     bool
}

// get asks at a front, which chooses the id itself.
func (l *ledger) get(t *testing.T, front, account string) (status int) {
	var a fullAnswer
	response, err := http.Get("http://" + front + "/check?principal=" + account + "&api_class=" + apiClass)
	if err != nil {
		t.Errorf("the front can't be asked: %v", err)
		return 0
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		t.Errorf("the front's answer can't be read: %v", err)
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch id := bytesOf(a.ID); {
	case response.StatusCode == allowed:
		if a.Decision != "allow" || len(id) != 16 || a.DecisionTime == nil || a.Partition == nil {
			t.Errorf("status 200 with %+v", a)
			return 0
		}
		l.note(t, id, allow{account, *a.Partition, *a.DecisionTime}, a.Replayed)
	case response.StatusCode == denied:
		l.denials++
	case response.StatusCode != unavailable:
		t.Errorf("status %d with %+v", response.StatusCode, a)
	case a.Reason != "outcome_unknown":
		l.failed["http "+a.Reason]++
	case id == "":
		l.lost[account]++
	default:
		l.open[id] = account
	}
	return response.StatusCode
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
	eventually(t, fmt.Sprintf("%d allows", more), func() bool { return l.told() >= want })
}

// horizon is how long an allow is replayed at least, in decision time; the rest is for a busy machine.
const horizon = 20*time.Second - 3*time.Second

// settle asks again for all of which the outcome is unknown, under the same ids, until it is known.
func (l *ledger) settle(t *testing.T, c *client.Client) {
	t.Helper()
	each(maps.Clone(l.open), func(id, account string) {
		persist(t, "an answer to a repeated id", func() bool { return l.ask(t, c, id, account) != nil })
	})
}

// verify holds the cluster to what it has told, once nobody asks any more: all unknown outcomes come out, every
// allow that is not too old is given again as it was, and what is used up is what was allowed, to the unit, and
// never more than the limit.
func (l *ledger) verify(t *testing.T, n *nodes, c *client.Client) {
	t.Helper()
	unknown := len(l.open)
	l.settle(t, c)
	asked := l.verifyReplays(t, c)
	l.verifyUsage(t, n, c)
	t.Logf("%d allows, %d of them asked again; %d denials; %d outcomes were unknown, and %v without an id; failed: %v", len(l.allows), asked,
		l.denials, unknown, l.lost, l.failed)
	if len(l.allows) == 0 || asked == 0 {
		t.Error("nothing was allowed, or nothing lately: the test tested nothing")
	}
}

// verifyReplays returns how many allows were asked for again.
func (l *ledger) verifyReplays(t *testing.T, c *client.Client) (asked int64) {
	t.Helper()
	newest := map[uint32]int64{}
	for _, a := range l.allows { // one account in each partition
		if _, known := newest[a.partition]; !known {
			newest[a.partition] = usage(t, c, descriptorOf(a.account)).GetDecisionTimeNs()
		}
	}
	began := time.Now()
	var again atomic.Int64
	each(maps.Clone(l.allows), func(id string, was allow) {
		persist(t, "a replayed allow", func() bool {
			if was.at+int64(horizon) < newest[was.partition]+int64(time.Since(began)) {
				return true // it may be forgotten by now
			}
			a := l.ask(t, c, id, was.account) // and note compares
			if a == nil {
				return false
			}
			again.Add(1)
			if !a.GetReplayed() {
				t.Errorf("id %x of %s was allowed at %d of partition %d; asked again: %v", id, was.account, was.at, was.partition, a)
			}
			return true
		})
	})
	return again.Load()
}

// each calls do for all entries, for several at once.
func each[V any](all map[string]V, do func(string, V)) {
	keys := slices.Collect(maps.Keys(all))
	var next atomic.Int64
	var doing sync.WaitGroup
	for range 16 {
		doing.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(keys); i = next.Add(1) - 1 {
				do(keys[i], all[keys[i]])
			}
		})
	}
	doing.Wait()
}

// persist is eventually for any goroutine.
func persist(t *testing.T, what string, done func() bool) {
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("waited %v for %s", patience, what)
			return
		}
	}
}

// usage is what has been used of a key; nil if nobody says.
func usage(t *testing.T, c *client.Client, d *quotav1.Descriptor) (u *quotav1.InspectResponse) {
	persist(t, "what is used up", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), askWithin)
		defer cancel()
		var err error
		u, err = c.Inspect(ctx, &quotav1.InspectRequest{Domain: domain, Descriptor_: d})
		return err == nil
	})
	return u
}

// usedOf is how many units of a key's only limit are used up; -1 if nobody says.
func usedOf(t *testing.T, c *client.Client, d *quotav1.Descriptor) int {
	u := usage(t, c, d)
	if len(u.GetLimits()) != 1 {
		t.Errorf("not one limit: %v", u)
		return -1
	}
	return int(u.GetLimits()[0].GetUsed())
}

func (l *ledger) verifyUsage(t *testing.T, n *nodes, c *client.Client) {
	t.Helper()
	charged := map[string]int{}
	for _, a := range l.allows {
		charged[a.account]++
	}
	for account := range l.lost {
		charged[account] += 0
	}
	each(charged, func(account string, told int) {
		if used := usedOf(t, c, descriptorOf(account)); used < told || used > told+l.lost[account] || used > l.limit {
			t.Errorf("%s: %d are used up, %d were allowed and %d of unknown outcome; the limit is %d", account, used, told, l.lost[account], l.limit)
		}
	})
	for _, account := range []string{"hot-0", "hot-1"} { // by the tool, too
		if used := n.inspect(t, account); used < charged[account] || used > charged[account]+l.lost[account] {
			t.Errorf("%s: quotactl inspect says that %d are used up, %d were allowed", account, used, charged[account])
		}
	}
}

// inspect is what `quotactl inspect` says is used up, whichever node leads the account's partition.
func (n *nodes) inspect(t *testing.T, account string) (used int) {
	t.Helper()
	eventually(t, "quotactl inspect", func() bool {
		for _, name := range names {
			if !n.running(name) {
				continue
			}
			status, out := quotactl(t, slices.Concat([]string{"inspect", "-o", "json", "--server", n.grpc[name], "--domain", domain,
				"principal=" + account, "api_class=" + apiClass}, n.flags("gateway"))...)
			var usage struct{ Limits []struct{ Used int } }
			if status == 0 && json.Unmarshal([]byte(out), &usage) == nil && len(usage.Limits) == 1 {
				used = usage.Limits[0].Used
				return true
			}
		}
		return false
	})
	return used
}
