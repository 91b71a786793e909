package issuer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var today = time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)

// newPlanner wants certificates for two nodes, and for gateways in two namespaces beside the release's.
func newPlanner(t *testing.T, edit ...func(*Config)) *Issuer {
	t.Helper()
	cfg := Config{
		Namespace: "rate", Prefix: "quorate", Nodes: []string{"n0", "n1"}, GatewayNamespaces: []string{"media", "mail"},
		Domains: map[string][]string{"media": {"video-api"}}, Now: func() time.Time { return today },
	}
	for _, e := range edit {
		e(&cfg)
	}
	i, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// scene is a world in memory that plans are carried out in.
type scene struct {
	t *testing.T
	*world
	issuer *Issuer
}

// newScene has everything as it should be today, with the namespace media labelled.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t, &world{now: today, secrets: map[types.NamespacedName]*corev1.Secret{}, unread: map[types.NamespacedName]bool{},
		marked: map[string]bool{"media": true}}, newPlanner(t)}
	s.settle()
	return s
}

// settle carries out plans until there is nothing to do.
func (s *scene) settle() {
	s.t.Helper()
	for range rounds {
		p := s.issuer.cfg.plan(s.world)
		if len(p.steps) == 0 {
			return
		}
		s.carryOut(p)
	}
	s.t.Fatal("there is always something left to do")
}

func (s *scene) carryOut(p *plan) {
	s.t.Helper()
	for _, st := range p.steps {
		if st.verb == remove {
			delete(s.secrets, st.at)
			continue
		}
		made, err := s.issuer.make(st, p.trust, s.now)
		if err != nil {
			s.t.Fatal(err)
		}
		s.secrets[st.at] = made
	}
}

func (s *scene) ca() *corev1.Secret              { return s.secrets[s.issuer.cfg.ca()] }
func (s *scene) node(name string) *corev1.Secret { return s.secrets[s.issuer.cfg.node(name)] }
func (s *scene) forget(at ...types.NamespacedName) {
	for _, a := range at {
		delete(s.secrets, a)
	}
}

// text is a plan as the table below writes it.
func (p *plan) text() string {
	var all []string
	for _, st := range p.steps {
		all = append(all, string(st.verb)+" "+short(st.at))
	}
	for _, pr := range p.problems {
		all = append(all, pr.reason+" "+short(pr.at))
	}
	return strings.Join(all, ", ")
}

func short(at types.NamespacedName) string {
	if at == own {
		return "own"
	}
	return strings.TrimPrefix(at.String(), "rate/")
}

const allIssued = "issue own, issue quorate-gateway, issue quorate-node-n0, issue quorate-node-n1, issue media/quorate-gateway"

var twoThirds = today.Add(60 * day)

// TestThePlan is what to do in each situation: all was well at first, then something is edited.
func TestThePlan(t *testing.T) {
	stranger := func(s *corev1.Secret) { s.Labels = nil }
	for _, c := range []struct {
		when string
		edit func(*scene)
		want string
	}{
		{"all is well", func(*scene) {}, ""},
		{"there is nothing", func(s *scene) { clear(s.secrets) }, "create quorate-ca"},
		{"there is a CA only", func(s *scene) {
			maps.DeleteFunc(s.secrets, func(at types.NamespacedName, _ *corev1.Secret) bool { return at != s.issuer.cfg.ca() })
		}, allIssued},
		{"the operator has restarted", func(s *scene) { s.forget(own) }, "issue own"},
		{"a node's is gone", func(s *scene) { s.forget(s.issuer.cfg.node("n1")) }, "issue quorate-node-n1"},
		{"a namespace gets its label", func(s *scene) { s.marked["mail"] = true }, "issue mail/quorate-gateway"},
		{"a namespace loses its label", func(s *scene) { s.marked["media"] = false }, "remove media/quorate-gateway"},
		{"it does, and the Secret is another's", func(s *scene) { s.marked["media"] = false; stranger(s.secrets[gateway("media")]) }, ""},
		{"it does, and the CA is damaged", func(s *scene) { s.marked["media"] = false; s.ca().Data["tls.key"] = nil }, "remove media/quorate-gateway, CAOfNoUse quorate-ca"},
		{"it does, and the Secret can't be read", func(s *scene) { s.marked["media"] = false; s.unread[gateway("media")] = true }, ""},

		// Time.
		{"a minute before the first is due", func(s *scene) { s.now = s.issuer.cfg.plan(s.world).again.Add(-time.Minute) }, ""},
		{"two thirds have passed", func(s *scene) { s.now = twoThirds }, allIssued},
		{"all have ended", func(s *scene) { s.now = today.Add(91 * day) }, allIssued},
		{"the clock went back", func(s *scene) { s.node("n0").Data = issuedAt(s, "n0", today.Add(time.Hour)) }, "issue quorate-node-n0"},
		{"a shorter lifetime is wanted", func(s *scene) { s.issuer.cfg.Lifetime = 3 * day; s.now = today.Add(2 * day) }, allIssued},
		{"a longer lifetime is wanted", func(s *scene) { s.issuer.cfg.Lifetime = 300 * day; s.now = today.Add(50 * day) }, ""},

		// Contents.
		{"a domain is allowed", func(s *scene) { s.issuer.cfg.Domains["media"] = nil }, "issue media/quorate-gateway"},
		{"a domain is allowed to the release", func(s *scene) { s.issuer.cfg.Domains["rate"] = []string{"x"} }, "issue quorate-gateway"},
		{"another node's", func(s *scene) { s.node("n0").Data = s.node("n1").Data }, "issue quorate-node-n0"},
		{"another one's key", func(s *scene) { s.node("n0").Data["tls.key"] = s.node("n1").Data["tls.key"] }, "issue quorate-node-n0"},
		{"half a certificate", func(s *scene) { s.node("n0").Data["tls.crt"] = s.node("n0").Data["tls.crt"][:100] }, "issue quorate-node-n0"},
		{"nothing in it", func(s *scene) { s.node("n0").Data = nil }, "issue quorate-node-n0"},
		{"another ca.crt", func(s *scene) { s.node("n0").Data["ca.crt"] = s.node("n0").Data["tls.crt"] }, "extend quorate-node-n0"},
		{"another CA's", func(s *scene) { s.node("n0").Data = newScene(s.t).node("n0").Data }, "issue quorate-node-n0"},

		// What is another's.
		{"a Secret without our label", func(s *scene) { s.now = twoThirds; stranger(s.node("n0")) },
			strings.Replace(allIssued, "issue quorate-node-n0, ", "", 1) + ", SecretIsAnothers quorate-node-n0"},
		{"another kind of Secret", func(s *scene) { s.node("n0").Type = corev1.SecretTypeOpaque }, "SecretIsAnothers quorate-node-n0"},
		{"another operator's", func(s *scene) { s.secrets[gateway("media")].Annotations[issuedBy] = "other/quorate" }, "SecretIsAnothers media/quorate-gateway"},
		{"a CA of another", func(s *scene) { s.now = twoThirds; stranger(s.ca()) }, "SecretIsAnothers quorate-ca"},

		// What can't be read.
		{"a Secret can't be read", func(s *scene) { s.now = twoThirds; s.unread[s.issuer.cfg.node("n0")] = true },
			strings.Replace(allIssued, "issue quorate-node-n0, ", "", 1)},
		{"the CA can't be read", func(s *scene) { s.now = twoThirds; s.unread[s.issuer.cfg.ca()] = true; s.forget(s.issuer.cfg.ca()) }, ""},
		{"no CA, and a Secret can't be read", func(s *scene) {
			clear(s.secrets)
			s.unread[s.issuer.cfg.node("n0")] = true
		}, ""},

		// A CA of no use.
		{"a CA without its key", func(s *scene) { s.now = twoThirds; delete(s.ca().Data, "tls.key") }, "CAOfNoUse quorate-ca"},
		{"a CA with a key of another", func(s *scene) { s.now = twoThirds; s.ca().Data["tls.key"] = newScene(s.t).ca().Data["tls.key"] }, "CAOfNoUse quorate-ca"},
		{"a leaf for a CA", func(s *scene) { s.ca().Data = s.node("n0").Data }, "CAOfNoUse quorate-ca"},
		{"an empty CA", func(s *scene) { s.ca().Data = nil }, "CAOfNoUse quorate-ca"},
		{"a CA that has ended", func(s *scene) { s.now = today.Add(3650 * day) }, "CAOfNoUse quorate-ca"},
		{"a CA that isn't valid yet", func(s *scene) { s.now = today.Add(-time.Hour) }, "CAOfNoUse quorate-ca"},
		{"half a CA to come", func(s *scene) { s.now = twoThirds; s.ca().Data[nextCert] = s.ca().Data["tls.crt"] }, "CAOfNoUse quorate-ca"},
		{"a damaged CA that was", func(s *scene) { s.now = twoThirds; s.ca().Data[oldCert] = []byte("x") }, "CAOfNoUse quorate-ca"},
		{"the CA is gone", func(s *scene) { s.forget(s.issuer.cfg.ca()) }, "CAGone quorate-ca"},
		{"it is gone, and so are the nodes'", func(s *scene) { s.forget(s.issuer.cfg.ca(), s.issuer.cfg.node("n0"), s.issuer.cfg.node("n1")) }, "create quorate-ca"},
		{"it is gone, and the nodes' have ended", func(s *scene) { s.forget(s.issuer.cfg.ca()); s.now = today.Add(91 * day) }, "create quorate-ca"},
	} {
		t.Run(c.when, func(t *testing.T) {
			s := newScene(t)
			c.edit(s)
			if got := s.issuer.cfg.plan(s.world).text(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// issuedAt is what a node's Secret holds if it is issued at that time.
func issuedAt(s *scene, node string, at time.Time) map[string][]byte {
	p := s.issuer.cfg.plan(s.world)
	made, err := s.issuer.make(step{verb: issue, at: s.issuer.cfg.node(node), was: s.node(node), role: s.issuer.cfg.every()[2].role}, p.trust, at)
	if err != nil {
		s.t.Fatal(err)
	}
	return made.Data
}

// TestAPlanCarriedOutLeavesNothingToDo, whatever it was about, unless a person has to see to it.
func TestAPlanCarriedOutLeavesNothingToDo(t *testing.T) {
	s := newScene(t)
	s.now = twoThirds
	s.node("n1").Data = nil
	s.settle()
	p := s.issuer.cfg.plan(s.world)
	if p.text() != "" || p.inForce != 5 {
		t.Errorf("%s; %d in force", p.text(), p.inForce)
	}
	if !p.again.After(s.now.Add(55*day)) || p.again.After(s.now.Add(60*day)) {
		t.Errorf("again at %v", p.again)
	}
}

// TestRenewalsSpreadAndStayWithinTwoThirds: each at its own time, which is the same for whoever computes it.
func TestRenewalsSpreadAndStayWithinTwoThirds(t *testing.T) {
	s := newScene(t)
	at := map[time.Time]bool{}
	for _, secret := range s.secrets {
		leaf, err := readPair(secret)
		if err != nil {
			t.Fatal(err)
		}
		if leaf.IsCA {
			continue
		}
		due := renewAt(types.NamespacedName{}, leaf, 90*day)
		if due.After(today.Add(60*day)) || due.Before(today.Add(60*day-90*day/20)) || !due.Equal(renewAt(types.NamespacedName{}, leaf, 90*day)) {
			t.Errorf("due at %v", due)
		}
		at[due] = true
	}
	if len(at) != 5 {
		t.Errorf("5 certificates are due at %d times", len(at))
	}
}

// TestARotationWaitsForEveryStep, and each step for every Secret.
func TestARotationWaitsForEveryStep(t *testing.T) {
	s := newScene(t)
	plan := func(at time.Time) string {
		t.Helper()
		s.now = at
		p := s.issuer.cfg.plan(s.world)
		got := p.text()
		s.carryOut(p)
		return got
	}
	mustBe := func(got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	begins := today.Add(2920 * day) // 8 of 10 years
	s.now = begins.Add(-time.Hour)
	s.settle()
	mustBe(plan(begins.Add(-time.Second)), "")
	mustBe(plan(begins), "begin quorate-ca")
	extended := strings.ReplaceAll(allIssued, "issue", "extend")
	mustBe(plan(begins), extended)
	// A Secret that nobody can read doesn't agree.
	s.unread[s.issuer.cfg.node("n0")] = true
	mustBe(plan(begins), "")
	clear(s.unread)
	mustBe(plan(begins), "settle quorate-ca")
	mustBe(plan(begins.Add(longestSpread-time.Second)), "")
	mustBe(plan(begins.Add(longestSpread)), "promote quorate-ca")
	mustBe(plan(begins.Add(longestSpread)), allIssued)
	mustBe(plan(begins.Add(longestSpread+time.Hour)), "settle quorate-ca")
	mustBe(plan(begins.Add(2*longestSpread)), "")
	mustBe(plan(begins.Add(2*longestSpread+time.Hour)), "retire quorate-ca")
	mustBe(plan(begins.Add(2*longestSpread+time.Hour)), extended)
	mustBe(plan(begins.Add(2*longestSpread+time.Hour)), "")
	keys := slices.Sorted(maps.Keys(s.ca().Data))
	if got := fmt.Sprint(keys, s.ca().Annotations); got != "[tls.crt tls.key] map[quorate.dev/issuer:rate/quorate]" {
		t.Errorf("left in the CA's Secret: %s", got)
	}
}

// TestALateRotationIsOverBeforeTheOldCAEnds: an operator that was away for years.
func TestALateRotationIsOverBeforeTheOldCAEnds(t *testing.T) {
	end := today.Add(3650 * day)
	s := newScene(t)
	s.now = end.Add(-2 * day)
	s.settle()
	p := s.issuer.cfg.plan(s.world)
	if len(s.ca().Data[nextCert]) == 0 || p.text() != "" || p.again.After(end.Add(-time.Hour)) {
		t.Fatalf("%s; again at %v", p.text(), p.again)
	}
	s.now = end.Add(-day)
	s.settle()
	p = s.issuer.cfg.plan(s.world)
	if len(s.ca().Data[oldCert]) == 0 || p.inForce != 5 || !p.trust.current.Cert().NotAfter.After(end) {
		t.Errorf("%d in force; the CA ends at %v", p.inForce, p.trust.current.Cert().NotAfter)
	}
}

// TestACAThatEndsAmidItsRotationIsReplacedAtOnce, also where not every Secret agrees yet: there is nothing left to lose.
func TestACAThatEndsAmidItsRotationIsReplacedAtOnce(t *testing.T) {
	end := today.Add(3650 * day)
	s := newScene(t)
	s.now = end.Add(-2 * day)
	s.unread[s.issuer.cfg.node("n0")] = true
	s.settle()
	s.now = end.Add(day)
	if got := s.issuer.cfg.plan(s.world).text(); got != "promote quorate-ca" || s.ca().Annotations[settledAt] != "" {
		t.Fatalf("got %s", got)
	}
	clear(s.unread)
	s.settle()
	if p := s.issuer.cfg.plan(s.world); p.inForce != 5 {
		t.Errorf("%d in force", p.inForce)
	}
}

// TestAClockThatWasWrongLeavesNothingOfTheFuture: for a while it was nine years ahead, so that a rotation began, and every
// certificate was made anew. Once it is right again all of it is made anew, and the CA that was made then never signs.
func TestAClockThatWasWrongLeavesNothingOfTheFuture(t *testing.T) {
	s := newScene(t)
	first := string(s.ca().Data["tls.crt"])
	s.now = today.Add(9 * 365 * day)
	s.settle()
	wrong := string(s.ca().Data[nextCert])
	s.now = today.Add(day)
	if got := s.issuer.cfg.plan(s.world).text(); got != "begin quorate-ca, "+allIssued {
		t.Errorf("got %s", got)
	}
	s.settle()
	if next := string(s.ca().Data[nextCert]); wrong == "" || next == wrong || string(s.ca().Data["tls.crt"]) != first {
		t.Fatal("a CA of the future is to come, or signs")
	}
	for range 30 {
		s.now = s.now.Add(day)
		s.settle()
	}
	p := s.issuer.cfg.plan(s.world)
	if p.trust == nil || p.inForce != 5 || p.trust.changing() || string(s.ca().Data["tls.crt"]) == first {
		t.Errorf("a month later: %s; %d in force", p.text(), p.inForce)
	}
}

// TestASettledNoteOfTheFutureDoesNotCount, as a clock that went back leaves one, nor one that nobody can read.
func TestASettledNoteOfTheFutureDoesNotCount(t *testing.T) {
	for _, note := range []string{date(today.Add(4000 * day)), "yesterday"} {
		s := newScene(t)
		s.now = today.Add(2920 * day)
		s.settle()
		s.ca().Annotations[settledAt] = note
		if got := s.issuer.cfg.plan(s.world).text(); got != "settle quorate-ca" {
			t.Errorf("%s: got %q", note, got)
		}
	}
	// Nor does one that is left from whatever was before.
	s := newScene(t)
	s.now = today.Add(2920 * day)
	s.ca().Annotations[settledAt] = date(today)
	s.carryOut(s.issuer.cfg.plan(s.world))
	if s.ca().Data[nextCert] == nil || s.ca().Annotations[settledAt] != "" {
		t.Errorf("a rotation begins with %v", s.ca().Annotations)
	}
}

// TestNoCertificateOutlivesItsCA, also where the CA has less left than a lifetime.
func TestNoCertificateOutlivesItsCA(t *testing.T) {
	end := today.Add(3650 * day)
	s := newScene(t)
	s.now = end.Add(-2 * day)
	s.settle()
	leaf, err := readPair(s.node("n0"))
	if err != nil || !leaf.NotAfter.Equal(end) {
		t.Errorf("ends at %v, %v", leaf.NotAfter, err)
	}
}
