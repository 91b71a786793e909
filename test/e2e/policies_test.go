package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// budget is a policy whose usage has to outlive what a step does: so many in an hour.
func budget(name string, amount int, more string) string {
	return fmt.Sprintf(`apiVersion: quorate.dev/v1alpha1
kind: RateLimitPolicy
metadata: {name: %s}
spec:
  quota: budget
  match: {kind: budget}
  key: [principal]
  limits:
  - {name: hourly, rollingWindow: {limit: %d, window: 1h}}
%s`, name, amount, more)
}

// spent is a key whose budget is used up from policiesEdited on, whatever is done later.
const spent = "kind=budget&principal=spent"

// stillSpent: what was admitted isn't forgotten.
func (r *run) stillSpent(t *testing.T) {
	t.Helper()
	for _, asker := range r.load.askers {
		if a := r.decided(t, asker, spent); a.Status != 429 || a.Answer.Policy != namespace+"/budget" {
			t.Errorf("a budget that is spent, through %s: status %d, %+v", asker, a.Status, a.Answer)
		}
	}
}

// policiesEdited: usage counts against the new amount.
func policiesEdited(t *testing.T, r *run) {
	r.apply(t, budget("budget", 2, ""))
	r.programmed(t, "budget")
	allowed := func(want int) {
		t.Helper()
		for i := range want {
			eventually(t, fmt.Sprintf("allow %d of %d", i+1, want), func() string { // a gateway may still remember a denial
				if a := r.decided(t, r.load.askers[i%2], spent); a.Status != 200 {
					return fmt.Sprintf("status %d, %+v", a.Status, a.Answer)
				}
				return ""
			})
		}
		r.stillSpent(t)
	}
	allowed(2)
	r.apply(t, budget("budget", 3, ""))
	r.programmed(t, "budget")
	allowed(1)
	r.apply(t, budget("budget", 2, ""))
	r.programmed(t, "budget")
	allowed(0)
	for _, a := range []amounts{{burst: 6, minute: 30}, {burst: 14, minute: 90}, usual()} {
		r.load.apply(t, a)
		r.load.goesOn(t)
	}
}

// policyInConflict: of two objects with one quota the older counts, and the other says so.
func policyInConflict(t *testing.T, r *run) {
	r.apply(t, budget("budget-again", 1000, ""))
	p := r.awaitCondition(t, "budget-again", "Accepted", "False", "Conflicted")
	if problem := p.lacks("Programmed", "False", ""); problem != "" {
		t.Error(problem)
	}
	r.programmed(t, "budget")
	r.stillSpent(t)
	r.kubectl(t, "delete", "ratelimitpolicies.quorate.dev", "budget-again", "--namespace", namespace)
	r.stillSpent(t)
	r.load.goesOn(t)
}

// policyBroken: what can't be enforced leaves in force what was, and holds up nothing that comes with it.
func policyBroken(t *testing.T, r *run) {
	good := r.programmed(t, "budget")
	bundle := []string{
		strings.Replace(firstPolicy(t), "limit: 3", "limit: 4", 1),
		strings.Replace(budget("other", 1, ""), "quota: budget\n  match: {kind: budget}", "match: {kind: other}", 1),
		strings.Replace(budget("budget", 1000, ""), "window: 1h", "window: 2h", 1), // what was an hour ago isn't known
	}
	r.apply(t, strings.Join(bundle, "---\n"))
	broken := r.awaitCondition(t, "budget", "Accepted", "False", "")
	r.programmed(t, "conversions")
	r.programmed(t, "other")
	for i, want := range []int{200, 429} {
		if a := r.decided(t, r.load.askers[i], "kind=other&principal=u1"); a.Status != want {
			t.Errorf("check %d of a policy that came with a broken one: status %d, %+v", i+1, a.Status, a.Answer)
		}
	}
	if broken.Metadata.Generation == good.Metadata.Generation {
		t.Fatal("the object wasn't changed")
	}
	if g := broken.Status.Enforced.Generation; g != good.Metadata.Generation {
		t.Errorf("enforced is generation %d, the last good one is %d", g, good.Metadata.Generation)
	}
	r.stillSpent(t)
	r.apply(t, budget("elsewhere", 5, "  domain: somebody-elses\n"))
	r.awaitCondition(t, "elsewhere", "Accepted", "False", "DomainNotAllowed")
	if out, err := r.call(strings.Replace(budget("budget", 5, ""), "key: [principal]", "key: []", 1), r.bin+"/kubectl",
		"apply", "--namespace", namespace, "--filename", "-"); err == nil {
		t.Errorf("the API server takes a policy without a key: %s", out)
	}
	r.load.goesOn(t)
	r.kubectl(t, "delete", "ratelimitpolicies.quorate.dev", "elsewhere", "other", "--namespace", namespace)
	r.gone(t, "kind=other&principal=u1") // two that go at once would be held
	r.apply(t, budget("budget", 2, ""))
	r.programmed(t, "budget")
	r.stillSpent(t)
}

// gone waits until no policy matches.
func (r *run) gone(t *testing.T, query string) {
	t.Helper()
	eventually(t, "the policy of "+query+" to be gone", func() string {
		if a := r.decided(t, r.load.askers[0], query); a.Status != 403 || a.Answer.Reason != "no_policy" {
			return fmt.Sprintf("status %d, %+v", a.Status, a.Answer)
		}
		return ""
	})
}

// policyDeleted: nothing matches any more; created again it goes on with its usage.
func policyDeleted(t *testing.T, r *run) {
	r.kubectl(t, "delete", "ratelimitpolicies.quorate.dev", "budget", "--namespace", namespace)
	r.gone(t, spent)
	r.load.goesOn(t)
	r.apply(t, budget("budget", 2, ""))
	r.programmed(t, "budget")
	r.stillSpent(t)
}

const held = "quorate-held-removal"

// definitionDeleted: Kubernetes deletes all policies with it. Seeing none is no instruction.
func definitionDeleted(t *testing.T, r *run) {
	r.load.mark("definition deleted")
	r.kubectl(t, "delete", "crd", "ratelimitpolicies.quorate.dev")
	eventually(t, "the removal to be held", func() string {
		out, err := r.try("get", "configmap", held, "--namespace", namespace, "-o", "yaml")
		if err != nil {
			return err.Error()
		}
		for _, name := range []string{"load", "budget", "conversions"} {
			if !strings.Contains(out, namespace+"/"+name) {
				return fmt.Sprintf("%s is not among\n%s", name, out)
			}
		}
		return ""
	})
	r.stillSpent(t)
	r.load.goesOn(t) // and a caller that finds no policy fails the load
	r.helm(t, "upgrade", "quorate", chart, "--namespace", namespace, "--reset-values")
	r.kubectl(t, "wait", "--for=condition=Established", "crd/ratelimitpolicies.quorate.dev", "--timeout", patience.String())
	r.apply(t, firstPolicy(t))
	r.apply(t, budget("budget", 2, ""))
	r.load.apply(t, usual())
	r.programmed(t, "budget")
	r.programmed(t, "conversions")
	r.stillSpent(t)
	r.load.goesOn(t)
}
