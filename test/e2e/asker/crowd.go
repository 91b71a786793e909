package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/checker"
)

const (
	callers = 5
	// keys are asked for by all callers of all pods at once, far beyond their amounts.
	keys = 16
	// keysLive is for how long the same keys are asked for: a key's history stays short enough to be searched.
	keysLive   = 10 * time.Second
	thinkLeast = 20 * time.Millisecond
	thinkMore  = 40 * time.Millisecond
	// askWithin is longer than a gateway takes for anything.
	askWithin = 5 * time.Second

	quota = "quorate/load"
)

// Figures are what callers saw.
type Figures struct {
	Allows, Denials, Unavailable, Unknown int
	// Unmatched were let through or denied without a policy: while the load's policy is enforced there is none.
	Unmatched int
	// Longest is for how long a caller that went on asking had no decision.
	Longest time.Duration
	// Failed is the first of what must never be.
	Failed string
}

// crowd is the callers of one pod.
type crowd struct {
	gateway string
	client  *http.Client
	notes   *notes

	once    sync.Once
	ctx     context.Context
	stop    context.CancelFunc
	calling sync.WaitGroup

	mu   sync.Mutex
	seen Figures
}

func newCrowd(gateway, metrics string) *crowd {
	c := &crowd{
		gateway: gateway,
		client:  &http.Client{Timeout: askWithin, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * callers}},
		notes:   newNotes(metrics),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// begin lets the callers ask, if they don't.
func (c *crowd) begin() {
	c.once.Do(func() {
		for i := range callers {
			c.calling.Go(func() { (&caller{crowd: c, name: fmt.Sprint("c", i)}).run() })
		}
		c.calling.Go(func() { c.notes.watch(c.ctx) })
	})
}

// end returns once every caller has its last answer.
func (c *crowd) end() {
	c.stop()
	c.calling.Wait()
	c.notes.close()
}

func (c *crowd) figures() Figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.seen
	if f.Failed == "" {
		f.Failed = c.notes.failed()
	}
	return f
}

// caller asks one question after the other.
type caller struct {
	*crowd
	name  string
	since int64 // first question since the last decision; 0: it has one
}

func (k *caller) run() {
	for pause(k.ctx, thinkLeast+mathrand.N(thinkMore)) {
		k.ask(fmt.Sprintf("u%d-%d", mathrand.N(keys), now()/int64(keysLive)))
	}
}

// ask asks once and writes down what came of it.
func (k *caller) ask(who string) {
	sent := now()
	if k.since == 0 {
		k.since = sent
	}
	status, body, err := k.get("kind=load&principal=" + who)
	line := &checker.Call{
		Client: k.name, Quota: quota, Key: "principal=" + who, Cost: 1, Sent: sent, Answered: now(), Partition: -1,
	}
	var a answer
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil { // the gateway is being replaced, and may have asked
		line.ID, line.Answer, line.Reason, line.Answered = someID(), checker.Unknown, err.Error(), 0
		k.seen.Unknown++
		k.notes.add(line)
		return
	}
	k.judge(line, status, &a)
}

// answer is what the gateway says; docs/http.md has the words.
type answer struct {
	Decision   *string `json:"decision"`
	Reason     string  `json:"reason"`
	Message    string  `json:"message"`
	Partition  *int    `json:"partition"`
	Epoch      uint64  `json:"epoch"`
	Time       int64   `json:"decision_time_ns"`
	Replayed   bool    `json:"replayed"`
	DecisionID string  `json:"id"`
}

// judge notes an answer; the mutex is held.
func (k *caller) judge(line *checker.Call, status int, a *answer) {
	line.ID, line.Reason, line.Replayed, line.Epoch, line.Time = a.DecisionID, a.Reason, a.Replayed, a.Epoch, a.Time
	if a.Partition != nil {
		line.Partition = *a.Partition
	}
	switch {
	case status == http.StatusOK && a.Reason == "":
		line.Answer = checker.Allow
		k.seen.Allows++
	case status == http.StatusTooManyRequests && a.Reason == "limit":
		line.Answer = checker.Deny
		k.seen.Denials++
	case status == http.StatusOK || status == http.StatusForbidden:
		k.seen.Unmatched++
		k.fail("status %d, %s: %s", status, a.Reason, a.Message)
		return
	case status == http.StatusServiceUnavailable && a.Reason == "outcome_unknown":
		line.Answer = checker.Unknown
		k.seen.Unknown++
	case status == http.StatusServiceUnavailable:
		line.Answer = checker.Unavailable
		k.seen.Unavailable++
	default:
		k.fail("status %d, %s: %s", status, a.Reason, a.Message)
		return
	}
	if line.Answer == checker.Allow || line.Answer == checker.Deny {
		k.seen.Longest = max(k.seen.Longest, time.Duration(line.Answered-k.since))
		k.since = 0
	}
	if line.ID != "" { // else it was refused before it had one
		k.notes.add(line)
	}
}

// fail keeps the first; the mutex is held.
func (k *caller) fail(format string, args ...any) {
	if k.seen.Failed == "" {
		k.seen.Failed = fmt.Sprintf(format, args...)
	}
}

// someID names a call whose own id never became known.
func someID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// now is the monotonic clock of the machine that all nodes of the test cluster are on.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no Linux without it
	}
	return ts.Nano()
}

// pause waits, and reports whether ctx has not ended by then.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
