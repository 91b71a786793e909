package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/internal/policy"
)

// in runs a test in time of its own, with a rig.
func in(t *testing.T, test func(*testing.T, *rig)) {
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) })
}

func TestAPolicyIsPutInForceAndSaysSo(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "b/q 5")
		g.rest()
		g.inForce("a/p=3 b/q=5")
		g.want("a/p", "Accepted Programmed 1@1.1 3/3")
		g.want("b/q", "Accepted Programmed 1@1.1 3/3")
		g.apply("b/q 6")
		g.rest()
		g.inForce("a/p=3 b/q=6")
		g.want("a/p", "Accepted Programmed 1@1.1 3/3") // as it was: nothing of it has changed
		g.want("b/q", "Accepted Programmed 2@1.2 3/3")
		if len(g.nodes.set.Domains) != 1 || !g.nodes.set.Domains[0].OnNoMatchAllow {
			t.Errorf("domains %+v", g.nodes.set.Domains)
		}
	})
}

// TestProgrammedMeansEveryPartition: with one cut off, or one that doesn't follow, it stays False; what it held before
// is still said.
func TestProgrammedMeansEveryPartition(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		g.rest()
		g.nodes.stuck[1] = true
		g.apply("a/p 4")
		if _, err := g.once(); err != nil {
			t.Fatal(err)
		}
		g.want("a/p", "Accepted Pending 2@1.2 2/3")
		g.want("a/q", "Accepted Programmed 1@1.1 3/3") // the older set holds it too
		g.nodes.stuck[1], g.nodes.enforce[1] = false, g.nodes.version
		g.rest()
		g.want("a/p", "Accepted Programmed 2@1.2 3/3")

		g.nodes.cut[2] = true
		if _, err := g.once(); err != nil {
			t.Fatal(err)
		}
		g.want("a/p", "Accepted Unreachable 2@1.2 2/3")
		g.want("a/q", "Accepted Unreachable 1@1.1 2/3")
		if got := g.message("a/p", v1alpha1.ConditionProgrammed); got != "2/3 partitions enforce this revision; no leader is confirmed of 2" {
			t.Error(got)
		}
		g.nodes.cut[2] = false
		g.rest()
		g.want("a/q", "Accepted Programmed 1@1.1 3/3")
	})
}

// TestAPartitionAtAVersionThatNobodyHasSeenCountsForNothing: sets that others applied in between may lack the policy.
func TestAPartitionAtAVersionThatNobodyHasSeenCountsForNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		g.nodes.stuck[0] = true
		g.nodes.enforce[0] = version{1, 2}
		g.nodes.take(policy.Set{}) // 1.2, which has nothing
		g.nodes.take(setOf(t, "a/p"))
		g.nodes.set.Domains = []policy.Domain{{Name: "shared", OnNoMatchAllow: true}} // 1.3, which is as it should be
		if _, err := g.once(); err != nil {
			t.Fatal(err)
		}
		g.want("a/p", "Accepted Pending 1@1.1 2/3")
	})
}

// TestCRD01AnInvalidObjectHoldsUpNobody.
func TestCRD01AnInvalidObjectHoldsUpNobody(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		want := ""
		for i := range 10 {
			g.apply(fmt.Sprintf("a/p%d 3", i))
			want += fmt.Sprintf(" a/p%d=3", i)
		}
		g.apply("b/broken -1")
		g.rest()
		g.inForce(strings.TrimSpace(want))
		g.want("b/broken", "Invalid NotAccepted")
		g.apply("a/p4 9")
		g.rest()
		g.inForce(strings.TrimSpace(strings.Replace(want, "a/p4=3", "a/p4=9", 1)))
		g.want("a/p4", "Accepted Programmed 2@1.2 3/3")
	})
}

// TestCRD04ABadPartRefusesTheWhole, and the last good revision stays; status and event say so.
func TestCRD04ABadPartRefusesTheWhole(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		g.told()
		g.edit("a/p", func(s *v1alpha1.RateLimitPolicySpec) {
			s.Limits[0].RollingWindow.Limit = 9
			s.Limits = append(s.Limits, v1alpha1.Limit{Name: "m", FixedWindow: &v1alpha1.Window{Limit: 1, Window: "1d"}})
		})
		g.rest()
		g.inForce("a/p=3")
		g.want("a/p", "Invalid NotAccepted 1@1.1 3/3")
		if got := g.message("a/p", v1alpha1.ConditionAccepted); got != `spec.limits[1].fixedWindow.window: "1d" is not a duration; write 24h` {
			t.Error(got)
		}
		if got := g.message("a/p", v1alpha1.ConditionProgrammed); got != "this revision is not accepted; generation 1 stays enforced" {
			t.Error(got)
		}
		if told := g.told(); !slices.ContainsFunc(told, func(e string) bool { return strings.HasPrefix(e, "Warning Invalid spec.limits[1]") }) {
			t.Errorf("events %q", told)
		}
	})
}

// TestTheGenerationThatStaysIsKnownAfterARestart, also where the object was broken while the operator was away, and where the
// operator died between putting a revision in force and saying so it says that it doesn't know.
func TestTheGenerationThatStaysIsKnownAfterARestart(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		g.rest()
		g.apply("a/p 4", "a/q 7")
		g.rest()
		g.apply("a/p -1")
		g.begin()
		g.rest()
		g.want("a/p", "Invalid NotAccepted 2@1.2 3/3")
		g.begin()
		g.rest()
		g.want("a/p", "Invalid NotAccepted 2@1.2 3/3")

		g.apply("a/q 8")
		died := false
		g.r.client = interceptor.NewClient(g.kube, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if died = g.nodes.version == (version{1, 3}); died {
					return context.Canceled
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
		if _, err := g.once(); err == nil || !died {
			t.Fatal("the operator didn't die after the set came into force")
		}
		g.inForce("a/p=4 a/q=8")
		g.apply("a/q -1")
		g.begin()
		g.rest()
		g.inForce("a/p=4 a/q=8")
		g.want("a/q", "Invalid NotAccepted 0@1.3 3/3")
	})
}

// TestCRD05WhatNodesRefuseComesBackIntoTheStatus, and the rest is applied.
func TestCRD05WhatNodesRefuseComesBackIntoTheStatus(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		tomb := policyOf(t, "a/r key=tenant")
		g.nodes.gone = []policy.Tombstone{{Frame: tomb.Frame()}}
		g.rest()
		g.apply("a/r 3", "a/p 5")
		g.rest()
		g.inForce("a/p=5 a/q=3")
		g.want("a/r", "Refused NotAccepted")
		if got := g.message("a/r", v1alpha1.ConditionAccepted); !strings.HasPrefix(got, "spec.key: was [tenant] when a policy of this quota was deleted") {
			t.Error(got)
		}
		g.want("a/p", "Accepted Programmed 2@1.2 3/3")
	})
}

// TestCRD05EveryAnswerIsTheServers: a change that this version can't make is refused by the rule that nodes have.
func TestCRD05EveryAnswerIsTheServers(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		g.edit("a/p", func(s *v1alpha1.RateLimitPolicySpec) { s.Limits[0].RollingWindow.Window = "2m" })
		g.rest()
		g.want("a/p", "NotSupported NotAccepted 1@1.1 3/3")
		if got := g.message("a/p", v1alpha1.ConditionAccepted); !strings.HasPrefix(got, "spec.limits[0].rollingWindow.window: can't be changed from 1m0s to 2m0s yet") {
			t.Error(got)
		}
		g.edit("a/p", func(s *v1alpha1.RateLimitPolicySpec) {
			s.Limits[0].RollingWindow.Window, s.Mode = "1m", "Shadow"
		})
		g.rest()
		g.want("a/p", "NotSupported NotAccepted 1@1.1 3/3")
		if got := g.message("a/p", v1alpha1.ConditionAccepted); got != "spec.mode: Shadow is not supported yet" {
			t.Error(got)
		}
	})
}

// TestCRD06WhatIsDeletedIsRemoved, in any order, and while the operator is away.
func TestCRD06WhatIsDeletedIsRemoved(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		for i := range 10 {
			g.apply(fmt.Sprintf("a/p%d 3", i))
		}
		g.rest()
		g.remove("a/p3")
		g.rest()
		g.remove("a/p0")
		g.begin()
		g.rest()
		g.remove("a/p9")
		g.apply("a/p9 5") // another object in its place
		g.begin()
		g.rest()
		g.inForce("a/p1=3 a/p2=3 a/p4=3 a/p5=3 a/p6=3 a/p7=3 a/p8=3 a/p9=5")
		g.remove("a/p9")
		g.edit("a/p9", func(s *v1alpha1.RateLimitPolicySpec) { // another quota under its name
			s.Quota, s.Limits = "other", g.object("a/p1").Spec.Limits
		})
		g.rest()
		g.inForce("a/p1=3 a/p2=3 a/p4=3 a/p5=3 a/p6=3 a/p7=3 a/p8=3 a/p9=3")
		g.want("a/p9", "Accepted Programmed 1@1.6 3/3")
		if g.nodes.set.Policies[7].Quota != "other" {
			t.Errorf("quota %q", g.nodes.set.Policies[7].Quota)
		}
	})
}

// TestCRD07WithoutNodesNothingIsProgrammed.
func TestCRD07WithoutNodesNothingIsProgrammed(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		g.nodes.away = true
		g.apply("a/new 3", "a/broken -1")
		if _, err := g.once(); err == nil {
			t.Error("no error")
		}
		g.want("a/p", "Accepted Unreachable 1@1.1 0/3")
		g.want("a/new", "Accepted Unreachable")
		g.want("a/broken", "Invalid Unreachable")
		g.nodes.away = false
		g.rest()
		g.want("a/p", "Accepted Programmed 1@1.1 3/3")
		g.want("a/new", "Accepted Programmed 1@1.2 3/3")
	})
}

// TestCRD08NothingIsSaidOfTraffic: a policy that no request ever matches is enforced by so many partitions, and that is all.
func TestCRD08NothingIsSaidOfTraffic(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.edit("a/p", func(s *v1alpha1.RateLimitPolicySpec) { s.Match = v1alpha1.Entries{"never": "sent"} })
		g.rest()
		g.want("a/p", "Accepted Programmed 2@1.1 3/3")
		if got := g.message("a/p", v1alpha1.ConditionProgrammed); got != "the leader of every partition, confirmed by a majority, enforces this revision" {
			t.Error(got)
		}
	})
}

// TestCRD09EveryGenerationIsObserved, also one that needs no work.
func TestCRD09EveryGenerationIsObserved(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		before := g.nodes.applies
		g.told()
		g.edit("a/p", func(s *v1alpha1.RateLimitPolicySpec) { s.Domain = "a" }) // which is the default
		g.rest()
		g.want("a/p", "Accepted Programmed 2@1.1 3/3")
		if told := g.told(); g.nodes.applies != before || len(told) > 0 {
			t.Errorf("the nodes were bothered, or people were, with %q", told)
		}
	})
}

// TestCRD10AnOldConditionSaysOfWhatItIs: with the operator away conditions keep the generation that they are about.
func TestCRD10AnOldConditionSaysOfWhatItIs(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		g.apply("a/p 4")
		g.want("a/p", "(old) Accepted (old) Programmed 1@1.1 3/3")
		g.rest()
		g.want("a/p", "Accepted Programmed 2@1.2 3/3")
	})
}

// TestCRD13ConflictsDoNotFlap: of two objects that want one quota the older has it, for as long as it is there, and nothing is
// written again and again.
func TestCRD13ConflictsDoNotFlap(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		for _, at := range []string{"a/old", "a/young"} {
			g.edit(at, func(s *v1alpha1.RateLimitPolicySpec) {
				s.Quota = "shared"
				s.Limits = []v1alpha1.Limit{{Name: "l", FixedWindow: &v1alpha1.Window{Limit: 3, Window: "1m"}}}
			})
		}
		g.rest()
		g.want("a/old", "Accepted Programmed 1@1.1 3/3")
		g.want("a/young", "Conflicted NotAccepted")
		if got := g.message("a/young", v1alpha1.ConditionAccepted); !strings.Contains(got, `"shared" is the quota of a/old, which is older`) {
			t.Error(got)
		}
		writes, applies := g.writes, g.nodes.applies
		g.told()
		for range 10 { // minutes
			g.rest()
			<-time.After(time.Minute)
		}
		if g.writes != writes || g.nodes.applies != applies || len(g.told()) > 0 {
			t.Errorf("%d statuses and %d sets were written, with nothing new", g.writes-writes, g.nodes.applies-applies)
		}
		g.remove("a/old")
		g.rest()
		g.inForce("a/young=3")
		g.want("a/young", "Accepted Programmed 1@1.2 3/3")
	})
}

// TestCRD14WhatHappensWithoutALeaderIsHandled by the next one: creations, changes, deletions.
func TestCRD14WhatHappensWithoutALeaderIsHandled(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3", "a/r 3", "a/s 3", "a/t 3")
		g.rest()
		g.apply("a/p 4", "a/u 3")
		g.remove("a/q")
		g.begin()
		g.rest()
		g.inForce("a/p=4 a/r=3 a/s=3 a/t=3 a/u=3")
		g.want("a/u", "Accepted Programmed 1@1.2 3/3")
	})
}

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
	list v1alpha1.RateLimitPolicyList
}

func (s *stale) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.list.DeepCopyInto(list.(*v1alpha1.RateLimitPolicyList))
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

// TestAPartitionThatIsBackSoonIsWaitedFor, as after an election: nothing turns.
func TestAPartitionThatIsBackSoonIsWaitedFor(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		writes := g.writes
		g.nodes.cut[1] = true
		time.AfterFunc(3*time.Second, func() {
			g.nodes.mu.Lock()
			defer g.nodes.mu.Unlock()
			g.nodes.cut[1] = false
		})
		if _, err := g.once(); err != nil {
			t.Fatal(err)
		}
		g.want("a/p", "Accepted Programmed 1@1.1 3/3")
		if g.writes != writes {
			t.Error("a status was written")
		}
	})
}

// TestAReconcileThatIsOvertakenSaysNothing: another set came while it waited for the last partition.
func TestAReconcileThatIsOvertakenSaysNothing(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		g.nodes.stuck[1] = true
		g.apply("a/p 4")
		time.AfterFunc(3*time.Second, func() {
			g.nodes.mu.Lock()
			defer g.nodes.mu.Unlock()
			g.nodes.stuck[1] = false
			g.nodes.take(setOf(t, "a/p limit=99"))
		})
		if _, err := g.once(); !errors.Is(err, errOvertaken) {
			t.Fatalf("error %v", err)
		}
		g.want("a/p", "Accepted Pending 1@1.1 3/3") // as it was told before the set went out
		g.rest()
		g.inForce("a/p=4")
		g.want("a/p", "Accepted Programmed 2@1.4 3/3")
	})
}

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
		g.r.client, g.r.direct = &stale{Client: g.kube}, interceptor.NewClient(g.kube, interceptor.Funcs{
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

// TestADomainOfOthersTakesPermission.
func TestADomainOfOthersTakesPermission(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "b/p 3")
		for _, at := range []string{"a/p", "b/p"} {
			g.edit(at, func(s *v1alpha1.RateLimitPolicySpec) { s.Domain = "shared" })
		}
		g.rest()
		g.inForce("a/p=3")
		g.want("b/p", "DomainNotAllowed NotAccepted")
	})
}

// TestMET02ObjectsLeaveNoMetricsBehind.
func TestMET02ObjectsLeaveNoMetricsBehind(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/first 3")
		g.rest()
		base := g.series()
		for i := range 100 {
			g.apply(fmt.Sprintf("a/p%d %d", i, 3-4*(i%2)))
		}
		g.rest()
		if got := g.metric("quorate_operator_policies", "Accepted", "Invalid"); got != 50 {
			t.Errorf("%v invalid ones are counted", got)
		}
		for i := range 100 {
			g.remove(fmt.Sprintf("a/p%d", i))
		}
		g.rest()
		if got := g.series(); got != base {
			t.Errorf("%d series, before the objects there were %d", got, base)
		}
	})
}

// TestYAMLHasNoSayInWhatAnObjectSays: text that JSON and YAML read differently comes through as it is.
func TestYAMLHasNoSayInWhatAnObjectSays(t *testing.T) {
	for _, value := range []string{"a", "null", "true", "1", "~", "é", "日本", "😀", "a: b # c", `\u0041 "x"`, "<&>", "a\u00a0b", "\ufffd"} {
		o := &v1alpha1.RateLimitPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
		o.Spec.Match = v1alpha1.Entries{"e": v1alpha1.EntryValue(value)}
		o.Spec.Key = []v1alpha1.EntryName{"user"}
		o.Spec.Limits = []v1alpha1.Limit{{Name: "l", FixedWindow: &v1alpha1.Window{Limit: 1, Window: "1m"}}}
		r := read(o)
		if r.fault != nil {
			t.Errorf("%q: %s", value, r.fault.message)
		} else if got := r.policy.Match[0].Value; got != value {
			t.Errorf("%q is read as %q", value, got)
		}
	}
}

// TestCRD03DurationForms: the operator's answer is the policy file's.
func TestCRD03DurationForms(t *testing.T) {
	for form, fine := range map[string]bool{
		"0s": false, "-5s": false, "1.5h": true, "100ms": true, "1d": false, "60": false, "": false, "1m 30s": false, "9999999h": false, "1h30m": true,
	} {
		o := &v1alpha1.RateLimitPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
		o.Spec.Key = []v1alpha1.EntryName{"user"}
		o.Spec.Limits = []v1alpha1.Limit{{Name: "l", FixedWindow: &v1alpha1.Window{Limit: 1, Window: v1alpha1.Duration(form)}}}
		switch r := read(o); {
		case fine != (r.fault == nil):
			t.Errorf("%q: %+v", form, r.fault)
		case !fine && (r.fault.reason != v1alpha1.ReasonInvalid || !strings.HasPrefix(r.fault.message, "spec.limits[0].fixedWindow.window: ")):
			t.Errorf("%q: %+v", form, r.fault)
		}
	}
}

// TestMessagesAreBounded: an event has room for 1 KiB, and takes nothing longer.
func TestMessagesAreBounded(t *testing.T) {
	o := &v1alpha1.RateLimitPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
	for i := range 16 {
		o.Spec.Limits = append(o.Spec.Limits, v1alpha1.Limit{Name: v1alpha1.Name(fmt.Sprint("l", i)), FixedWindow: &v1alpha1.Window{Window: "1d"}})
	}
	long := read(o).fault.message
	o.Spec.Limits[0].Name = v1alpha1.Name(strings.Repeat("é", 5000))
	for _, message := range []string{long, read(o).fault.message} {
		if len(message) > 1000 || !strings.Contains(message, " more") && !strings.HasSuffix(message, "...") {
			t.Errorf("%d bytes: %s", len(message), message)
		}
	}
}
