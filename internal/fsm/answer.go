package fsm

// Verdict is the outcome of one check.
type Verdict uint8

// The verdicts. Only VerdictAllow authorises work.
const (
	VerdictAllow Verdict = 1 + iota
	VerdictDeny
	// VerdictConflict: the id names an allow for another digest.
	VerdictConflict
	// VerdictStaleTime: stamped too long after the id's fence. Final for the id.
	VerdictStaleTime
	// VerdictMemory: it would be allowed, but a bound leaves no room to remember it.
	VerdictMemory
	// VerdictNotOwned: a charge's slot isn't this partition's.
	VerdictNotOwned
)

// Answer is a verdict with what led to it.
type Answer struct {
	Verdict  Verdict
	Replayed bool // the recorded allow of an earlier check with this id
	// Exceeds: denied because the cost is above the amount; it can never fit.
	Exceeds   bool
	Unlimited bool // Amount and Remaining mean nothing
	// Policy and Limit are places in the policy set: the limit that denies
	// longest, or the one that leaves least. Policy is -1, and what is said of a limit
	// is zero, of a replayed allow whose limit the check doesn't meet any more.
	Policy, Limit int32
	Amount        uint64
	Remaining     uint64
	// Time is the decision time; of a replayed allow, the time when it was made.
	Time int64
	// At is the earliest decision time at which a denied cost fits; limit.Never.
	At int64
	// FullAt is when all of the amount is available again, nothing else being
	// admitted; limit.Never if it never is.
	FullAt int64
}

// Refusal says why an entry was refused as a whole.
type Refusal uint8

// The refusals of whole entries. None of them changed anything but the index and,
// where the term was right, decision time.
const (
	Accepted Refusal = iota
	// RefusedTerm: stamped in another term, or before its term's first entry.
	RefusedTerm
	// RefusedVersion: resolved under another policy set than the one in force.
	RefusedVersion
	// RefusedSet: a policy set that this machine can't switch to.
	RefusedSet
	// RefusedSettings: settings other than those in force.
	RefusedSettings
	// RefusedConflict: a policy set whose turn it isn't: another one is in force than
	// it expects, or one that is not older.
	RefusedConflict
	// RefusedLevel: a level that isn't above the partition's.
	RefusedLevel
)

// Applied is what applying one entry came to.
type Applied struct {
	Header  Header
	Index   uint64
	Refusal Refusal
	// Answers has one answer per check of a batch that was accepted, in order,
	// good until the next entry is applied.
	Answers []Answer
	// Diverged: this replica's hash at the proposer's previous checkpoint is another.
	Diverged bool
}
