package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/quorate/quorate/internal/access"
)

const day = 24 * time.Hour

// authority is a CA, valid for a year from yesterday on.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	a.cert, a.pem = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(365 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign signs for the key of a subject; the first certificate of an authority is its own.
func (a *authority) sign(t testing.TB, template *x509.Certificate, subject *ecdsa.PrivateKey) (*x509.Certificate, []byte) {
	t.Helper()
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.NotBefore = time.Now().Add(-day)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, subject.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue writes the files of a holder of that role, good for lifetime from now on.
func (a *authority) issue(t testing.TB, dir, role string, lifetime time.Duration) access.Files {
	t.Helper()
	uri, err := url.Parse(role)
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t)
	_, cert := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(lifetime), URIs: []*url.URL{uri},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f := access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for path, text := range map[string][]byte{f.CA: a.pem, f.Cert: cert, f.Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// keeper opens a keeper for that role, on the clock of the test's bubble if it runs in one.
func (a *authority) keeper(t testing.TB, role string) *access.Keeper {
	t.Helper()
	return open(t, a.issue(t, t.TempDir(), role, day))
}

// laterKeeper is a keeper to whom it is later.
func (a *authority) laterKeeper(t testing.TB, role string, later time.Duration) *access.Keeper {
	t.Helper()
	k, err := access.Open(a.issue(t, t.TempDir(), role, day), func() time.Time { return time.Now().Add(later) })
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(t testing.TB, f access.Files) *access.Keeper {
	t.Helper()
	k, err := access.Open(f, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// anybody expects no identity in particular of whom it dials.
func anybody(access.Identity) error { return nil }

// as shows the keeper's certificate.
func as(k *access.Keeper) grpc.DialOption { return over(k.ClientTLS(anybody)) }

func over(c *tls.Config) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(c))
}
