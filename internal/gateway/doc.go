// Package gateway is what a gateway shows to those who ask it: the HTTP front /check, the gRPC service Quota
// for applications that speak it, and, apart from both, metrics and health.
//
// A question comes in, is held to the bounds of the wire contract, and goes to the [Asker], which knows the
// nodes. What comes back is translated once, by one table (outcome.go), into a gRPC status, a failure reason,
// an HTTP status and the words of the JSON answer. Nothing here decides anything, and nothing here asks twice:
// that is the Asker's.
//
// Invariants:
//
//   - Only an answer whose decision and reason the table lists together as an allow is passed on as one. Any
//     other, an answer that comes after its deadline, and an error that says nothing of itself are "outcome
//     unknown".
//   - What the gateway adds of its own can only refuse: a bound on what is in flight, bounds on fields, rights.
//   - A bound is checked before anything is asked: bad input consumes nothing. Its message names the field,
//     and never holds a value, which may be private. Nothing that a caller sends is accepted and ignored.
//   - No caller over HTTP chooses a decision id: repeating one would be work for nothing. Over gRPC only those
//     choose one who may check: holders of a gateway's certificate, or without certificates callers on this
//     machine.
//   - No caller hears that a node doesn't lead, that its policies are older or newer, or that a fence is too
//     old: the Asker has an answer to each, and where it should not, they are told as "not ready".
//   - With certificates a caller over gRPC has the rights that its own states, per domain, and no others;
//     what it stands on is verified again every minute. Without them nothing but metrics and health listens
//     beyond this machine. The HTTP front never does.
//   - Values of entries reach no log, no metric, no header and no message.
//
// docs/http.md has the contract of the HTTP front; quota.proto that of the gRPC service, of which a gateway
// refuses what it does itself: fence_ns, resolution, partition and peek.
//
// Package cmd opens the listeners and calls [New], [Server.Start] and [Server.Stop].
package gateway
