// Package e2e installs Quorate into a real Kubernetes of three nodes, as people do, uses it, breaks it and upgrades it,
// all of that while applications ask on and on through their gateways. What these saw is judged by the checker in the
// end. `make e2e` builds and runs it; it needs root, and skips where E2E isn't set.
//
// The steps run in one order, each a subtest that proves that what it is about took place. The first that fails ends the
// run, and then the cluster is asked for all that may say why. STEPS=regexp runs some of them, with what every run begins
// with; KEEP=1 leaves the cluster as it is, and the next run begins with what it finds.
//
// What is special about the cluster: nodes 2 and 3 are what gets hurt. The applications run on node 1, as DNS does, since a
// history has to be whole.
package e2e
