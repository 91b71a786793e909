// Package operator_test runs the operator as a process between a real API server and three real nodes. The operator
// may do in Kubernetes just what internal/operator says that it needs to. The tests need KUBEBUILDER_ASSETS, which `make
// envtest` sets, and skip without it.
package operator_test
