// Package client asks a Quorate cluster for admission, so that an application need not speak gRPC itself.
//
// [Client] is what an application or a gateway holds: it knows the cluster, resolves checks with the same
// code as the leaders, sends each to the leader that decides it, and repeats what has to be repeated. [Conn] is
// a connection to one address, for people and tools; [Admin] reads and writes policies, and says which are enforced
// for certain. Package clienttest has a cluster in memory, for tests.
//
// Invariants of a Client:
//
//   - Only an answer whose decision is DECISION_ALLOW authorises the work. [Client.Check] returns either an
//     answer that decides or an error, and an error is never an allow. It makes no decision itself: an allow
//     is always a leader's, a denial is a leader's too or one that a leader gave before and that still holds.
//   - All sends of a check have one decision id, and in each partition one fence: the newest logged decision
//     time that was known there at the first send. Nothing is sent to a partition whose time isn't known.
//     Logged times are those of the watch, and of allows that were decided anew. The other answers have the
//     leader's present, which may be logged by nobody.
//   - A check of which any send has an unknown outcome ends with an answer, or as FAILURE_REASON_OUTCOME_UNKNOWN;
//     never as something that says that nothing was consumed. So does one that was charged in one partition
//     and then came to no answer in another.
//   - No caller sees STALE_POLICY, NOT_LEADER, POLICY_PENDING or STALE_TIME.
//   - An answer is believed if it has the check's id, comes from the partition that was asked, and is of no
//     epoch that was left. No wall clock reaches a node: a deadline travels as the time that is left.
//
// # States
//
// What a check meets, what its caller gets, and how often it is sent. A correction is a send to whom an answer
// or news have named, at once, at most 3; a repetition is a send of the same in the hope of another answer,
// after a pause that doubles, and within the retry budget: 10 % of what is asked, and 10 a second. A partition
// is asked at most 8 times in all.
//
//	state            what the caller gets                                                        sends
//	no route         waits for the cluster and its policies; NO_QUORUM at the deadline           0
//	no time          waits for the partition's first time; NO_QUORUM at the deadline             0
//	leader unknown   waits for a leader, asks any node at most 3 times; NO_QUORUM                0 to 3
//	stale route      the answer of the leader that the asked node named                          2
//	leader moved     the answer of the new leader, who is asked once there is news of it         2
//	unreachable      repeated; NO_QUORUM                                                         up to 8
//	stream broken    repeated; the answer that the same id finds, or OUTCOME_UNKNOWN             2 to 8
//	outcome unknown  repeated; the answer that the same id finds, or OUTCOME_UNKNOWN             2 to 8
//	no quorum        repeated (CLOCK and SHUTTING_DOWN alike); what the leader said last         up to 8
//	policy pending   repeated; NO_QUORUM                                                         up to 8
//	policy stale     asked again with the leader's resolution, 3 times; NO_QUORUM                2 to 4
//	stale conflict   a conflict after a STALE_POLICY of the id: OUTCOME_UNKNOWN                  2
//	conflict         DECISION_ID_CONFLICT                                                        1
//	stale time       asked once more under a new id, or the caller's own; NO_QUORUM then         2
//	stale unknown    a STALE_TIME after an unknown outcome: OUTCOME_UNKNOWN                      2
//	overloaded       OVERLOADED: asking again would add to it                                    1
//	many in flight   OVERLOADED, by the client's own bound                                       0
//	no room          MEMORY, QUARANTINE: as the leader said                                      1
//	deadline near    DEADLINE                                                                    0
//	deadline passed  OUTCOME_UNKNOWN; an answer that comes later is dropped                      1
//	budget spent     what the last send came to, without another one                             1
//	left epoch       an answer of an epoch that was left is none: OUTCOME_UNKNOWN                2 to 8
//	unknown reason   OUTCOME_UNKNOWN under the node's code; repeated if that says so             1 to 8
//	bad input        INVALID_ARGUMENT, NOT_SUPPORTED, PERMISSION_DENIED: as they are             0 or 1
//	denied before    the denial of before, with what is left of its wait                         0
//	closing          SHUTTING_DOWN, or OUTCOME_UNKNOWN if it was sent                            0 or 1
//	several          looked at everywhere, then consumed in order of partition                   1 and 1 each
//
// # Hints
//
// A leader's denial is remembered: until the exact wait that it told has passed on the client's clock, counted
// from the send, at most 30 s. Then it is asked again. The same key is denied from memory for the same limit of
// the same revision, for that amount or less, at that cost or more. Only the first send of an id can be spared
// so; a check that brings its own id is always asked, since what the id names may have been allowed.
//
// # What it doesn't do
//
// There is no "allow if nobody answers": policies that ask for it (onUnavailable: Allow) are refused by this
// version as not supported yet. Whoever can't get an answer must not do the work.
package client
