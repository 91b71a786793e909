package operator_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/test/rig"
)

const (
	crdFile = "../../config/crd/quorate.dev_ratelimitpolicies.yaml"
	system  = "quorate-system"
	user    = "operator"
)

var programs rig.Programs

// api is the API server of this package, which the first test that needs it starts.
var api struct {
	once   sync.Once
	err    error
	server *apiServer
}

func TestMain(m *testing.M) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		os.Exit(m.Run())
	}
	os.Exit(rig.Run(func(p rig.Programs) int {
		programs = p
		code := m.Run()
		if api.server != nil {
			if err := api.server.env.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stop the API server:", err)
				code = 1
			}
		}
		return code
	}, "cmd/quotanode", "cmd/quotactl", "cmd/operator"))
}

// apiServer is a real one, with the CRD and the operator's rights.
type apiServer struct {
	env    *envtest.Environment
	kube   client.Client
	config []byte // a kubeconfig of the operator's user
}

func startServer() (_ *apiServer, err error) {
	s := &apiServer{env: &envtest.Environment{ControlPlaneStartTimeout: 3 * time.Minute, ControlPlaneStopTimeout: time.Minute}}
	cfg, err := s.env.Start()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.env.Stop() // what went wrong first is told
		}
	}()
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, rbacv1.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	if s.kube, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if err := s.create(append([]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}}, rights()...)...); err != nil {
		return nil, err
	}
	who, err := s.env.AddUser(envtest.User{Name: user}, nil)
	if err != nil {
		return nil, err
	}
	s.config, err = who.KubeConfig()
	return s, err
}

func (s *apiServer) create(objects ...client.Object) error {
	for _, o := range objects {
		if err := s.kube.Create(context.Background(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// rights are those that internal/operator asks for, and no more.
func rights() []client.Object {
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	named := func(r rbacv1.PolicyRule, name string) rbacv1.PolicyRule {
		r.ResourceNames = []string{name}
		return r
	}
	everywhere := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		rule("quorate.dev", "ratelimitpolicies", "get", "list", "watch"),
		rule("quorate.dev", "ratelimitpolicies/status", "patch"),
		rule("events.k8s.io", "events", "create", "patch"),
	}}
	at := metav1.ObjectMeta{Name: user, Namespace: system}
	own := &rbacv1.Role{ObjectMeta: at, Rules: []rbacv1.PolicyRule{
		rule("coordination.k8s.io", "leases", "create"),
		named(rule("coordination.k8s.io", "leases", "get", "update", "patch"), "quorate-operator"),
		rule("", "configmaps", "create"),
		named(rule("", "configmaps", "get", "list", "watch", "update", "patch", "delete"), "quorate-held-removal"),
	}}
	// And what internal/operator/issuer asks for.
	own.Rules = append(own.Rules, rule("", "secrets", "create"))
	for _, secret := range []string{"quorate-ca", "quorate-gateway", "quorate-node-n1", "quorate-node-n2", "quorate-node-n3"} {
		own.Rules = append(own.Rules, named(rule("", "secrets", "get", "update"), secret))
	}
	subjects := []rbacv1.Subject{{Kind: "User", Name: user}}
	return []client.Object{
		everywhere, own,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: user}},
		&rbacv1.RoleBinding{ObjectMeta: at, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: user}},
	}
}

// world is an operator between the API server and nodes of its own.
type world struct {
	*apiServer
	t        *testing.T
	gate     *gate // between the operator and the API server
	nodes    *rig.Nodes
	operator *rig.Process
	security string // the line of its configuration
}

// newWorld has no policy anywhere, nodes, and an operator that runs.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newEmptyWorld(t)
	w.nodes = programs.Found(t, rig.Shape{})
	files := w.nodes.Files("policy-writer")
	w.security = fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}", files.CA, files.Cert, files.Key)
	w.begin()
	return w
}

// newEmptyWorld has nobody in it.
func newEmptyWorld(t *testing.T) *world {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("needs an API server: KUBEBUILDER_ASSETS is not set (make envtest)")
	}
	api.once.Do(func() { api.server, api.err = startServer() })
	if api.err != nil {
		t.Fatal(api.err)
	}
	w := &world{apiServer: api.server, t: t}
	w.clean()
	return w
}

// clean leaves the API server as it was at first.
func (w *world) clean() {
	w.t.Helper()
	w.established()
	ctx := w.t.Context()
	var all v1alpha1.RateLimitPolicyList
	w.must(w.kube.List(ctx, &all))
	for i := range all.Items {
		w.must(client.IgnoreNotFound(w.kube.Delete(ctx, &all.Items[i])))
	}
	at := metav1.ObjectMeta{Namespace: system}
	for name, o := range map[string]client.Object{
		"quorate-operator": &coordinationv1.Lease{ObjectMeta: at}, "quorate-held-removal": &corev1.ConfigMap{ObjectMeta: at},
	} {
		o.SetName(name)
		w.must(client.IgnoreNotFound(w.kube.Delete(ctx, o)))
	}
}

// established makes sure of the CRD.
func (s *apiServer) establish() error {
	text, err := os.ReadFile(crdFile)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		return err
	}
	if err := s.create(crd); err != nil {
		return err
	}
	return s.kube.List(context.Background(), &v1alpha1.RateLimitPolicyList{})
}

func (w *world) established() {
	w.t.Helper()
	rig.Eventually(w.t, "the CRD", func() bool { return w.establish() == nil })
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// begin starts an operator.
func (w *world) begin() {
	w.t.Helper()
	w.operator = w.operate(w.apiServer)
}

// operate starts an operator of the world's nodes on an API server.
func (w *world) operate(s *apiServer) *rig.Process {
	w.t.Helper()
	dir := w.t.TempDir()
	target := strings.TrimPrefix(s.env.ControlPlane.APIServer.SecureServing.URL("https", "").String(), "https://")
	w.gate = newGate(w.t, strings.TrimSuffix(target, "/"))
	config := filepath.Join(dir, "kubeconfig")
	rig.Write(w.t, config, strings.ReplaceAll(string(s.config), strings.TrimSuffix(target, "/"), w.gate.address))
	w.t.Setenv("KUBECONFIG", config)
	file := filepath.Join(dir, "operator.yaml")
	rig.Write(w.t, file, fmt.Sprintf("nodes: ['%s']\n%s\nnamespace: %s\nresync: 2s\n"+
		"metricsAddress: '127.0.0.1:0'\nhealthAddress: '127.0.0.1:0'\nallowedDomains: [{namespace: default, domains: [shop]}]\n",
		strings.Join(w.nodes.Addresses(), "', '"), w.security, system))
	p := programs.Launch(w.t, "operator", "run", "--config", file)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("operator:\n%s", p.Stderr.End())
		}
	})
	return p
}

// end stops the operator in order, once it has come so far that it listens to signals.
func (w *world) end() {
	w.t.Helper()
	w.address("health")
	if status := w.operator.Terminate(w.t, syscall.SIGTERM); status != 0 {
		w.t.Errorf("the operator ended with %d", status)
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
	o.Spec.Limits = []v1alpha1.Limit{{Name: "per-minute", RollingWindow: &v1alpha1.RollingWindow{Limit: n, Window: "60s"}}}
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
	rig.Eventually(w.t, at+": "+want, func() bool {
		got = says(w.get(at))
		return got == want
	})
}

// inForce waits until the nodes have these policies, in order of their names: "default/p default/q".
func (w *world) inForce(want string) {
	w.t.Helper()
	rig.Eventually(w.t, "in force: "+want, func() bool { return w.listed() == want })
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
