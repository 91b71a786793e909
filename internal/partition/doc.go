// Package partition runs one replica of one Raft group, and its leader.
//
// A Group drives hashicorp/raft over the stores and a transport, and answers
// calls while it leads. One goroutine (run) watches leadership, seals batches and
// logs time; Raft's own goroutine applies entries and wakes callers; callers run
// Submit. What they share is under one mutex (the queue, the ids in flight, the
// entries in flight), held for moments and never while anything blocks.
//
// Invariants:
//
//   - No answer but the log's allows anything: an allow is delivered by the apply
//     of its entry, or read from the record that such an apply left.
//   - Every stamp counts from the first entry of the term that it names; apply
//     refuses the rest. So neither a wrong belief about leadership nor a late
//     proposal can admit anything.
//   - What is answered from memory needs the lease at that moment.
//   - Every call is finished exactly once. A caller that heard "unknown" may ask
//     again with the same id, and gets the allow if there is one.
//   - Any error of a store ends the process: the others elect.
//
// It is called by package node, and must never decide anything itself: it
// resolves, waits, and reports what the state machine said.
package partition
