package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/access"
)

// today is when these tests take place, unless they move a wallClock.
var today = time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func atToday() time.Time { return today }

// wallClock is set by hand.
type wallClock struct{ passed atomic.Int64 }

func (c *wallClock) now() time.Time             { return today.Add(time.Duration(c.passed.Load())) }
func (c *wallClock) advance(d time.Duration)    { c.passed.Add(int64(d)) }
func ends(at time.Time) func(*x509.Certificate) { return func(c *x509.Certificate) { c.NotAfter = at } }

func usableFor(usages ...x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.ExtKeyUsage = usages }
}

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

// holder is a certificate and its key, in PEM.
type holder struct{ cert, key string }

// newAuthority makes a CA that is valid from yesterday for ten days, but for what edit changes.
func newAuthority(t testing.TB, edit ...func(*x509.Certificate)) *authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, NotBefore: today.Add(-day), NotAfter: today.Add(9 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{key: newKey(t)}
	a.cert, a.pem = sign(t, template, nil, a.key, a.key, edit)
	return a
}

// issue makes a certificate with these roles that is valid from yesterday for two days.
func (a *authority) issue(t testing.TB, uris []string, edit ...func(*x509.Certificate)) holder {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotBefore: today.Add(-day), NotAfter: today.Add(day),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:        parseAll(t, uris), DNSNames: []string{"localhost"},
	}
	key := newKey(t)
	_, cert := sign(t, template, a.cert, key, a.key, edit)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return holder{cert, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign signs for the key of a subject; without a parent the certificate signs itself.
func sign(t testing.TB, template, parent *x509.Certificate, subject, signer *ecdsa.PrivateKey, edit []func(*x509.Certificate)) (*x509.Certificate, string) {
	t.Helper()
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	for _, e := range edit {
		e(template)
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, subject.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// keeper opens a keeper of a certificate of this CA that trusts this CA.
func (a *authority) keeper(t testing.TB, uris ...string) *access.Keeper {
	t.Helper()
	k, err := access.Open(store(t, t.TempDir(), a.pem, a.issue(t, uris)), atToday)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// store writes the three files into a folder.
func store(t testing.TB, dir, ca string, h holder) access.Files {
	t.Helper()
	f := access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for path, text := range map[string]string{f.CA: ca, f.Cert: h.cert, f.Key: h.key} {
		write(t, path, text)
	}
	return f
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func parseAll(t testing.TB, uris []string) (all []*url.URL) {
	t.Helper()
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	return all
}
