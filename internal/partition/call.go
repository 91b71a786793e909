package partition

import (
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// Request is one check as a front received it, within the bounds of package
// keyspace and with a positive cost.
type Request struct {
	Domain      string
	Descriptors []keyspace.Descriptor
	Cost        uint64
	ID          fsm.ID
	// Fence is the newest logged decision time that the asker knew when it first
	// sent the id. Unfenced: the leader takes its own, for ids that are sent once.
	Fence    int64
	Unfenced bool
	// Asked is what the asker resolved the check to; nil: the leader's counts.
	Asked *Resolution
	// To is the partition that is asked: it decides what of the check lives in it. AnyPartition: the
	// one where all of it lives.
	To int32
	// Peek only looks: nothing is charged, recorded or logged.
	Peek bool
	// Deadline is a reading of the node's monotonic clock; 0 = none.
	Deadline int64
}

// AnyPartition says that an asker leaves it to the policies which partition decides.
const AnyPartition = -1

// Resolution is what a check comes to under a policy set.
type Resolution struct {
	Policies []Resolved
	// Version is that set's; zero: not known.
	Version fsm.Version
}

// Resolved is one descriptor's policy and where its key lives.
type Resolved struct {
	Descriptor      int32
	Namespace, Name string
	Revision        uint64
	Key             []byte // keyspace.AppendQuotaKey
	Partition       uint16
}

func (r Resolved) equal(o Resolved) bool {
	return r.Descriptor == o.Descriptor && r.Namespace == o.Namespace && r.Name == o.Name &&
		r.Revision == o.Revision && string(r.Key) == string(o.Key) && r.Partition == o.Partition
}

// Result says what became of a call. Only the first two let work be done; the
// zero Result is none.
type Result uint8

// The results: two that allow, those that deny, those that leave it undecided.
const (
	// Allowed: a majority holds the allow on disk.
	Allowed Result = 1 + iota
	// NoMatchAllowed: no policy matches and the domain lets that pass.
	NoMatchAllowed

	// Denied: a limit has too little left; Exceeded: it never can have enough.
	Denied
	Exceeded
	// NoPolicy: no policy matches, and the domain denies that.
	NoPolicy
	// UnknownDomain: nothing names the domain.
	UnknownDomain

	// Invalid: an entry that the domain requires is missing; Detail names it.
	Invalid
	// Conflict: the id names an allow for something else.
	Conflict
	// StaleTime: too long after the id's fence. Time is what is logged now.
	StaleTime
	// StalePolicy: the leader resolves it otherwise, to Resolution.
	StalePolicy
	// NotLeader: another replica leads, or none; provably never proposed.
	NotLeader
	// NoQuorum: the leader hasn't heard a majority lately enough to answer.
	NoQuorum
	// Pending: no policy set is in force yet.
	Pending
	// Clock: the leader's clock runs faster than those of the others.
	Clock
	// Overloaded: the queue is full, or the deadline can't be met.
	Overloaded
	// Late: the deadline passed before the check was sealed.
	Late
	// Memory: no room to remember an allow.
	Memory
	// Unknown: proposed, and whether it was decided can't be told now. The same
	// id recovers the answer.
	Unknown
	// Stopping: the group is closing.
	Stopping
	// NotSupported: this version doesn't decide it; Detail names what.
	NotSupported
	// WouldAllow: a look, at what would be allowed. Nothing was charged.
	WouldAllow
)

// NotLeaderError says that another replica has to be asked.
type NotLeaderError struct {
	Leader string // its server id; empty: none is known
	Why    string // none is known, and won't be; empty: the question is worth repeating here
}

// Error names the leader.
func (e *NotLeaderError) Error() string {
	switch {
	case e.Leader != "":
		return "the leader is " + e.Leader
	case e.Why != "":
		return e.Why
	}
	return "no leader is known"
}

// Outcome is how a call ended.
type Outcome struct {
	Result Result
	// Answer has the numbers; its Policy and Limit mean something only with Set.
	Answer fsm.Answer
	// Policy is the policy of the limit that the answer speaks of, nil if none.
	Policy    *policy.Policy
	Time      int64 // decision time; logged, or the leader's present
	Partition uint16
	Epoch     uint64
	Version   uint64
	Detail    string
	// Leader is the leading replica's id, with NotLeader, if known.
	Leader     string
	Resolution *Resolution
}

// Wait is the decision time until a denied cost fits, 0 if waiting can't help.
func (o *Outcome) Wait() int64 {
	if o.Result != Denied || o.Answer.At == limit.Never {
		return 0
	}
	return max(1, o.Answer.At-o.Answer.Time)
}

// Reset is the decision time until all of the limit's amount is available again;
// false if it never is or there is no limit to speak of.
func (o *Outcome) Reset() (int64, bool) {
	if o.Policy == nil || o.Answer.Unlimited || o.Answer.FullAt == limit.Never {
		return 0, false
	}
	now := o.Answer.Time
	if o.Answer.Replayed {
		now = o.Answer.At // a replayed allow's time is when it was made
	}
	return max(0, o.Answer.FullAt-now), true
}

// Limit is the limit that the answer speaks of; Policy must not be nil.
func (o *Outcome) Limit() *policy.Limit { return &o.Policy.Limits[o.Answer.Limit] }

// Call is a request on its way. Done is called once, with Outcome set; it may
// run within Submit or on Raft's goroutine, and must not block.
type Call struct {
	Request
	Outcome
	Done func(*Call)

	check   fsm.Check
	version fsm.Version // of the set that check was resolved under
	anew    int         // how often it was resolved anew
	refused bool        // state showed at submission that it can't be admitted
	joined  *Call
	copies  int // how many calls have joined this one
	size    int
	came    int64 // monotonic; when it was queued
}

func (c *Call) finish(o Outcome) {
	c.Outcome = o
	c.Done(c)
}

// idKey is what an id is unique in.
type idKey struct {
	domain string // not its place in a set, which another domain may have in the next one
	id     fsm.ID
}

func (c *Call) key() idKey { return idKey{c.Domain, c.ID} }
