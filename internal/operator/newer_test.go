package operator

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// TestWhatANewerVersionDeclaredIsNotEnforcedInPart: an operator that was rolled back meets specs that a newer CRD let in.
// Without what it doesn't know each would be a policy that it can enforce, and that nobody declared. What was in force
// stays, and the message says what isn't known. Nobody else waits for it.
func TestWhatANewerVersionDeclaredIsNotEnforcedInPart(t *testing.T) {
	for spec, want := range map[string]string{
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}],"burst":{"limit":1}}`:    "spec.burst: unknown field",
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m","calendar":true}}]}`:        "spec.limits[0].rollingWindow.calendar: unknown field",
		`{"key":["user"],"limits":[{"name":"l","leakyBucket":{"limit":9}}]}`:                                        "spec.limits[0].leakyBucket: unknown field",
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}],"mode":"Audit"}`:         `spec.mode: "Audit" is not one of Enforce, Shadow`,
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}],"onUnavailable":"Wait"}`: `spec.onUnavailable: "Wait" is not one of Deny, Allow`,
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}],"transition":"Gradual"}`: `spec.transition: "Gradual" is not one of Conservative, FromNow`,
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}],"namespace":"b"}`:        "spec.namespace: unknown field",
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}],
			"overrides":[{"when":{"user":"u"},"until":"noon","amounts":{"l":{"limit":99,"burst":1}}}]}`: "spec.overrides[0].until: unknown field\nspec.overrides[0].amounts.l.burst: unknown field",
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}],
			"tiers":[{"when":{"plan":"pro"},"except":{"user":"u"},"amounts":{"l":{"limit":99}}}],"costs":[{"when":{"op":"w"},"cost":2,"atMost":5}]}`: "spec.tiers[0].except: unknown field\nspec.costs[0].atMost: unknown field",
	} {
		in(t, func(t *testing.T, g *rig) {
			g.apply("a/p 3", "a/q 3")
			g.rest()
			newer := func(json.RawMessage) any { return json.RawMessage(spec) }
			g.write("a/p", newer)
			g.write("a/new", newer)
			g.apply("a/q 4")
			for range 2 { // the second one has seen no other spec
				g.rest()
				g.inForce("a/p=3 a/q=4")
				g.want("a/q", "Accepted Programmed 2@1.2 3/3")
				g.want("a/p", "NotSupported NotAccepted 1@1.1 3/3")
				g.want("a/new", "NotSupported NotAccepted")
				for _, at := range []string{"a/p", "a/new"} {
					if got := g.message(at, v1alpha1.ConditionAccepted); !strings.HasPrefix(got, want) {
						t.Errorf("%s: %s\nwant %s", spec, got, want)
					}
				}
				g.begin()
			}
			g.write("a/p", func(json.RawMessage) any {
				return v1alpha1.RateLimitPolicySpec{Key: []v1alpha1.EntryName{"user"}, Limits: limits(5)}
			})
			g.rest()
			g.want("a/p", "Accepted Programmed 3@1.3 3/3")
		})
	}
}

// TestFieldsThatComeLaterWithOneGenerationAreRead: an API server that hasn't heard of the newer CRD hands out an object without
// its fields, and then with them.
func TestFieldsThatComeLaterWithOneGenerationAreRead(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		o := g.object("a/p")
		o.Spec = json.RawMessage(`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}],"burst":{"limit":1}}`)
		if err := g.kube.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		g.rest()
		g.inForce("a/p=3")
		g.want("a/p", "NotSupported NotAccepted 1@1.1 3/3")
	})
}

// TestAValueOfAnotherTypeConcernsItsObjectOnly: as where a newer version takes text for a number, which no Go type of this
// one can hold.
func TestAValueOfAnotherTypeConcernsItsObjectOnly(t *testing.T) {
	for _, spec := range []string{
		`{"key":["user"],"limits":[{"name":"l","rollingWindow":{"limit":"9k","window":"1m"}}]}`,
		`{"key":"user","limits":[{"name":"l","rollingWindow":{"limit":9,"window":"1m"}}]}`,
		`{"key":["user"],"limits":{"l":{"rollingWindow":{"limit":9,"window":"1m"}}}}`,
		`[]`, `"none"`, `null`,
	} {
		in(t, func(t *testing.T, g *rig) {
			g.apply("a/p 3", "a/q 3")
			g.rest()
			g.write("a/p", func(json.RawMessage) any { return json.RawMessage(spec) })
			g.apply("a/q 4")
			g.rest()
			g.inForce("a/p=3 a/q=4")
			g.want("a/p", "Invalid NotAccepted 1@1.1 3/3")
		})
	}
}

// TestACopySharesNothing: the API server's answer to a write is decoded over the object that was written, which must not be
// the cache's.
func TestACopySharesNothing(t *testing.T) {
	list := &declaredList{Items: []declared{{Spec: json.RawMessage(`{"key":["user"]}`)}}}
	list.Items[0].Labels = map[string]string{"a": "b"}
	list.Items[0].Status.Enforced = &v1alpha1.Enforced{Version: "1.1"}
	c := list.DeepCopyObject().(*declaredList)
	if err := json.Unmarshal([]byte(`{"metadata":{"labels":{"a":"c"}},"spec":{"key":["else"]},"status":{"enforced":{"version":"1.2"}}}`), &c.Items[0]); err != nil {
		t.Fatal(err)
	}
	if o := list.Items[0]; string(o.Spec) != `{"key":["user"]}` || o.Labels["a"] != "b" || o.Status.Enforced.Version != "1.1" {
		t.Errorf("%s %v %v", o.Spec, o.Labels, o.Status.Enforced)
	}
}
