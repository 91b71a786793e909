package operator

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// many are 1,000 objects with 100 overrides each.
func many() (list []*declared) {
	for i := range 1000 {
		o := &declared{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprintf("p%d", i), CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0))}}
		s := v1alpha1.RateLimitPolicySpec{}
		s.Key = []v1alpha1.EntryName{"user"}
		s.Limits = []v1alpha1.Limit{{Name: "l", FixedWindow: &v1alpha1.Window{Limit: 3, Window: "1m"}}}
		for j := range 100 {
			n := int64(j)
			s.Overrides = append(s.Overrides, v1alpha1.Override{
				When:    v1alpha1.When{"user": v1alpha1.EntryValue(fmt.Sprintf("u%d", j))},
				Amounts: map[string]v1alpha1.Amount{"l": {Limit: &n}},
			})
		}
		o.Spec = asJSON(s)
		list = append(list, o)
	}
	return list
}

// BenchmarkReadAThousand reads every object, as after a start; later only those that have changed are read.
func BenchmarkReadAThousand(b *testing.B) {
	objects := many()
	for b.Loop() {
		for _, o := range objects {
			if r := read(o); r.fault != nil {
				b.Fatal(r.fault.message)
			}
		}
	}
}

// BenchmarkPlanAThousand plans with all of them in force, and one changed.
func BenchmarkPlanAThousand(b *testing.B) {
	w := &world{force: newForce(setOf(b), client.Version{})}
	for _, o := range many() {
		w.objects = append(w.objects, &object{name: name{o.Namespace, o.Name}, reading: read(o), created: o.CreationTimestamp.Time})
	}
	w.force = newForce(makePlan(w).set, client.Version{Epoch: 1, Number: 1})
	changed := *w.objects[500]
	changed.policy.Limits = append(changed.policy.Limits[:0:0], changed.policy.Limits...)
	changed.policy.Limits[0].Amount = 4
	w.objects[500] = &changed
	for b.Loop() {
		if pl := makePlan(w); !pl.changes(w.force) || !pl.verdicts[changed.name].fresh || pl.verdicts[w.objects[0].name].fresh {
			b.Fatal("the plan isn't to change one policy")
		}
	}
}
