package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/test/rig"
)

const threeAndNoMore = "ALLOW ALLOW ALLOW DENY"

// TestADeclaredPolicyIsEnforced, says so, and says what it is after a change; and the operator shows how it is.
func TestADeclaredPolicyIsEnforced(t *testing.T) {
	w := newWorld(t)
	w.apply("conversions 3")
	w.await("conversions", "Accepted Programmed 1 3/3")
	c := w.nodes.Client(t)
	eventually(t, "the client to be ready", c.Ready)
	if got := w.decisions(c, "default", "u1", 4); got != threeAndNoMore {
		t.Errorf("decisions %s", got)
	}
	w.apply("conversions 5")
	w.await("conversions", "Accepted Programmed 2 3/3")
	w.inForce("default/conversions=5")
	eventually(t, "an event", func() bool {
		var events eventsv1.EventList
		w.must(w.kube.List(t.Context(), &events, client.InNamespace("default")))
		for _, e := range events.Items {
			if e.Regarding.Name == "conversions" && e.Reason == v1alpha1.ReasonProgrammed {
				return true
			}
		}
		return false
	})
	if got := w.metric(`quorate_operator_policies{condition="Programmed",reason="Programmed"}`); got != 1 {
		t.Errorf("metric: %v are programmed", got)
	}
	response, err := http.Get("http://" + w.address("health") + "/readyz")
	w.must(err)
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("readyz: %d", response.StatusCode)
	}
	w.end()
}

// TestCRD01InvalidObjectsHoldUpNobody, and TestCRD04: of a good object that turns bad the good revision stays.
func TestCRD01InvalidObjectsHoldUpNobody(t *testing.T) {
	w := newWorld(t)
	want := "default/p0=9"
	w.apply("p0 3")
	for i := range 9 {
		w.apply(fmt.Sprintf("p%d 3", i+1))
		want += fmt.Sprintf(" default/p%d=3", i+1)
	}
	bad := policy("other/bad 3") // which only more than one object's schema can tell
	w.must(w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}))
	bad.Spec.Domain = "shop"
	w.must(w.kube.Create(t.Context(), bad))
	w.await("other/bad", "DomainNotAllowed NotAccepted")
	w.apply("p0 9")
	w.await("p0", "Accepted Programmed 2 3/3")
	w.inForce(want)
}

// TestCRD04ABadUpdateIsRefusedWhole: what only the reader can tell, as tiers that hide each other.
func TestCRD04ABadUpdateIsRefusedWhole(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3")
	w.await("p", "Accepted Programmed 1 3/3")
	o := w.get("p")
	patch := client.MergeFrom(o.DeepCopy())
	nine := int64(9)
	amounts := map[string]v1alpha1.Amount{"per-hour": {Limit: &nine}}
	o.Spec.Limits[0].RollingWindow.Limit = 7
	o.Spec.Tiers = []v1alpha1.Tier{{When: map[string]v1alpha1.EntryValue{"t": "a"}, Amounts: amounts}, {When: map[string]v1alpha1.EntryValue{"t": "a", "u": "b"}, Amounts: amounts}}
	w.must(w.kube.Patch(t.Context(), o, patch))
	w.await("p", "Invalid NotAccepted 1 3/3")
	w.inForce("default/p=3")
	c := meta.FindStatusCondition(w.get("p").Status.Conditions, v1alpha1.ConditionAccepted)
	if !strings.HasPrefix(c.Message, "spec.tiers[1]") {
		t.Errorf("message %q", c.Message)
	}
}

// TestCRD05TheServersRefusalIsInTheStatus: what nodes remember of a deleted quota nobody else knows.
func TestCRD05TheServersRefusalIsInTheStatus(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3", "q 3", "r 3", "s 3", "t 3")
	w.await("t", "Accepted Programmed 1 3/3")
	w.must(w.kube.Delete(t.Context(), policy("q 3")))
	w.inForce("default/p=3 default/r=3 default/s=3 default/t=3")
	again := policy("q 3")
	again.Spec.Key = []v1alpha1.EntryName{"tenant"}
	w.must(w.kube.Create(t.Context(), again))
	w.apply("p 4")
	w.await("q", "Refused NotAccepted")
	w.await("p", "Accepted Programmed 2 3/3")
	c := meta.FindStatusCondition(w.get("q").Status.Conditions, v1alpha1.ConditionAccepted)
	if !strings.Contains(c.Message, "spec.key: was [user] when a policy of this quota was deleted") {
		t.Errorf("message %q", c.Message)
	}
}

// TestCRD06DeletionsAreFollowed, also those that the operator didn't see.
func TestCRD06DeletionsAreFollowed(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3", "q 3", "r 3", "s 3", "t 3")
	w.await("t", "Accepted Programmed 1 3/3")
	w.end()
	w.must(w.kube.Delete(t.Context(), policy("q 3")))
	w.apply("u 3", "r 4")
	w.begin()
	w.inForce("default/p=3 default/r=4 default/s=3 default/t=3 default/u=3")
	w.await("u", "Accepted Programmed 1 3/3")
}

// TestCRD07WithoutAMajorityNothingIsProgrammed: one node away is no loss, two are, and back they are found.
func TestCRD07WithoutAMajorityNothingIsProgrammed(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3")
	w.await("p", "Accepted Programmed 1 3/3")
	w.nodes.Kill(t, "n2", "n3")
	w.await("p", "Accepted Unreachable 1 0/3")
	w.nodes.Begin(t, "n2", "n3")
	w.nodes.Ready(t, "n2", "n3")
	w.await("p", "Accepted Programmed 1 3/3")
}

// TestCRD10AndCRD09AnOldConditionSaysSo: while the operator is away conditions tell of an older generation; afterwards they move.
func TestCRD10AndCRD09AnOldConditionSaysSo(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3")
	w.await("p", "Accepted Programmed 1 3/3")
	w.end()
	o := w.get("p")
	patch := client.MergeFrom(o.DeepCopy())
	o.Spec.Mode = "Enforce" // which is the default: nothing that the nodes would have to know
	w.must(w.kube.Patch(t.Context(), o, patch))
	if got := says(w.get("p")); got != "(old)" {
		t.Errorf("with the operator away: %s", got)
	}
	w.begin()
	w.await("p", "Accepted Programmed 2 3/3")
	if o := w.get("p"); o.Status.ObservedGeneration != o.Generation {
		t.Errorf("observed %d, generation %d", o.Status.ObservedGeneration, o.Generation)
	}
}

// TestCRD13TwoOfOneQuotaComeToRest: nothing is written again and again.
func TestCRD13TwoOfOneQuotaComeToRest(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"old", "young"} {
		o := policy(name + " 3")
		o.Spec.Quota = "one"
		w.must(w.kube.Create(t.Context(), o))
	}
	w.await("old", "Accepted Programmed 1 3/3")
	w.await("young", "Conflicted NotAccepted")
	before := [2]string{w.get("old").ResourceVersion, w.get("young").ResourceVersion}
	w.resyncs(5)
	if after := [2]string{w.get("old").ResourceVersion, w.get("young").ResourceVersion}; after != before {
		t.Errorf("written again: %v, %v", before, after)
	}
	w.must(w.kube.Delete(t.Context(), policy("old 3")))
	w.await("young", "Accepted Programmed 1 3/3")
	w.inForce("default/young=3")
}

// TestCRD14ALeaderThatDiesIsFollowed: what was declared between the two is handled, deletions too.
func TestCRD14ALeaderThatDiesIsFollowed(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3", "q 3", "r 3", "s 3", "t 3")
	w.await("t", "Accepted Programmed 1 3/3")
	leader := w.operator
	w.begin() // a second one, which waits
	leader.Kill(t)
	w.apply("u 3", "p 4")
	w.must(w.kube.Delete(t.Context(), policy("q 3")))
	w.await("u", "Accepted Programmed 1 3/3")
	w.await("p", "Accepted Programmed 2 3/3")
	w.inForce("default/p=4 default/r=3 default/s=3 default/t=3 default/u=3")
}

// TestCRD16AnAPIServerThatIsAwayIsWaitedFor: decisions go on, the operator loses its lease and ends, whoever runs it begins it
// anew, and then it waits.
func TestCRD16AnAPIServerThatIsAwayIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3")
	w.await("p", "Accepted Programmed 1 3/3")
	c := w.nodes.Client(t)
	eventually(t, "the client to be ready", c.Ready)
	w.gate.close(true)
	w.apply("p 4")
	if status := w.operator.Wait(t); status != 1 || !strings.Contains(w.operator.Stderr.String(), "leader election lost") {
		t.Errorf("the operator ended with %d: %s", status, &w.operator.Stderr)
	}
	w.operator = rig.Start(t, w.command...)
	eventually(t, "the operator to ask for a lease", func() bool { return strings.Contains(w.operator.Stderr.String(), "lease lock") })
	if got := w.decisions(c, "default", "u1", 4); got != threeAndNoMore {
		t.Errorf("decisions %s", got)
	}
	w.inForce("default/p=3")
	w.gate.open()
	w.await("p", "Accepted Programmed 2 3/3")
	if !w.operator.Running() {
		t.Error("it didn't wait")
	}
}

// TestCRD19AWatchThatDiesIsMadeUpFor: connections that end, and ones that go silent.
func TestCRD19AWatchThatDiesIsMadeUpFor(t *testing.T) {
	w := newWorld(t)
	w.apply("p 3")
	w.await("p", "Accepted Programmed 1 3/3")
	w.gate.close(false)
	w.apply("p 4")
	w.await("p", "Accepted Programmed 2 3/3")
	if w.gate.deafen() == 0 {
		t.Fatal("there is no connection to make silent")
	}
	w.apply("p 5")
	w.await("p", "Accepted Programmed 3 3/3")
}

// TestNodesTakeTheCertificatesThatTheOperatorIssues, and the operator's own, which is in no Secret.
func TestNodesTakeTheCertificatesThatTheOperatorIssues(t *testing.T) {
	w := newEmptyWorld(t)
	w.nodes = programs.Prepare(t, rig.Shape{})
	w.security = "certificates: {nodes: [n1, n2, n3], prefix: quorate}"
	w.begin()
	for _, name := range rig.Names() {
		secret := &corev1.Secret{}
		eventually(t, "the certificate of "+name, func() bool {
			return w.kube.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "quorate-node-" + name}, secret) == nil
		})
		files := w.nodes.Files(name)
		for path, key := range map[string]string{files.CA: "ca.crt", files.Cert: "tls.crt", files.Key: "tls.key"} {
			rig.Write(t, path, string(secret.Data[key]))
		}
	}
	w.nodes.Begin(t, rig.Names()...)
	w.nodes.Ready(t, rig.Names()...)
	w.apply("p 3")
	w.await("p", "Accepted Programmed 1 3/3")
	w.end()
}

var five = []string{"p0 3", "p1 3", "p2 3", "p3 3", "p4 3"}

const allFive = "default/p0=3 default/p1=3 default/p2=3 default/p3=3 default/p4=3"

// holds waits until removals are held, and looks for some reconciles longer whether the set stays.
func (w *world) holds(set string, policies int) *corev1.ConfigMap {
	w.t.Helper()
	m := &corev1.ConfigMap{}
	eventually(w.t, "held removals", func() bool {
		err := w.kube.Get(w.t.Context(), client.ObjectKey{Namespace: system, Name: "quorate-held-removal"}, m)
		return err == nil && strings.Count(m.Data["policies"], "\n") == policies
	})
	w.resyncs(7) // 14 s, which is longer than a removal takes
	if got := w.listed(); got != set {
		w.t.Errorf("in force is %s, want %s", got, set)
	}
	return m
}

// TestACRDThatIsDeletedRemovesNothing, and declared again everything goes on.
func TestACRDThatIsDeletedRemovesNothing(t *testing.T) {
	w := newWorld(t)
	w.apply(five...)
	w.await("p4", "Accepted Programmed 1 3/3")
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ratelimitpolicies.quorate.dev"}}
	w.must(w.kube.Delete(t.Context(), crd))
	eventually(t, "the CRD to be gone", func() bool {
		return apierrors.IsNotFound(w.kube.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	})
	w.holds(allFive, 5)
	w.established()
	w.apply(five...)
	w.await("p4", "Accepted Programmed 1 3/3")
	w.inForce(allFive)
}

// TestANamespaceThatIsDeletedRemovesNothing: all its objects go, as the namespace's controller has them go.
func TestANamespaceThatIsDeletedRemovesNothing(t *testing.T) {
	w := newWorld(t)
	w.apply(five...)
	w.apply("team/q0 3", "team/q1 3")
	w.await("team/q1", "Accepted Programmed 1 3/3")
	w.must(w.kube.DeleteAllOf(t.Context(), &v1alpha1.RateLimitPolicy{}, client.InNamespace("team")))
	m := w.holds(allFive+" team/q0=3 team/q1=3", 2)
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, "quorate.dev/confirm-removal", m.Data["hash"])
	w.must(w.kube.Update(t.Context(), m))
	w.inForce(allFive)
	eventually(t, "the ConfigMap to go", func() bool {
		return w.kube.Get(t.Context(), client.ObjectKeyFromObject(m), m) != nil
	})
}

// TestRightsThatAreTakenAwayRemoveNothing, be it from an operator that runs or from one that starts.
func TestRightsThatAreTakenAwayRemoveNothing(t *testing.T) {
	w := newWorld(t)
	w.apply(five...)
	w.await("p4", "Accepted Programmed 1 3/3")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}}
	w.must(w.kube.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	rules := role.Rules
	role.Rules = rules[2:]
	w.must(w.kube.Update(t.Context(), role))
	t.Cleanup(func() { // the test's own context has ended then
		w.must(w.kube.Get(context.Background(), client.ObjectKeyFromObject(role), role))
		role.Rules = rules
		w.must(w.kube.Update(context.Background(), role))
	})
	w.gate.close(false) // its watch begins anew
	eventually(t, "the operator to be refused", func() bool { return strings.Contains(w.operator.Stderr.String(), "forbidden") })
	w.end()
	w.begin()
	eventually(t, "the other operator to be refused", func() bool { return strings.Contains(w.operator.Stderr.String(), "forbidden") })
	if got := w.listed(); got != allFive {
		t.Errorf("in force is %s", got)
	}
}

// TestAnotherAPIServersPoliciesRemoveNothing: the operator is pointed at a cluster that has a single policy.
func TestAnotherAPIServersPoliciesRemoveNothing(t *testing.T) {
	w := newWorld(t)
	w.apply(five...)
	w.await("p4", "Accepted Programmed 1 3/3")
	w.end()
	there := &world{apiServer: takeServer(t), t: t, nodes: w.nodes, security: w.security}
	there.clean()
	there.begin()
	there.holds(allFive, 5)
	there.apply("elsewhere/q 3")
	there.await("elsewhere/q", "Accepted Programmed 1 3/3")
	there.holds(allFive+" elsewhere/q=3", 5)
	there.end()
}

// TestAThousandPolicies with a hundred overrides each: an operator that starts puts them in force, and then one that is changed.
func TestAThousandPolicies(t *testing.T) {
	needsServer(t)
	t.Parallel() // it computes, and takes the longest: nobody's turn comes before it
	w := newBareWorld(t)
	w.found(rig.Shape{Election: 3 * time.Second}) // so much at once may hold a leader up on a slow machine
	const many = 1000
	next := make(chan int)
	var creating sync.WaitGroup
	for range 8 {
		creating.Go(func() {
			for i := range next {
				if err := w.kube.Create(t.Context(), withOverrides(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range many {
		next <- i
	}
	close(next)
	creating.Wait()
	begun := time.Now()
	w.begin()
	w.everyOneSays(many, "Accepted Programmed 1 3/3", "p500", "Accepted Programmed 1 3/3")
	all := time.Now()
	w.apply("p500 4")
	w.await("p500", "Accepted Programmed 2 3/3")
	one := time.Now()
	w.everyOneSays(many, "Accepted Programmed 1 3/3", "p500", "Accepted Programmed 2 3/3")
	t.Logf("%d policies with 100 overrides each, of %d bytes in all: programmed within %v of the operator's start; one changed: within %v",
		many, len(w.set().Canonical()), all.Sub(begun).Round(time.Second/10), one.Sub(all).Round(time.Second/10))
}

// everyOneSays waits until there are so many objects, and each says what is wanted of all, or of that one. All of them are
// looked at when the operator says that they are enforced, which costs less to ask.
func (w *world) everyOneSays(many int, wanted, one, wantedOfIt string) {
	w.t.Helper()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	eventually(w.t, fmt.Sprintf("%d policies that say %s", many, wanted), func() bool {
		<-look.C
		if w.metric(`quorate_operator_policies{condition="Programmed",reason="Programmed"}`) != float64(many) {
			return false
		}
		var all v1alpha1.RateLimitPolicyList
		w.must(w.kube.List(w.t.Context(), &all))
		for i := range all.Items {
			want := wanted
			if all.Items[i].Name == one {
				want = wantedOfIt
			}
			if says(&all.Items[i]) != want {
				return false
			}
		}
		return len(all.Items) == many
	})
}

func withOverrides(i int) *v1alpha1.RateLimitPolicy {
	o := policy(fmt.Sprintf("p%d 3", i))
	for j := range int64(100) {
		o.Spec.Overrides = append(o.Spec.Overrides, v1alpha1.Override{
			When:    map[string]v1alpha1.EntryValue{"user": v1alpha1.EntryValue(fmt.Sprint("u", j))},
			Amounts: map[string]v1alpha1.Amount{"per-hour": {Limit: &j}},
		})
	}
	return o
}
