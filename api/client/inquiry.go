package client

import (
	"context"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// maxRounds bounds how often leaders may say that they resolve one check otherwise.
const maxRounds = 3

// inquiry is one Check under way: what must not be forgotten between its sends.
type inquiry struct {
	client   *Client
	ctx      context.Context
	deadline time.Time
	question *question
	view     *view

	fences  []fence // of the id, by partition
	rounds  int
	stale   bool // under this id a leader resolved the check otherwise
	renewed bool // the id, or at least its fence, is the second one
	unknown bool // under this id something may have been charged, beside an answer that says so
}

// fence is the newest logged decision time of a partition that was known when an id was first sent there.
type fence struct {
	part uint32
	time int64
}

// run asks until there is an answer or a failure to end with.
func (in *inquiry) run() (*quotav1.Answer, *quotav1.Failure) {
	p, f := in.resolve()
	if f != nil {
		return nil, f
	}
	if in.question.made { // another one may have been sent before, and have its allow
		if a := in.client.hints.find(p, in.question, in.client.now()); a != nil {
			in.client.metrics.hinted.Inc()
			return a, nil
		}
	}
	in.client.budget.earn()
	for {
		if f := in.fix(p); f != nil {
			return nil, in.final(f)
		}
		o := in.decide(p)
		in.unknown = in.unknown || o.unknown
		if o.answer != nil {
			in.client.hints.note(p, o)
			in.client.metrics.decided(o.answer)
			return o.answer, nil
		}
		switch o.failure.GetReason() {
		case stalePolicy:
			p, f = in.resolveAgain(o.failure)
		case staleTime:
			f = in.renew(o)
		default:
			f = o.failure
		}
		if f != nil {
			return nil, in.final(f)
		}
	}
}

// resolve waits until the cluster and its policies are known, and resolves the question.
func (in *inquiry) resolve() (*plan, *quotav1.Failure) {
	for {
		v, news := in.client.table.look()
		if v.cluster != nil && v.set != nil {
			in.view = v
			if in.question.domain == "" {
				names := v.set.domainNames()
				if len(names) != 1 {
					u := badInput("domain", "is missing; it may be left out only where there is one domain, and there are %d", len(names))
					return nil, &quotav1.Failure{Code: uint32(u.Code), Reason: u.Reason, Message: u.Message}
				}
				in.question.domain = names[0]
			}
			return resolve(in.question, v.cluster, v.set), nil
		}
		if f := in.await(news, "no node has told yet where to ask"); f != nil {
			return nil, f
		}
	}
}

// resolveAgain takes a leader's resolution over.
func (in *inquiry) resolveAgain(f *quotav1.Failure) (*plan, *quotav1.Failure) {
	in.stale = true
	in.rounds++
	p, sound := planOf(f.GetStalePolicy(), in.question, in.view.cluster)
	if in.rounds > maxRounds || !sound {
		return nil, own(noQuorum, "the policies are being changed")
	}
	return p, nil
}

// fix gives the id its fence in each partition of the plan, for good. Nothing is sent to a partition whose
// time isn't known.
func (in *inquiry) fix(p *plan) *quotav1.Failure {
	for _, part := range p.parts {
		for !in.fixed(part) {
			_, news := in.client.table.look()
			if in.fixed(part) {
				break
			}
			if f := in.await(news, "the time of the partition is not known yet"); f != nil {
				return f
			}
		}
	}
	return nil
}

func (in *inquiry) fixed(part uint32) bool {
	if in.fenceOf(part) != nil {
		return true
	}
	t, known := in.view.routes[part].fence()
	if known {
		in.fences = append(in.fences, fence{part, t})
	}
	return known
}

func (in *inquiry) fenceOf(part uint32) *fence {
	for i := range in.fences {
		if in.fences[i].part == part {
			return &in.fences[i]
		}
	}
	return nil
}

// await waits for news; without any there is a failure.
func (in *inquiry) await(news <-chan struct{}, missing string) *quotav1.Failure {
	select {
	case <-news:
		return nil
	case <-in.ctx.Done():
		return own(noQuorum, missing)
	case <-in.client.closing:
		return own(shuttingDown, errClosed.Error())
	}
}

// renew asks anew, once, where the id came too late for its fence: only if nothing of it can have been charged.
// An id of our own is another one then. One that the caller brought stays, with a new fence: it is by that id that
// the caller would find the allow again, and all that was sent under the old fence is refused wherever it comes.
func (in *inquiry) renew(o outcome) *quotav1.Failure {
	time := o.failure.GetStaleTime().GetDecisionTimeNs()
	in.view.routes[o.part].advance(time)
	if in.unknown || in.renewed {
		return own(noQuorum, "the check comes too long after the partition's time that was known")
	}
	q := *in.question
	in.renewed = true
	if q.made {
		q.id, in.stale = newID(), false
	}
	in.question = &q
	in.fences = []fence{{o.part, time}}
	return nil
}

// decide asks the plan's partitions.
func (in *inquiry) decide(p *plan) outcome {
	if len(p.parts) == 1 {
		return in.ask(in.ctx, p, p.parts[0], false).run()
	}
	return in.decideSeveral(p)
}

// sending is a check's message with what it points to, so that it is one allocation.
type sending struct {
	message quotav1.CheckRequest
	fence   int64
	part    uint32
}

func (in *inquiry) ask(ctx context.Context, p *plan, part uint32, peek bool) *ask {
	q := in.question
	s := &sending{fence: in.fenceOf(part).time, part: part}
	m := &s.message
	m.Domain, m.Descriptors, m.Cost, m.DecisionId = q.domain, q.wire, q.cost, q.id[:]
	m.Resolution, m.FenceNs, m.Partition, m.Peek = p.resolution, &s.fence, &s.part, peek
	return &ask{
		client: in.client, ctx: ctx, deadline: in.deadline, part: part, route: in.view.routes[part],
		request: m, size: q.size + p.size(), peek: peek,
	}
}

// final is what the caller is told. What may have been charged is told as that, whatever came after. So is a
// conflict after the resolution has changed: what is recorded under the id may be the same check, as it was
// resolved before.
func (in *inquiry) final(f *quotav1.Failure) *quotav1.Failure {
	switch reason := f.GetReason(); {
	case reason == outcomeUnknown:
		return f
	case in.unknown, reason == idConflict && in.stale:
		return own(outcomeUnknown, "the check may have been charged, or may yet be: "+f.GetMessage())
	case reason == quotav1.FailureReason_FAILURE_REASON_UNSPECIFIED:
		return own(outcomeUnknown, f.GetMessage())
	case reason == notLeader, reason == stalePolicy, reason == policyPending, reason == staleTime:
		return own(noQuorum, f.GetMessage())
	}
	return f
}
