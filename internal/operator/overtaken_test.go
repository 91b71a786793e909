package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	quorate "github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// TestWhatWasAppliedIsKnownThoughItsObjectChanges meanwhile: which generation is in force, and that it is this object's.
func TestWhatWasAppliedIsKnownThoughItsObjectChanges(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		g.rest()
		g.apply("a/p 4")
		g.nodes.meanwhile = func() { g.apply("a/p -1") }
		g.rest()
		g.want("a/p", "Invalid NotAccepted 2@1.2 3/3")
		g.apply("a/new 3")
		g.nodes.meanwhile = func() { g.edit("a/new", func(s *v1alpha1.RateLimitPolicySpec) { s.Quota = "other" }) }
		for range 5 {
			g.rest()
			<-time.After(time.Minute)
		}
		g.inForce("a/p=4 a/q=3 a/new=3")
		g.want("a/new", "NotSupported NotAccepted 1@1.3 3/3")
	})
}

// TestNoNodeIsBelievedThatIsBehindWhatWasSeen, also while no partition confirms anything.
func TestNoNodeIsBelievedThatIsBehindWhatWasSeen(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		for p := range uint32(partitions) {
			g.nodes.cut[p] = true
		}
		if _, err := g.once(); err != nil {
			t.Fatal(err)
		}
		if g.nodes.atLeast != g.nodes.version {
			t.Errorf("asked for version %v at least, and %v was seen in force", g.nodes.atLeast, g.nodes.version)
		}
	})
}

// TestStatusesComeThoughTheSetGoesOnChanging.
func TestStatusesComeThoughTheSetGoesOnChanging(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		g.rest()
		g.apply("a/p 4")
		for i := range maxActs + 1 {
			g.nodes.meanwhile = func() { g.apply(fmt.Sprintf("a/q %d", 10+i)) }
			if result, err := g.once(); err != nil || result.RequeueAfter != atOnce {
				t.Fatalf("again after %v, %v", result.RequeueAfter, err)
			}
		}
		g.want("a/p", "Accepted Programmed 2@1.2 3/3")
	})
}

// standstill is nodes before and behind whose answers something happens, once.
type standstill struct {
	Nodes
	before, behind func()
}

func once(hook *func()) {
	if run := *hook; run != nil {
		*hook = nil
		run()
	}
}

func (s *standstill) Enforced(ctx context.Context) (*quorate.Enforced, error) {
	once(&s.before)
	return s.Nodes.Enforced(ctx)
}

func (s *standstill) Policies(ctx context.Context, atLeast *quotav1.SetVersion) ([]byte, *quotav1.SetVersion, []*quotav1.PartitionVersion, error) {
	defer once(&s.behind)
	return s.Nodes.Policies(ctx, atLeast)
}

// TestAnOperatorThatStoodStillPutsNothingOldInForce: while it did, another one took over, and a limit was lowered.
func TestAnOperatorThatStoodStillPutsNothingOldInForce(t *testing.T) {
	for _, at := range []string{"before the nodes are asked", "behind that", "behind the list"} {
		in(t, func(t *testing.T, g *rig) {
			g.apply("a/p 3")
			g.rest()
			old, taken := g.r, false
			takeOver := func() {
				taken = true
				g.begin()
				g.apply("a/p 1")
				g.rest()
				g.inForce("a/p=1 a/q=7")
			}
			s, list := &standstill{Nodes: g.nodes}, (func())(nil)
			switch at {
			case "before the nodes are asked":
				s.before = takeOver
			case "behind that":
				s.behind = takeOver
			default:
				list = takeOver
			}
			old.cfg.Nodes = of(s)
			old.client = interceptor.NewClient(g.kube, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					defer once(&list)
					return c.List(ctx, l, opts...)
				},
			})
			g.apply("a/q 7") // it has something to put in force
			_, err := old.Reconcile(t.Context(), reconcile.Request{})
			if !taken || !strings.HasPrefix(g.nodes.limits(), "a/p=1") {
				t.Errorf("%s: taken over %t, in force is %s, %v", at, taken, g.nodes.limits(), err)
			}
		})
	}
}

// TestASetThatSomebodyElseAppliedIsPutRight at the next resync, or at once if it comes in between.
func TestASetThatSomebodyElseAppliedIsPutRight(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		g.rest()
		g.nodes.take(setOf(t, "a/p limit=99", "a/q"))
		g.rest()
		g.inForce("a/p=3 a/q=3")
		g.apply("a/p 4")
		g.nodes.meanwhile = func() { g.nodes.take(setOf(t, "a/p limit=98", "a/q")) }
		if _, err := g.once(); err == nil {
			t.Error("a set went in the place of one that nobody had seen")
		}
		g.inForce("a/p=98 a/q=3")
		g.rest()
		g.inForce("a/p=4 a/q=3")
	})
}
