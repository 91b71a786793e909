package server

import (
	"math"
	"math/bits"

	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// tagged is an answer with all that it points to, so that it is one allocation and not nine.
type tagged struct {
	wrap    quotav1.TaggedAnswer
	result  quotav1.TaggedAnswer_Answer
	answer  quotav1.Answer
	limit   uint64
	left    uint64
	seconds int64
	wait    int64
	reset   int64
	whole   int64
	id      fsm.ID
}

// taggedOf is the answer of a stream to the check with that tag, which must be a decision.
func taggedOf(tag uint64, c *partition.Call) *quotav1.TaggedAnswer {
	t := &tagged{id: c.ID}
	t.fill(c)
	t.result.Answer = &t.answer
	t.wrap.Tag, t.wrap.Result = tag, &t.result
	return &t.wrap
}

func failed(tag uint64, f *quotav1.Failure) *quotav1.TaggedAnswer {
	return &quotav1.TaggedAnswer{Tag: tag, Result: &quotav1.TaggedAnswer_Failure{Failure: f}}
}

// answerOf is the answer to a check whose outcome is a decision.
func answerOf(c *partition.Call) *quotav1.Answer {
	t := &tagged{id: c.ID}
	t.fill(c)
	return &t.answer
}

func (t *tagged) fill(c *partition.Call) {
	o := &c.Outcome
	m, a := meaningOf(o.Result), &t.answer
	a.Decision, a.Reason = m.answer, m.reason
	if c.Peek && a.Decision == quotav1.Decision_DECISION_ALLOW {
		a.Decision = quotav1.Decision_DECISION_WOULD_ALLOW // who only looks is never let in, whatever was seen
	}
	a.DecisionTimeNs, a.Partition, a.Epoch, a.SetVersion = o.Time, uint32(o.Partition), o.Epoch, o.Version
	a.Replayed = o.Answer.Replayed
	a.DecisionId = t.id[:]
	if o.Policy == nil {
		return
	}
	l := o.Limit()
	a.Policy, a.LimitName, a.WindowNs, a.Unlimited = nameOf(o.Policy), l.Name, l.Window, o.Answer.Unlimited
	if t.wait = o.Wait(); t.wait > 0 {
		t.seconds = retryAfter(o)
		a.WaitNs, a.RetryAfterS = &t.wait, &t.seconds
	}
	if o.Answer.Unlimited {
		return
	}
	t.left, a.Remaining = o.Answer.Remaining, &t.left
	if !amountKnown(o) {
		return
	}
	t.limit, a.Limit = o.Answer.Amount, &t.limit
	if t.whole = wholeAmount(o.Policy, l, t.limit); t.whole > 0 {
		a.WholeAmountNs = &t.whole
	}
	if reset, ok := o.Reset(); ok {
		t.reset, a.ResetNs = reset, &t.reset
	}
}

// wholeAmount is the time in which a limit of that amount gives all of it: its window; of a bucket, the time in
// which an empty one fills up. 0 where that isn't a whole number of nanoseconds, or isn't known.
func wholeAmount(p *policy.Policy, l *policy.Limit, amount uint64) int64 {
	if l.Algorithm != limit.TokenBucket {
		return l.Window
	}
	if refillVaries(p, l.Name) {
		return 0
	}
	hi, lo := bits.Mul64(amount, uint64(l.Window))
	if hi >= l.Refill { // also without a refill
		return 0
	}
	ns, rest := bits.Div64(hi, lo, l.Refill)
	if rest != 0 || ns > math.MaxInt64 {
		return 0
	}
	return int64(ns)
}

// lookedThrough bounds the overrides that one answer goes through.
const lookedThrough = 64

// refillVaries says whether some key may have another refill of that limit than the policy's own. Which key has
// which is in no outcome.
func refillVaries(p *policy.Policy, name string) bool {
	if len(p.Overrides) > lookedThrough {
		return true
	}
	for i := range p.Overrides {
		for j := range p.Overrides[i].Amounts {
			if a := &p.Overrides[i].Amounts[j]; a.Limit == name && (a.Refill != 0 || a.Period != 0) {
				return true
			}
		}
	}
	return false
}

// amountKnown reports whether the amount and what follows from it are known. A replayed allow's may not
// be: then it reads 0, under which nothing was ever allowed.
func amountKnown(o *partition.Outcome) bool {
	return !o.Answer.Unlimited && (!o.Answer.Replayed || o.Answer.Amount > 0)
}

// nameOf is how people refer to a policy: its object.
func nameOf(p *policy.Policy) string { return p.Namespace + "/" + p.Name }

// failureOf is what an outcome without a decision comes to.
func (s *Server) failureOf(o *partition.Outcome) *quotav1.Failure {
	m := meaningOf(o.Result)
	f := &quotav1.Failure{Code: uint32(m.code), Reason: m.failure, Message: m.describe(o.Detail)}
	if o.Result != partition.Stopping { // which is refused before it has a partition
		part := uint32(o.Partition)
		f.Partition = &part
	}
	if m.again {
		second := int64(1)
		f.RetryAfterS = &second
	}
	switch o.Result {
	case partition.NotLeader:
		f.Detail = &quotav1.Failure_NotLeader{NotLeader: &quotav1.NotLeader{Leader: s.addressOf(o.Leader)}}
	case partition.StaleTime:
		f.Detail = &quotav1.Failure_StaleTime{StaleTime: &quotav1.StaleTime{DecisionTimeNs: o.Time}}
	case partition.StalePolicy:
		f.Detail = &quotav1.Failure_StalePolicy{StalePolicy: &quotav1.StalePolicy{
			Resolution: resolutionOf(o.Resolution), SetVersion: o.Version,
		}}
	}
	return f
}

// addressOf is where a leader, named by its server id, answers checks; empty: not known. Without a cluster the
// replicas of this process answer at one address: there is no other to send the asker to.
func (s *Server) addressOf(leader string) string {
	if leader == "" || s.cfg.Cluster == nil {
		return ""
	}
	return s.cfg.Cluster.AddressOf(leader)
}

// refusal is what a bound that was exceeded comes to.
func refusal(f *fault) *quotav1.Failure {
	m := meaningOf(partition.Invalid)
	return &quotav1.Failure{Code: uint32(m.code), Reason: m.failure, Message: f.Error()}
}

// statusOf carries a failure out of a unary call.
func statusOf(f *quotav1.Failure) error {
	s := status.New(codeOf(f), f.GetMessage())
	detailed, err := s.WithDetails(f)
	if err != nil { // only for status OK, which no failure has
		return s.Err()
	}
	return detailed.Err()
}

// usageOf is what Inspect answers for a key.
func usageOf(in *partition.Inspection) *quotav1.InspectResponse {
	r := &quotav1.InspectResponse{
		Reason: meaningOf(in.Result).reason, DecisionTimeNs: in.Time,
		Partition: uint32(in.Partition), Epoch: in.Epoch, SetVersion: in.Version,
	}
	if in.Policy == nil {
		return r
	}
	for _, u := range in.Uses {
		l := &quotav1.LimitUsage{
			Policy: nameOf(in.Policy), LimitName: in.Policy.Limits[u.Limit].Name,
			Algorithm: quotav1.Algorithm(u.Spec.Algorithm), Used: u.Used, WindowNs: u.Spec.Window,
		}
		if l.Unlimited = u.Spec.Amount == limit.Unlimited; !l.Unlimited {
			amount, left := u.Spec.Amount, u.Left
			l.Limit, l.Left = &amount, &left
			if u.FullAt != limit.Never {
				in := max(0, u.FullAt-in.Time)
				l.FullInNs = &in
			}
		}
		r.Limits = append(r.Limits, l)
	}
	return r
}
