package client

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

const (
	// longestHint bounds how long a denial is remembered, and adjustableHint where its policy allows usage to
	// be adjusted.
	longestHint    = int64(30 * time.Second)
	adjustableHint = int64(time.Second)
	// maxHints bounds how many are.
	maxHints = 1 << 16
	// looked is how many hints are looked at to make room for one.
	looked = 8
)

// hint is a denial that a leader gave. Usage only falls with time, so until it ends the key admits neither
// this cost nor a larger one under this amount or a smaller one. It is of one revision of the policy.
type hint struct {
	answer *quotav1.Answer
	amount uint64
	cost   uint64 // of all that the check took from the key
	never  bool   // the cost is above the amount
	ends   int64  // of the denial, by the client's clock
	until  int64  // when it is forgotten
}

// hints remembers denials. It can deny and nothing else: what it doesn't know is asked.
type hints struct {
	count atomic.Int64 // a look at it is all that a client without denials pays

	mu    sync.RWMutex
	byKey map[string]*hint
}

func newHints() *hints { return &hints{byKey: map[string]*hint{}} }

// appendHintKey appends what a hint is filed under: revision, limit, quota key.
func appendHintKey(dst []byte, r *quotav1.ResolvedPolicy, limitAt int) []byte {
	dst = append(dst[:0], r.GetRevision()...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(limitAt))
	return append(dst, r.GetKey()...)
}

// taken is what a check takes from one key, under one limit.
type taken struct {
	cost uint64
	// least is the smallest amount that applies to one of its charges.
	least uint64
	first bool // no earlier charge is of that key
}

func (p *plan) taken(at, limitAt int) taken {
	t := taken{least: math.MaxUint64, first: true}
	for i := range p.charges {
		if !p.sameKey(i, at) {
			continue
		}
		t.first = t.first && i >= at
		ch := &p.charges[i]
		t.cost = policy.AddCosts(t.cost, ch.Cost)
		t.least = min(t.least, p.set.Spec(ch.Policy, limitAt, ch.Tier, ch.Override).Amount)
	}
	return t
}

func (p *plan) sameKey(i, j int) bool {
	return p.charges[i].Policy == p.charges[j].Policy &&
		string(p.resolution.Policies[i].GetKey()) == string(p.resolution.Policies[j].GetKey())
}

// find returns the denial that a check is known to get, nil if none is known: of several the longest.
func (h *hints) find(p *plan, q *question, now int64) *quotav1.Answer {
	if h.count.Load() == 0 {
		return nil
	}
	var scratch [256]byte
	key := scratch[:0]
	var best *hint
	var least uint64
	h.mu.RLock()
	for i := range p.charges {
		for l := range p.set.Limits(p.charges[i].Policy) {
			key = appendHintKey(key, p.resolution.Policies[i], l)
			x := h.byKey[string(key)]
			if x == nil || now >= x.until || best != nil && x.ends <= best.ends {
				continue
			}
			if t := p.taken(i, l); x.covers(t) {
				best, least = x, t.least
			}
		}
	}
	h.mu.RUnlock()
	if best == nil || p.badInput(q) {
		return nil
	}
	return best.tell(q, least, now)
}

func (x *hint) covers(t taken) bool {
	return t.cost >= x.cost && t.least <= x.amount && x.never == (t.cost > t.least)
}

// badInput says that a leader would not decide the check at all.
func (p *plan) badInput(q *question) bool {
	domain, known := p.set.Domain(q.domain)
	if !known {
		return true
	}
	_, missing := p.set.Missing(domain, q.descriptors)
	return missing
}

// told is an answer with what it points to.
type told struct {
	answer              quotav1.Answer
	amount, left        uint64
	seconds, wait, full int64
	whole               int64
	id                  [16]byte
}

// tell gives the denial again, under another id, for what is left of its wait.
func (x *hint) tell(q *question, amount uint64, now int64) *quotav1.Answer {
	was, t := x.answer, &told{amount: amount, id: q.id}
	a := &t.answer
	a.Decision, a.Reason, a.Policy, a.LimitName = was.GetDecision(), was.GetReason(), was.GetPolicy(), was.GetLimitName()
	a.WindowNs, a.DecisionTimeNs, a.Partition = was.GetWindowNs(), was.GetDecisionTimeNs(), was.GetPartition()
	a.Epoch, a.SetVersion, a.DecisionId, a.Limit = was.GetEpoch(), was.GetSetVersion(), t.id[:], &t.amount
	if was.Remaining != nil {
		t.left = was.GetRemaining() - min(was.GetRemaining(), x.amount-amount)
		a.Remaining = &t.left
	}
	if was.WholeAmountNs != nil && amount == x.amount { // a bucket of less fills up sooner
		t.whole = was.GetWholeAmountNs()
		a.WholeAmountNs = &t.whole
	}
	if x.never {
		return a
	}
	t.wait = max(1, x.ends-now)
	t.seconds = adviceFor(t.wait)
	a.WaitNs, a.RetryAfterS = &t.wait, &t.seconds
	if was.ResetNs != nil {
		t.full = max(t.wait, was.GetResetNs()-(was.GetWaitNs()-t.wait))
		a.ResetNs = &t.full
	}
	return a
}

// adviceFor is the wait in whole seconds, with 0.2 % on top as nodes have it.
func adviceFor(wait int64) int64 {
	const share = 500
	extra := (wait-1)/share + 1
	return limit.WholeSeconds(min(wait, math.MaxInt64-extra) + extra)
}

// note remembers a leader's denial, if the client knows what exactly was denied: it resolved the check itself,
// and only one of its keys can be the one that is spoken of.
func (h *hints) note(p *plan, o outcome) {
	a := o.answer
	if p.set == nil || !denied(a) || a.Limit == nil || a.GetPolicy() == "" {
		return
	}
	at := p.spokenOf(a.GetPolicy(), o.part)
	if at < 0 {
		return
	}
	of := p.charges[at].Policy
	l := limitNamed(p.set, of, a.GetLimitName())
	if l < 0 {
		return
	}
	x := &hint{answer: a, amount: a.GetLimit(), cost: p.taken(at, l).cost}
	longest := longestHint
	if p.set.Policy(of).AllowAdjust {
		longest = adjustableHint
	}
	switch a.GetReason() {
	case quotav1.Reason_REASON_COST_EXCEEDS_LIMIT:
		x.never, x.ends = true, o.sentAt+longest
	case quotav1.Reason_REASON_LIMIT:
		if a.GetWaitNs() < 1 {
			return
		}
		x.ends = o.sentAt + min(a.GetWaitNs(), math.MaxInt64-o.sentAt)
	default:
		return
	}
	x.until = min(x.ends, o.sentAt+longest)
	h.put(appendHintKey(nil, p.resolution.Policies[at], l), x, o.sentAt)
}

// spokenOf is the place of the policy's charge in that partition, -1 if there is none or more than one key.
func (p *plan) spokenOf(name string, part uint32) int {
	at := -1
	for i, r := range p.resolution.GetPolicies() {
		if r.GetPolicy() != name || r.GetPartition() != part {
			continue
		}
		if at >= 0 && !p.sameKey(i, at) {
			return -1
		}
		at = i
	}
	return at
}

func limitNamed(s *policySet, of int32, name string) int {
	for l := range s.Limits(of) {
		if s.LimitName(of, l) == name {
			return l
		}
	}
	return -1
}

func (h *hints) put(key []byte, x *hint, now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey[string(key)] == nil && len(h.byKey) >= maxHints {
		h.makeRoom(now)
	}
	h.byKey[string(key)] = x
	h.count.Store(int64(len(h.byKey)))
}

// makeRoom forgets some hints, those that have ended first. Which ones doesn't matter: whatever is forgotten
// is asked again.
func (h *hints) makeRoom(now int64) {
	n, any := 0, ""
	for key, x := range h.byKey {
		if n++; now >= x.until {
			delete(h.byKey, key)
			any = ""
		} else {
			any = key
		}
		if n == looked {
			break
		}
	}
	if len(h.byKey) >= maxHints {
		delete(h.byKey, any)
	}
}
