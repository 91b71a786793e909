// Package transport carries Raft's requests between the replicas of a partition. It has two forms:
// [Local], for replicas that live in one process, each with an address on a [Network] that can be cut
// for tests; and [Remote], for replicas of different nodes, each opened on the [Links] of its node.
//
// Invariants of both:
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
// Links between nodes:
//
//   - One link each way. A node dials every peer that its replicas talk to, and sends all their
//     requests over that link; the answers come back on it. So there is no question who dials and
//     nothing to settle when both do, and a link that is up says that its owner reaches the peer. Each
//     snapshot has a connection of its own, where TCP's flow control holds back that snapshot alone.
//   - Who speaks is proven, not believed. Both ends verify the other's certificate, the hello must
//     name the node that the certificate names, and every request the server id of one of that
//     node's replicas. An open connection is looked at again and again, and closed once what the
//     other end has shown counts no longer: because it has expired, or its authority was dropped. A
//     request also names the server id that it is for: a disk that was replaced gets nothing of its
//     predecessor's.
//   - Groups don't wait for each other. They take turns on a link frame by frame, each has a bounded
//     queue at the sender and another at the receiver, and the goroutine that reads a link never
//     waits for a replica.
//   - A cut link fails everything in flight on it at once, and a silent one is cut within a bounded
//     time, whether or not anything is sent: both ends hear a ping or its answer every second.
//   - A peer can waste its own link, and nothing else. Every length is checked before it costs memory,
//     every queue is bounded, every wait of the protocol has a deadline, and what isn't the protocol
//     cuts the connection.
//   - A deadline travels as the time that remains, and what is past it is not handed over any more.
//
// One request, walked: Remote encodes it (codec.go, over coder.go) and asks the peer (peer.go) for its
// link; the link queues it (outgoing.go, outbox.go) and writes it in frames (frame.go). At the other end
// incoming.go puts it together, checks who may say it, and lays it on the replica's desk, whose clerk
// hands it to Raft and queues the answer.
//
// The partition room opens one transport per replica; the node owns the links. The package must never
// decide anything: it reports a peer's answer, the lease in package clock judges it.
package transport
