package issuer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/operator/issuer"
)

var allSecrets = []string{"rate/quorate-ca", "rate/quorate-gateway", "rate/quorate-node-n0", "rate/quorate-node-n1", "media/quorate-gateway"}

// wire is a connection whose ends have met.
type wire struct{ server, client *tls.Conn }

// connect has a client meet a server. Each says a byte to the other, so that both know that they are let in.
func connect(t *testing.T, server, client *tls.Config) (wire, error) {
	t.Helper()
	a, b := net.Pipe()
	w := wire{tls.Server(b, server), tls.Client(a, client)}
	t.Cleanup(func() { a.Close(); b.Close() })
	return w, w.talk()
}

// talk sends a byte each way.
func (w wire) talk() error {
	served := make(chan error, 1)
	go func() {
		_, err := w.server.Write([]byte{1})
		if err == nil {
			_, err = io.ReadFull(w.server, make([]byte, 1))
		}
		if err != nil { // nobody waits for what won't come
			w.server.NetConn().Close()
		}
		served <- err
	}()
	_, err := io.ReadFull(w.client, make([]byte, 1))
	if err == nil {
		_, err = w.client.Write([]byte{1})
	}
	if err != nil {
		w.client.NetConn().Close()
	}
	return errors.Join(err, <-served)
}

func isGateway(id access.Identity) error {
	if !id.MayCheckSomewhere() {
		return access.ErrRefused
	}
	return nil
}

// TestWhatIsIssuedLetsItsHoldersMeet, each in its role and in no other one.
func TestWhatIsIssuedLetsItsHoldersMeet(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{})
	k.reconcile(i)
	for _, c := range []struct {
		what           string
		server, client *access.Keeper
		expect         func(access.Identity) error
		caller         string // as the server knows it; empty: they don't meet
	}{
		{"a node and a node", k.mounted("rate/quorate-node-n0"), k.mounted("rate/quorate-node-n1"), access.IsNode("n0"), "quorate://peer/n1"},
		{"a gateway and a node", k.mounted("rate/quorate-node-n0"), k.mounted("media/quorate-gateway"), access.IsPeer, "quorate://gateway/media?domains=media,video-api"},
		{"the release's gateway and a node", k.mounted("rate/quorate-node-n1"), k.mounted("rate/quorate-gateway"), access.IsPeer, "quorate://gateway/rate?domains=rate"},
		{"the operator and a node", k.mounted("rate/quorate-node-n0"), k.own(i), access.IsPeer, "quorate://policy-writer/operator@rate"},
		{"an application and a gateway", k.mounted("media/quorate-gateway"), k.mounted("media/quorate-gateway"), isGateway, "quorate://gateway/media?domains=media,video-api"},
		{"a node and a gateway for a node", k.mounted("media/quorate-gateway"), k.mounted("rate/quorate-node-n0"), access.IsPeer, ""},
		{"a node and another one", k.mounted("rate/quorate-node-n0"), k.mounted("rate/quorate-node-n1"), access.IsNode("n1"), ""},
		{"the operator as a server", k.own(i), k.mounted("rate/quorate-node-n0"), func(access.Identity) error { return nil }, ""},
	} {
		w, err := connect(t, c.server.ServerTLS(), c.client.ClientTLS(c.expect))
		if (err == nil) != (c.caller != "") {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if err == nil {
			if id, err := c.server.Identify(w.server.ConnectionState()); err != nil || id.String() != c.caller {
				t.Errorf("%s: known as %s, %v", c.what, id, err)
			}
		}
	}
	id := k.own(i).Identity()
	if _, peer := id.Peer(); !id.MayWritePolicies() || !id.MayRead() || peer || id.MayCheckSomewhere() {
		t.Errorf("the operator is %s", id)
	}
	if k.find("mail/quorate-gateway") != nil {
		t.Error("a namespace has a Secret without the label that is true")
	}
}

// TestAnEndedCertificateIsRefused, if nobody renews it.
func TestAnEndedCertificateIsRefused(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{}, func(c *issuer.Config) { c.Lifetime = 30 * time.Second })
	k.reconcile(i)
	n0, gateway := k.mounted("rate/quorate-node-n0"), k.mounted("media/quorate-gateway")
	if _, err := connect(t, n0.ServerTLS(), gateway.ClientTLS(nil)); err != nil {
		t.Fatal(err)
	}
	k.clock.advance(31 * time.Second)
	if _, err := connect(t, n0.ServerTLS(), gateway.ClientTLS(nil)); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after its end: %v", err)
	}
	k.reconcile(i)
	for _, keeper := range []*access.Keeper{n0, gateway} {
		if changed, err := keeper.Reload(); !changed || err != nil {
			t.Fatal(changed, err)
		}
	}
	if _, err := connect(t, n0.ServerTLS(), gateway.ClientTLS(nil)); err != nil {
		t.Errorf("after its renewal: %v", err)
	}
}

// TestARenewalUnderUse: a connection from before lasts, and is known for ended once its certificate is; the next one
// shows the new certificates. Nobody restarts, and nobody asks for a new configuration.
func TestARenewalUnderUse(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{})
	k.reconcile(i)
	n0 := k.mounted("rate/quorate-node-n0")
	server, client := n0.ServerTLS(), k.own(i).ClientTLS(access.IsPeer)
	before, err := connect(t, server, client)
	if err != nil {
		t.Fatal(err)
	}
	k.clock.advance(60 * day)
	k.reconcile(i)
	if changed, err := n0.Reload(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if err := before.talk(); err != nil {
		t.Errorf("the connection from before: %v", err)
	}
	after, err := connect(t, server, client)
	if err != nil {
		t.Fatalf("a connection afterwards: %v", err)
	}
	for side, pair := range map[string][2]*tls.Conn{"the operator": {before.server, after.server}, "the node": {before.client, after.client}} {
		if was, is := pair[0].ConnectionState().PeerCertificates[0], pair[1].ConnectionState().PeerCertificates[0]; was.SerialNumber.Cmp(is.SerialNumber) == 0 {
			t.Errorf("%s shows the same certificate", side)
		}
	}
	k.clock.advance(31 * day)
	if _, err := n0.Identify(before.server.ConnectionState()); err == nil {
		t.Error("the connection from before outlives its certificate")
	}
	if _, err := n0.Identify(after.server.ConnectionState()); err != nil {
		t.Error(err)
	}
}

// TestItComesBackWhenSomethingIsDue, and every minute anyway: nobody tells it of what others do to a Secret.
func TestItComesBackWhenSomethingIsDue(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{}, func(c *issuer.Config) { c.Lifetime = 60 * time.Second })
	for range 20 {
		wait := k.reconcile(i)
		if wait > 40*time.Second || wait < time.Second {
			t.Fatalf("comes back after %v", wait)
		}
		k.clock.advance(wait)
		for _, at := range allSecrets[1:] {
			if left := k.leaf(at).NotAfter.Sub(k.clock.now()); left < 20*time.Second-time.Second {
				t.Fatalf("%s has %v left", at, left)
			}
		}
	}
	k = newKubernetes(t)
	if wait := k.reconcile(k.operator(interceptor.Funcs{})); wait != time.Minute {
		t.Errorf("with nothing due: %v", wait)
	}
}

// TestADamagedCertificateIsReplaced, and no other one; so is one that is gone.
func TestADamagedCertificateIsReplaced(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{})
	k.reconcile(i)
	was := k.contents("rate/quorate-node-n1")
	n0 := k.secret("rate/quorate-node-n0")
	k.change(n0, func() { n0.Data["tls.key"] = []byte("x"); n0.Labels["theirs"] = "kept" })
	if err := k.Delete(t.Context(), k.secret("media/quorate-gateway")); err != nil {
		t.Fatal(err)
	}
	k.reconcile(i)
	for _, at := range allSecrets[1:] {
		if _, err := connect(t, k.mounted("rate/quorate-node-n0").ServerTLS(), k.mounted(at).ClientTLS(nil)); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	if k.contents("rate/quorate-node-n1") != was || k.secret("rate/quorate-node-n0").Labels["theirs"] != "kept" {
		t.Error("more was changed than what was damaged")
	}
}

// TestNewDomainsAreInANewCertificateAtOnce, and those that were taken away are not.
func TestNewDomainsAreInANewCertificateAtOnce(t *testing.T) {
	k := newKubernetes(t)
	k.reconcile(k.operator(interceptor.Funcs{}))
	was := k.contents("rate/quorate-node-n0")
	k.reconcile(k.operator(interceptor.Funcs{}, func(c *issuer.Config) { c.Domains = map[string][]string{"media": {"search", "media", "search"}} }))
	id := k.mounted("media/quorate-gateway").Identity()
	if id.String() != "quorate://gateway/media?domains=media,search" || k.contents("rate/quorate-node-n0") != was {
		t.Errorf("it is %s", id)
	}
}

// TestTheSecretComesAndGoesWithTheLabel of its namespace, and so does the whole namespace.
func TestTheSecretComesAndGoesWithTheLabel(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{})
	k.reconcile(i)
	label := func(name, value string) {
		t.Helper()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		k.change(ns, func() { ns.Labels = map[string]string{"quorate.dev/gateway": value} })
		k.reconcile(i)
	}
	label("mail", "true")
	if id := k.mounted("mail/quorate-gateway").Identity(); id.String() != "quorate://gateway/mail?domains=mail" {
		t.Errorf("it is %s", id)
	}
	label("mail", "false")
	label("media", "")
	if k.find("mail/quorate-gateway") != nil || k.find("media/quorate-gateway") != nil {
		t.Error("there still is a Secret")
	}
	label("media", "true")
	if k.find("media/quorate-gateway") == nil {
		t.Error("it doesn't come back")
	}
	if err := k.Delete(t.Context(), k.secret("media/quorate-gateway")); err != nil {
		t.Fatal(err)
	}
	if err := k.Delete(t.Context(), namespace("media", "")); err != nil {
		t.Fatal(err)
	}
	k.reconcile(i)
	if k.find("media/quorate-gateway") != nil {
		t.Error("a Secret was made in a namespace that is gone")
	}
}

// TestTheCAOutlivesTheRelease: nothing owns it, and who comes back finds it.
func TestTheCAOutlivesTheRelease(t *testing.T) {
	k := newKubernetes(t)
	k.reconcile(k.operator(interceptor.Funcs{}))
	before := map[string]string{}
	for _, at := range allSecrets {
		s := k.secret(at)
		before[at] = s.ResourceVersion
		if len(s.OwnerReferences)+len(s.Finalizers) > 0 || s.Labels["app.kubernetes.io/managed-by"] != "quorate-operator" {
			t.Errorf("%s: %+v", at, s.ObjectMeta)
		}
	}
	k.reconcile(k.operator(interceptor.Funcs{}))
	for at, version := range before {
		if k.secret(at).ResourceVersion != version {
			t.Errorf("%s was changed by an operator that came back", at)
		}
	}
	if data := k.secret("rate/quorate-ca").Data; len(data) != 2 {
		t.Errorf("the CA's Secret holds %d things", len(data))
	}
}

// TestTheKeeperWaitsForTheFirstCertificate.
func TestTheKeeperWaitsForTheFirstCertificate(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.Keeper(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "rate/quorate-ca") {
		t.Errorf("before the first: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := i.Keeper(t.Context())
		got <- err
	}()
	k.reconcile(i)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestAnOwnCertificateThatCantBeUsedIsMadeAgain: the clock jumps between its issue and its first use.
func TestAnOwnCertificateThatCantBeUsedIsMadeAgain(t *testing.T) {
	k := newKubernetes(t)
	jumped := false
	i := k.operator(interceptor.Funcs{}, func(c *issuer.Config) {
		looks := 0
		c.Now = func() time.Time {
			if looks++; looks == 3 { // after the looks that find no CA, and the CA
				jumped = true
				return today.Add(1000 * day)
			}
			return k.clock.now()
		}
	})
	if _, err := i.Reconcile(t.Context(), reconcile.Request{}); !jumped || err == nil || !strings.Contains(err.Error(), "own certificate: certificate tls.crt: expired") {
		t.Fatalf("jumped: %v; %v", jumped, err)
	}
	k.reconcile(i)
	k.mustAgree(i)
}

// TestMetricsTellOfTheEndAndOfProblems.
func TestMetricsTellOfTheEndAndOfProblems(t *testing.T) {
	k := newKubernetes(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "rate", Name: "quorate-node-n0"}})
	i := k.operator(interceptor.Funcs{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(i)
	gather := func() (lines []string) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			m := f.GetMetric()[0]
			lines = append(lines, fmt.Sprintf("%s %.0f", f.GetName(), m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
		return lines
	}
	for _, want := range []string{
		"[quorate_operator_ca_not_after_seconds 0 quorate_operator_certificate_problems 0 quorate_operator_certificates 0 quorate_operator_certificates_issued_total 0]",
		fmt.Sprintf("[quorate_operator_ca_not_after_seconds %d quorate_operator_certificate_problems 1 quorate_operator_certificates 4 quorate_operator_certificates_issued_total 4]",
			today.Add(3650*day).Unix()),
	} {
		if got := fmt.Sprint(gather()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		k.reconcile(i)
	}
}

// TestWhatCantBeWantedIsRefused, all of it at once.
func TestWhatCantBeWantedIsRefused(t *testing.T) {
	_, err := issuer.New(issuer.Config{
		Namespace: "Rate", Prefix: "q_", Nodes: []string{"n0", "n0", "N1", ""}, Lifetime: time.Second, Resync: -1,
		GatewayNamespaces: []string{"a", "a", "Rate", "b/c"}, Domains: map[string][]string{"a": {""}},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`lifetime: 1s is not from 30s to 8760h0m0s`, `"Rate" is the release's own`, `gatewayNamespaces: "a" is named twice`, `namespace "b/c": `, `namespace "Rate": `,
		`domains of "a": one is empty`, `nodes: "n0" is named twice`, `quorate://peer/N1: its node is not a DNS label`, `the name Rate/q_-node-n0 of a Secret: `,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	for what, edit := range map[string]func(*issuer.Config){
		"no nodes":        func(c *issuer.Config) { c.Nodes = nil },
		"a year too long": func(c *issuer.Config) { c.Lifetime = 366 * day },
		"a CA too short":  func(c *issuer.Config) { c.CALifetime = 100 * day },
		"negative resync": func(c *issuer.Config) { c.Resync = -1 },
	} {
		cfg := issuer.Config{Namespace: "rate", Prefix: "quorate", Nodes: []string{"n0"}}
		if _, err := issuer.New(cfg); err != nil {
			t.Fatal(err)
		}
		edit(&cfg)
		if _, err := issuer.New(cfg); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

var _ reconcile.Reconciler = &issuer.Issuer{}
