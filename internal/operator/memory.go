package operator

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// memory knows which generation of an object the set in force holds, and since which version. The set itself has no
// generations.
type memory struct {
	newest  client.Version // of the sets that were seen
	objects map[types.UID]holding
}

// holding is what the set in force has of an object.
type holding struct {
	revision   uint64
	generation int64          // 0: not known
	since      client.Version // in force since then without a gap, as far as this process has seen
}

// see takes in the set in force, and forgets objects that are gone.
func (m *memory) see(objects []*declared, readings map[types.UID]reading, f *force) {
	unbroken, next := follows(f.version, m.newest), map[types.UID]holding{}
	for _, o := range objects {
		at, there := f.byName[o.at()]
		if !there {
			continue
		}
		r := readings[o.UID]
		h := holding{revision: f.revs[at], since: f.version}
		before, seen := m.objects[o.UID]
		if seen && before.revision == h.revision {
			h.generation = before.generation
			if unbroken {
				h.since = before.since
			}
		}
		switch {
		case r.fault == nil && r.revision == h.revision:
			h.generation = o.Generation
		case !seen:
			h.generation = written(o)
		}
		next[o.UID] = h
	}
	m.newest, m.objects = f.version, next
}

// written is the generation that, by the object's own status, the set in force holds; 0: that can't be told. Before a
// generation is put in force its object is told that it is accepted, so where the newest one that was accepted is
// another one than that which was enforced, either may be in force. So may one that the nodes refused: they are asked again.
func written(o *declared) int64 {
	e := o.Status.Enforced
	if e == nil {
		return 0
	}
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionAccepted)
	if c != nil && (c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonRefused) && c.ObservedGeneration != e.Generation {
		return 0
	}
	return e.Generation
}

// enforcedBy counts the partitions that are confirmed to enforce what the set in force holds of an object.
func (h holding) enforcedBy(o *observation) (n int) {
	for _, v := range o.confirmed {
		if !v.Before(h.since) && !o.force.version.Before(v) {
			n++
		}
	}
	return n
}
