package issuer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/operator/issuer"
)

const day = 24 * time.Hour

var today = time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)

// wallClock is set by hand.
type wallClock struct{ passed atomic.Int64 }

func (c *wallClock) now() time.Time          { return today.Add(time.Duration(c.passed.Load())) }
func (c *wallClock) advance(d time.Duration) { c.passed.Add(int64(d)) }

// kubernetes is an API server in memory with the namespaces rate, media (labelled) and mail.
type kubernetes struct {
	t *testing.T
	client.WithWatch
	clock wallClock

	mu     sync.Mutex
	events []string
}

func newKubernetes(t *testing.T, objects ...client.Object) *kubernetes {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects = append(objects, namespace("rate", ""), namespace("media", "true"), namespace("mail", "yes"))
	return &kubernetes{t: t, WithWatch: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}

func namespace(name, gateway string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if gateway != "" {
		ns.Labels = map[string]string{"quorate.dev/gateway": gateway}
	}
	return ns
}

// Eventf is the recorder's.
func (k *kubernetes) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := about.(*corev1.Secret)
	k.events = append(k.events, fmt.Sprintf("%s %s %s/%s %s", kind, reason, s.Namespace, s.Name, fmt.Sprintf(note, args...)))
}

// heard returns the events since it was last asked.
func (k *kubernetes) heard() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.events
	k.events = nil
	return all
}

var errNotAllowed = errors.New("no such right")

// narrow lets an issuer do what its role allows, and fails the test for anything else. What is given in faults happens
// in its place.
func (k *kubernetes) narrow(faults interceptor.Funcs) (secrets client.Reader, rest client.Client) {
	no := func(what string, obj any) error {
		k.t.Errorf("%s %T is not in its role", what, obj)
		return errNotAllowed
	}
	inner := interceptor.NewClient(k.WithWatch, faults)
	forbid := interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
			return no("list", l)
		},
		DeleteAllOf: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteAllOfOption) error {
			return no("delete all", o)
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return no("patch", o)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetNamespace() == "rate" || o.GetName() != "quorate-gateway" {
				return no("delete "+o.GetName(), o)
			}
			return c.Delete(ctx, o, opts...)
		},
	}
	cached := forbid
	cached.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, isSecret := o.(*corev1.Secret); isSecret { // it would begin to watch all Secrets
			return no("get by a cache", o)
		}
		return c.Get(ctx, key, o, opts...)
	}
	return interceptor.NewClient(inner, forbid), interceptor.NewClient(inner, cached)
}

// operator returns an issuer for two nodes and the namespaces media and mail, and what to do with its configuration.
func (k *kubernetes) operator(faults interceptor.Funcs, edit ...func(*issuer.Config)) *issuer.Issuer {
	k.t.Helper()
	cfg := issuer.Config{
		Namespace: "rate", Prefix: "quorate", Nodes: []string{"n0", "n1"}, GatewayNamespaces: []string{"media", "mail"},
		Domains: map[string][]string{"media": {"video-api"}}, Now: k.clock.now,
	}
	for _, e := range edit {
		e(&cfg)
	}
	i, err := issuer.New(cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	secrets, rest := k.narrow(faults)
	i.Reach(secrets, rest, k)
	return i
}

// reconcile must succeed.
func (k *kubernetes) reconcile(i *issuer.Issuer) time.Duration {
	k.t.Helper()
	r, err := i.Reconcile(k.t.Context(), reconcile.Request{})
	if err != nil || r.RequeueAfter <= 0 {
		k.t.Fatalf("%+v, %v", r, err)
	}
	return r.RequeueAfter
}

func (k *kubernetes) secret(at string) *corev1.Secret {
	k.t.Helper()
	s := k.find(at)
	if s == nil {
		k.t.Fatalf("there is no Secret %s", at)
	}
	return s
}

// find returns a Secret, NAMESPACE/NAME, or nil.
func (k *kubernetes) find(at string) *corev1.Secret {
	k.t.Helper()
	ns, name, ok := cut(at)
	var s corev1.Secret
	err := k.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: name}, &s)
	if !ok || client.IgnoreNotFound(err) != nil {
		k.t.Fatal(at, err)
	}
	if err != nil {
		return nil
	}
	return &s
}

func cut(at string) (ns, name string, ok bool) {
	for i := range at {
		if at[i] == '/' {
			return at[:i], at[i+1:], true
		}
	}
	return "", "", false
}

// change edits an object that is there.
func (k *kubernetes) change(o client.Object, edit func()) {
	k.t.Helper()
	if err := k.Get(k.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		k.t.Fatal(err)
	}
	edit()
	if err := k.Update(k.t.Context(), o); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kubernetes) contents(at string) access.Contents {
	k.t.Helper()
	s := k.secret(at)
	return access.Contents{CA: string(s.Data["ca.crt"]), Cert: string(s.Data["tls.crt"]), Key: string(s.Data["tls.key"])}
}

// mounted is a process that has a Secret mounted: a keeper that sees it as it is now, at each reload.
func (k *kubernetes) mounted(at string) *access.Keeper {
	k.t.Helper()
	keeper, err := access.OpenFrom(func() (access.Contents, error) { return k.contents(at), nil }, k.clock.now)
	if err != nil {
		k.t.Fatalf("%s: %v", at, err)
	}
	return keeper
}

func (k *kubernetes) own(i *issuer.Issuer) *access.Keeper {
	k.t.Helper()
	keeper, err := i.Keeper(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	return keeper
}

// leaf is the certificate in a Secret, which its key fits.
func (k *kubernetes) leaf(at string) *x509.Certificate {
	k.t.Helper()
	s := k.secret(at)
	pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	if err != nil {
		k.t.Fatalf("%s: %v", at, err)
	}
	return pair.Leaf
}
