package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxRoles bounds the URIs of a certificate. Nobody needs more; a list without end is an attack or a bug.
const maxRoles = 64

var (
	// ErrRefused says that a certificate, however well signed, grants nothing to its holder, or not what
	// is expected of it. The errors that wrap it say why.
	ErrRefused = errors.New("certificate refused")
	// ErrNoRole is ErrRefused for a certificate that states no right at all.
	ErrNoRole = fmt.Errorf("%w: it has no role: its subject alternative names hold no URI of the scheme %s", ErrRefused, scheme)
)

// Identity is what a caller may do. The zero Identity may do nothing. It is small, never changes, and is safe
// for concurrent use; asking it allocates nothing.
type Identity struct {
	text       string // the roles, as the certificate orders them
	node       string
	domains    []string // sorted, each once
	allDomains bool
	reads      bool // policies and status
	inspects   bool // all domains
	writes     bool
}

// Loopback returns what a node without certificates grants to callers on its own machine, and to nobody else:
// everything but to be a node.
func Loopback() Identity {
	return Identity{text: "loopback", allDomains: true, reads: true, inspects: true, writes: true}
}

// FromCertificate returns what the certificate grants, or an error that wraps [ErrRefused]. It looks at roles
// only: the chain and the dates have been verified by whoever calls it, as the configurations of a [Keeper]
// do.
func FromCertificate(c *x509.Certificate) (Identity, error) {
	switch {
	case len(c.URIs) == 0:
		return Identity{}, ErrNoRole
	case len(c.URIs) > maxRoles:
		return Identity{}, fmt.Errorf("%w: it has %d URIs, at most %d are allowed", ErrRefused, len(c.URIs), maxRoles)
	}
	roles := make([]Role, len(c.URIs))
	for i, u := range c.URIs {
		var err error
		if roles[i], err = ParseRole(u); err != nil {
			return Identity{}, fmt.Errorf("%w: URI %s: %w", ErrRefused, quote(u.String()), err)
		}
	}
	return combine(roles)
}

// combine adds up roles.
func combine(roles []Role) (Identity, error) {
	var id Identity
	texts := make([]string, len(roles))
	for i, r := range roles {
		texts[i] = r.String()
		twice := func(other Role) bool { return other.Kind == r.Kind && other.Name == r.Name }
		switch {
		case slices.ContainsFunc(roles[:i], twice):
			return Identity{}, fmt.Errorf("%w: it is %s %s twice", ErrRefused, r.Kind, r.Name)
		case r.Kind == Peer && id.node != "":
			return Identity{}, fmt.Errorf("%w: it is two nodes, %s and %s", ErrRefused, id.node, r.Name)
		}
		id.add(r)
	}
	id.text = strings.Join(texts, " ")
	slices.Sort(id.domains)
	id.domains = slices.Compact(id.domains)
	return id, nil
}

func (id *Identity) add(r Role) {
	switch r.Kind {
	case Peer:
		id.node = r.Name
	case Gateway:
		id.allDomains = id.allDomains || r.AllDomains
		id.domains = append(id.domains, r.Domains...)
	case PolicyWriter:
		id.reads, id.writes = true, true
	case Reader:
		id.reads, id.inspects = true, true
	}
}

// Peer returns which node the caller is, if it is one. It may open links as that node and as no other.
func (id Identity) Peer() (node string, ok bool) { return id.node, id.node != "" }

// MayCheck says whether the caller may ask for admission, and so use up allowances, in the domain.
func (id Identity) MayCheck(domain string) bool {
	if id.allDomains {
		return true
	}
	_, named := slices.BinarySearch(id.domains, domain)
	return named
}

// MayCheckSomewhere says whether there is a domain in which the caller may check, whichever.
func (id Identity) MayCheckSomewhere() bool { return id.allDomains || len(id.domains) > 0 }

// MayInspect says whether the caller may see what is used up in the domain.
func (id Identity) MayInspect(domain string) bool { return id.inspects || id.MayCheck(domain) }

// MayRead says whether the caller may see policies and the cluster's status. It is about no domain's usage:
// see MayInspect.
func (id Identity) MayRead() bool { return id.reads }

// MayWritePolicies says whether the caller may put other policies in force.
func (id Identity) MayWritePolicies() bool { return id.writes }

// String returns the URIs of the roles, in the certificate's order and separated by spaces, for logs and
// audit trails: printing ASCII without quotes, whatever the domains hold.
func (id Identity) String() string {
	if id.text == "" {
		return "nobody"
	}
	return id.text
}

// IsPeer expects a node, whichever. It and what [IsNode] returns are meant for [Open] and [Keeper.ClientTLS].
func IsPeer(id Identity) error {
	if _, ok := id.Peer(); !ok {
		return fmt.Errorf("%w: it is no node's, but of %s", ErrRefused, id)
	}
	return nil
}

// IsNode returns a function that expects the node of that name, and no other.
func IsNode(name string) func(Identity) error {
	return func(id Identity) error {
		if node, ok := id.Peer(); !ok || node != name {
			return fmt.Errorf("%w: it is not node %s's, but of %s", ErrRefused, name, id)
		}
		return nil
	}
}
