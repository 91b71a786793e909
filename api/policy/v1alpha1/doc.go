// Package v1alpha1 has the Go types of RateLimitPolicy, the object by which a policy is declared in Kubernetes.
//
// Invariants:
//
//   - A spec has the shape of the policy file. Its JSON with the object's name and namespace added is a policy of such a
//     file: nothing is converted, and nothing is lost on the way there and back.
//   - What these types' markers say, the schema of the custom resource is generated from (`make gen`, config/crd). It refuses
//     nothing that the reader of the policy file accepts, but for what is written beside the marker; what takes more than
//     one object to know, or more than a schema can say, the operator answers with a condition.
//   - It imports apimachinery only, and registers itself with nobody: [AddToScheme] does, when it is called.
//
// The operator imports it, and Go programs that declare policies.
//
// +kubebuilder:object:generate=true
// +groupName=quorate.dev
package v1alpha1
