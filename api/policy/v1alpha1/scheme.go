package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What the API server calls the resource: `kubectl get ratelimitpolicies.quorate.dev`. The short form isn't unique,
// others have a kind of that name too.
const (
	Group    = "quorate.dev"
	Version  = "v1alpha1"
	Kind     = "RateLimitPolicy"
	Resource = "ratelimitpolicies"
)

// GroupVersion is the group and version of everything in this package.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// AddToScheme teaches s the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &RateLimitPolicy{}, &RateLimitPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
