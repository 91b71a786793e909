package client

import (
	"context"
	"sync"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// decideSeveral decides a check whose keys live in several partitions: it looks everywhere, and only if all
// would admit it, consumes in ascending order of partition and stops at the first refusal. Whoever races for
// the same partitions takes them in the same order. Where one refuses after others were charged there are
// fewer admissions than there could be, never more.
func (in *inquiry) decideSeveral(p *plan) outcome {
	if o, admitted := in.look(p); !admitted {
		return o
	}
	var tightest outcome
	replayed := true
	for _, part := range p.parts {
		o := in.ask(in.ctx, p, part, false).run()
		in.unknown = in.unknown || o.unknown
		if o.answer.GetDecision() != quotav1.Decision_DECISION_ALLOW {
			return o
		}
		in.unknown = true // until all have answered the id has an allow that nobody was told of
		replayed = replayed && o.answer.GetReplayed()
		if tightest.answer == nil || left(o.answer) < left(tightest.answer) {
			tightest = o
		}
	}
	tightest.answer.Replayed = replayed
	return tightest
}

// left is what an allow leaves of its tightest limit.
func left(a *quotav1.Answer) uint64 {
	if a.Remaining == nil {
		return ^uint64(0)
	}
	return a.GetRemaining()
}

// look peeks into all partitions at once and reports whether all would admit the check; if not, the outcome
// to end with: a denial before a failure, and of several denials the one with the longest wait.
func (in *inquiry) look(p *plan) (outcome, bool) {
	ctx, cancel := context.WithCancel(in.ctx)
	defer cancel()
	outcomes := make([]outcome, len(p.parts))
	var peeking sync.WaitGroup
	for i, part := range p.parts {
		k := in.ask(ctx, p, part, true)
		peeking.Go(func() {
			if outcomes[i] = k.run(); denied(outcomes[i].answer) {
				cancel() // whatever the others say
			}
		})
	}
	peeking.Wait()
	var worst *outcome
	for i := range outcomes {
		if o := &outcomes[i]; !admitted(o.answer) && (worst == nil || worse(o, worst)) {
			worst = o
		}
	}
	if worst == nil {
		return outcome{}, true
	}
	return *worst, false
}

func denied(a *quotav1.Answer) bool { return a.GetDecision() == quotav1.Decision_DECISION_DENY }

// admitted says that a look found room. What the id has recorded may come as an allow.
func admitted(a *quotav1.Answer) bool {
	d := a.GetDecision()
	return d == quotav1.Decision_DECISION_WOULD_ALLOW || d == quotav1.Decision_DECISION_ALLOW
}

// worse says whether o is rather told than p; neither admits the check.
func worse(o, p *outcome) bool {
	if denied(o.answer) != denied(p.answer) {
		return denied(o.answer)
	}
	if !denied(o.answer) {
		return o.failure.GetReason() == stalePolicy && p.failure.GetReason() != stalePolicy
	}
	return wait(o.answer) > wait(p.answer)
}

// wait is how long a denial lasts, as it is known.
func wait(a *quotav1.Answer) int64 {
	if a.WaitNs == nil {
		return int64(^uint64(0) >> 1)
	}
	return a.GetWaitNs()
}
