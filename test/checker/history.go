package checker

import (
	"encoding/hex"
	"fmt"
	"math"
)

// Line is one line of a history: *Policies, *Call, *Usage, *State or *Mark.
type Line interface {
	// kind is what the line's "kind" says.
	kind() string
	// check says what of the line makes no sense.
	check() error
}

// Outcome says how an attempt to bring a policy set into force ended.
type Outcome string

const (
	// Applied: the set is in force from some moment before the answer, wherever the history's calls go. An
	// attempt is written as applied only when every partition enforces the set.
	Applied Outcome = "applied"
	// Refused: the set never comes into force by this attempt.
	Refused Outcome = "refused"
	// Undecided: it may be in force from the moment at which it was sent, or from any later one, or never.
	Undecided Outcome = "unknown"
)

// Algorithms of limits.
const (
	// Rolling is the only algorithm that the checker judges; it passes over limits of others.
	Rolling = "rolling"
)

// Limit is one limit of a policy.
type Limit struct {
	// Quota is whose it is: "namespace/quota".
	Quota string `json:"quota"`
	// Name is the limit's, unique in its quota.
	Name string `json:"limit"`
	// Algorithm is Rolling, or one that isn't judged.
	Algorithm string `json:"algorithm"`
	// Max is the most units in any window; without meaning if Unlimited.
	Max uint64 `json:"max"`
	// Unlimited limits admit everything.
	Unlimited bool `json:"unlimited,omitempty"`
	// Window is the window's length in ns of decision time.
	Window int64 `json:"window"`
}

// Policies is one attempt to bring a policy set into force, with all the limits that it holds. Every set that
// was in force within the history is in it, also the one before the first call.
type Policies struct {
	// Sent is when the attempt began.
	Sent int64 `json:"sent"`
	// Answered is when its outcome was known; 0 if it never was.
	Answered int64 `json:"answered"`
	// Outcome is what came of it.
	Outcome Outcome `json:"outcome"`
	// Set is the number of its version.
	Set uint64 `json:"set"`
	// Limits are all the limits in it.
	Limits []Limit `json:"limits"`
}

// Answer is what a caller was told.
type Answer string

const (
	// Allow: the work may be done.
	Allow Answer = "allow"
	// Deny: it must not be.
	Deny Answer = "deny"
	// Unavailable: no decision, and the answer means that nothing was charged by this call, and nothing will
	// be. A caller that can't tell writes Unknown.
	Unavailable Answer = "unavailable"
	// Unknown: no answer came, or one that says that the outcome isn't known. The call may have been charged, or
	// may yet be.
	Unknown Answer = "unknown"
	// Error: the question was refused as such (bad input, no permission, another check under this id); nothing was
	// charged.
	Error Answer = "error"
)

// Call is one call as its caller saw it. Several calls under one id are several lines.
type Call struct {
	// Client names the caller, for people.
	Client string `json:"client"`
	// ID is the decision id: 32 hexadecimal digits.
	ID string `json:"id"`
	// Quota is what the check is charged to, "namespace/quota". It is empty for an allow or a denial that no
	// policy took part in: such a line is counted and not judged.
	Quota string `json:"quota"`
	// Key is whose allowance of it, in whatever form is the same for the same key.
	Key string `json:"key"`
	// Cost is the units that are charged if it is admitted, at least 1.
	Cost uint64 `json:"cost"`
	// Sent is when the call began: before anything of it left the caller.
	Sent int64 `json:"sent"`
	// Answered is when its answer was there; 0 if none came.
	Answered int64 `json:"answered"`
	// Answer is what the caller was told.
	Answer Answer `json:"answer"`
	// Reason is why, as the answer says.
	Reason string `json:"reason"`
	// Resent: an earlier send of this very call may still have been on its way when it was answered (the caller
	// asks through a client that sends again by itself). Then it may have been charged whatever the answer says: a
	// copy that comes late finds room where the other one found none. Who sees each send writes a line for each,
	// and never needs this. A client that counts its resends shows that it had none by a count that didn't move.
	Resent bool `json:"resent,omitempty"`
	// Replayed: the allow says that an earlier send of the id was charged, not this one.
	Replayed bool `json:"replayed"`
	// Partition is whose decision time Time is; -1 if the answer doesn't say.
	Partition int `json:"partition"`
	// Epoch is the partition's.
	Epoch uint64 `json:"epoch"`
	// Time is the decision time that the answer claims; an allow always does. 0 without a Partition.
	Time int64 `json:"time"`
	// Node is who answered, for people.
	Node string `json:"node"`
}

// Used is a limit's usage.
type Used struct {
	// Name is the limit's.
	Name string `json:"limit"`
	// Used is the units that count against it.
	Used uint64 `json:"used"`
}

// Usage is what the cluster says of a key's usage, at one instant.
type Usage struct {
	// Quota is the quota, as in Call.
	Quota string `json:"quota"`
	// Key is the key, as in Call.
	Key string `json:"key"`
	// Sent is when the cluster was asked.
	Sent int64 `json:"sent"`
	// Answered is when it had answered.
	Answered int64 `json:"answered"`
	// Partition is whose decision time Time is.
	Partition int `json:"partition"`
	// Epoch is the partition's.
	Epoch uint64 `json:"epoch"`
	// Time is the instant in decision time.
	Time int64 `json:"time"`
	// Limits are the key's limits at that instant.
	Limits []Used `json:"limits"`
}

// State is the hash of a replica's state at an index of its log.
type State struct {
	// Node is whose replica.
	Node string `json:"node"`
	// Partition is which.
	Partition int `json:"partition"`
	// Index is the last entry that the state contains.
	Index uint64 `json:"index"`
	// Hash is the state's hash, in hexadecimal digits.
	Hash string `json:"hash"`
}

// Mark says what happened meanwhile, for people who read the history. The checker passes over it.
type Mark struct {
	// At is when.
	At int64 `json:"at"`
	// Name is what.
	Name string `json:"name"`
	// Partition is where; -1 if nowhere in particular.
	Partition int `json:"partition"`
}

func (*Policies) kind() string { return "policies" }
func (*Call) kind() string     { return "check" }
func (*Usage) kind() string    { return "used" }
func (*State) kind() string    { return "state" }
func (*Mark) kind() string     { return "mark" }

func (p *Policies) check() error {
	switch p.Outcome {
	case Applied, Refused:
		if p.Answered == 0 {
			return fmt.Errorf("outcome %q without answered", p.Outcome)
		}
	case Undecided:
	default:
		return fmt.Errorf("outcome %q", p.Outcome)
	}
	seen := map[[2]string]bool{}
	for _, l := range p.Limits {
		name := [2]string{l.Quota, l.Name}
		switch {
		case l.Quota == "" || l.Name == "" || l.Algorithm == "":
			return fmt.Errorf("a limit without quota, name or algorithm")
		case seen[name]:
			return fmt.Errorf("limit %s of %s twice", l.Name, l.Quota)
		case l.Window <= 0 || l.Window > longest:
			return fmt.Errorf("limit %s of %s: window %d", l.Name, l.Quota, l.Window)
		}
		seen[name] = true
	}
	return span(p.Sent, p.Answered)
}

func (c *Call) check() error {
	switch c.Answer {
	case Allow, Deny, Unavailable, Error:
		if c.Answered == 0 {
			return fmt.Errorf("answer %q without answered", c.Answer)
		}
	case Unknown:
	default:
		return fmt.Errorf("answer %q", c.Answer)
	}
	switch {
	case !isID(c.ID):
		return fmt.Errorf("id %q is not 32 hexadecimal digits", c.ID)
	case c.Cost == 0 || c.Cost > math.MaxInt64:
		return fmt.Errorf("cost %d", c.Cost)
	case c.Partition < -1 || c.Time < 0 || c.Time > longest:
		return fmt.Errorf("partition %d, time %d", c.Partition, c.Time)
	case c.Answer == Allow && c.Quota != "" && (c.Partition < 0 || c.Cost > most):
		return fmt.Errorf("an allow of %d in partition %d", c.Cost, c.Partition)
	}
	return span(c.Sent, c.Answered)
}

func isID(text string) bool {
	var id [16]byte
	n, err := hex.Decode(id[:min(16, len(text)/2)], []byte(text[:min(32, len(text))]))
	return err == nil && n == 16 && len(text) == 32
}

func (u *Usage) check() error {
	if u.Quota == "" || u.Partition < 0 || u.Time < 0 || u.Time > longest || u.Answered == 0 {
		return fmt.Errorf("usage without quota, partition, time or answered")
	}
	return span(u.Sent, u.Answered)
}

func (s *State) check() error {
	if s.Node == "" || s.Partition < 0 || s.Hash == "" {
		return fmt.Errorf("state without node, partition or hash")
	}
	return nil
}

func (m *Mark) check() error { return nil }

// longest bounds times and windows, so that their sums are times too: 36 years.
const longest = int64(1) << 60

// span says what is wrong with the two ends of a call; answered is 0 if it has none.
func span(sent, answered int64) error {
	if sent < 0 || answered != 0 && answered < sent || max(sent, answered) > longest {
		return fmt.Errorf("sent %d, answered %d", sent, answered)
	}
	return nil
}
