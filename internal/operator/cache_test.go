package operator

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestCRD16AnAPIServerThatIsAwayChangesNothing: an error is no empty list.
func TestCRD16AnAPIServerThatIsAwayChangesNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		g.rest()
		g.away = true
		for range 10 {
			if _, err := g.once(); err == nil {
				t.Error("no error")
			}
			<-time.After(time.Minute)
		}
		g.inForce("a/p=3 a/q=3")
		g.away = false
		g.apply("a/p 4")
		g.rest()
		g.inForce("a/p=4 a/q=3")
	})
}

// stale is a cache whose watch has died without a word.
type stale struct {
	client.Client
	list declaredList
}

func (s *stale) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	*list.(*declaredList) = *s.list.DeepCopyObject().(*declaredList)
	return nil
}

// TestCRD19AWatchThatDiedIsMadeUpFor within the resync time; and a cache that has lost objects removes nothing.
func TestCRD19AWatchThatDiedIsMadeUpFor(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3", "a/r 3", "a/s 3", "a/t 3")
		g.rest()
		dead := &stale{Client: g.kube}
		if err := g.kube.List(t.Context(), &dead.list); err != nil {
			t.Fatal(err)
		}
		g.r.client = dead
		g.apply("a/p 4")
		<-time.After(defaultResync)
		g.rest()
		g.inForce("a/p=4 a/q=3 a/r=3 a/s=3 a/t=3")
		dead.list.Items = dead.list.Items[:4]
		<-time.After(defaultResync / 2) // no comparison is due, but for something being missed
		for range 3 {
			if _, err := g.once(); err != nil {
				t.Fatal(err)
			}
			<-time.After(defaultSettle)
		}
		g.inForce("a/p=4 a/q=3 a/r=3 a/s=3 a/t=3")
	})
}

// TestACacheThatLosesObjectsRemovesNothing: what is missed there is looked for at the API server before it is removed.
func TestACacheThatLosesObjectsRemovesNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		all := ten(g)
		dead := &stale{Client: g.kube}
		if err := g.kube.List(t.Context(), &dead.list); err != nil {
			t.Fatal(err)
		}
		dead.list.Items = dead.list.Items[1:]
		g.r.client = dead
		for range 3 { // within the resync time
			if _, err := g.once(); err != nil {
				t.Fatal(err)
			}
			<-time.After(defaultSettle)
		}
		g.inForce(all)
	})
}
