package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// file is a policy file: so many in a rolling window, for each principal.
func file(amount int, window string) string {
	return fmt.Sprintf(`
policies:
- name: conversions
  domain: video
  key: [principal]
  limits:
  - {name: some, rollingWindow: {limit: %d, window: %s}}
`, amount, window)
}

// admin applies a policy file as quotactl does, and returns once every partition enforces it, or with what stands
// against it.
func (tr *trio) admin(text string) *quotav1.ApplyPoliciesResponse {
	tr.t.Helper()
	a, err := client.NewAdmin([]string{tr.grpc["n1"], tr.grpc["n2"], tr.grpc["n3"]}, nil)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer a.Close()
	var response *quotav1.ApplyPoliciesResponse
	tr.until("the policies to be taken or refused", func() bool {
		ctx, cancel := context.WithTimeout(tr.t.Context(), 5*time.Second)
		defer cancel()
		r, err := a.Apply(ctx, []byte(text), nil)
		if err != nil {
			tr.t.Log(err)
			return false
		}
		for _, p := range r.GetPartitions() {
			if len(r.GetProblems()) == 0 && p.GetVersion().GetNumber() != r.GetVersion().GetNumber() {
				return false
			}
		}
		response = r
		return true
	})
	return response
}

// left is what a principal has left, as its leader shows it.
func (tr *trio) left(c *client.Client, name string) (left uint64) {
	tr.t.Helper()
	tr.until("a look at what is left", func() bool {
		in, err := c.Inspect(tr.t.Context(), &quotav1.InspectRequest{Domain: "video", Descriptor_: question(name).GetDescriptors()[0]})
		if err != nil {
			return false
		}
		left = in.GetLimits()[0].GetLeft()
		return true
	})
	return left
}

// POL-01, POL-02, POL-05: another amount counts at once, for what was used before, at every gateway, also at one
// that remembers a denial, as soon as it hears of the set; what is left never falls below nothing.
func TestPOL01POL02POL05AnotherAmountCountsAtOnce(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().admin(file(3, "60s"))
	tr.everywhere()
	gateways := []*client.Client{tr.client(false, "n1"), tr.client(false, "n2")}
	var taken, version uint64
	take := func(user string, n int) (allowed uint64) {
		for i := range n {
			a := tr.decide(gateways[i%2], user)
			tr.until("an answer under the new set", func() bool {
				if a.GetSetVersion() == version {
					return true
				}
				if a.GetDecision() == quotav1.Decision_DECISION_ALLOW {
					t.Fatalf("an allow under set %d: in force everywhere is %d", a.GetSetVersion(), version)
				}
				a = tr.decide(gateways[i%2], user)
				return false
			})
			if a.GetDecision() == quotav1.Decision_DECISION_ALLOW {
				allowed++
			}
		}
		taken += allowed
		return allowed
	}
	for _, step := range []struct {
		amount        int
		tries         int
		allowed, left uint64
	}{{3, 5, 3, 0}, {100, 2, 2, 95}, {10, 0, 0, 5}, {7, 4, 2, 0}, {4, 2, 0, 0}, {8, 3, 1, 0}} {
		version = tr.admin(file(step.amount, "60s")).GetVersion().GetNumber()
		if got := take("u1", step.tries); got != step.allowed {
			t.Errorf("of %d: %d of %d allowed, want %d", step.amount, got, step.tries, step.allowed)
		}
		if left := tr.left(gateways[0], "u1"); left != step.left {
			t.Errorf("of %d with %d used: %d left, want %d", step.amount, taken, left, step.left)
		}
	}
}

// POL-06, CFG-02: a set that can't come into force, because it is none or because usage couldn't go on under it, is
// refused with the place that is wrong. The last good one stays, with its version and all that was used.
func TestPOL06CFG02ASetThatIsRefusedLeavesTheLastGoodOne(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	good := tr.ready().admin(file(1, "60s"))
	tr.everywhere()
	c := tr.client(false)
	if a := tr.decide(c, "u1"); a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
		t.Fatalf("the first: %v", a)
	}
	for name, tc := range map[string]struct {
		text, field, says string
		line              uint32
	}{
		"a shorter window":   {file(1, "1s"), "limits[0].rollingWindow.window", "from 1m0s to 1s", 0},
		"half of an edit":    {"policies:\n- name: conversions\n  domain: vid", "", "", 0},
		"a field misspelled": {strings.Replace(file(1, "60s"), "window", "windwo", 1), "", "windwo", 7},
		"a swap file":        {"b0VIM 9.0\x00\x00\x10", "", "", 0},
		"nothing":            {"", "", "", 0},
	} {
		r := tr.admin(tc.text)
		if len(r.GetProblems()) == 0 {
			t.Errorf("%s: it is taken: %v", name, r)
			continue
		}
		p := r.GetProblems()[0]
		if tc.field != "" && p.GetField() != tc.field || !strings.Contains(p.String(), tc.says) || tc.line != 0 && p.GetLine() != tc.line {
			t.Errorf("%s: %v", name, p)
		}
		if v := r.GetVersion(); v.GetNumber() != good.GetVersion().GetNumber() || r.GetChanged() {
			t.Errorf("%s: in force is %v, it was %v", name, v, good.GetVersion())
		}
		if a := tr.decide(c, "u1"); a.GetDecision() != quotav1.Decision_DECISION_DENY || a.GetSetVersion() != good.GetVersion().GetNumber() {
			t.Errorf("%s: a second of one a minute: %v", name, a)
		}
	}
}
