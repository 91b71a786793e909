package operator

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
)

// name is a namespace and a name in it: an object's and its policy's, or a quota's.
type name struct{ namespace, name string }

// String is what the nodes call a policy.
func (n name) String() string { return n.namespace + "/" + n.name }

func nameOf(p *policy.Policy) name  { return name{p.Namespace, p.Name} }
func quotaOf(p *policy.Policy) name { return name{p.Namespace, p.Quota} }

// object is a RateLimitPolicy as the plan sees it.
type object struct {
	name
	reading
	created time.Time
	begun   bool // the set in force held something of this very object
}

// older is the order of objects: what comes first wins.
func older(a, b *object) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name.name, b.name.name))
}

// world is all that a plan is made from, which changes none of it.
type world struct {
	objects []*object
	domains []policy.Domain
	allowed map[string][]string // domains that a namespace may use beside that of its own name
	force   *force              // the set in force
	refused map[name]string     // what the nodes have against the newest revisions of these objects

	missed    map[name]time.Time // since when these quotas of the set have had no object
	now       time.Time
	settle    time.Duration // for how long that must be so before it counts
	of        int           // how many policies were in force when removals began to be missed; 0: not known
	confirmed string        // the hash of the removals that somebody confirmed; empty: of none
	holding   bool          // removals were held when this was last looked at
	keepAll   bool          // nothing is removed this time
}

// force is the policy set in force.
type force struct {
	set     policy.Set     // normalized
	version client.Version // zero: none is in force yet
	cluster string         // whose set it is: another cluster counts its versions anew
	byName  map[name]int
	byQuota map[name]int
	sizes   []int    // of the policies, in bytes
	size    int      // of all of them
	revs    []uint64 // their revisions
}

func newForce(set policy.Set, v client.Version) *force {
	f := &force{set: set, version: v, byName: map[name]int{}, byQuota: map[name]int{}}
	for i := range set.Policies {
		p := &set.Policies[i]
		f.byName[nameOf(p)], f.byQuota[quotaOf(p)] = i, i
		f.sizes, f.revs = append(f.sizes, sizeOf(*p)), append(f.revs, p.Revision())
		f.size += f.sizes[i]
	}
	return f
}

// of returns the policy under a name, nil if there is none.
func (f *force) of(n name) *policy.Policy { return f.at(f.byName, n) }

func (f *force) at(index map[name]int, n name) *policy.Policy {
	if i, there := index[n]; there {
		return &f.set.Policies[i]
	}
	return nil
}

// plan is what is to be in force, and what is to be said of each object.
type plan struct {
	set      policy.Set // normalized
	verdicts map[name]verdict
	removals removals
	missed   map[name]time.Time
}

// verdict is what becomes of an object's newest revision.
type verdict struct {
	fault  *fault // nil: it is accepted
	waits  bool   // accepted, but a policy that is to be removed stands in its place
	placed bool   // the plan's set has it
	fresh  bool   // placed, and not in force like that
}

// makePlan decides. It is a function of w: the same world gives the same plan, in whichever order objects are listed.
func makePlan(w *world) *plan {
	p := &planner{world: w, plan: &plan{verdicts: map[name]verdict{}}, taken: map[name]name{}}
	p.size = w.force.size + len(policy.Set{Domains: w.domains}.Canonical())
	objects := slices.SortedFunc(slices.Values(w.objects), older)
	for _, o := range objects {
		p.place(o)
	}
	p.remove()
	p.plan.set = policy.Set{Policies: p.ordered(), Domains: p.allDomains()}.Clone()
	p.plan.set.Normalize()
	return p.plan
}

// planner makes a plan, one object after the other.
type planner struct {
	*world
	plan   *plan
	taken  map[name]name // quotas, and the objects that have them
	placed []policy.Policy
	kept   []int // places in the set in force of what stays without an object
	size   int
}

// place gives an object its place in the set, or leaves what the set has of it where it is.
func (p *planner) place(o *object) {
	v := p.judge(o)
	own := p.force.of(o.name)
	switch {
	case v.fault != nil && own != nil:
		if _, gone := p.taken[quotaOf(own)]; !gone {
			p.add(o.name, *own)
		}
	case v.fault == nil && v.waits:
		p.taken[quotaOf(&o.policy)] = o.name
	case v.fault == nil:
		p.add(o.name, o.policy)
		v.placed, v.fresh = true, own == nil || !reflect.DeepEqual(*own, o.policy)
	}
	p.plan.verdicts[o.name] = v
}

func (p *planner) add(by name, policy policy.Policy) {
	p.taken[quotaOf(&policy)] = by
	p.placed = append(p.placed, policy)
}

func refuse(reason, format string, args ...any) verdict {
	return verdict{fault: &fault{reason, fmt.Sprintf(format, args...)}}
}

// judge says whether an object's newest revision can be in the set. Those older than it have their places.
func (p *planner) judge(o *object) verdict {
	if o.fault != nil {
		return verdict{fault: o.fault}
	}
	quota := quotaOf(&o.policy)
	if d := o.policy.Domain; d != o.namespace && !slices.Contains(p.allowed[o.namespace], d) {
		return refuse(v1alpha1.ReasonDomainNotAllowed, "spec.domain: namespace %s may not use the domain %q; the operator's configuration "+
			"(allowedDomains) says which it may besides its own name", o.namespace, d)
	}
	if by, taken := p.taken[quota]; taken {
		return refuse(v1alpha1.ReasonConflicted, "spec.quota: %q is the quota of %s, which is older; give this policy a quota of its own", quota.name, by)
	}
	if why, refused := p.refused[o.name]; refused {
		return refuse(v1alpha1.ReasonRefused, "%s", why)
	}
	if own := p.force.of(o.name); own != nil && quotaOf(own) != quota {
		if o.begun {
			return refuse(v1alpha1.ReasonNotSupported, "spec.quota: can't be changed from %q to %q: another quota is another allowance; "+
				"create another policy", own.Quota, quota.name)
		}
		return verdict{waits: true} // its namesake, which is gone, has to go first
	}
	if found := p.change(o, quota); len(found) > 0 {
		return refuse(v1alpha1.ReasonNotSupported, "%s", abridge(found))
	}
	return p.fits(o, quota)
}

// change says what stands against putting the object's policy in the place of what is in force.
func (p *planner) change(o *object, quota name) (found []string) {
	was := p.force.at(p.force.byQuota, quota)
	if was == nil || reflect.DeepEqual(*was, o.policy) {
		return nil
	}
	from, to := policy.Set{Policies: []policy.Policy{*was}}, policy.Set{Policies: []policy.Policy{o.policy}}
	for _, c := range from.ChangeTo(to, nil) {
		found = append(found, problem(c.Path, c.Message))
	}
	return found
}

// fits holds the set to what the nodes take: all that is in force has its room, as it may have to stay.
func (p *planner) fits(o *object, quota name) verdict {
	size := p.size + o.size
	if i, there := p.force.byQuota[quota]; there {
		size -= p.force.sizes[i]
	}
	if size > policy.MaxBytes && size > p.size {
		return refuse(v1alpha1.ReasonRefused, "the set of all policies would have more than the %d bytes that can be put in force: "+
			"give policies fewer overrides", policy.MaxBytes)
	}
	p.size = size
	return verdict{}
}

// allDomains are those of the configuration, and as they are in force those that only policies without an object are in: what
// stays, stays with what its domain requires.
func (p *planner) allDomains() []policy.Domain {
	all := slices.Clone(p.domains)
	for _, d := range p.force.set.Domains {
		named := func(o policy.Domain) bool { return o.Name == d.Name }
		stays := func(i int) bool { return p.force.set.Policies[i].Domain == d.Name }
		if !slices.ContainsFunc(all, named) && slices.ContainsFunc(p.kept, stays) {
			all = append(all, d)
		}
	}
	return all
}

// ordered is all policies of the plan in their order: by object, and what stays without one behind what it followed.
func (p *planner) ordered() []policy.Policy {
	all := slices.Clone(p.placed)
	for _, i := range p.kept {
		at := 0
		for j := i - 1; j >= 0 && at == 0; j-- {
			q := quotaOf(&p.force.set.Policies[j])
			at = 1 + slices.IndexFunc(all, func(o policy.Policy) bool { return quotaOf(&o) == q })
		}
		all = slices.Insert(all, at, p.force.set.Policies[i])
	}
	return all
}

// changes says whether the plan's set is another one than that in force.
func (pl *plan) changes(f *force) bool {
	return f.version == (client.Version{}) || !reflect.DeepEqual(pl.set, f.set)
}

// withhold takes what the nodes have against a set, and says which objects' newest revisions have to stay out: those that it
// is about, or else, unless it may be about what goes, all that are new. What remains is against no object.
func (pl *plan) withhold(problems []*quotav1.PolicyProblem) (refused map[name]string, remain []string) {
	lines := map[name][]string{}
	for _, p := range problems {
		namespace, rest, _ := strings.Cut(p.GetPolicy(), "/")
		if at := (name{namespace, rest}); pl.verdicts[at].fresh {
			lines[at] = append(lines[at], problem("policies[0]."+p.GetField(), p.GetReason()))
			continue
		}
		remain = append(remain, strings.TrimPrefix(p.GetPolicy()+": "+p.GetField()+": "+p.GetReason(), ": "))
	}
	whole := len(lines) == 0 && !pl.removals.gone
	for at, v := range pl.verdicts {
		if whole && v.fresh {
			lines[at] = remain
		}
	}
	refused = map[name]string{}
	for at, list := range lines {
		refused[at] = abridge(list)
	}
	return refused, remain
}
