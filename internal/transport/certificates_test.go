package transport_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/transport"
)

// authority signs certificates of nodes.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	a.key, a.cert = issue(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.pool.AddCert(a.cert)
	return a
}

// issue signs a certificate; without an authority it signs itself.
func issue(t testing.TB, by *authority, template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

// certify returns a node's certificate.
func (a *authority) certify(t testing.TB, node string) tls.Certificate {
	t.Helper()
	key, cert := issue(t, a, &x509.Certificate{
		Subject: pkix.Name{CommonName: node}, DNSNames: []string{node}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// secure gives a node's links a certificate of the authority.
func (a *authority) secure(certificate tls.Certificate) func(*transport.LinkOptions) {
	return func(o *transport.LinkOptions) {
		o.Server, o.Client = always(&tls.Config{
			Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool,
		}), always(&tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: a.pool})
		o.PeerName = commonName
	}
}

func always(c *tls.Config) func() *tls.Config { return func() *tls.Config { return c } }

// commonName reads a node's name as these tests write it.
func commonName(s tls.ConnectionState) (string, error) {
	if len(s.PeerCertificates) == 0 {
		return "", errors.New("no certificate")
	}
	return s.PeerCertificates[0].Subject.CommonName, nil
}
