package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
)

// ten are objects in two namespaces, in force.
func ten(g *rig) (all string) {
	var list []string
	for i := range 5 {
		g.apply(fmt.Sprintf("a/p%d 3", i), fmt.Sprintf("b/p%d 3", i))
		list = append(list, fmt.Sprintf("a/p%d=3 b/p%d=3", i, i))
	}
	g.rest()
	all = strings.Join(list, " ")
	g.inForce(all)
	return all
}

// remains looks for a while at what is in force, which is to stay, and at what is held.
func remains(g *rig, inForce string, held int) {
	g.t.Helper()
	for range 5 {
		g.rest()
		g.inForce(inForce)
		<-time.After(time.Minute)
	}
	m := g.held()
	if m == nil || strings.Count(m.Data[policiesKey], "\n") != held {
		g.t.Fatalf("held is %v, want %d", m, held)
	}
	if got := g.metric("quorate_operator_held_removals"); got != float64(held) {
		g.t.Errorf("metric: %v held", got)
	}
	if told := g.told(); !slices.ContainsFunc(told, func(e string) bool { return strings.HasPrefix(e, fmt.Sprintf("Warning RemovalHeld %d policies", held)) }) {
		g.t.Errorf("events %q", told)
	}
}

func TestADeletedCRDRemovesNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		for _, namespace := range []string{"a", "b"} { // objects go one by one, with the operator looking on
			for i := range 5 {
				g.remove(fmt.Sprintf("%s/p%d", namespace, i))
				if _, err := g.once(); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
			}
		}
		remains(g, all, 10)
	})
}

// TestADefinitionThatIsGoneHoldsAll: with it the API server has forgotten that there ever was such a kind.
func TestADefinitionThatIsGoneHoldsAll(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		g.r.client = interceptor.NewClient(g.kube, interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource"}}
			},
		})
		remains(g, all, 10)
	})
}

func TestADeletedNamespaceRemovesNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		for i := range 5 {
			g.remove(fmt.Sprintf("b/p%d", i))
			if _, err := g.once(); err != nil {
				t.Fatal(err)
			}
		}
		remains(g, all, 5)
		g.want("a/p0", "Accepted Programmed 1@1.1 3/3")
	})
}

// TestRBACThatReturnsAnEmptyListRemovesNothing, not even to an operator that has just started.
func TestRBACThatReturnsAnEmptyListRemovesNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		g.begin()
		g.r.client = interceptor.NewClient(g.kube, interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		})
		remains(g, all, 10)
	})
}

// TestAnOperatorPointedAtAnotherClusterRemovesNothing: what that cluster has comes in beside, and doesn't make the removal
// look small, however much it is, and whoever starts anew.
func TestAnOperatorPointedAtAnotherClusterRemovesNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		other := newRig(t)
		other.nodes = g.nodes
		other.begin()
		more := ""
		for i := range 100 {
			other.apply(fmt.Sprintf("%c/other%d 3", 'a'+i%2, i)) // in the same domains
			more += fmt.Sprintf(" %c/other%d=3", 'a'+i%2, i)
		}
		remains(other, all+more, 10)
		other.want("b/other7", "Accepted Programmed 1@1.2 3/3")
		hash := other.held().Data[hashKey]
		other.begin()
		for range 5 {
			other.rest()
			<-time.After(time.Minute)
		}
		other.inForce(all + more)
		if got := other.held().Data[hashKey]; got != hash {
			t.Errorf("hash %s, was %s", got, hash)
		}
	})
}

// TestAHeldRemovalIsConfirmedByItsHash, and by no other; afterwards nothing of it is left.
func TestAHeldRemovalIsConfirmedByItsHash(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		g.remove("b/p0", "b/p1", "b/p2")
		remains(g, all, 3)
		m := g.held()
		if !strings.Contains(m.Data[helpKey], "quorate.dev/confirm-removal="+m.Data[hashKey]) {
			t.Errorf("help: %s", m.Data[helpKey])
		}
		confirm := func(hash string) {
			m := g.held()
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, confirmAnnotation, hash)
			if err := g.kube.Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			g.rest()
		}
		confirm("000000000000")
		g.inForce(all)
		g.remove("b/p3")
		g.rest()
		confirm(m.Data[hashKey]) // of three, and now there are four
		g.inForce(all)
		confirm(g.held().Data[hashKey])
		g.inForce("a/p0=3 a/p1=3 a/p2=3 a/p3=3 a/p4=3 b/p4=3")
		if g.held() != nil {
			t.Error("the ConfigMap stays")
		}
		if got := g.metric("quorate_operator_held_removals"); got != 0 {
			t.Errorf("metric: %v held", got)
		}
	})
}

// TestAHeldRemovalIsConfirmedByQuotactl too: by applying the set without it.
func TestAHeldRemovalIsConfirmedByQuotactl(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		for i := range 5 {
			g.remove(fmt.Sprintf("b/p%d", i))
		}
		remains(g, all, 5)
		smaller := g.nodes.set.Clone()
		smaller.Policies = slices.DeleteFunc(smaller.Policies, func(p policy.Policy) bool { return p.Namespace == "b" })
		g.nodes.take(smaller)
		g.rest()
		g.inForce("a/p0=3 a/p1=3 a/p2=3 a/p3=3 a/p4=3")
		if g.held() != nil {
			t.Error("the ConfigMap stays")
		}
	})
}

// TestWhatIsRestoredOneByOneLosesNothing: objects that were deleted by accident come back one after the other, long after.
// The few that are yet to come aren't taken for a small removal.
func TestWhatIsRestoredOneByOneLosesNothing(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprint("operator restarts: ", restarts), func(t *testing.T) {
			in(t, func(t *testing.T, g *rig) {
				all := ten(g)
				var names []string
				for i := range 5 {
					names = append(names, fmt.Sprintf("a/p%d", i), fmt.Sprintf("b/p%d", i))
				}
				g.remove(names...)
				remains(g, all, 10)
				<-time.After(time.Hour)
				for i, at := range names {
					if restarts {
						g.begin()
					}
					g.apply(at + " 3")
					g.rest()
					g.inForce(all)
					if left := len(names) - i - 1; left > 0 {
						remains(g, all, left)
					}
				}
				if g.held() != nil {
					t.Error("the ConfigMap stays")
				}
				g.remove("b/p4") // and one that is deleted now goes
				g.rest()
				if got := len(g.nodes.set.Policies); got != 9 {
					t.Errorf("%d policies in force", got)
				}
			})
		})
	}
}

// TestAConfirmationOutlivesARestart: an operator that starts waits until what is missed has settled, and forgets nothing of
// what was confirmed meanwhile.
func TestAConfirmationOutlivesARestart(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		g.remove("b/p0", "b/p1", "b/p2")
		remains(g, all, 3)
		m := g.held()
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, confirmAnnotation, m.Data[hashKey])
		if err := g.kube.Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		g.begin()
		if _, err := g.once(); err != nil {
			t.Fatal(err)
		}
		g.inForce(all) // not yet
		if g.held() == nil {
			t.Fatal("the confirmation is gone, and what it confirms isn't")
		}
		g.rest()
		g.inForce("a/p0=3 a/p1=3 a/p2=3 a/p3=3 b/p3=3 a/p4=3 b/p4=3")
		if g.held() != nil {
			t.Error("the ConfigMap stays")
		}
	})
}

// TestWhatStaysKeepsItsDomain: a domain that the configuration doesn't name any more stays as it is, with what a check in it
// requires, for as long as a policy without an object is in it.
func TestWhatStaysKeepsItsDomain(t *testing.T) {
	domains := func(w *world) (names []string) {
		for _, d := range makePlan(w).set.Domains {
			names = append(names, d.Name)
		}
		return names
	}
	w := worldOf(t, []string{"a/p"}, []string{"a/p", "b/p", "c/p"})
	w.force.set.Domains = []policy.Domain{{Name: "a", OnNoMatchAllow: true}, {Name: "b", Required: []string{"user"}}}
	w.domains = []policy.Domain{{Name: "c"}}
	if got := domains(w); !slices.Equal(got, []string{"c", "b"}) && !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("held: domains %q", got)
	}
	w.confirmed = makePlan(w).removals.hash
	if got := domains(w); !slices.Equal(got, []string{"c"}) {
		t.Errorf("gone: domains %q", got)
	}
}

// silent are nodes that say nothing until nobody listens.
type silent struct{ *cluster }

func (s silent) Policies(ctx context.Context, _ *quotav1.SetVersion) ([]byte, *quotav1.SetVersion, []*quotav1.PartitionVersion, error) {
	<-ctx.Done()
	return nil, nil, nil, ctx.Err()
}

// TestSilentNodesLeaveTimeToSaySo: statuses are written while there is time for it.
func TestSilentNodesLeaveTimeToSaySo(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		g.r.cfg.Nodes = of(silent{g.nodes})
		g.r.client = interceptor.NewClient(g.kube, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
		g.apply("a/new 3")
		if _, err := g.once(); err == nil {
			t.Error("no error")
		}
		g.want("a/p", "Accepted Unreachable 1@1.1 0/3")
		g.want("a/new", "Accepted Unreachable")
	})
}

// TestAnotherClusterIsReadAnew: nodes that were founded anew count versions from the beginning, and what they enforce under
// the same version is another set.
func TestAnotherClusterIsReadAnew(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.nodes.id = "one"
		g.apply("a/p 3")
		g.rest()
		g.want("a/p", "Accepted Programmed 1@1.1 3/3")
		others := newCluster()
		others.id = "two"
		set := g.nodes.set.Clone()
		set.Policies[0].Limits[0].Amount = 99
		others.take(set)
		if others.version != g.nodes.version {
			t.Fatalf("version %v, want %v", others.version, g.nodes.version)
		}
		g.nodes = others
		g.r.cfg.Nodes = of(others)
		g.rest()
		g.inForce("a/p=3")
		if got := g.says("a/p"); !strings.HasPrefix(got, "Accepted Programmed 1@") {
			t.Errorf("a/p: %s", got)
		}
	})
}
