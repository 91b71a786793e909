package operator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/test/rig"
)

// world is an operator between the API server and nodes of its own.
type world struct {
	*apiServer
	t        *testing.T
	gate     *gate // between the operator and the API server
	nodes    *rig.Nodes
	operator *rig.Process
	security string // the line of its configuration
	command  []string
}

// turns are for the tests that mostly wait, for a lease to end or for nothing to happen: more of them at once than there
// are cores. Beside them runs what computes.
var turns = make(chan struct{}, 3)

// newWorld has no policy anywhere, nodes, and an operator that runs. The test goes on beside others from there, when it is its
// turn.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newEmptyWorld(t)
	w.found(rig.Shape{})
	w.begin()
	return w
}

// newEmptyWorld has nobody in it.
func newEmptyWorld(t *testing.T) *world {
	t.Helper()
	needsServer(t)
	inTurn(t)
	return newBareWorld(t)
}

// inTurn has the test go on beside others, when it is its turn.
func inTurn(t *testing.T) {
	t.Helper()
	t.Parallel()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

func needsServer(t *testing.T) {
	t.Helper()
	if os.Getenv(assets) == "" {
		t.Skip("needs an API server: " + assets + " is not set (make envtest)")
	}
}

// newBareWorld is one now, whoever's turn it is.
func newBareWorld(t *testing.T) *world {
	t.Helper()
	w := &world{apiServer: takeServer(t), t: t}
	w.clean()
	return w
}

// found founds the nodes.
func (w *world) found(s rig.Shape) {
	w.t.Helper()
	w.nodes = programs.Found(w.t, s)
	files := w.nodes.Files("policy-writer")
	w.security = fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}", files.CA, files.Cert, files.Key)
}

// clean leaves the API server as it was at first.
func (w *world) clean() {
	w.t.Helper()
	w.established()
	ctx := w.t.Context()
	var namespaces corev1.NamespaceList
	w.must(w.kube.List(ctx, &namespaces))
	for i := range namespaces.Items {
		in := client.InNamespace(namespaces.Items[i].Name)
		w.must(w.kube.DeleteAllOf(ctx, &v1alpha1.RateLimitPolicy{}, in))
		w.must(w.kube.DeleteAllOf(ctx, &eventsv1.Event{}, in))
	}
	for _, o := range []client.Object{&coordinationv1.Lease{}, &corev1.ConfigMap{}, &corev1.Secret{}} {
		w.must(w.kube.DeleteAllOf(ctx, o, client.InNamespace(system)))
	}
}

// established makes sure of the CRD.
func (w *world) established() {
	w.t.Helper()
	eventually(w.t, "the CRD", func() bool { return w.establish() == nil })
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// begin starts an operator of the world's nodes.
func (w *world) begin() {
	w.t.Helper()
	dir := w.t.TempDir()
	target := strings.TrimPrefix(w.env.ControlPlane.APIServer.SecureServing.URL("https", "").String(), "https://")
	w.gate = newGate(w.t, strings.TrimSuffix(target, "/"))
	config := filepath.Join(dir, "kubeconfig")
	rig.Write(w.t, config, strings.ReplaceAll(string(w.config), strings.TrimSuffix(target, "/"), w.gate.address))
	file := filepath.Join(dir, "operator.yaml")
	rig.Write(w.t, file, fmt.Sprintf("nodes: ['%s']\n%s\nnamespace: %s\nresync: 2s\n"+
		"metricsAddress: '127.0.0.1:0'\nhealthAddress: '127.0.0.1:0'\nallowedDomains: [{namespace: default, domains: [shop]}]\n",
		strings.Join(w.nodes.Addresses(), "', '"), w.security, system))
	w.command = []string{"env", "KUBECONFIG=" + config, filepath.Join(string(programs), "operator"), "run", "--config", file}
	w.operator = rig.Start(w.t, w.command...)
}

// end stops the operator in order, once it has come so far that it listens to signals.
func (w *world) end() {
	w.t.Helper()
	w.address("health")
	if status := w.operator.Terminate(w.t, syscall.SIGTERM); status != 0 {
		w.t.Errorf("the operator ended with %d", status)
	}
}

// patience bounds every wait. It is far longer than anything takes, as a leader's death does for half a minute: a machine
// with other work is no fault.
const patience = 10 * time.Minute

// lookEvery is how long a wait pauses between two looks.
const lookEvery = 50 * time.Millisecond

// eventually looks until done says so.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for end := time.After(patience); !done(); {
		select {
		case <-end:
			t.Fatalf("waited %v for %s", patience, what)
		case <-look.C:
		}
	}
}

// policy is an object: "name limit".
func policy(line string) *v1alpha1.RateLimitPolicy {
	name, amount, _ := strings.Cut(line, " ")
	o := &v1alpha1.RateLimitPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if namespace, rest, found := strings.Cut(name, "/"); found {
		o.Namespace, o.Name = namespace, rest
	}
	var n int64
	if _, err := fmt.Sscan(amount, &n); err != nil {
		panic(err)
	}
	o.Spec.Key = []v1alpha1.EntryName{"user"}
	o.Spec.Limits = []v1alpha1.Limit{{Name: "per-hour", RollingWindow: &v1alpha1.RollingWindow{Limit: n, Window: "1h"}}}
	return o
}

// apply creates objects, or changes their limits.
func (w *world) apply(lines ...string) {
	w.t.Helper()
	for _, line := range lines {
		o := policy(line)
		if o.Namespace != "default" {
			w.must(w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}}))
		}
		err := w.kube.Create(w.t.Context(), o)
		if apierrors.IsAlreadyExists(err) {
			err = w.change(line)
		}
		w.must(err)
	}
}

func (w *world) change(line string) error {
	o := policy(line)
	was := &v1alpha1.RateLimitPolicy{}
	if err := w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(o), was); err != nil {
		return err
	}
	patch := client.MergeFrom(was.DeepCopy())
	was.Spec = o.Spec
	return w.kube.Patch(w.t.Context(), was, patch)
}

func (w *world) get(at string) *v1alpha1.RateLimitPolicy {
	w.t.Helper()
	o := policy(at + " 0")
	w.must(w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

// says is what an object's status says of its newest generation: "Accepted Programmed 1 3/3"; "(old)": it says nothing.
func says(o *v1alpha1.RateLimitPolicy) string {
	var words []string
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionProgrammed} {
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		if c == nil || c.ObservedGeneration != o.Generation {
			return "(old)"
		}
		words = append(words, c.Reason)
	}
	if e := o.Status.Enforced; e != nil {
		words = append(words, fmt.Sprintf("%d %s", e.Generation, e.Partitions))
	}
	return strings.Join(words, " ")
}

func (w *world) await(at, want string) {
	w.t.Helper()
	got := ""
	defer func() {
		if got != want {
			w.t.Logf("%s: %s", at, got)
		}
	}()
	eventually(w.t, at+": "+want, func() bool {
		got = says(w.get(at))
		return got == want
	})
}

// inForce waits until the nodes have these policies, in order of their names: "default/p default/q".
func (w *world) inForce(want string) {
	w.t.Helper()
	eventually(w.t, "in force: "+want, func() bool { return w.listed() == want })
}

// listed are the policies that the nodes have, sorted.
func (w *world) listed() string {
	w.t.Helper()
	set := w.set()
	var names []string
	for _, p := range set.Policies {
		names = append(names, fmt.Sprintf("%s/%s=%d", p.Namespace, p.Name, p.Limits[0].Amount))
	}
	return sorted(names)
}
