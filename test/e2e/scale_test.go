package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// untouched is a key that nobody is ever allowed. Of one that was denied a gateway remembers that for a while, and says so also
// while there is nobody to ask.
const untouched = "kind=budget&principal=untouched"

// halfSpent is a key whose budget of two is half used up before nodes are taken away.
const halfSpent = "kind=budget&principal=half-spent"

// scaled: fewer pods are no smaller cluster. The one that is left has no majority and refuses everything; the others come
// back with what they knew, by the command of the page and without another hand.
func scaled(t *testing.T, r *run) {
	if a := r.decided(t, r.load.askers[0], halfSpent); a.Status != 200 {
		t.Fatalf("the first of two: status %d, %+v", a.Status, a.Answer)
	}
	before, left := r.identities(t), r.quorateNodes(t)["quorate-0"]
	container, restarts := left.container()
	r.load.mark("scaled to one")
	r.kubectl(t, "scale", "statefulset/quorate", "--replicas", "1", "--namespace", namespace)
	eventually(t, "two pods to be gone", func() string {
		if list, err := r.pods("node"); err != nil || len(list) != 1 {
			return fmt.Sprintf("%d pods are left (%v)", len(list), err)
		}
		return ""
	})
	unknown := r.allRefused(t)
	r.aloneAndAlive(t, left)
	r.keeps(t, before)

	r.load.mark("scaled back")
	r.person(t, nil).follows(t, blockOf(t, kubernetesPage, "Scaling", "sh", "kubectl"))
	r.whole(t)
	r.keeps(t, before)
	after := r.quorateNodes(t)["quorate-0"]
	if now, again := after.container(); now != container || again != restarts {
		t.Errorf("the node that was left was started anew: container %s, before %s", now, container)
	}
	r.stillSpent(t)
	r.halfIsLeft(t, unknown)
	r.helm(t, "upgrade", "quorate", chart, "--namespace", namespace, "--reset-values") // it is the release's again
	r.programmed(t, "load")
	r.load.goesOn(t)
}

// allRefused: all go on asking, and nobody is allowed anything. It returns of how many checks of halfSpent nobody knows what
// became.
func (r *run) allRefused(t *testing.T) (unknown int) {
	t.Helper()
	refused := func(from figures) (now figures) {
		eventually(t, "callers to be told that nobody decides", func() string {
			now = r.load.seen(t)
			if now.Unavailable+now.Unknown < from.Unavailable+from.Unknown+60 {
				return fmt.Sprintf("before %+v, now %+v", from, now)
			}
			return ""
		})
		return now
	}
	from := refused(r.load.seen(t)) // and what was on its way when the pods went is answered
	to := refused(from)
	if to.Allows != from.Allows {
		t.Errorf("without a majority callers were allowed %d times", to.Allows-from.Allows)
	}
	for _, asker := range r.load.askers {
		for _, query := range []string{halfSpent, untouched} {
			a := r.check(t, asker, query)
			if a.Status != 503 {
				t.Errorf("without a majority %s is answered with status %d: %+v", query, a.Status, a.Answer)
			}
			if query == halfSpent && a.Answer.Reason == "outcome_unknown" {
				unknown++
			}
		}
	}
	t.Logf("%d checks were refused meanwhile", to.Unavailable+to.Unknown-from.Unavailable-from.Unknown)
	return unknown
}

// aloneAndAlive: it isn't ready, and nobody starts it anew for that.
func (r *run) aloneAndAlive(t *testing.T, left pod) {
	t.Helper()
	eventually(t, "the one that is left not to be ready", func() string {
		now := r.quorateNodes(t)[left.Metadata.Name]
		if now.Metadata.UID != left.Metadata.UID || is(now.Status.Conditions, "Ready") {
			return fmt.Sprintf("%+v", now)
		}
		return ""
	})
	if _, err := r.ask(left.Metadata.Name, 8082, "livez"); err != nil {
		t.Errorf("the one that is left passes for dead: %v", err)
	}
}

// keeps: volumes, CA and policies are those of before.
func (r *run) keeps(t *testing.T, before []string) {
	t.Helper()
	if now := r.identities(t); strings.Join(now, "\n") != strings.Join(before, "\n") {
		t.Errorf("before\n%s\nnow\n%s", strings.Join(before, "\n"), strings.Join(now, "\n"))
	}
}

// halfIsLeft: of the two one was used up before, and at most as many since as nobody knows the outcome of.
func (r *run) halfIsLeft(t *testing.T, unknown int) {
	t.Helper()
	allowed := 0
	for i := range 3 {
		if a := r.decided(t, r.load.askers[i%2], halfSpent); a.Status == 200 {
			allowed++
		}
	}
	if allowed > 1 || allowed < 1-unknown {
		t.Errorf("of a budget of two that was half used up %d are allowed", allowed)
	}
}
