package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/checker"
)

// domain is where everything is asked.
const domain = "media"

// amounts are what edits raise and lower.
type amounts struct{ burst, minute, cold uint64 }

// usual are those that a cluster begins with.
func usual() amounts { return amounts{burst: 12, minute: 250, cold: 3} }

// text is the policy file. What is hot is asked for more often than it is allowed; what is cold is rarely asked for
// again; bulk only fills logs.
func (a amounts) text() []byte {
	return fmt.Appendf(nil, `policies:
- name: hot
  namespace: %[1]s
  match: {kind: hot}
  key: [principal]
  limits:
  - {name: burst, rollingWindow: {limit: %[2]d, window: 2s}}
  - {name: minute, rollingWindow: {limit: %[3]d, window: 60s}}
- name: cold
  namespace: %[1]s
  match: {kind: cold}
  key: [principal]
  limits:
  - {name: minute, rollingWindow: {limit: %[4]d, window: 60s}}
- name: bulk
  namespace: %[1]s
  match: {kind: bulk}
  key: [principal]
  limits:
  - {name: minute, rollingWindow: {limit: 5, window: 60s}}
`, domain, a.burst, a.minute, a.cold)
}

// limits are those of the text, as histories tell them.
func (a amounts) limits() []checker.Limit {
	one := func(quota, name string, most uint64, window time.Duration) checker.Limit {
		return checker.Limit{Quota: domain + "/" + quota, Name: name, Algorithm: checker.Rolling, Max: most, Window: int64(window)}
	}
	return []checker.Limit{
		one("hot", "burst", a.burst, 2*time.Second), one("hot", "minute", a.minute, time.Minute),
		one("cold", "minute", a.cold, time.Minute), one("bulk", "minute", 5, time.Minute),
	}
}

// editor changes the policies of one cluster, one set after the other.
type editor struct {
	admin func() (*client.Admin, error)

	mu      sync.Mutex
	inForce *checker.Policies // the last that was applied
}

// applyWithin bounds one attempt; a set whose outcome is unknown is applied again.
const applyWithin = 3 * time.Second

// apply brings amounts into force, attempt by attempt, until ctx ends, and returns what came of it.
func (e *editor) apply(ctx context.Context, a amounts) (*checker.Policies, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	line := &checker.Policies{Sent: now(), Outcome: checker.Undecided, Limits: a.limits()}
	if e.inForce != nil {
		line.Set = e.inForce.Set + 1
	}
	for ctx.Err() == nil {
		m, err := e.attempt(ctx, a)
		switch {
		case err != nil:
			pause(ctx, 50*time.Millisecond)
			continue
		case len(m.GetProblems()) > 0:
			return line, fmt.Errorf("policies are refused: %v", m.GetProblems())
		}
		line.Set = m.GetVersion().GetNumber()
		if everywhere(m) {
			line.Outcome, line.Answered = checker.Applied, now()
			e.inForce = line
			return line, nil
		}
	}
	return line, nil
}

func (e *editor) attempt(ctx context.Context, a amounts) (*quotav1.ApplyPoliciesResponse, error) {
	admin, err := e.admin()
	if err != nil {
		return nil, err
	}
	defer func() { _ = admin.Close() }() // nothing is in flight
	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	return admin.Apply(ctx, a.text(), nil)
}

// everywhere reports whether every partition enforces the set.
func everywhere(m *quotav1.ApplyPoliciesResponse) bool {
	for _, p := range m.GetPartitions() {
		if p.GetVersion().GetNumber() < m.GetVersion().GetNumber() {
			return false
		}
	}
	return len(m.GetPartitions()) > 0
}

// edit raises and lowers amounts until ctx ends, writes each attempt, and tells of each that was applied.
func (e *editor) edit(ctx context.Context, w *checker.Writer, every time.Duration, r *rand.Rand, applied func()) error {
	for pause(ctx, every) {
		line, err := e.apply(ctx, amounts{burst: 6 + r.Uint64N(14), minute: 150 + r.Uint64N(150), cold: 2 + r.Uint64N(3)})
		if err = errors.Join(err, w.Write(line)); err != nil {
			return err
		}
		if line.Outcome == checker.Applied {
			applied()
		}
	}
	return nil
}
