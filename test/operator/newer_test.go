package operator_test

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// newerDefinition has the API server take two fields that a newer version might have, until the test is over.
func (w *world) newerDefinition() {
	w.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = v1alpha1.Resource + "." + v1alpha1.Group
	w.must(w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(crd), crd))
	was := crd.DeepCopy()
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Properties["surge"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	spec.Properties["limits"].Items.Schema.Properties["rollingWindow"].Properties["calendar"] = apiextensionsv1.JSONSchemaProps{Type: "boolean"}
	w.must(w.kube.Update(w.t.Context(), crd))
	w.t.Cleanup(func() { // the test's own context has ended then
		was.ResourceVersion = crd.ResourceVersion
		w.must(w.kube.Patch(context.Background(), was, client.MergeFrom(crd)))
	})
}

// TestWhatANewerDefinitionLetInIsNotEnforcedInPart: the operator was rolled back, the resource definition wasn't. Of an object
// with fields that only the newer version knows the last good revision stays, and the status names them; for an operator that ran
// before the definition changed, for one that starts, and while others change.
func TestWhatANewerDefinitionLetInIsNotEnforcedInPart(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3", "q 3")
	w.await("p", "Accepted Programmed 1 3/3")
	w.await("q", "Accepted Programmed 1 3/3")
	w.newerDefinition()
	patch := client.RawPatch(types.MergePatchType, []byte(
		`{"spec":{"surge":5,"limits":[{"name":"per-hour","rollingWindow":{"limit":900,"window":"1h","calendar":true}}]}}`))
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind))
	o.SetNamespace("default")
	o.SetName("p")
	eventually(t, "the API server to keep the field", func() bool {
		w.must(w.kube.Patch(t.Context(), o, patch, client.DryRunAll))
		_, kept, _ := unstructured.NestedInt64(o.Object, "spec", "surge")
		return kept
	})
	w.must(w.kube.Patch(t.Context(), o, patch)) // the operator's watch is from before, and goes on without the field for a while
	for _, limit := range []string{"4", "5"} {
		w.apply("q " + limit)
		w.inForce("default/p=3 default/q=" + limit)
		w.await("p", "NotSupported NotAccepted 1 3/3")
		said := meta.FindStatusCondition(w.get("p").Status.Conditions, v1alpha1.ConditionAccepted).Message
		for _, want := range []string{"spec.surge: unknown field", "spec.limits[0].rollingWindow.calendar: unknown field"} {
			if !strings.Contains(said, want) {
				t.Errorf("the status says %s", said)
			}
		}
		w.end()
		w.begin()
	}
	o.SetResourceVersion("")
	w.must(w.kube.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(
		`{"spec":{"surge":null,"limits":[{"name":"per-hour","rollingWindow":{"limit":9,"window":"1h"}}]}}`))))
	w.await("p", "Accepted Programmed 3 3/3")
}
