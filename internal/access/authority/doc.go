// Package authority is a CA for nothing but Quorate: it makes itself, and certificates that state one role each,
// so that what holds them is let in by an access.Keeper.
//
// Invariants:
//
//   - What a certificate says follows from its role alone: names, addresses, usages. [Mismatch] finds any other.
//   - Nothing is valid beyond its CA, and a CA that isn't valid now signs nothing.
//   - A CA without the key that belongs to it isn't opened.
//   - It signs leaves only: no CA below it.
//
// Nothing is stored here and nothing is renewed: `quotactl certs dev` keeps its pairs in a folder, the operator in
// Secrets of Kubernetes. Nodes and gateways never import this room: who holds the key of the CA may be anybody.
package authority
