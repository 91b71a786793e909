// Package server is what a node shows to those who ask it: the gRPC services Quota, Routing, Admin and Peer, and,
// apart from them, metrics and health over HTTP.
//
// A check comes in, is held to the bounds of the wire contract, becomes a [partition.Call], and goes to
// the [Decider]. What comes back is translated once, by one table (outcome.go), into a gRPC status and a
// failure reason. Nothing here decides anything, and nothing here asks twice: that is the asker's. The other
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
//   - What comes becomes one call: nothing here sends a check on a second time.
//   - A deadline is a reading of the node's monotonic clock, made at receipt. No wall clock is read.
//   - Values of entries reach no log, no metric and no message.
//   - Without certificates nothing listens beyond this machine, but for metrics and health.
//   - A method that the table of rights lacks nobody may call.
//   - An answer to a peek is no allow, whatever comes back.
//
// HTTP callers are a gateway's: package gateway has /check.
//
// Package cmd opens the listeners and calls [New], [Server.Start] and [Server.Stop].
package server
