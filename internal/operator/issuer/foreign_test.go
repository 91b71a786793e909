package issuer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quorate/quorate/internal/operator/issuer"
)

// TestADamagedCAChangesNothing, and says what to do, once.
func TestADamagedCAChangesNothing(t *testing.T) {
	k := newKubernetes(t)
	i := k.operator(interceptor.Funcs{})
	k.reconcile(i)
	k.heard()
	n0 := k.secret("rate/quorate-node-n0")
	ca := k.secret("rate/quorate-ca")
	good := ca.Data["tls.key"]
	for what, key := range map[string][]byte{"no key": nil, "another key": n0.Data["tls.key"], "half a key": good[:len(good)/2]} {
		k.change(ca, func() { ca.Data["tls.key"] = key })
		k.clock.advance(time.Hour)
		before := map[string]string{}
		for _, at := range allSecrets {
			before[at] = k.secret(at).ResourceVersion
		}
		k.change(n0, func() { n0.Data["ca.crt"] = nil }) // there would be something to do
		before["rate/quorate-node-n0"] = n0.ResourceVersion
		k.reconcile(i)
		k.reconcile(i)
		for at, version := range before {
			if k.secret(at).ResourceVersion != version {
				t.Errorf("%s: %s was changed", what, at)
			}
		}
		if heard := k.heard(); len(heard) != 1 || !strings.HasPrefix(heard[0], "Warning CAOfNoUse rate/quorate-ca nothing is issued: tls.crt and tls.key: ") {
			t.Errorf("%s: heard %q", what, heard)
		}
		k.change(ca, func() { ca.Data["tls.key"] = good })
		k.reconcile(i) // so that the next one is news
	}
	if k.mounted("rate/quorate-node-n0").Identity().String() != "quorate://peer/n0" {
		t.Error("it doesn't go on once the CA is back")
	}
}

// TestALastingProblemIsToldOfAgain, since API servers forget events.
func TestALastingProblemIsToldOfAgain(t *testing.T) {
	k := newKubernetes(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "rate", Name: "quorate-ca"}})
	i := k.operator(interceptor.Funcs{})
	count := 0
	for range 120 {
		k.clock.advance(k.reconcile(i))
		count += len(k.heard())
	}
	if count != 4 {
		t.Errorf("told %d times in two hours", count)
	}
}

// TestAForeignSecretIsNeverTouched: an event in its namespace says so, and everything else is done.
func TestAForeignSecretIsNeverTouched(t *testing.T) {
	foreign := func(at string, edit func(*corev1.Secret)) *corev1.Secret {
		ns, name, _ := cut(at)
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "quorate-operator"},
				Annotations: map[string]string{"quorate.dev/issuer": "rate/quorate"}},
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("theirs"), "tls.key": []byte("theirs")},
		}
		edit(s)
		return s
	}
	for what, edit := range map[string]func(*corev1.Secret){
		"no label":           func(s *corev1.Secret) { s.Labels = nil },
		"another label":      func(s *corev1.Secret) { s.Labels["app.kubernetes.io/managed-by"] = "Helm" },
		"no annotation":      func(s *corev1.Secret) { s.Annotations = nil },
		"another operator's": func(s *corev1.Secret) { s.Annotations["quorate.dev/issuer"] = "other/quorate" },
		"another type":       func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
	} {
		for _, at := range []string{"rate/quorate-node-n0", "rate/quorate-gateway", "media/quorate-gateway", "mail/quorate-gateway"} {
			k := newKubernetes(t, foreign(at, edit))
			i := k.operator(interceptor.Funcs{})
			k.reconcile(i)
			k.clock.advance(60 * day)
			k.reconcile(i)
			if s := k.secret(at); s.ResourceVersion != "999" || string(s.Data["tls.key"]) != "theirs" {
				t.Errorf("%s, %s: it was touched", what, at)
			}
			if k.leaf("rate/quorate-node-n1").NotAfter.Before(today.Add(149 * day)) {
				t.Errorf("%s, %s: the others are not renewed", what, at)
			}
			told := slices.ContainsFunc(k.heard(), func(e string) bool {
				return strings.HasPrefix(e, "Warning SecretIsAnothers "+at+" the Secret is left alone")
			})
			if told != (at != "mail/quorate-gateway") { // there nobody wants one
				t.Errorf("%s, %s: told: %v", what, at, told)
			}
		}
	}
}

// TestTwoReleasesDontFightOverANamespace: the first has it, the second says whose it is.
func TestTwoReleasesDontFightOverANamespace(t *testing.T) {
	k := newKubernetes(t, namespace("other", ""))
	first := k.operator(interceptor.Funcs{})
	k.reconcile(first)
	k.heard()
	_, rest := k.narrow(interceptor.Funcs{})
	second, err := issuer.New(issuer.Config{Namespace: "other", Prefix: "quorate", Nodes: []string{"n0"}, GatewayNamespaces: []string{"media"}, Now: k.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	second.Reach(k.WithWatch, rest, k)
	k.reconcile(second)
	heard := k.heard()
	version := k.secret("media/quorate-gateway").ResourceVersion
	for range 3 {
		k.reconcile(first)
		k.reconcile(second)
	}
	if k.secret("media/quorate-gateway").ResourceVersion != version || len(heard) != 2 ||
		!strings.Contains(heard[1], `Warning SecretIsAnothers media/quorate-gateway`) || !strings.Contains(heard[1], `another operator: "rate/quorate"`) {
		t.Errorf("heard %q", heard)
	}
}
