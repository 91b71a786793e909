package authority_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/access/authority"
)

var today = time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func create(t *testing.T) (*authority.CA, authority.Pair) {
	t.Helper()
	ca, pair, err := authority.Create("test CA", today, 10*day)
	if err != nil {
		t.Fatal(err)
	}
	return ca, pair
}

func issue(t *testing.T, ca *authority.CA, role access.Role, lifetime time.Duration) *x509.Certificate {
	t.Helper()
	pair, err := ca.Issue(role, today, lifetime)
	if err != nil {
		t.Fatal(err)
	}
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return both.Leaf
}

func everyRole() []access.Role {
	return []access.Role{
		{Kind: access.Peer, Name: "n1"},
		{Kind: access.Gateway, Name: "media", Domains: []string{"mail", "video api"}},
		{Kind: access.Gateway, Name: "all", AllDomains: true},
		{Kind: access.PolicyWriter, Name: "operator"},
		{Kind: access.Reader, Name: "bob"},
	}
}

// TestACertificateSaysItsRoleAndNoMore, is signed by its CA, and serves only where its role does.
func TestACertificateSaysItsRoleAndNoMore(t *testing.T) {
	ca, _ := create(t)
	for _, role := range everyRole() {
		c := issue(t, ca, role, day)
		id, err := access.FromCertificate(c)
		if err != nil || id.String() != role.String() {
			t.Errorf("%s: %s, %v", role, id, err)
		}
		if err := c.CheckSignatureFrom(ca.Cert()); err != nil {
			t.Errorf("%s: %v", role, err)
		}
		serves := role.Kind == access.Peer || role.Kind == access.Gateway
		if got := slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth); got != serves || !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
			t.Errorf("%s: usages %v", role, c.ExtKeyUsage)
		}
		for _, other := range everyRole() {
			if err := authority.Mismatch(c, other); (err == nil) != (role.String() == other.String()) {
				t.Errorf("%s for %s: %v", role, other, err)
			}
		}
	}
}

// TestMismatchFindsWhatARoleDoesNotSay, in a certificate with the right role.
func TestMismatchFindsWhatARoleDoesNotSay(t *testing.T) {
	ca, _ := create(t)
	role := access.Role{Kind: access.Peer, Name: "n1"}
	for what, edit := range map[string]func(*x509.Certificate){
		"another name":      func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "n2") },
		"no address":        func(c *x509.Certificate) { c.IPAddresses = nil },
		"no serverAuth":     func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] },
		"more usages":       func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageAny) },
		"a CA's":            func(c *x509.Certificate) { c.IsCA = true },
		"a second role":     func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) },
		"an address (mail)": func(c *x509.Certificate) { c.EmailAddresses = []string{"a@b"} },
	} {
		c := issue(t, ca, role, day)
		if err := authority.Mismatch(c, role); err != nil {
			t.Fatal(err)
		}
		edit(c)
		if authority.Mismatch(c, role) == nil {
			t.Errorf("%s: not found", what)
		}
	}
}

// TestNothingIsValidBeyondItsCA, nor signed by one that isn't valid now.
func TestNothingIsValidBeyondItsCA(t *testing.T) {
	ca, _ := create(t)
	role := access.Role{Kind: access.Reader, Name: "r"}
	if end := issue(t, ca, role, day).NotAfter; !end.Equal(today.Add(day)) {
		t.Errorf("ends at %v", end)
	}
	if end := issue(t, ca, role, 100*day).NotAfter; !end.Equal(ca.Cert().NotAfter) || !end.Equal(today.Add(10*day)) {
		t.Errorf("ends at %v", end)
	}
	for _, at := range []time.Time{today.Add(-authority.Tolerance - time.Second), today.Add(10 * day), today.Add(11 * day)} {
		if _, err := ca.Issue(role, at, day); err == nil || !strings.Contains(err.Error(), "its CA is valid from") {
			t.Errorf("at %v: %v", at, err)
		}
	}
}

func TestNoRoleThatNobodyCouldReadIsIssued(t *testing.T) {
	ca, _ := create(t)
	for _, role := range []access.Role{{}, {Kind: access.Peer, Name: "N1"}, {Kind: access.Gateway, Name: "g"}, {Kind: access.Reader}} {
		if p, err := ca.Issue(role, today, day); err == nil || p.Cert != nil {
			t.Errorf("%s: issued", role)
		}
	}
}

// TestACAIsOpenedWithItsKeyOnly.
func TestACAIsOpenedWithItsKeyOnly(t *testing.T) {
	ca, pair := create(t)
	_, other := create(t)
	again, err := authority.Open(pair)
	if err != nil || !again.Cert().Equal(ca.Cert()) {
		t.Fatal(err)
	}
	if _, ok := ca.Cert().PublicKey.(*ecdsa.PublicKey); !ok || ca.Cert().PublicKey.(*ecdsa.PublicKey).Curve != elliptic.P256() {
		t.Error("not ECDSA on P-256")
	}
	leaf, err := ca.Issue(access.Role{Kind: access.Reader, Name: "r"}, today, day)
	if err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]authority.Pair{
		"another's key": {Cert: pair.Cert, Key: other.Key}, "no key": {Cert: pair.Cert}, "nothing": {},
		"half a key": {Cert: pair.Cert, Key: pair.Key[:len(pair.Key)/2]}, "a leaf": leaf,
		"two certificates": {Cert: bytes.Join([][]byte{pair.Cert, other.Cert}, nil), Key: pair.Key},
	} {
		if _, err := authority.Open(p); err == nil || errors.Is(err, authority.ErrNotCA) != (what == "a leaf") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
