package operator

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/internal/policy"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the first random world; 0 picks one")

// randomWorld has objects and a set over few names and quotas, so that they meet.
func randomWorld(t *testing.T, rng *rand.Rand) *world {
	line := func(i int) string {
		namespace := string(rune('a' + rng.IntN(2)))
		line := fmt.Sprintf("%s/p%d limit=%d", namespace, i, 1+rng.IntN(3))
		if rng.IntN(3) == 0 {
			line += fmt.Sprintf(" quota=p%d", rng.IntN(8))
		}
		if rng.IntN(6) == 0 {
			line += " key=tenant"
		}
		if rng.IntN(6) == 0 {
			line += " domain=" + string(rune('a'+rng.IntN(3)))
		}
		return line
	}
	var force, objects []string
	quotas := map[name]bool{}
	for i := range rng.IntN(8) {
		one := line(i)
		if p := policyOf(t, one); !quotas[quotaOf(&p)] {
			quotas[quotaOf(&p)] = true
			force = append(force, one)
		}
	}
	for i := range 8 {
		switch one := line(i); {
		case rng.IntN(4) == 0:
			continue
		case i < len(force) && rng.IntN(3) == 0:
			objects = append(objects, force[i])
		case rng.IntN(5) == 0:
			objects = append(objects, one+" broken")
		case rng.IntN(5) == 0:
			objects = append(objects, one+" new")
		default:
			objects = append(objects, one)
		}
	}
	w := worldOf(t, objects, force)
	w.allowed = map[string][]string{"a": {"b"}}
	if rng.IntN(4) == 0 {
		w.missed = nil
	}
	var distinct []*object
	for _, o := range w.objects {
		if own := w.force.of(o.name); own != nil && o.fault == nil && quotaOf(own) != quotaOf(&o.policy) {
			o.begun = false // the API server lets no object change its quota
		}
		if !slices.ContainsFunc(distinct, func(d *object) bool { return d.name == o.name }) {
			distinct = append(distinct, o)
		}
	}
	w.objects = distinct
	return w
}

// TestPlansKeepTheirPromises, in worlds made by chance.
func TestPlansKeepTheirPromises(t *testing.T) {
	first := *seedFlag
	if first == 0 {
		first = rand.Uint64()
	}
	for seed := first; seed != first+500 && !t.Failed(); seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		w := randomWorld(t, rng)
		pl := makePlan(w)
		promises(t, w, pl)
		rng.Shuffle(len(w.objects), func(i, j int) { w.objects[i], w.objects[j] = w.objects[j], w.objects[i] })
		if again := makePlan(w); !reflect.DeepEqual(again, pl) {
			t.Errorf("objects in another order make another plan: %s, %s", told(pl), told(again))
		}
		strangers(t, w, pl)
		settles(t, w, pl)
		if t.Failed() {
			t.Fatalf("replay with -run '^%s$' -seed=%d: %s", t.Name(), seed, told(pl))
		}
	}
}

// promises: what must hold of every plan.
func promises(t *testing.T, w *world, pl *plan) {
	if problems := pl.set.Validate(); len(problems) > 0 {
		t.Errorf("not valid: %v", problems)
	}
	if problems := w.force.set.ChangeTo(pl.set, nil); len(problems) > 0 {
		t.Errorf("can't follow: %v", problems)
	}
	has := func(p *policy.Policy) bool {
		return slices.ContainsFunc(pl.set.Policies, func(o policy.Policy) bool { return reflect.DeepEqual(o, *p) })
	}
	holds := func(q name) bool {
		return slices.ContainsFunc(pl.set.Policies, func(o policy.Policy) bool { return quotaOf(&o) == q })
	}
	for _, o := range w.objects {
		v := pl.verdicts[o.name]
		if accepted := v.fault == nil && !v.waits; accepted != v.placed || accepted && !has(&o.policy) {
			t.Errorf("%s is accepted and not in the set, or the other way round", o.name)
		}
		if own := w.force.of(o.name); v.fault != nil && own != nil && !has(own) && !holds(quotaOf(own)) {
			t.Errorf("%s isn't accepted, and what was good of it is gone", o.name)
		}
	}
	removed := 0
	domains := map[string]bool{}
	for i := range pl.set.Policies {
		domains[pl.set.Policies[i].Domain] = true
	}
	last := false
	for i := range w.force.set.Policies {
		if p := &w.force.set.Policies[i]; !holds(quotaOf(p)) {
			removed++
			last = last || !domains[p.Domain]
		}
	}
	if all := len(w.force.set.Policies); last || removed > 1 && float64(removed) > 0.2*float64(all) || removed > 0 && w.missed == nil {
		t.Errorf("%d of %d are removed, all that a domain has: %v", removed, all, last)
	}
}

// strangers: an object that nobody can read, or that wants a quota that is taken, changes nothing for anybody.
func strangers(t *testing.T, w *world, pl *plan) {
	more := *w
	more.objects = append(slices.Clone(w.objects), objectOf(t, -1, "a/stranger broken"))
	for i := range pl.set.Policies {
		if p := &pl.set.Policies[i]; pl.verdicts[nameOf(p)].placed {
			more.objects = append(more.objects, objectOf(t, 99, fmt.Sprintf("%s/copy%d quota=%s limit=99 new", p.Namespace, i, p.Quota)))
		}
	}
	if with := makePlan(&more); !reflect.DeepEqual(with.set, pl.set) {
		t.Errorf("strangers change the set: %s, %s", told(pl), told(with))
	}
}

// settles: what a plan has put in force, the next plan leaves as it is, but for who waited for a removal.
func settles(t *testing.T, w *world, pl *plan) {
	next := *w
	for range 3 {
		next.force, next.of = newForce(pl.set, client.Version{Epoch: 1, Number: next.force.version.Number + 1}), pl.removals.of
		again := makePlan(&next)
		waits := pl.removals.gone
		for _, v := range pl.verdicts {
			waits = waits || v.waits
		}
		if !waits && again.changes(next.force) {
			t.Errorf("what is in force is changed again: %s, %s", told(pl), told(again))
		}
		pl = again
	}
	if pl.changes(newForce(pl.set, client.Version{Epoch: 1, Number: 1})) {
		t.Errorf("no rest")
	}
}
