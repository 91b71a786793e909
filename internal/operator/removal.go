package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/policy"
)

// removals are the policies of the set in force that no object stands for.
type removals struct {
	policies []policy.Policy // in the set's order
	held     bool            // they are so many that somebody has to confirm them
	wait     time.Duration   // until they count, if they aren't held; 0: they do
	of       int             // how many policies were in force when the first of them was missed, as far as is known
	hash     string          // names just these
	gone     bool            // the plan's set is without them
}

// Where a removal is held: more than one policy and more than one in fewest of the set, or all that a domain has.
const fewest = 5

// patience is how many times as long as others need settle those wait at most that others keep following.
const patience = 10

// remove decides what becomes of the policies in force that no object stands for.
func (p *planner) remove() {
	r := &p.plan.removals
	var missing []int
	for i := range p.force.set.Policies {
		q := quotaOf(&p.force.set.Policies[i])
		switch by, taken := p.taken[q]; {
		case !taken:
			missing = append(missing, i)
			r.policies = append(r.policies, p.force.set.Policies[i])
		case p.plan.verdicts[by].waits: // its allowance goes on once that object has its place
			p.kept = append(p.kept, i)
		}
	}
	if len(missing) == 0 {
		return
	}
	r.hash = hashOf(r.policies)
	r.wait = p.settling(r.policies)
	// What came since doesn't make a removal smaller: it may be another cluster's.
	if r.of = len(p.force.set.Policies); p.of > 0 {
		r.of = min(r.of, p.of)
	}
	// Once something is held it stays held until all of it is back or its removal is confirmed: objects that are restored come
	// back one by one, and the last of them must not be taken for deleted because they are few.
	r.held = r.hash != p.confirmed && (p.holding || p.tooMany(r))
	switch {
	case r.held:
		r.wait = 0
	case r.wait > 0:
	default:
		r.gone = !p.keepAll
	}
	if !r.gone {
		p.kept = append(p.kept, missing...)
		slices.Sort(p.kept)
	}
}

// settling says how long it takes until removals count, and notes since when they are missed. A namespace or a CRD that is
// deleted takes its objects one by one: they are judged together.
func (p *planner) settling(gone []policy.Policy) time.Duration {
	p.plan.missed = map[name]time.Time{}
	first, last := p.now, time.Time{}
	for i := range gone {
		q := quotaOf(&gone[i])
		since, known := p.missed[q]
		if !known {
			since = p.now
		}
		p.plan.missed[q] = since
		if since.Before(first) {
			first = since
		}
		if since.After(last) {
			last = since
		}
	}
	return max(0, min(last.Add(p.settle).Sub(p.now), first.Add(patience*p.settle).Sub(p.now)))
}

// tooMany says whether a removal looks like an accident.
func (p *planner) tooMany(r *removals) bool {
	if n := len(r.policies); n > 1 && n*fewest > r.of {
		return true
	}
	left := map[string]bool{}
	for _, one := range p.placed {
		left[one.Domain] = true
	}
	for _, i := range p.kept {
		left[p.force.set.Policies[i].Domain] = true
	}
	for _, one := range r.policies {
		if !left[one.Domain] {
			return true
		}
	}
	return false
}

// hashOf names policies, as they are, by a few letters: what is confirmed is what was shown.
func hashOf(policies []policy.Policy) string {
	const enough = 6
	h := sha256.New()
	for _, p := range policies {
		fmt.Fprintf(h, "%d:%s%d:%s%016x", len(p.Namespace), p.Namespace, len(p.Name), p.Name, p.Revision())
	}
	return hex.EncodeToString(h.Sum(nil)[:enough])
}

// list is the policies' names, one a line, as many as a ConfigMap has room for.
func (r *removals) list() string {
	const most = 1000
	var b strings.Builder
	for i := range r.policies[:min(most, len(r.policies))] {
		fmt.Fprintln(&b, nameOf(&r.policies[i]))
	}
	if more := len(r.policies) - most; more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return b.String()
}
