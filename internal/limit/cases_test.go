package limit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/limit"
)

// The cases are data, in testdata/cases; see the README there.

type caseFile struct {
	ID     string
	Auto   bool
	Policy *casePolicy
	Steps  []json.RawMessage
}

type casePolicy struct {
	Alg          string
	Limit        uint64
	Capacity     uint64
	Refill       uint64
	Window       string `json:"window_s"`
	RefillPeriod string `json:"refill_period_s"`
}

type caseStep struct {
	T          string
	Op         string
	Key        string
	Cost       uint64
	Expect     string
	Policy     string
	PolicySpec *casePolicy     `json:"policy_spec"`
	RetryAfter json.RawMessage `json:"retry_after"`
	Remaining  *uint64
	Note       string
	Assert     string
}

// nanos reads decimal seconds, exactly.
func nanos(t *testing.T, s string) int64 {
	t.Helper()
	whole, part, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole+(part + "000000000")[:9], 10, 64)
	if err != nil || len(part) > 9 {
		t.Fatalf("%q is no number of seconds", s)
	}
	return n
}

func (p *casePolicy) spec(t *testing.T) limit.Spec {
	t.Helper()
	switch p.Alg {
	case "rolling":
		return rolling(p.Limit, nanos(t, p.Window))
	case "fixed":
		return fixed(p.Limit, nanos(t, p.Window))
	case "counter":
		return counter(p.Limit, nanos(t, p.Window))
	case "bucket":
		return bucket(p.Capacity, p.Refill, nanos(t, p.RefillPeriod))
	}
	t.Fatalf("no algorithm %q", p.Alg)
	return limit.Spec{}
}

// caseRun is one case: its keys, and a clock that never goes back, as that of the state machine.
type caseRun struct {
	policy *casePolicy
	keys   map[string]*key
	now    int64
	key    *key // of the last check
	last   limit.Decision
}

func (r *caseRun) check(t *testing.T, n int, s caseStep) {
	t.Helper()
	policy := r.policy
	if s.PolicySpec != nil {
		policy = s.PolicySpec
	}
	name := fmt.Sprintf("%+v %s", *policy, s.Key)
	if r.keys[name] == nil {
		r.keys[name] = newKey(policy.spec(t))
		if len(r.keys) > 1 { // another policy's history, on its own clock
			r.now = 0
		}
	}
	r.key = r.keys[name]
	r.now = max(r.now, nanos(t, s.T))
	r.last = r.key.take(r.now, max(s.Cost, 1))
	if got := map[bool]string{true: "allow", false: "deny"}[r.last.Allowed]; got != s.Expect {
		t.Fatalf("step %d at %s: %s, want %s", n, s.T, got, s.Expect)
	}
	if s.Remaining != nil && r.last.Remaining != *s.Remaining {
		t.Errorf("step %d at %s: %d remain, want %d", n, s.T, r.last.Remaining, *s.Remaining)
	}
	if got := retryAfter(r.last, r.now); s.RetryAfter != nil && got != string(s.RetryAfter) {
		t.Errorf("step %d at %s: retry after %s, want %s", n, s.T, got, s.RetryAfter)
	}
}

func retryAfter(d limit.Decision, now int64) string {
	if d.Allowed || d.At == limit.Never {
		return "null"
	}
	return strconv.FormatInt(limit.WholeSeconds(d.At-now), 10)
}

// remarks are the notes and assertions that some cases make in words.
var remarks = map[string]func(t *testing.T, r *caseRun){
	"NUM-01": func(t *testing.T, r *caseRun) {
		for k := int64(4); k <= 1000; k++ {
			r.key.wants(t, k*3600*second-1, 1, deny(k*3600*second, 0))
			r.key.wants(t, k*3600*second, 1, allow(k*3600*second, 0))
		}
	},
	"NUM-05": func(t *testing.T, r *caseRun) {
		if at := r.key.spec.IdleAt(r.key.usage.State); at < 2_500_000_000*second {
			t.Errorf("the state expires at %d", at)
		}
	},
	"NUM-08": func(t *testing.T, r *caseRun) {
		if at := r.key.spec.FullAt(r.key.usage, r.now); at-r.now != 30*second {
			t.Errorf("full again after %d ns", at-r.now)
		}
	},
	"RA-06": func(t *testing.T, r *caseRun) {
		if wait := r.last.At - r.now; wait != 800_000_000 {
			t.Errorf("the wait is %d ns", wait)
		}
	},
}

// TestCases runs every automatic case.
func TestCases(t *testing.T) {
	data, err := os.ReadFile("../../testdata/cases/cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	automatic := 0
	for line := range bytes.Lines(data) {
		var c caseFile
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatalf("%v in %.80s", err, line)
		}
		if c.Auto {
			automatic++
			t.Run(c.ID, func(t *testing.T) { runCase(t, c) })
		}
	}
	if automatic < 30 {
		t.Errorf("%d automatic cases, there were 30", automatic)
	}
}

func runCase(t *testing.T, c caseFile) {
	r := &caseRun{policy: c.Policy, keys: map[string]*key{}}
	for n, raw := range c.Steps {
		var s caseStep
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		switch remark := remarks[c.ID]; {
		case s.Op == "check":
			r.check(t, n, s)
		case remark != nil && (s.Note != "" || s.Assert != ""):
			remark(t, r)
		default:
			t.Fatalf("step %d is nothing that runs: %s", n, raw)
		}
	}
}

// TestWIN06BucketAndRollingDiffer: one trace, two contracts.
func TestWIN06BucketAndRollingDiffer(t *testing.T) {
	for _, c := range []struct {
		spec limit.Spec
		want int
	}{{bucket(17, 17, 30*second), 33}, {rolling(17, 30*second), 17}} {
		k, got := newKey(c.spec), 0
		for n := range int64(30) {
			for _, at := range []int64{n * second, n*second + second/4} {
				if k.take(at, 1).Allowed {
					got++
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %d of 60 allowed, want %d", c.spec.Algorithm, got, c.want)
		}
	}
}

// TestWIN13BurstIsASeparateNumber: at 10 a second, capacity 1 is one per 100 ms and
// capacity 21 is 21 at once.
func TestWIN13BurstIsASeparateNumber(t *testing.T) {
	k := newKey(bucket(1, 10, second))
	k.wants(t, 0, 1, allow(0, 0))
	k.wants(t, second/100, 1, deny(second/10, 0))
	k.wants(t, second/10-100_000, 1, deny(second/10, 0))
	k.wants(t, second/10, 1, allow(second/10, 0))
	k = newKey(bucket(21, 10, second))
	for left := range uint64(21) {
		k.wants(t, 0, 1, allow(0, 20-left))
	}
	k.wants(t, 0, 1, deny(second/10, 0))
	k.wants(t, second/10, 1, allow(second/10, 0))
}

// TestNUM04HugeCapacities are exact: never "no limit", never below zero.
func TestNUM04HugeCapacities(t *testing.T) {
	const huge = uint64(1) << 62
	for _, s := range []limit.Spec{
		rolling(huge, second), bucket(huge, huge, second), counter(huge, second), fixed(huge, second),
	} {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			k := newKey(s)
			k.wants(t, 0, 1, allow(0, huge-1))
			if d := k.take(0, huge); d.Allowed || d.Remaining != huge-1 {
				t.Errorf("2^62 on top of 1: %+v", d)
			}
			k.wants(t, 0, huge-1, allow(0, 0))
			k.spec.Amount = limit.MaxAmount
			k.wants(t, 0, huge-1, allow(0, 0))
			if d := k.take(0, 1); d.Allowed {
				t.Errorf("one more than 2^63-1: %+v", d)
			}
		})
	}
}

// TestCOST07DeniedAfterARefusedCost: a cost below 1 never reaches the algorithm; the
// key is as exhausted as before.
func TestCOST07DeniedAfterARefusedCost(t *testing.T) {
	k := newKey(rolling(3, 60*second))
	k.wants(t, 0, 3, allow(0, 0))
	k.wants(t, 2*second, 1, deny(60*second, 0))
	if got := retryAfter(k.take(2*second, 1), 2*second); got != "58" {
		t.Errorf("retry after %s, want 58", got)
	}
}

// TestRA08ResetOfAFixedWindow points at the aligned boundary, and is never 0.
func TestRA08ResetOfAFixedWindow(t *testing.T) {
	k := newKey(fixed(50, 60*second))
	k.wants(t, 120*second, 50, allow(120*second, 0))
	for at, want := range map[string]int64{"120": 60, "120.5": 60, "179": 1, "179.999": 1} {
		now := nanos(t, at)
		if got := k.spec.FullAt(k.usage, now); got != 180*second || limit.WholeSeconds(got-now) != want {
			t.Errorf("at %s full at %d: %d s, want %d", at, got, limit.WholeSeconds(got-now), want)
		}
	}
}

// TestRA09WholeSeconds: the ceiling, at least 1.
func TestRA09WholeSeconds(t *testing.T) {
	for wait, want := range map[string]int64{
		"0": 1, "0.001": 1, "0.999": 1, "1": 1, "1.000000001": 2, "2": 2, "299.997": 300,
	} {
		if got := limit.WholeSeconds(nanos(t, wait)); got != want {
			t.Errorf("%s s: %d, want %d", wait, got, want)
		}
	}
	if got := limit.WholeSeconds(limit.Never); got != 9_223_372_037 {
		t.Errorf("the longest wait: %d", got)
	}
}
