// Package fsm is the state machine of one partition: a pure function of its log.
//
// Everything that applying an entry reads is in the entry or in replicated
// settings; the term under which raft logged it is the only thing beside. There
// is no clock here, no randomness, no goroutine, and no map iteration reaches
// the state or an answer. So two machines fed the same log are equal at every
// index, and one that starts from a snapshot goes on as if it had replayed.
//
// What it holds:
//
//   - settings, the level of behaviour (level.go), the policy set in force, the decision time of the last entry;
//   - the roster (roster.go): which numbers, that last, the quotas and domains have which the
//     set in force means by their places; deleted quotas stay in it for 90 days (grave.go);
//   - a table of quota keys, each with the rolling log and the states of buckets
//     and counters of its policy (block.go), compact and without a pointer per
//     event: at a million keys the garbage collector finds a few thousand slices;
//   - the decision records of the last retry horizon (records.go);
//   - a queue of when each key stops mattering (expiry.go);
//   - a hash of all of it, kept as a sum (sum.go).
//
// For each check of a batch, in order (decide.go, charge.go): a known id gets its recorded
// allow, or a conflict; a slot that isn't owned, or a stale fence, is refused;
// else every limit of every charge admits and all are charged and the allow is
// recorded, or nothing changes. Invariants:
//
//   - a denial, a refusal and a read change nothing that counts: at most, what no
//     longer does is dropped;
//   - usage and record of an allow appear together, or neither does;
//   - live usage and live records are never dropped to make room: a full machine
//     refuses new keys and new records;
//   - decision time never goes back;
//   - a set takes the place of another in one entry, whatever there is of keys, and only if
//     all usage goes on under it as the promise demands (policies.go, policy.Set.ChangeTo):
//     a key's windows, refills and place never change, and what isn't known counts as used;
//   - state is dropped only while an entry is applied.
//
// Machine is pure. raft.go alone knows who drives it.
package fsm
