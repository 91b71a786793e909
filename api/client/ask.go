package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

const (
	// maxSends bounds how often one partition is asked one question.
	maxSends = 8
	// maxCorrections bounds how many of those follow an answer that names whom to ask, at once and beside the
	// budget.
	maxCorrections = 3
	// firstBackoff doubles with each repetition, up to longestBackoff.
	firstBackoff   = 20 * time.Millisecond
	longestBackoff = 500 * time.Millisecond
	// probeAfter is how long a leader is waited for before any node is asked who it is.
	probeAfter = 200 * time.Millisecond
	// maxProbes bounds how often.
	maxProbes = 3
	// leastTime is what has to be left of a deadline for a send.
	leastTime = time.Millisecond
)

var errMoved = errors.New("the partition has another leader")

// ask is one partition asked one question: all sends of it, one at a time.
type ask struct {
	client   *Client
	ctx      context.Context
	deadline time.Time
	part     uint32
	route    *route
	request  *quotav1.CheckRequest
	size     int
	peek     bool

	sends, corrections, probes int
	sentAt                     int64 // by the client's clock, the last send
	unknown                    bool  // one of the sends may have been charged
	last                       *quotav1.Failure
}

// outcome is what came of an ask: an answer or a failure.
type outcome struct {
	answer  *quotav1.Answer
	failure *quotav1.Failure
	part    uint32
	sentAt  int64
	unknown bool
}

// run sends until there is an answer, or no use in another send.
func (k *ask) run() outcome {
	for {
		address, moved := k.whom()
		if address == "" {
			return k.fail()
		}
		if answer, done := k.judge(address, k.send(address, moved)); answer != nil {
			return outcome{answer: answer, part: k.part, sentAt: k.sentAt, unknown: k.unknown}
		} else if done {
			return k.fail()
		}
	}
}

func (k *ask) fail() outcome {
	return outcome{failure: k.last, part: k.part, unknown: k.unknown}
}

// whom returns whom to ask; empty: nobody, and last says why. While no leader is known it waits for one, and
// now and then asks any node who that is.
func (k *ask) whom() (address string, moved <-chan struct{}) {
	for {
		if k.ctx.Err() != nil || time.Until(k.deadline) < leastTime {
			k.miss(pastDeadline, "the deadline is too near for another send")
			return "", nil
		}
		address, moved = k.route.leader()
		if address != "" {
			return address, moved
		}
		k.miss(noQuorum, "no leader of the partition is known")
		switch k.wait(jitter(probeAfter), moved) {
		case ended:
			return "", nil
		case waited:
			if k.probes < maxProbes && k.sends < maxSends && k.client.budget.take() {
				k.probes++
				nodes := k.client.nodes()
				return nodes[rand.N(len(nodes))], moved
			}
		}
	}
}

// miss notes why there is no answer, unless a node has said so.
func (k *ask) miss(reason quotav1.FailureReason, message string) {
	if k.last == nil || k.last.GetReason() == notLeader {
		k.last = own(reason, message)
	}
}

// What a wait ended with.
type waking uint8

const (
	waited waking = iota
	woken         // there is news
	ended         // of the check
)

func (k *ask) wait(d time.Duration, news <-chan struct{}) waking {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return waited
	case <-news:
		return woken
	case <-k.ctx.Done():
		return ended
	case <-k.client.closing:
		k.last = own(shuttingDown, errClosed.Error())
		return ended
	}
}

// send sends the question once and waits for what comes of it. When another node turns out to lead, it
// doesn't wait for the first one any longer: the same id finds at the new leader what the old one did.
func (k *ask) send(address string, moved <-chan struct{}) result {
	k.sends++
	k.client.metrics.sent(k)
	l, err := k.client.links.to(address)
	if err != nil {
		return result{err: err}
	}
	k.sentAt = k.client.now()
	a := newAttempt(k.request, k.size, k.deadline)
	l.put(a)
	for {
		select {
		case r := <-a.done:
			return r
		case <-k.ctx.Done():
			return result{err: k.ctx.Err(), sent: !a.leave()}
		case <-moved:
			var leader string
			if leader, moved = k.route.leader(); leader == "" || leader == address {
				continue
			}
			if a.leave() {
				return result{err: errMoved}
			}
			select {
			case r := <-a.done:
				return r
			default:
				return result{err: errMoved, sent: true}
			}
		}
	}
}

// judge says what a result comes to: an answer, or whether the check is done without one. If neither, it has
// waited as long as there is to wait before the next send.
func (k *ask) judge(address string, r result) (answer *quotav1.Answer, done bool) {
	if r.err != nil {
		return nil, k.lost(address, r)
	}
	if a := r.tagged.GetAnswer(); a != nil {
		if k.credible(a) {
			return a, true
		}
		k.doubt("a node gave an answer that can't be one to this question")
		return nil, k.pause(false)
	}
	f := r.tagged.GetFailure()
	if f == nil {
		k.doubt("a node gave neither an answer nor a failure")
		return nil, k.pause(false)
	}
	k.last = f
	switch stepAfter(f) {
	case stop:
		return nil, true
	case dangling:
		k.unknown = k.unknown || !k.peek
		k.last = &quotav1.Failure{Code: f.GetCode(), Reason: outcomeUnknown, Message: f.GetMessage(), RetryAfterS: f.RetryAfterS}
		return nil, true
	case uncertain:
		k.doubt(f.GetMessage())
	case elsewhere:
		leader := f.GetNotLeader().GetLeader()
		k.route.correct(address, leader)
		return nil, k.pause(leader != "" && leader != address)
	}
	return nil, k.pause(false)
}

// lost deals with a result that no node gave.
func (k *ask) lost(address string, r result) (done bool) {
	switch {
	case r.sent:
		k.doubt("the way to the node broke: " + status.Convert(r.err).Message())
	case k.ctx.Err() != nil:
		k.miss(pastDeadline, "the check could not be sent before its deadline")
	default:
		k.miss(noQuorum, "the partition's leader can't be reached: "+status.Convert(r.err).Message())
		k.route.unreachable(address)
	}
	return k.ctx.Err() != nil || k.pause(errors.Is(r.err, errMoved))
}

// doubt notes that the last send may have been charged. Peeks charge nothing.
func (k *ask) doubt(why string) {
	k.unknown = k.unknown || !k.peek
	k.last = own(outcomeUnknown, why)
	if k.peek {
		k.last = own(noQuorum, why)
	}
}

// pause waits before the next send, and reports whether there is none. A correction is sent at once.
func (k *ask) pause(correction bool) (done bool) {
	if k.sends >= maxSends {
		return true
	}
	if correction && k.corrections < maxCorrections {
		k.corrections++
		return false
	}
	if !k.client.budget.take() {
		k.client.metrics.spent.Inc()
		return true
	}
	d := jitter(min(firstBackoff<<(k.sends-k.corrections-1), longestBackoff))
	if time.Until(k.deadline) < d+leastTime {
		return true
	}
	_, moved := k.route.leader()
	return k.wait(d, moved) == ended
}

// credible says whether an answer can be believed: it is to this check, by this partition as it is today.
func (k *ask) credible(a *quotav1.Answer) bool {
	if a.GetPartition() != k.part || string(a.GetDecisionId()) != string(k.request.GetDecisionId()) {
		return false
	}
	logged := false
	switch a.GetDecision() {
	case quotav1.Decision_DECISION_ALLOW:
		// The time of what was decided without the log may not be logged, and a replayed allow's is an old one.
		logged = !k.peek && !a.GetReplayed() && a.GetReason() == quotav1.Reason_REASON_UNSPECIFIED
	case quotav1.Decision_DECISION_WOULD_ALLOW:
		if !k.peek {
			return false
		}
	case quotav1.Decision_DECISION_DENY:
	default:
		return false
	}
	return k.route.learn(a.GetEpoch(), a.GetDecisionTimeNs(), logged)
}
