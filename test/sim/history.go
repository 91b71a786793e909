package sim

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/test/checker"
)

// edition is a policy set, and its limits as the checker knows them.
type edition struct {
	set    policy.Set
	limits []checker.Limit
}

// policies is what the partition enforces. One of the amounts is edited.
func policies(edited uint64) (e edition) {
	add := func(domain string, limits ...policy.Limit) {
		// All events of a key count in the last limit for as long as a run lasts.
		limits = append(limits, rolling("all", 100_000, time.Hour))
		e.set.Policies = append(e.set.Policies, policy.Policy{Name: domain, Domain: domain, Key: []string{"principal"}, Limits: limits})
		for _, l := range limits {
			e.limits = append(e.limits, checker.Limit{
				Quota: quotaOf(domain), Name: l.Name, Algorithm: checker.Rolling, Max: l.Amount, Window: l.Window,
			})
		}
	}
	add("hot", rolling("tight", 3, 700*time.Millisecond))
	add("pair", rolling("short", 4, 400*time.Millisecond), rolling("long", 9, 2*time.Second))
	add("edited", rolling("amount", edited, 900*time.Millisecond))
	add("cold", rolling("few", 2, 3*time.Second))
	return e
}

func rolling(name string, amount uint64, window time.Duration) policy.Limit {
	return policy.Limit{Name: name, Algorithm: limit.RollingWindow, Amount: amount, Window: int64(window)}
}

func quotaOf(domain string) string { return "default/" + domain }

// history is what clients were told.
type history struct {
	mu    sync.Mutex
	lines []checker.Line
}

func (h *history) add(l checker.Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, l)
}

func (h *history) policies(w *world, e edition, sent int64, v fsm.Version, err error) {
	line := &checker.Policies{Sent: sent, Answered: w.now(), Outcome: checker.Applied, Set: v.Number, Limits: e.limits}
	var problems policy.Problems
	switch {
	case err == nil:
		w.count("policy sets in force")
	case errors.As(err, &problems):
		w.problem("a set is refused: %v", err)
		return
	case errors.Is(err, raft.ErrNotLeader):
		line.Outcome = checker.Refused
	default:
		line.Outcome, line.Answered = checker.Undecided, 0
		w.count("policy sets of unknown outcome")
	}
	h.add(line)
}

// hear writes down what became of a send; nil: no answer came. It returns what that means.
func (w *world) hear(client string, q *question, node string, sent int64, o *partition.Outcome) checker.Answer {
	line := &checker.Call{
		Client: client, ID: fmt.Sprintf("%x", q.request.ID), Quota: quotaOf(q.domain), Key: "principal=" + q.key,
		Cost: q.request.Cost, Sent: sent, Answer: checker.Unknown, Partition: -1, Node: node,
	}
	if o != nil {
		line.Answered = w.now()
		line.Answer, line.Reason = answerOf(o.Result)
		line.Replayed = o.Answer.Replayed
	}
	switch line.Answer {
	case checker.Allow, checker.Deny:
		line.Partition, line.Epoch, line.Time = int(o.Partition), o.Epoch, o.Time
	case checker.Error:
		w.problem("%s: %s", line.ID, line.Reason)
	}
	w.mark("%s %s %s %s %d", client, line.ID[15:], line.Answer, line.Reason, line.Time)
	w.count("answers: " + string(line.Answer))
	if line.Replayed {
		w.count("answers: replayed")
	}
	w.learn(q, line)
	w.history.add(line)
	return line.Answer
}

// learn keeps what is known of a question.
func (w *world) learn(q *question, line *checker.Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch line.Answer {
	case checker.Unknown:
		q.unknown = true
	case checker.Allow:
		if q.allowed && q.at != line.Time {
			w.problem("id %s was allowed at %d and at %d", line.ID, q.at, line.Time)
		}
		q.allowed, q.at = true, line.Time
	}
}

// answerOf says what a result means to a client.
func answerOf(r partition.Result) (checker.Answer, string) {
	switch r {
	case partition.Allowed:
		return checker.Allow, ""
	case partition.Denied:
		return checker.Deny, ""
	case partition.Exceeded:
		return checker.Deny, "exceeded"
	case partition.Unknown:
		return checker.Unknown, ""
	case partition.StaleTime:
		return checker.Unavailable, "stale time"
	case partition.NotLeader:
		return checker.Unavailable, "not leader"
	case partition.NoQuorum:
		return checker.Unavailable, "no quorum"
	case partition.Pending:
		return checker.Unavailable, "pending"
	case partition.Overloaded:
		return checker.Unavailable, "overloaded"
	case partition.Late:
		return checker.Unavailable, "late"
	case partition.Stopping:
		return checker.Unavailable, "stopping"
	case partition.StalePolicy:
		return checker.Unavailable, "stale policy"
	default:
		return checker.Error, fmt.Sprintf("result %d", r)
	}
}
