// Package crd_test holds the custom resource of config/crd against a real API server, against the Go types that it is
// generated from, and against the reader of the policy file, which says what a policy is.
//
// What needs an API server skips where KUBEBUILDER_ASSETS doesn't name a folder with etcd, kube-apiserver and kubectl
// (`make envtest` builds them and says so).
package crd_test
