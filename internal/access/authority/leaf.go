package authority

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/quorate/quorate/internal/access"
)

// state writes a role into a template, and all that follows from it.
func state(template *x509.Certificate, role access.Role) {
	name := string(role.Kind)
	if role.Kind == access.Peer {
		name = role.Name
	}
	template.Subject = pkix.Name{CommonName: name}
	template.URIs = []*url.URL{role.URL()}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	switch role.Kind {
	case access.Peer:
		letServe(template, "localhost", role.Name)
	case access.Gateway:
		letServe(template, "localhost")
	}
}

// letServe lets the holder be called, too. Clients of ours look at its role; names and addresses are for others, as curl.
func letServe(template *x509.Certificate, names ...string) {
	template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	template.DNSNames = names
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
}

// Mismatch says in what a certificate differs from one that [CA.Issue] makes for that role, dates and keys apart.
// Nil: in nothing. A certificate that says more than its role is as wrong as one that says less.
func Mismatch(c *x509.Certificate, role access.Role) error {
	var want x509.Certificate
	state(&want, role)
	got := make([]string, len(c.URIs))
	for i, u := range c.URIs {
		got[i] = u.String()
	}
	switch {
	case len(got) != 1 || got[0] != role.String():
		return fmt.Errorf("its roles are %+q, not %s", got, role)
	case c.IsCA || c.KeyUsage != want.KeyUsage || !slices.Equal(c.ExtKeyUsage, want.ExtKeyUsage) || len(c.UnknownExtKeyUsage) > 0:
		return errors.New("its usages are not those of its role")
	case !slices.Equal(c.DNSNames, want.DNSNames) || !slices.EqualFunc(c.IPAddresses, want.IPAddresses, net.IP.Equal) || len(c.EmailAddresses) > 0:
		return errors.New("its names and addresses are not those of its role")
	}
	return nil
}
