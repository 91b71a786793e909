package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	quorate "github.com/quorate/quorate/api/client"
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
		g.rest()
		g.want("a/p", "Accepted Pending 2@1.2 2/3")
		g.want("a/q", "Accepted Programmed 1@1.1 3/3") // the older set holds it too
		g.nodes.stuck[1], g.nodes.enforce[1] = false, g.nodes.version
		g.rest()
		g.want("a/p", "Accepted Programmed 2@1.2 3/3")

		g.nodes.cut[2] = true
		g.rest()
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
		g.nodes.enforce[0] = quorate.Version{Epoch: 1, Number: 2}
		g.nodes.take(policy.Set{}) // 1.2, which has nothing
		g.nodes.take(setOf(t, "a/p"))
		g.nodes.set.Domains = []policy.Domain{{Name: "shared", OnNoMatchAllow: true}} // 1.3, which is as it should be
		g.rest()
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
				if died = g.nodes.version == (quorate.Version{Epoch: 1, Number: 3}); died {
					return context.Canceled
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
		for range 2 { // it changes the set, and looks again
			_, err := g.once()
			died = died && err != nil
		}
		if !died {
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
		g.told()
		writes, applies := g.writes, g.nodes.applies
		g.rest()
		if told := g.told(); g.writes != writes || len(told) > 0 || g.nodes.applies == applies {
			t.Errorf("the nodes were asked %d times more; %d statuses written, told %q", g.nodes.applies-applies, g.writes-writes, told)
		}
		g.nodes.meanwhile = func() { g.nodes.away = true }
		if _, err := g.once(); err == nil {
			t.Error("no error")
		}
		g.nodes.away = false
		g.rest()
		if told := g.told(); g.writes != writes || len(told) > 0 {
			t.Errorf("after an apply that failed: %d statuses written, told %q", g.writes-writes, told)
		}
		g.nodes.gone = nil // forgotten
		g.rest()
		g.want("a/r", "Accepted Programmed 1@1.3 3/3")
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
			s.Quota, s.Limits = "other", limits(3)
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

// TestAPartitionThatIsBackSoonIsWaitedFor, as after an election: nothing turns.
func TestAPartitionThatIsBackSoonIsWaitedFor(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		writes := g.writes
		g.nodes.cut[1] = true
		for range 3 {
			result, err := g.once()
			if err != nil || result.RequeueAfter != soon {
				t.Fatalf("again after %v, %v", result.RequeueAfter, err)
			}
			<-time.After(result.RequeueAfter)
		}
		g.nodes.cut[1] = false
		g.rest()
		g.want("a/p", "Accepted Programmed 1@1.1 3/3")
		if g.writes != writes {
			t.Error("a status was written")
		}
		g.nodes.cut[1] = true
		g.rest()
		g.want("a/p", "Accepted Unreachable 1@1.1 2/3")
	})
}

// TestAChangeTellsOnlyWhomItConcerns: not all objects that a partition has no leader for the moment.
func TestAChangeTellsOnlyWhomItConcerns(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3", "a/q 3")
		g.rest()
		g.nodes.cut[1] = true
		writes := g.writes
		g.apply("a/p 4")
		if _, err := g.once(); err != nil {
			t.Fatal(err)
		}
		g.want("a/q", "Accepted Programmed 1@1.1 3/3")
		if g.writes != writes+1 {
			t.Errorf("%d statuses were written", g.writes-writes)
		}
		g.nodes.cut[1] = false
		g.rest()
		g.want("a/p", "Accepted Programmed 2@1.2 3/3")
	})
}

// TestNothingIsSaidOfASetThatIsOvertaken: another set came while a partition had yet to follow.
func TestNothingIsSaidOfASetThatIsOvertaken(t *testing.T) {
	in(t, func(t *testing.T, g *rig) {
		g.apply("a/p 3")
		g.rest()
		g.nodes.stuck[1] = true
		g.apply("a/p 4")
		for range 2 {
			if _, err := g.once(); err != nil {
				t.Fatal(err)
			}
		}
		g.want("a/p", "Accepted Pending 1@1.1 3/3") // as it was told before the set went out
		g.nodes.stuck[1] = false
		g.nodes.take(setOf(t, "a/p limit=99"))
		if _, err := g.once(); err != nil {
			t.Fatal(err)
		}
		g.want("a/p", "Accepted Pending 0@1.3 3/3") // nobody knows what that is
		g.rest()
		g.inForce("a/p=4")
		g.want("a/p", "Accepted Programmed 2@1.4 3/3")
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
