// Package rig runs the programs as people run them: as processes, on loopback addresses or in network namespaces,
// with certificates, configurations and files of their own. What lies between nodes can be put through a [Web], so
// that it can be cut, slowed down and broken. Tests of several folders stand on it: test/cluster, test/faults.
//
// Invariants:
//
//   - It waits by looking, with a deadline, and says what it waited for.
//   - It signals and ends only processes that it has started, by their id, and all of them end with their test.
//   - It knows the product by what everybody knows of it: programs, configuration files, gRPC, metrics.
package rig
