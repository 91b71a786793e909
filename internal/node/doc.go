// Package node opens and closes everything of a node, in order, and knows no flags and no exit. A node has a
// disk, replicas of some partitions, links to the other nodes, and a part in three conversations with them:
// who they are (starting.go), who leads what (routes.go), and which policies are in force (policies.go).
//
// Invariants:
//
//   - A cluster is founded once. Every initial node has shown the same genesis document before the first of
//     them writes anything else, and after that nothing founds again (founding.go).
//   - A disk that lost what it held stays out. It is blank, or not the one that the genesis names, or has lost
//     its log, or is an old copy of itself: a start is noted by others before anything of it runs, so one that
//     doesn't come after the last is known (notes.go). It is reported, and never votes.
//   - Partition 0's log orders policy sets; the others adopt what it has committed, each through its own log.
//     Gateways are given a set once every partition whose leader is known enforces it.
//   - A route is what a node says of itself; of two the later term counts. A wrong route costs a caller a
//     moment: it is the leader that decides, and whoever isn't says so.
//   - Closing goes against the way of a check: what answers first, then Raft, then its links, then the disks,
//     last the clock. Each part may still use those that close after it.
//
// Package cmd opens it and hands it to package server, which lets others in.
package node
