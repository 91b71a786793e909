package cluster_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/rig"
)

// TestPoliciesChangeInAllOfTheCluster, or not at all: a raised amount keeps what is used up, and what can't be
// accepted leaves everything as it was and says why.
func TestPoliciesChangeInAllOfTheCluster(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(2)})
	front := n.Gateway(t).Line(t, "http ")
	accounts := []string{"ann", "ben", "cleo", "dan", "eve", "fay"} // of several partitions
	for _, a := range accounts {
		wantAnswers(t, front, a, allowed, allowed, denied)
	}

	// A raised amount.
	three := n.File(t, hourlyText(3))
	n.apply(t, 0, []string{"version 1.2, changed", "enforced by 3 of 3 partitions"}, three, "--expected", "1.1")
	for _, a := range accounts {
		rig.Eventually(t, "the gateway to forget its denials", func() bool { return statusOf(t, front, a) == allowed })
		wantAnswers(t, front, a, denied)
	}
	// The same again changes nothing, wherever it comes from.
	n.apply(t, 0, []string{"version 1.2, unchanged", "enforced by 3 of 3 partitions"}, three)
	status, listed := n.Ctl(t, "reader", "policies", "list", "-o", "yaml")
	if status != 0 || !strings.Contains(listed, "limit: 3") {
		t.Errorf("policies list: status %d\n%s", status, listed)
	}
	n.apply(t, 0, []string{"version 1.2, unchanged"}, n.File(t, listed))

	for name, refusal := range map[string]struct {
		text string
		args []string
		want []string
	}{
		"another version is in force": {hourlyText(4), []string{"--expected", "1.1"}, []string{"another version of the policy set is in force", "look at it by quotactl policies list"}},
		"broken": {"policies:\n- name: a b\n  key: [principal, principal]\n  limits:\n  - {name: x, rollingWindow: {limit: -1, window: 1y}}\n  colour: red\n", nil,
			[]string{":2: ", ":3: ", ":5: ", ":6: ", "colour", "is refused, for ", "in force is still version 1.2"}},
		"another window": {strings.Replace(hourlyText(3), "1h", "2h", 1), nil,
			[]string{"default/conversions: ", "limits[0].rollingWindow.window: can't be changed from 1h0m0s to 2h0m0s yet", "in force is still version 1.2"}},
		"another key": {strings.Replace(hourlyText(3), "[principal]", "[principal, api_class]", 1), nil,
			[]string{"default/conversions: key: can't be changed from [principal] to [api_class, principal] yet"}},
		"not supported": {strings.Replace(hourlyText(3), "  key:", "  mode: Shadow\n  key:", 1), nil, []string{"mode", "not supported yet"}},
	} {
		t.Run(name, func(t *testing.T) { n.apply(t, 1, refusal.want, n.File(t, refusal.text), refusal.args...) })
	}

	n.apply(t, 0, []string{"would be accepted; in force is version 1.2"}, n.File(t, hourlyText(5)), "--dry-run")
	for _, a := range accounts {
		wantAnswers(t, front, a, denied)
	}
	rig.Eventually(t, "a list of what is enforced", func() bool {
		status, out := n.Ctl(t, "reader", "policies", "list")
		return status == 0 && strings.Contains(out, "version 1.2, ") && strings.Contains(out, "enforced by 3 of 3 partitions")
	})
}

// apply applies a file and looks at the exit status and at what is said.
func (n *nodes) apply(t *testing.T, want int, texts []string, file string, args ...string) {
	t.Helper()
	status, out := n.Ctl(t, "policy-writer", append([]string{"policies", "apply", file}, args...)...)
	if status != want {
		t.Errorf("apply: status %d, want %d\n%s", status, want, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, strings.ReplaceAll(out, filepath.Dir(file), ""))
		}
	}
}

// wantAnswers asks at a front for an account until each status has come, in this order. Nothing fails meanwhile, so
// what is unavailable consumed nothing and is asked again.
func wantAnswers(t *testing.T, front, account string, statuses ...int) {
	t.Helper()
	for i, want := range statuses {
		got := 0
		rig.Eventually(t, "an answer", func() bool {
			got = statusOf(t, front, account)
			return got != unavailable
		})
		if got != want {
			t.Errorf("check %d of %s: status %d, want %d", i+1, account, got, want)
		}
	}
}

// statusOf asks at a front once.
func statusOf(t *testing.T, front, account string) int {
	t.Helper()
	response, err := http.Get(fmt.Sprintf("http://%s/check?principal=%s&api_class=%s", front, account, apiClass))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
