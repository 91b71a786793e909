package operator

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// declared is a RateLimitPolicy as the API server has it. The spec stays as it is until the policy file's reader reads it,
// which ignores nothing. The types of package v1alpha1 would drop without a word what only a newer version of the
// CRD has, as after a roll back, and what is left of a policy may allow more than was declared. A value of another type
// there would fail the whole list. And a spec with a hundred overrides takes a tenth of the memory like this.
type declared struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   json.RawMessage                `json:"spec"`
	Status v1alpha1.RateLimitPolicyStatus `json:"status,omitzero"`
}

// declaredList is a list of them.
type declaredList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []declared `json:"items"`
}

func (d *declared) at() name { return name{d.Namespace, d.Name} }

// DeepCopy returns a copy that shares nothing: what is decoded into one is written over the bytes of its spec.
func (d *declared) DeepCopy() *declared {
	c := &declared{TypeMeta: d.TypeMeta, Spec: bytes.Clone(d.Spec)}
	d.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	d.Status.DeepCopyInto(&c.Status)
	return c
}

// DeepCopyObject is part of [runtime.Object].
func (d *declared) DeepCopyObject() runtime.Object { return d.DeepCopy() }

// DeepCopyObject is part of [runtime.Object].
func (l *declaredList) DeepCopyObject() runtime.Object {
	c := &declaredList{TypeMeta: l.TypeMeta, Items: make([]declared, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return c
}

// addToScheme has s know them as what the API server calls RateLimitPolicy.
func addToScheme(s *runtime.Scheme) {
	version := v1alpha1.GroupVersion()
	s.AddKnownTypeWithName(version.WithKind(v1alpha1.Kind), &declared{})
	s.AddKnownTypeWithName(version.WithKind(v1alpha1.Kind+"List"), &declaredList{})
	metav1.AddToGroupVersion(s, version)
}
