package issuer

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/access/authority"
)

const (
	managedBy   = "app.kubernetes.io/managed-by"
	operator    = "quorate-operator"
	gatewayMark = "quorate.dev/gateway" // label of a namespace
	issuedBy    = "quorate.dev/issuer"  // annotation of a Secret: which of several operators made it
	trustKey    = "ca.crt"              // beside tls.crt and tls.key
)

// world is what a plan goes by.
type world struct {
	now     time.Time
	secrets map[types.NamespacedName]*corev1.Secret // those that are there
	unread  map[types.NamespacedName]bool           // of which nobody knows whether they are
	marked  map[string]bool                         // gateway namespaces that are labelled, and aren't going
}

// verb is what a step does.
type verb string

const (
	// Of the CA.
	create  verb = "create"  // make a CA where there is none
	begin   verb = "begin"   // a rotation: make the CA to come
	settle  verb = "settle"  // note that every Secret trusts it, or has its certificate of it
	promote verb = "promote" // the CA to come signs
	retire  verb = "retire"  // the CA that was is trusted no more
	// Of a certificate.
	issue  verb = "issue"
	extend verb = "extend" // change whom it trusts, and keep the certificate
	remove verb = "remove"
)

// step is one thing to do to one Secret. Steps of one plan don't depend on each other.
type step struct {
	verb verb
	at   types.NamespacedName
	was  *corev1.Secret    // nil: there is none
	role access.Role       // to issue
	set  map[string][]byte // what to write, beside new certificates and keys
	why  string
}

// problem is what a person has to see to.
type problem struct {
	at           types.NamespacedName
	reason, text string
}

const (
	reasonForeign = "SecretIsAnothers"
	reasonCA      = "CAOfNoUse"
	reasonCAGone  = "CAGone"
)

// plan is what to do now, what can't be done, and when to look again at the latest.
type plan struct {
	steps    []step
	problems []problem
	again    time.Time // zero: nothing is due
	trust    *trust    // nil: nothing can be issued
	inForce  int       // certificates that are as they should be
}

func (p *plan) until(t time.Time) {
	if p.again.IsZero() || t.Before(p.again) {
		p.again = t
	}
}

// plan compares what is there with what should be.
func (c *Config) plan(w *world) *plan {
	p := &plan{}
	c.planRemovals(w, p)
	if !c.planCA(w, p) {
		return p
	}
	before := len(p.steps)
	for _, want := range c.every() {
		if c.isWanted(w, want) {
			c.planLeaf(w, p, want)
		}
	}
	// What can't be read is not as it should be; what is another's will never be.
	if move, _ := p.trust.moveAt(); move == settle && len(p.steps) == before && len(w.unread) == 0 {
		p.steps = append(p.steps, step{verb: settle, at: c.ca(), was: w.secrets[c.ca()], why: "every Secret is as the rotation of the CA wants it"})
	}
	return p
}

func (c *Config) isWanted(w *world, want wanted) bool {
	byLabel := want.role.Kind == access.Gateway && want.at.Namespace != c.Namespace
	return !w.unread[want.at] && (!byLabel || w.marked[want.at.Namespace])
}

// planRemovals takes back the Secrets of namespaces that aren't labelled any more. Those of others are nobody's
// business there, so they are no problem either.
func (c *Config) planRemovals(w *world, p *plan) {
	for _, ns := range c.GatewayNamespaces {
		at := gateway(ns)
		if s := w.secrets[at]; s != nil && !w.unread[at] && !w.marked[ns] && c.whose(s) == "" {
			p.steps = append(p.steps, step{verb: remove, at: at, was: s, why: "the namespace is not labelled " + gatewayMark + "=true"})
		}
	}
}

// whose says whose a Secret is if it isn't this operator's; empty: it is.
func (c *Config) whose(s *corev1.Secret) string {
	switch by := s.Annotations[issuedBy]; {
	case s.Labels[managedBy] != operator || s.Type != corev1.SecretTypeTLS || by == "":
		return fmt.Sprintf("it isn't one that the operator made, which would have label %s=%s, annotation %s=%s, and type %s",
			managedBy, operator, issuedBy, c.issuer(), corev1.SecretTypeTLS)
	case by != c.issuer():
		return fmt.Sprintf("it is of another operator: %.100q", by)
	}
	return ""
}

func (c *Config) issuer() string { return c.Namespace + "/" + c.Prefix }

// planCA says whether certificates can be planned now; else it planned what comes first, or said what is in the way.
// What is in the way of the CA changes nothing: certificates that are in force stay as they are.
func (c *Config) planCA(w *world, p *plan) bool {
	at := c.ca()
	s := w.secrets[at]
	complain := func(reason, text string) bool {
		p.problems = append(p.problems, problem{at, reason, text})
		return false
	}
	switch {
	case w.unread[at]:
		return false
	case s == nil:
		if !c.planFirstCA(w, p) {
			return complain(reasonCAGone, "the CA is gone, and certificates that it signed are in force; restore the Secret from a copy, "+
				"or delete the Secrets of the nodes, too, to begin anew: then nodes and gateways refuse each other until all have new certificates")
		}
		return false
	case c.whose(s) != "":
		return complain(reasonForeign, "nothing is issued: the Secret is left alone, since "+c.whose(s))
	}
	t, err := readTrust(s, w.now)
	if err != nil {
		return complain(reasonCA, "nothing is issued: "+err.Error())
	}
	p.trust = t
	c.planRotation(w, p, s)
	return !t.ended(w.now)
}

// planFirstCA plans a CA where there is none, unless there was one: a second CA breaks what stands on the first.
func (c *Config) planFirstCA(w *world, p *plan) bool {
	for _, n := range c.Nodes {
		at := c.node(n)
		if w.unread[at] {
			return true // and so wait
		}
		s := w.secrets[at]
		if s == nil || c.whose(s) != "" {
			continue
		}
		if leaf, err := readPair(s); err == nil && w.now.Before(leaf.NotAfter) {
			return false
		}
	}
	p.steps = append(p.steps, step{verb: create, at: c.ca(), why: "there is no CA"})
	return true
}

// planRotation plans the next step of a rotation if it is due. Certificates don't wait for it, unless the CA that signs
// has ended: what can't be written to one Secret is no reason to let others end.
func (c *Config) planRotation(w *world, p *plan, s *corev1.Secret) {
	move, at := p.trust.moveAt()
	switch {
	case p.trust.ended(w.now): // it wasn't refused, so there is one to take its place
		move = promote
	case p.trust.next != nil && !validAt(p.trust.next.Cert(), w.now): // made by a clock that was wrong; it must never sign
		move = begin
	case move == settle:
		return
	case w.now.Before(at):
		p.until(at)
		return
	}
	st := step{verb: move, at: c.ca(), was: s}
	switch move {
	case begin:
		st.why = "the CA ends at " + date(p.trust.current.Cert().NotAfter)
	case promote:
		st.why = "the CA to come is trusted everywhere, or the one that signed has ended"
		st.set = map[string][]byte{
			corev1.TLSCertKey: s.Data[nextCert], corev1.TLSPrivateKeyKey: s.Data[nextKey], oldCert: s.Data[corev1.TLSCertKey],
			nextCert: nil, nextKey: nil,
		}
	case retire:
		st.why = "no certificate of the CA that was is in use"
		st.set = map[string][]byte{oldCert: nil}
	}
	p.steps = append(p.steps, st)
}

// planLeaf looks at one certificate.
func (c *Config) planLeaf(w *world, p *plan, want wanted) {
	s := w.secrets[want.at]
	st := step{verb: issue, at: want.at, was: s, role: want.role, set: map[string][]byte{trustKey: p.trust.bundle()}}
	if s == nil {
		st.why = "there is none"
	} else if whose := c.whose(s); whose != "" {
		p.problems = append(p.problems, problem{want.at, reasonForeign, "the Secret is left alone, and whoever needs a certificate from it has none: " + whose})
		return
	} else if due, why := c.unfit(w.now, p.trust, s, want); why != "" {
		st.why = why
	} else if !bytes.Equal(s.Data[trustKey], p.trust.bundle()) {
		st.verb, st.why = extend, "other CAs are to be trusted"
		p.until(due)
	} else {
		p.inForce++
		p.until(due)
		return
	}
	p.steps = append(p.steps, st)
}

// unfit says why a certificate has to be replaced now; empty: it is to be renewed when it is due.
func (c *Config) unfit(now time.Time, t *trust, s *corev1.Secret, want wanted) (due time.Time, why string) {
	leaf, err := readPair(s)
	if err != nil {
		return due, "it is damaged: " + err.Error()
	}
	if err := authority.Mismatch(leaf, want.role); err != nil {
		return due, err.Error()
	}
	if err := leaf.CheckSignatureFrom(t.current.Cert()); err != nil {
		return due, "it is not of the CA that signs"
	}
	due = renewAt(want.at, leaf, c.Lifetime)
	switch {
	case now.Before(leaf.NotBefore):
		return due, "it is not valid before " + date(leaf.NotBefore)
	case leaf.NotAfter.After(t.current.Cert().NotAfter):
		return due, "it ends after its CA"
	case !now.Before(due):
		return due, "it ends at " + date(leaf.NotAfter)
	}
	return due, ""
}

// readPair reads what a certificate's Secret holds, if its key fits.
func readPair(s *corev1.Secret) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// renewAt returns when a certificate has had two thirds of its life, or of the lifetime that is wanted now if that is
// shorter. A twentieth of it at most comes off, by a hash, so that what was issued together isn't renewed together for ever.
func renewAt(at types.NamespacedName, c *x509.Certificate, lifetime time.Duration) time.Time {
	from, life := lifeOf(c)
	life = min(life, lifetime)
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", at, c.SerialNumber)
	early := time.Duration(h.Sum64() % uint64(max(life/20, 1)))
	return from.Add(life/3*2 - early)
}
