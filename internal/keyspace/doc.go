// Package keyspace turns what a check says about a caller into bytes that identify an allowance,
// and those bytes into a place: descriptor → quota key → slot → partition.
//
// Invariants:
//
//   - Different keys never share an encoding, whatever bytes they hold: every part is length-prefixed.
//     A hash is only ever an index or a place, never an identity.
//   - A Descriptor made by [NewDescriptor] is sorted by name and its names are unique, so equal
//     descriptors are equal slices and every function here can walk them in one pass.
//   - Slots and digests are keyed by the cluster's [Seed], so nobody outside can aim keys at one
//     partition or build two checks with one digest. Their bytes are fixed for ever by golden vectors in
//     testdata: another value for the same input would move keys away from their usage.
//   - Nothing here allocates but NewDescriptor's errors and a destination that is too small.
//
// Values are opaque bytes. Case folding, address forms and other normalisation belong to the fronts.
// An empty value is allowed in a descriptor and means "absent" wherever a policy needs the entry.
//
// The package is pure: it imports the standard library only, and has no clock, randomness or I/O. Fronts
// build descriptors, policies resolve them, the leader places them, the state machine stores them.
package keyspace
