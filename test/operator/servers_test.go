package operator_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/test/rig"
)

const (
	crdFile = "../../config/crd/quorate.dev_ratelimitpolicies.yaml"
	system  = "quorate-system"
	user    = "operator"
	// assets is the variable that names the folder of an API server's programs.
	assets = "KUBEBUILDER_ASSETS"
)

var programs rig.Programs

// servers are the API servers of this package. An operator looks at all that its API server has, so each test has one
// for itself; where all are taken another is started, which makes as many as there are tests at once.
var servers struct {
	mu   sync.Mutex
	all  []*apiServer
	free []*apiServer
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // the operators are processes, and say for themselves what happens
	if os.Getenv(assets) == "" {
		os.Exit(m.Run())
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil { // turns bound how many there are at once
		panic(err)
	}
	os.Exit(rig.Run(func(p rig.Programs) int {
		programs = p
		code := m.Run()
		if err := stopServers(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API servers:", err)
			code = 1
		}
		return code
	}, "cmd/quotanode", "cmd/quotactl", "cmd/operator"))
}

// stopServers stops all at once, as each takes its time.
func stopServers() error {
	errs := make([]error, len(servers.all))
	var stopping sync.WaitGroup
	for i, s := range servers.all {
		stopping.Go(func() { errs[i] = s.env.Stop() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// apiServer is a real one, with the CRD and the operator's rights.
type apiServer struct {
	env    *envtest.Environment
	kube   client.Client
	config []byte // a kubeconfig of the operator's user
}

// takeServer returns an API server that nobody else uses while the test runs.
func takeServer(t *testing.T) *apiServer {
	t.Helper()
	s := freeServer()
	if s == nil {
		var err error
		if s, err = startServer(); err != nil {
			t.Fatal(err)
		}
		servers.mu.Lock()
		servers.all = append(servers.all, s)
		servers.mu.Unlock()
	}
	t.Cleanup(func() {
		servers.mu.Lock()
		defer servers.mu.Unlock()
		servers.free = append(servers.free, s)
	})
	return s
}

// freeServer takes one that another test had; nil: there is none.
func freeServer() *apiServer {
	servers.mu.Lock()
	defer servers.mu.Unlock()
	n := len(servers.free)
	if n == 0 {
		return nil
	}
	s := servers.free[n-1]
	servers.free = servers.free[:n-1]
	return s
}

func startServer() (_ *apiServer, err error) {
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if _, err := exec.LookPath(filepath.Join(os.Getenv(assets), program)); err != nil {
			return nil, fmt.Errorf("%w: `tools/kube/build.sh control` builds it, as `make envtest` does", err)
		}
	}
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

// establish makes sure of the CRD.
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
	return s.kube.List(context.Background(), &v1alpha1.RateLimitPolicyList{}, client.Limit(1))
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
