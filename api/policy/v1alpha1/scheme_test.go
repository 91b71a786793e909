package v1alpha1_test

import (
	"testing"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestTheSchemeKnowsTheKind once it has been taught, under the names that docs and commands use.
func TestTheSchemeKnowsTheKind(t *testing.T) {
	s := runtime.NewScheme()
	if kinds, _, err := s.ObjectKinds(&v1alpha1.RateLimitPolicy{}); err == nil {
		t.Fatalf("known before: %v", kinds)
	}
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for want, object := range map[string]runtime.Object{
		"quorate.dev/v1alpha1, Kind=RateLimitPolicy":     &v1alpha1.RateLimitPolicy{},
		"quorate.dev/v1alpha1, Kind=RateLimitPolicyList": &v1alpha1.RateLimitPolicyList{},
	} {
		kinds, _, err := s.ObjectKinds(object)
		if err != nil || len(kinds) != 1 || kinds[0].String() != want {
			t.Errorf("got %v, %v, want %s", kinds, err, want)
		}
	}
	if got := v1alpha1.GroupVersion().WithResource(v1alpha1.Resource).GroupResource().String(); got != "ratelimitpolicies.quorate.dev" {
		t.Errorf("the resource is %s", got)
	}
}

// TestACopySharesNothing: what is changed in a copy of a cached object isn't changed in the cache.
func TestACopySharesNothing(t *testing.T) {
	seven := int64(7)
	p := &v1alpha1.RateLimitPolicy{}
	p.Spec = v1alpha1.RateLimitPolicySpec{
		Match: v1alpha1.Entries{"a": "b"}, Key: []v1alpha1.EntryName{"user"}, PartitionBy: []v1alpha1.EntryName{},
		Limits: []v1alpha1.Limit{{Name: "l", FixedWindow: &v1alpha1.Window{Limit: 1, Window: "1s"}}},
		Overrides: []v1alpha1.Override{{
			When: v1alpha1.When{"user": "u"}, Amounts: map[string]v1alpha1.Amount{"l": {Limit: &seven}},
		}},
	}
	p.Status.Enforced = &v1alpha1.Enforced{Partitions: "1/3"}
	c := p.DeepCopy()
	c.Spec.Match["a"], c.Spec.Key[0], c.Spec.Limits[0].FixedWindow.Limit = "c", "tenant", 2
	c.Spec.Overrides[0].When["user"], *c.Spec.Overrides[0].Amounts["l"].Limit = "v", 8
	c.Status.Enforced.Partitions = "3/3"
	if p.Spec.Match["a"] != "b" || p.Spec.Key[0] != "user" || p.Spec.Limits[0].FixedWindow.Limit != 1 ||
		p.Spec.Overrides[0].When["user"] != "u" || seven != 7 || p.Status.Enforced.Partitions != "1/3" {
		t.Errorf("the original is %+v now", p)
	}
	if c.Spec.PartitionBy == nil {
		t.Error("an empty list became none")
	}
}
