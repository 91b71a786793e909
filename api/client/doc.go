// Package client asks a Quorate node for admission, so that an application need not speak gRPC itself.
//
// It is thin: one connection to one address, one call for each question. It makes no decision, repeats
// nothing and keeps nothing.
//
// Invariants:
//
//   - Only an answer whose decision is DECISION_ALLOW authorises the work. [Client.Check] returns either
//     an answer that decides or an error, and an error is never an allow.
//   - A call is sent once. Who repeats one after an unknown outcome must use the same decision id and the
//     same fence: see quota.proto.
//   - No wall clock reaches the node: a deadline travels as the time that is left.
//
// Its traffic is not encrypted. It is for a node on the same machine, and refuses other addresses.
package client
