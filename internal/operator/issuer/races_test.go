package issuer_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/operator/issuer"
)

const caSecret = "rate/quorate-ca"

func isCA(o client.Object) bool {
	_, isSecret := o.(*corev1.Secret)
	return isSecret && o.GetNamespace()+"/"+o.GetName() == caSecret
}

// mustAgree proves that all Secrets are of the one CA that there is, and that the operators' own certificates are.
func (k *kubernetes) mustAgree(operators ...*issuer.Issuer) {
	k.t.Helper()
	ca := k.leaf(caSecret)
	for _, at := range allSecrets[1:] {
		if err := k.leaf(at).CheckSignatureFrom(ca); err != nil {
			k.t.Errorf("%s: %v", at, err)
		}
		if !bytes.Equal(k.secret(at).Data["ca.crt"], k.secret(caSecret).Data["tls.crt"]) {
			k.t.Errorf("%s trusts another CA", at)
		}
	}
	n0 := k.mounted("rate/quorate-node-n0")
	for _, i := range operators {
		if _, err := connect(k.t, n0.ServerTLS(), k.own(i).ClientTLS(nil)); err != nil {
			k.t.Errorf("an operator's own: %v", err)
		}
	}
}

// TestTwoOperatorsMakeOneCA: the second has seen that there is none, and then the first one makes it and everything
// else. The second takes what it finds.
func TestTwoOperatorsMakeOneCA(t *testing.T) {
	k := newKubernetes(t)
	first := k.operator(interceptor.Funcs{})
	late := 0
	second := k.operator(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if isCA(o) {
				late++
				k.reconcile(first)
			}
			return c.Create(ctx, o, opts...)
		},
	})
	k.reconcile(second)
	if late != 1 {
		t.Fatalf("it tried %d times", late)
	}
	k.mustAgree(first, second)
	for _, at := range allSecrets {
		if v := k.secret(at).ResourceVersion; v != "1" {
			t.Errorf("%s was written %s times", at, v)
		}
	}
}

// TestManyOperatorsAtOnceMakeOneCA, with nobody to order them.
func TestManyOperatorsAtOnceMakeOneCA(t *testing.T) {
	k := newKubernetes(t)
	var made atomic.Int64
	var all []*issuer.Issuer
	for range 5 {
		all = append(all, k.operator(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				err := c.Create(ctx, o, opts...)
				if err == nil && isCA(o) {
					made.Add(1)
				}
				return err
			},
		}))
	}
	var wg sync.WaitGroup
	for _, i := range all {
		wg.Go(func() {
			if _, err := i.Reconcile(t.Context(), reconcile.Request{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("%d CAs were made", made.Load())
	}
	k.mustAgree(all...)
}

// TestAStaleViewMakesNoSecondCA: reads that have seen nothing yet, or everything but the CA.
func TestAStaleViewMakesNoSecondCA(t *testing.T) {
	for what, blind := range map[string]func(client.Object) bool{
		"nothing is seen": func(o client.Object) bool { _, isSecret := o.(*corev1.Secret); return isSecret }, "the CA isn't seen": isCA,
	} {
		k := newKubernetes(t)
		k.reconcile(k.operator(interceptor.Funcs{}))
		before := k.contents(caSecret)
		stale := true
		i := k.operator(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				o.SetNamespace(key.Namespace)
				o.SetName(key.Name)
				if stale && blind(o) {
					return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		for range 3 { // it may say what it likes
			_, _ = i.Reconcile(t.Context(), reconcile.Request{})
		}
		if k.contents(caSecret) != before {
			t.Errorf("%s: there is another CA", what)
		}
		stale = false
		k.reconcile(i)
		k.mustAgree(i)
	}
}

// TestACAThatIsGoneIsNotMadeAnew while nodes stand on it; once theirs are gone too, everything is.
func TestACAThatIsGoneIsNotMadeAnew(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{})
	k.reconcile(i)
	was := k.contents("rate/quorate-node-n0")
	lose := func(at string) {
		t.Helper()
		if err := k.Delete(t.Context(), k.secret(at)); err != nil {
			t.Fatal(err)
		}
	}
	lose(caSecret)
	k.heard()
	k.reconcile(i)
	heard := k.heard()
	if k.find(caSecret) != nil || k.contents("rate/quorate-node-n0") != was || len(heard) != 1 || !strings.HasPrefix(heard[0], "Warning CAGone "+caSecret) {
		t.Fatalf("heard %q", heard)
	}
	lose("rate/quorate-node-n0")
	lose("rate/quorate-node-n1")
	k.reconcile(i)
	k.mustAgree(i)
}

// TestALostWriteIsLookedAtAgain: what somebody changes between a look and a write is not overwritten.
func TestALostWriteIsLookedAtAgain(t *testing.T) {
	k := newKubernetes(t)
	k.reconcile(k.operator(interceptor.Funcs{}))
	k.clock.advance(60 * day)
	meddled := false
	i := k.operator(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if o.GetName() == "quorate-node-n0" && !meddled {
				meddled = true
				s := k.secret("rate/quorate-node-n0")
				k.change(s, func() { s.Labels = nil }) // it is somebody's now
			}
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			s := k.secret("media/quorate-gateway")
			k.change(s, func() { s.Labels = nil })
			return c.Delete(ctx, o, opts...)
		},
	})
	k.heard()
	media := namespace("media", "")
	k.change(media, func() { media.Labels = nil })
	k.reconcile(i)
	if !meddled || k.leaf("rate/quorate-node-n0").NotAfter.After(today.Add(90*day)) {
		t.Error("what became another's was replaced")
	}
	if k.find("media/quorate-gateway") == nil {
		t.Error("what became another's was deleted")
	}
	if heard := k.heard(); len(heard) != 1 || !strings.HasPrefix(heard[0], "Warning SecretIsAnothers rate/quorate-node-n0") {
		t.Errorf("heard %q", heard)
	}
}

// TestOneNamespaceWithoutRightsHoldsUpNobody: its Role is missing; everything else is issued, and it tries again.
func TestOneNamespaceWithoutRightsHoldsUpNobody(t *testing.T) {
	for what, verb := range map[string]string{"may not read": "get", "may not write": "create"} {
		k := newKubernetes(t)
		denied := true
		deny := func(does, ns, name string) error {
			if denied && does == verb && ns == "media" {
				return apierrors.NewForbidden(corev1.Resource("secrets"), name, errNotAllowed)
			}
			return nil
		}
		i := k.operator(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err := deny("get", key.Namespace, key.Name); err != nil {
					return err
				}
				return c.Get(ctx, key, o, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := deny("create", o.GetNamespace(), o.GetName()); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
		})
		for range 3 {
			if _, err := i.Reconcile(t.Context(), reconcile.Request{}); !apierrors.IsForbidden(errorOf(err)) || !strings.Contains(err.Error(), "media/quorate-gateway") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := connect(t, k.mounted("rate/quorate-node-n0").ServerTLS(), k.own(i).ClientTLS(nil)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		denied = false
		k.reconcile(i)
		k.mustAgree(i)
	}
}

// TestACAThatCantBeRotatedHoldsUpNoRenewal: its Secret can be read and not written. Certificates are renewed, and each
// look says what is wrong.
func TestACAThatCantBeRotatedHoldsUpNoRenewal(t *testing.T) {
	k := newKubernetes(t)
	k.reconcile(k.operator(interceptor.Funcs{}))
	k.clock.advance(2920 * day)
	i := k.operator(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if isCA(o) {
				return apierrors.NewForbidden(corev1.Resource("secrets"), o.GetName(), errNotAllowed)
			}
			return c.Update(ctx, o, opts...)
		},
	})
	for range 2 {
		if _, err := i.Reconcile(t.Context(), reconcile.Request{}); !apierrors.IsForbidden(errorOf(err)) || !strings.Contains(err.Error(), "begin "+caSecret) {
			t.Errorf("%v", err)
		}
	}
	k.mustAgree(i)
}

// TestANamespaceThatIsGoingIsLeftAlone: it takes its Secret with it, and nothing can be made in it. The right to read
// there may be gone already.
func TestANamespaceThatIsGoingIsLeftAlone(t *testing.T) {
	going := namespace("media", "true")
	going.Finalizers = []string{"kubernetes"}
	k := newKubernetes(t)
	if err := k.Delete(t.Context(), namespace("media", "")); err != nil {
		t.Fatal(err)
	}
	if err := k.Create(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	if err := k.Delete(t.Context(), namespace("media", "")); err != nil {
		t.Fatal(err)
	}
	asked := false
	i := k.operator(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			asked = asked || key.Namespace == "media"
			return c.Get(ctx, key, o, opts...)
		},
	})
	k.reconcile(i)
	if asked || k.find("media/quorate-gateway") != nil || k.find("rate/quorate-gateway") == nil {
		t.Errorf("asked for its Secret: %v; there is one: %v", asked, k.find("media/quorate-gateway") != nil)
	}
}

// errorOf finds the first error of an API server in joined ones.
func errorOf(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			if found := errorOf(e); found != nil {
				return found
			}
		}
		return nil
	}
	if one, ok := err.(interface{ Unwrap() error }); ok && one.Unwrap() != nil {
		return errorOf(one.Unwrap())
	}
	return err
}

// process is one that has a Secret mounted, and sees what is in it some time later.
type process struct {
	k      *kubernetes
	at     string
	lag    time.Duration
	keeper *access.Keeper
	held   []version // what the Secret held, and since when
}

type version struct {
	since time.Time
	access.Contents
}

func (k *kubernetes) start(at string, lag time.Duration) *process {
	k.t.Helper()
	p := &process{k: k, at: at, lag: lag, held: []version{{k.clock.now(), k.contents(at)}}}
	var err error
	if p.keeper, err = access.OpenFrom(p.sees, k.clock.now); err != nil {
		k.t.Fatal(err)
	}
	return p
}

func (p *process) sees() (access.Contents, error) {
	seen := p.held[0]
	for _, v := range p.held {
		if !v.since.Add(p.lag).After(p.k.clock.now()) {
			seen = v
		}
	}
	return seen.Contents, nil
}

// look says whether something new came into force. It must fit.
func (p *process) look() bool {
	p.k.t.Helper()
	if c := p.k.contents(p.at); c != p.held[len(p.held)-1].Contents {
		p.held = append(p.held, version{p.k.clock.now(), c})
	}
	changed, err := p.keeper.Reload()
	if err != nil {
		p.k.t.Fatalf("%v: %s: %v", p.k.clock.now(), p.at, err)
	}
	return changed
}

func (p *process) mustLetIn(who string, caller *access.Keeper) {
	p.k.t.Helper()
	if _, err := connect(p.k.t, p.keeper.ServerTLS(), caller.ClientTLS(anybody)); err != nil {
		p.k.t.Fatalf("%v: %s with %s: %v", p.k.clock.now(), who, p.at, err)
	}
}

// TestARotationOfTheCABreaksNoConnection: through the lives of three CAs, every process lets every other one in at any time,
// be it up to date, an hour late or two days. And nobody is left with a CA that was.
func TestARotationOfTheCABreaksNoConnection(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{}, func(c *issuer.Config) { c.Lifetime, c.CALifetime, c.Resync = 10*day, 100*day, 18*time.Hour })
	k.reconcile(i)
	all := []*process{k.start("rate/quorate-node-n0", 0), k.start("rate/quorate-node-n1", time.Hour), k.start("media/quorate-gateway", 2*day)}
	cas, looks := map[string]bool{}, 0
	for end := today.Add(172 * day); k.clock.now().Before(end); k.clock.advance(k.reconcile(i)) {
		if looks++; looks > 2000 {
			t.Fatalf("at %v after %d looks", k.clock.now(), looks)
		}
		cas[k.contents(caSecret).Cert] = true
		news := map[*process]bool{}
		for _, p := range all {
			news[p] = p.look()
		}
		for _, p := range all {
			for _, q := range all {
				if news[p] || news[q] { // none has ended: a look would have said so
					p.mustLetIn(q.at, q.keeper)
				}
			}
			if news[p] {
				p.mustLetIn("the operator", k.own(i))
			}
		}
	}
	if last := all[0].held[len(all[0].held)-1]; len(cas) != 3 || strings.Count(last.CA, "BEGIN") > 2 {
		t.Errorf("%d CAs in 172 days; trusted at the end:\n%s", len(cas), last.CA)
	}
}

func anybody(access.Identity) error { return nil }
