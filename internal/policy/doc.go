// Package policy holds rate limit policies as data: what a set of them says, whether it may be said, its
// one canonical form, and which policy, tier, override and cost a descriptor gets.
//
// Invariants:
//
//   - A [Set] is plain data in the order in which policies win. [Set.Validate] names everything that is
//     wrong with it at once; what this version doesn't enforce is wrong too, never accepted and ignored.
//   - Two sets that say the same have the same [Set.Canonical] bytes, the same [Set.Hash] and, policy by
//     policy, the same [Policy.Revision]: defaults are filled in and what has no order is sorted. The bytes
//     read back to the same set, here and in the file reader. Golden files in testdata keep them fixed.
//   - Every policy of a valid set can win and every tier, override and cost rule of it can apply: what an
//     earlier one would always hide is refused.
//   - A set takes the place of another only where [Set.ChangeTo] finds nothing against it: the [Frame] of a quota, which
//     says how its usage is kept, stays as long as any of that may be remembered. One rule for all who ask: the
//     leader before it proposes, and every replica as it applies.
//   - [Compiled] is immutable and safe for concurrent use. Resolving with it doesn't allocate, and gateways
//     and leaders that hold sets with one hash resolve alike.
//
// The package is pure: standard library, limit and keyspace only; no clock, randomness, I/O or goroutine,
// and no map iteration that reaches output. File readers and, in Kubernetes, the operator make sets; the
// leader and the gateway compile and resolve; the state machine reads what the compiled set says of limits.
package policy
