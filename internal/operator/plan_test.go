package operator

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// settled is the time of all plans here, and long after everything that was missed.
var settled = time.Unix(1_000_000, 0)

// setOf reads the flow form of policies, one a line, as in "a/p q3 limit=3 domain=d key=user".
func setOf(t testing.TB, lines ...string) policy.Set {
	t.Helper()
	var s policy.Set
	for _, line := range lines {
		s.Policies = append(s.Policies, policyOf(t, line))
	}
	s.Normalize()
	return s
}

// policyOf reads "namespace/name field=value ..." with quota, domain, key and limit as fields.
func policyOf(t testing.TB, line string) policy.Policy {
	t.Helper()
	fields := strings.Fields(line)
	namespace, name, _ := strings.Cut(fields[0], "/")
	values := map[string]string{"quota": name, "domain": namespace, "key": "user", "limit": "3"}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		values[k] = v
	}
	set, err := file.Parse(line, fmt.Appendf(nil, "policies: [{name: %s, namespace: %s, quota: %s, domain: %s, key: [%s], "+
		"limits: [{name: l, rollingWindow: {limit: %s, window: 1m}}]}]", name, namespace, values["quota"], values["domain"], values["key"], values["limit"]))
	if err != nil {
		t.Fatal(err)
	}
	return set.Policies[0]
}

// objectOf is an object that was created in that second, or, with an empty line's policy, one that can't be read.
func objectOf(t testing.TB, second int, line string) *object {
	t.Helper()
	o := &object{created: time.Unix(int64(second), 0), begun: !strings.Contains(line, " new")}
	line = strings.ReplaceAll(line, " new", "")
	text, broken := strings.CutSuffix(line, " broken")
	p := policyOf(t, text)
	o.name = nameOf(&p)
	if broken {
		o.fault = &fault{v1alpha1.ReasonInvalid, "broken"}
		return o
	}
	o.reading = reading{policy: p, revision: p.Revision(), size: sizeOf(p)}
	return o
}

// worldOf has objects in the order of their creation, and a set in force.
func worldOf(t testing.TB, objects, force []string) *world {
	t.Helper()
	w := &world{now: settled, settle: time.Second, missed: map[name]time.Time{}, force: newForce(setOf(t, force...), client.Version{Epoch: 1, Number: 7})}
	for i, line := range objects {
		w.objects = append(w.objects, objectOf(t, i, line))
	}
	for i := range w.force.set.Policies {
		w.missed[quotaOf(&w.force.set.Policies[i])] = time.Unix(0, 0)
	}
	return w
}

// told is what a plan says, in the words of the table below.
func told(pl *plan) string {
	var b strings.Builder
	for i := range pl.set.Policies {
		p := &pl.set.Policies[i]
		fmt.Fprintf(&b, "%s:%s:%d ", nameOf(p), p.Quota, p.Limits[0].Amount)
	}
	b.WriteString("|")
	var names []string
	for n, v := range pl.verdicts {
		switch {
		case v.fault != nil:
			names = append(names, n.String()+" "+v.fault.reason)
		case v.waits:
			names = append(names, n.String()+" waits")
		}
	}
	slices.Sort(names)
	if len(names) > 0 {
		b.WriteString(" " + strings.Join(names, ", "))
	}
	switch r := pl.removals; {
	case r.held:
		fmt.Fprintf(&b, " held %d", len(r.policies))
	case r.gone:
		fmt.Fprintf(&b, " gone %d", len(r.policies))
	case len(r.policies) > 0:
		fmt.Fprintf(&b, " missed %d", len(r.policies))
	}
	return strings.TrimSpace(b.String())
}

// TestPlan: what becomes of objects, in view of what is in force.
func TestPlan(t *testing.T) {
	ten := []string{"a/p0", "a/p1", "a/p2", "a/p3", "a/p4", "a/p5", "a/p6", "a/p7", "a/p8", "a/p9"}
	for what, c := range map[string]struct {
		objects, force []string
		world          func(*world)
		want           string
	}{
		"nothing":              {want: "|"},
		"a first one":          {objects: []string{"a/p"}, want: "a/p:p:3 |"},
		"in order of creation": {objects: []string{"b/p", "a/p"}, want: "b/p:p:3 a/p:p:3 |"},
		"in order of names within a second": {
			objects: []string{"b/p", "a/q", "a/p"},
			world: func(w *world) {
				for _, o := range w.objects {
					o.created = time.Unix(9, 0)
				}
			},
			want: "a/p:p:3 a/q:q:3 b/p:p:3 |",
		},
		"an amount changes": {objects: []string{"a/p limit=5"}, force: []string{"a/p"}, want: "a/p:p:5 |"},
		"a broken one leaves the others alone": {
			objects: []string{"a/p", "a/q broken", "a/r"}, want: "a/p:p:3 a/r:r:3 | a/q Invalid",
		},
		"of a broken one what was good stays": {
			objects: []string{"a/p", "a/q broken", "a/r"}, force: []string{"a/r", "a/q limit=8"},
			want: "a/p:p:3 a/q:q:8 a/r:r:3 | a/q Invalid",
		},
		"a change of the key is none": {
			objects: []string{"a/p key=tenant limit=9", "a/q limit=9"}, force: []string{"a/p", "a/q"},
			want: "a/p:p:3 a/q:q:9 | a/p NotSupported",
		},
		"a change of the quota is none": {
			objects: []string{"a/p quota=x"}, force: []string{"a/p"}, want: "a/p:p:3 | a/p NotSupported",
		},
		"another object under the name of a deleted one waits for it to go": {
			objects: []string{"a/p quota=x new", "a/q"}, force: []string{"a/p", "a/q"}, want: "a/q:q:3 | a/p waits gone 1",
		},
		"and comes then": {
			objects: []string{"a/p quota=x new", "a/q"}, force: []string{"a/q"}, want: "a/p:x:3 a/q:q:3 |",
		},
		"and takes its allowance over": {
			objects: []string{"a/p quota=q new", "a/r"}, force: []string{"a/p", "a/q", "a/r"},
			want: "a/q:q:3 a/r:r:3 | a/p waits gone 1",
		},
		"of two with one quota the older counts": {
			objects: []string{"a/p quota=x", "a/q quota=x limit=4"}, want: "a/p:x:3 | a/q Conflicted",
		},
		"in another namespace it is another quota": {
			objects: []string{"a/p quota=x", "b/q quota=x"}, want: "a/p:x:3 b/q:x:3 |",
		},
		"when the older goes the younger counts": {
			objects: []string{"a/q quota=x limit=4"}, force: []string{"a/p quota=x"}, want: "a/q:x:4 |",
		},
		"a broken one that is older keeps its quota": {
			objects: []string{"a/p quota=x broken", "a/q quota=x limit=4"}, force: []string{"a/p quota=x"},
			want: "a/p:x:3 | a/p Invalid, a/q Conflicted",
		},
		"a broken one that has nothing keeps nothing": {
			objects: []string{"a/p quota=x broken", "a/q quota=x limit=4"}, want: "a/q:x:4 | a/p Invalid",
		},
		"renamed with the same quota, usage goes on": {
			objects: []string{"a/new quota=p"}, force: []string{"a/p"}, want: "a/new:p:3 |",
		},
		"a domain of others": {
			objects: []string{"a/p domain=b", "a/q domain=c"},
			world:   func(w *world) { w.allowed = map[string][]string{"a": {"c"}, "b": {"b"}} },
			want:    "a/q:q:3 | a/p DomainNotAllowed",
		},
		"a domain that isn't allowed any more": {
			objects: []string{"a/p domain=b limit=9"}, force: []string{"a/p domain=b"}, want: "a/p:p:3 | a/p DomainNotAllowed",
		},
		"what nodes refuse": {
			objects: []string{"a/p limit=9", "a/q limit=9"}, force: []string{"a/p"},
			world: func(w *world) { w.refused = map[name]string{{"a", "p"}: "no", {"a", "q"}: "no"} },
			want:  "a/p:p:3 | a/p Refused, a/q Refused",
		},
		"one is deleted":         {objects: ten[1:], force: ten[:10], want: rest(1) + "| gone 1"},
		"two of ten are deleted": {objects: ten[2:], force: ten, want: rest(2) + "| gone 2"},
		"three of ten are held":  {objects: ten[3:], force: ten, want: rest(0) + "| held 3"},
		"all are held":           {force: ten, want: rest(0) + "| held 10"},
		"what came since makes a removal no smaller": {
			objects: ten[2:], force: ten, world: func(w *world) { w.of = 9 }, want: rest(0) + "| held 2",
		},
		"the last of a domain":    {objects: ten, force: append(slices.Clone(ten), "b/p"), want: rest(0) + "b/p:p:3 | held 1"},
		"one that was just there": {objects: ten[1:], force: ten, world: func(w *world) { w.missed = nil }, want: rest(0) + "| missed 1"},
		"one while others follow": {
			objects: ten[1:], force: ten,
			world: func(w *world) { w.missed = map[name]time.Time{{"a", "p0"}: settled.Add(-999 * time.Millisecond)} },
			want:  rest(0) + "| missed 1",
		},
		"some that others followed for long": {
			objects: ten[2:], force: ten,
			world: func(w *world) { w.missed = map[name]time.Time{{"a", "p0"}: settled.Add(-10 * time.Second)} },
			want:  rest(2) + "| gone 2",
		},
		"nobody is sure": {objects: ten[1:], force: ten, world: func(w *world) { w.keepAll = true }, want: rest(0) + "| missed 1"},
		"what stays without an object keeps its place, what is new comes in its own": {
			objects: []string{"a/p2", "a/p1", "a/p9 limit=9"}, force: ten[:5], want: "a/p0:p0:3 a/p2:p2:3 a/p3:p3:3 a/p4:p4:3 a/p1:p1:3 a/p9:p9:9 | held 3",
		},
	} {
		w := worldOf(t, c.objects, c.force)
		if c.world != nil {
			c.world(w)
		}
		pl := makePlan(w)
		if got := told(pl); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", what, got, c.want)
		}
		if problems := pl.set.Validate(); len(problems) > 0 {
			t.Errorf("%s: the plan's set is not valid: %v", what, problems)
		}
		if problems := w.force.set.ChangeTo(pl.set, nil); len(problems) > 0 {
			t.Errorf("%s: the plan's set can't follow: %v", what, problems)
		}
	}
}

// rest is a/p0 to a/p9 without the first of them, as told says it.
func rest(without int) string {
	var b strings.Builder
	for i := without; i < 10; i++ {
		fmt.Fprintf(&b, "a/p%d:p%d:3 ", i, i)
	}
	return b.String()
}

// TestAConfirmationCountsForTheseRemovalsOnly: by the hash that was shown, and for no other set of them.
func TestAConfirmationCountsForTheseRemovalsOnly(t *testing.T) {
	force := []string{"a/p", "a/q", "a/r"}
	w := worldOf(t, []string{"a/p"}, force)
	shown := makePlan(w).removals
	if !shown.held || shown.list() != "a/q\na/r\n" {
		t.Fatalf("got %+v", shown)
	}
	w.confirmed = shown.hash
	if got := told(makePlan(w)); got != "a/p:p:3 | gone 2" {
		t.Errorf("confirmed: %s", got)
	}
	for what, other := range map[string]*world{
		"more":                    worldOf(t, nil, force),
		"others":                  worldOf(t, []string{"a/q"}, force),
		"another revision of one": worldOf(t, []string{"a/p"}, []string{"a/p", "a/q limit=4", "a/r"}),
		"another namespace":       worldOf(t, []string{"a/p"}, []string{"a/p", "b/q", "b/r"}),
	} {
		other.confirmed = shown.hash
		if pl := makePlan(other); pl.removals.gone || !pl.removals.held {
			t.Errorf("%s: gone by the confirmation of other removals", what)
		}
	}
}

// TestASetThatWouldBeTooLargeTakesWhatFits, oldest first, and everything that is in force has its room.
func TestASetThatWouldBeTooLargeTakesWhatFits(t *testing.T) {
	w := worldOf(t, []string{"a/p", "a/q", "a/r", "a/s"}, []string{"a/r"})
	w.objects[0].size = policy.MaxBytes / 2
	w.objects[1].size = policy.MaxBytes / 2
	if got := told(makePlan(w)); got != "a/p:p:3 a/r:r:3 a/s:s:3 | a/q Refused" {
		t.Errorf("got %s", got)
	}
}

// TestRefusalsGoBackToWhoseTheyAre: a problem of a policy that the plan brings is that object's, all else is the set's, and where
// there is nothing else it is that of all that are new.
func TestRefusalsGoBackToWhoseTheyAre(t *testing.T) {
	pl := makePlan(worldOf(t, []string{"a/p limit=9", "a/q"}, []string{"a/p", "a/q"}))
	refused, remain := pl.withhold([]*quotav1.PolicyProblem{
		{Policy: "a/p", Field: "key", Reason: "was [x]"}, {Policy: "a/p", Reason: "no"}, {Policy: "a/q", Field: "key", Reason: "old"},
		{Field: "policies", Reason: "too many"},
	})
	if want := map[name]string{{"a", "p"}: "spec.key: was [x]\nno"}; !reflect.DeepEqual(refused, want) {
		t.Errorf("refused %q, want %q", refused, want)
	}
	if want := []string{"a/q: key: old", "policies: too many"}; !slices.Equal(remain, want) {
		t.Errorf("remain %q, want %q", remain, want)
	}
	pl = makePlan(worldOf(t, []string{"a/p limit=9", "a/q", "a/r limit=9", "a/s limit=9"}, []string{"a/p", "a/q", "a/r", "a/s"}))
	refused, _ = pl.withhold([]*quotav1.PolicyProblem{{Field: "policies", Reason: "too many"}})
	if want := map[name]string{{"a", "p"}: "policies: too many", {"a", "r"}: "policies: too many", {"a", "s"}: "policies: too many"}; !reflect.DeepEqual(refused, want) {
		t.Errorf("of the whole set: refused %q, want %q", refused, want)
	}
}
