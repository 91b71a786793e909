package faults_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/checker"
)

const (
	callers    = 200
	hotKeys    = 12
	coldKeys   = 1500
	askWithin  = 2 * time.Second
	thinkLeast = 80 * time.Millisecond // between two questions of a caller
	thinkMore  = 100 * time.Millisecond
	// repeatable is how long after its first send an id may be sent again: an allow is remembered for 20 s of
	// decision time, and the last repetition takes its time too.
	repeatable = 14 * time.Second
)

// question is what one id stands for.
type question struct {
	id    [16]byte // zero: whoever is asked draws it
	kind  string   // hot or cold
	who   string
	first int64 // when it was first sent
}

func (q *question) quota() string { return domain + "/" + q.kind }

func (q *question) key() string { return "principal=" + q.who }

// named notes an id that somebody else has drawn, at the first answer.
func (q *question) named(id []byte) {
	if q.id == [16]byte{} {
		copy(q.id[:], id)
	}
}

func (q *question) descriptor() *quotav1.Descriptor {
	return &quotav1.Descriptor{Entries: []*quotav1.Entry{
		{Name: "kind", Value: []byte(q.kind)}, {Name: "principal", Value: []byte(q.who)},
	}}
}

// crowd is the callers of one cell. They write down what they see.
type crowd struct {
	clients []*client.Client
	history *checker.Writer
	prefix  string // of the cell's keys, so that cells on one cluster have nothing to do with each other
	hinted  bool   // callers leave it to their client to draw ids, so that it may deny from memory

	ctx     context.Context
	stop    context.CancelFunc
	calling sync.WaitGroup

	mu     sync.Mutex
	seen   figures
	allows []allowed
	open   map[[16]byte]*question // of unknown outcome
	given  []*question            // allowed lately, to be repeated
	cold   map[string]bool        // keys that were charged
	failed error                  // something that must never be
}

// figures are what callers saw.
type figures struct {
	Allows, Replays, Denials, Refusals, Unknown int
	// Longest is for how long a caller that went on asking had no decision.
	Longest time.Duration
}

// allowed is an allow that was decided when it was asked for.
type allowed struct {
	sent, answered int64
	partition      uint32
}

func newCrowd(clients []*client.Client, w *checker.Writer, prefix string, hinted bool) *crowd {
	c := &crowd{clients: clients, history: w, prefix: prefix, hinted: hinted, open: map[[16]byte]*question{}, cold: map[string]bool{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// begin lets all callers ask until end.
func (c *crowd) begin(r *rand.Rand) {
	for i := range callers {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		c.calling.Go(func() { (&caller{crowd: c, name: fmt.Sprint("c", i), r: own}).run() })
	}
}

// end returns once every caller has its last answer.
func (c *crowd) end() {
	c.stop()
	c.calling.Wait()
}

func (c *crowd) figures() figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// caller asks one question after the other.
type caller struct {
	*crowd
	name  string
	r     *rand.Rand
	since int64 // first send since the last decision; 0: it has one
}

func (k *caller) run() {
	for pause(k.ctx, thinkLeast+time.Duration(k.r.Int64N(int64(thinkMore)))) {
		if k.r.IntN(20) == 0 && k.repeat() {
			continue
		}
		q := k.draw()
		if k.ask(q, k.some()) == nil {
			k.recover(q)
		}
	}
	if k.since != 0 {
		k.waited(now())
	}
}

func (k *caller) some() *client.Client { return k.clients[k.r.IntN(len(k.clients))] }

// draw makes up a question.
func (k *caller) draw() *question {
	q := &question{kind: "cold", who: fmt.Sprintf("%s-%d", k.prefix, k.r.IntN(coldKeys))}
	if k.r.IntN(10) < 3 {
		q.kind, q.who = "hot", fmt.Sprintf("%s-%d", k.prefix, k.r.IntN(hotKeys))
	}
	if !k.hinted {
		for i := range q.id {
			q.id[i] = byte(k.r.IntN(256))
		}
	}
	return q
}

// repeat asks for an allow again, through whichever client. It reports whether there was one.
func (k *caller) repeat() bool {
	k.mu.Lock()
	var q *question
	if n := len(k.given); n > 0 {
		q = k.given[k.r.IntN(n)]
	}
	k.mu.Unlock()
	if q == nil || now()-q.first > int64(repeatable) {
		return false
	}
	k.ask(q, k.some())
	return true
}

// recover asks again, through whichever client, while the outcome is unknown and an allow would be remembered.
func (k *caller) recover(q *question) {
	for k.isOpen(q) && now()-q.first < int64(repeatable) && pause(k.ctx, 50*time.Millisecond) {
		if k.ask(q, k.some()) != nil {
			return
		}
	}
}

func (c *crowd) isOpen(q *question) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[q.id] != nil
}

// ask asks once and writes down what came of it; nil: no decision.
func (k *caller) ask(q *question, through *client.Client) *quotav1.Answer {
	m := &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{q.descriptor()}}
	if q.id != [16]byte{} {
		m.DecisionId = q.id[:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	sent := now()
	a, err := through.Check(ctx, m)
	line := &checker.Call{
		Client: k.name, Quota: q.quota(), Key: q.key(), Cost: 1, Sent: sent, Answered: now(), Partition: -1,
	}
	if q.first == 0 {
		q.first = sent
	}
	if k.since == 0 {
		k.since = sent
	}
	if err != nil {
		k.refused(q, line, err)
		return nil
	}
	k.decided(q, line, a)
	return a
}

func (k *caller) decided(q *question, line *checker.Call, a *quotav1.Answer) {
	q.named(a.GetDecisionId())
	line.ID, line.Reason, line.Replayed = hex.EncodeToString(a.GetDecisionId()), a.GetReason().String(), a.GetReplayed()
	line.Partition, line.Epoch, line.Time = int(a.GetPartition()), a.GetEpoch(), a.GetDecisionTimeNs()
	k.waited(line.Answered)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, q.id)
	switch a.GetDecision() {
	case quotav1.Decision_DECISION_ALLOW:
		line.Answer = checker.Allow
		k.allow(q, line)
	case quotav1.Decision_DECISION_DENY:
		line.Answer = checker.Deny
		k.seen.Denials++
	default:
		k.fail(fmt.Errorf("neither an allow nor a denial: %v", a))
		return
	}
	k.write(line)
}

// allow notes an allow; the mutex is held.
func (k *caller) allow(q *question, line *checker.Call) {
	const most = 400 // to be repeated: the newest
	if line.Replayed {
		k.seen.Replays++
		return
	}
	k.seen.Allows++
	k.allows = append(k.allows, allowed{line.Sent, line.Answered, uint32(line.Partition)})
	if q.kind == "cold" {
		k.cold[q.who] = true
	}
	if k.given = append(k.given, q); len(k.given) > most {
		k.given = k.given[1:]
	}
}

func (k *caller) refused(q *question, line *checker.Call, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var u *client.Unavailable
	if !errors.As(err, &u) || len(u.DecisionID) != 16 {
		k.fail(fmt.Errorf("an error that names no check: %w", err))
		return
	}
	q.named(u.DecisionID)
	line.ID, line.Reason = hex.EncodeToString(u.DecisionID), u.Reason.String()
	switch u.Code {
	case codes.InvalidArgument, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		line.Answer = checker.Error
		k.fail(fmt.Errorf("a check in order is refused as wrong: %w", err))
	default:
		line.Answer = checker.Unavailable
		k.seen.Refusals++
	}
	if u.Reason == quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN || u.Reason == quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED {
		line.Answer = checker.Unknown
		k.seen.Unknown++
		k.open[q.id] = q
	}
	k.write(line)
}

// write writes a line; the mutex is held.
func (c *crowd) write(line checker.Line) {
	if err := c.history.Write(line); err != nil {
		c.fail(err)
	}
}

// fail notes the first of what must never be; the mutex is held.
func (c *crowd) fail(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

// waited notes for how long the caller has had no decision.
func (k *caller) waited(until int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen.Longest = max(k.seen.Longest, time.Duration(until-k.since))
	k.since = 0
}
