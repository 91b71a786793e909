// Package transport carries Raft's requests between the replicas of a partition. Today it has one
// form: [Local], for replicas that live in one process. Each has an address on a [Network], and the
// network can be cut for tests.
//
// Invariants:
//
//   - An address is a stable identity (the server id), never a place: Raft remembers its votes by
//     candidate address.
//   - Nothing blocks for ever. Every request has a deadline; one to a peer that is absent, closed or
//     cut off fails at once; closing either side ends what is in flight.
//   - The replicas share no memory. Requests are copied, entries included, as a wire would: a
//     sender whose deadline has passed reuses its request, and one replica that spoils its copy of
//     an entry must not spoil the others'.
//   - Heartbeats take the same way as all other requests, through Consumer. With the library's fast
//     path (SetHeartbeatHandler) they would be handled beside the main loop, where a leader that
//     one of them deposes can log entries under a term that it doesn't lead (hashicorp/raft #695).
//   - No pipelining: a pipeline can deadlock towards a follower that answered with a failure
//     (hashicorp/raft #612). Batches in an entry pay more than entries in flight.
//
// The partition room opens one transport per replica. It must never decide anything: it reports a
// peer's answer, the lease in package clock judges it.
package transport
