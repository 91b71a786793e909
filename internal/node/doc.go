// Package node opens and closes everything of a process, in order, and knows no
// flags and no exit. Today it has one form: Cluster, three durable replicas of
// one partition in one process.
//
// Invariants:
//
//   - A replica that lost its disk stays out. It is reported, and never votes.
//   - A policy set comes into force through the log, once; another one on a kept
//     folder is refused.
//   - Closing goes against the way of a check: what answers first, then Raft,
//     then its links, then the disks, last the clock. Each part may still use
//     those that close after it.
package node
