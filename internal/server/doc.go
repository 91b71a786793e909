// Package server is what a node shows to its callers: the gRPC services Quota, Routing, Admin and Peer, the
// HTTP front /check, and, apart from them, metrics and health.
//
// A check comes in, is held to the bounds of the wire contract, becomes a [partition.Call], and goes to
// the [Decider]. What comes back is translated once, by one table (outcome.go), into a gRPC status, a
// failure reason, an HTTP status and the words of the JSON answer. Nothing here decides anything. The other
// services are as thin, over a [Cluster].
//
// # Who may ask
//
// With certificates a connection begins with mutual TLS, and its caller is who its certificate says, by package
// access. What is not granted is refused (authorise.go has the table):
//
//	Check, CheckStream  a gateway's certificate that names the check's domain
//	Inspect             that, or a reader's
//	Watch               a gateway's, a reader's, a policy writer's; own_only: a node's. Only gateways hear the seed
//	Status, GetPolicies a reader's, a policy writer's, a node's
//	ApplyPolicies       a policy writer's
//	Peer                a node's, which speaks for itself alone
//	health, reflection  any
//
// Being a node gives no right to check anything. A certificate that ends, or whose CA is dropped, ends the
// streams of its open connections, and refuses their calls, within a minute: UNAUTHENTICATED. Without
// certificates only this machine is served, and callers are who they say they are.
//
// Invariants:
//
//   - Only an outcome that the table lists as an allow is answered as one. An outcome that it doesn't
//     know is "outcome unknown".
//   - A bound is checked before anything is asked for: bad input consumes nothing. Its message names the
//     field, and never holds a value, which may be private.
//   - No caller over HTTP chooses a decision id: repeating one would be work for nothing.
//   - An internal repetition keeps its id and its fence, so it can't be charged twice. Once one send of an
//     id has an unknown outcome, nothing but a decision ends it otherwise.
//   - A deadline is a reading of the node's monotonic clock, made at receipt. No wall clock is read.
//   - Values of entries reach no log, no metric, no header and no message.
//   - Without certificates nothing listens beyond this machine, and the HTTP front never does.
//   - A method that the table of rights lacks nobody may call.
//   - An answer to a peek is no allow, whatever comes back.
//
// # HTTP answers
//
// Every answer of /check, whatever its status, is one JSON object with the keys decision, reason,
// message, policy, limit, limit_name, remaining, retry_after, decision_time_ns, partition, epoch,
// replayed and id, null where nothing applies. The reasons are:
//
//	limit               429  too little is left now; retry_after says when to ask again
//	cost_exceeds_limit  429  the cost is above the limit and can never fit
//	no_policy           403  no policy matches, and the domain denies that
//	unknown_domain      403  nothing names the domain
//	no_match            200  no policy matches, and the domain allows that; nothing was charged
//	no_quorum           503  no leader is known, or it hasn't heard a majority lately
//	not_ready           503  leadership or policies are changing hands
//	overloaded          503  the queue is full, or the deadline can't be met
//	deadline            503  the deadline passed before the check was put to the vote
//	memory              503  no room to remember another allow
//	outcome_unknown     503  it may have been charged; nobody can tell now
//	shutting_down       503  the node is stopping
//	invalid_argument    400  (413 too large, 415 not JSON) the message names the field
//	not_supported       400  this version doesn't decide what was asked
//	decision_id_conflict 409 the id stands for another check
//	not_found           404  there is only /check
//	method_not_allowed  405  it takes GET and POST
//	internal            500  a defect of the node; treat it as unavailable
//
// An allow within its limits has no reason.
//
// Package cmd opens the listeners and calls [New], [Server.Start] and [Server.Stop].
package server
