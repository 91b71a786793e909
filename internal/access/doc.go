// Package access says who may do what, by certificate, and keeps a process's own certificate fresh.
//
// A certificate states the rights of its holder as URIs among its subject alternative names. Several
// add up:
//
//	quorate://peer/NODE                       is the node NODE, and may open its links
//	quorate://gateway/NAME?domains=a,b        may check and inspect in these domains; *: in all
//	quorate://policy-writer/NAME              may write policies; may read policies and status
//	quorate://reader/NAME                     may read policies and status, and inspect in all domains
//
// NODE is a DNS label. NAME is for people and logs: letters, digits, '-', '.', '_' and '@'. In a domain
// letters, digits, '-', '.', '_', '~' and '/' stand for themselves; every other byte is written %XX, so
// that %2A is the domain called "*" and %2C a comma within a name.
//
// Invariants:
//
//   - What isn't stated is not granted, and what isn't understood grants nothing: one URI that is unknown,
//     malformed or doubled refuses the whole certificate. A right that half of a typing error leaves is a
//     right that nobody meant to give.
//   - A certificate is one node at most, and an address is no identity: whoever dials a node asks for its
//     role and name, and doesn't compare host names.
//   - TLS 1.3 only, a verified certificate on either side, and no session is resumed: a resumed one would
//     stand on a verification that an older CA file once passed.
//   - A new file replaces a good one only when it fits as well as the first one had to. Until then the old
//     one stays in force, and [Keeper.Problem] says why.
//   - Nothing of a private key gets into an error, a log or an identity's text.
//
// The wall clock counts here, as it does nowhere else: certificates are valid by date.
//
// Nodes, gateways, tools and the operator hold a [Keeper] each; its certificate comes from files, or, the operator's
// own, from memory. The room knows neither gRPC nor Raft, and never decides what an operation needs: whoever serves
// it asks the [Identity]. Certificates are made in [github.com/quorate/quorate/internal/access/authority].
package access
