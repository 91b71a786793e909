package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/quorate/quorate/internal/access"
)

// Tolerance is how long before it is made a certificate becomes valid: other machines' clocks may be behind by
// as much.
const Tolerance = 5 * time.Minute

// ErrNotCA says that a certificate may not sign others.
var ErrNotCA = errors.New("it is not a CA's certificate")

// Pair is a certificate and its private key, each in PEM.
type Pair struct{ Cert, Key []byte }

// CA is a certificate that may sign others, with its key. It never changes, and is safe for concurrent use.
type CA struct {
	cert   *x509.Certificate
	signer crypto.Signer
}

// Create makes a CA of that name that ends a lifetime after now.
func Create(name string, now time.Time, lifetime time.Duration) (*CA, Pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, Pair{}, err
	}
	template := validFrom(now, now.Add(lifetime))
	template.Subject = pkix.Name{CommonName: name}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, Pair{}, err
	}
	ca, err := Open(pair)
	return ca, pair, err
}

// Open reads a CA back. Whether it is valid now is for [CA.Issue] and its callers to ask: see [CA.Cert].
func Open(p Pair) (*CA, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if c := pair.Leaf; !ok || !c.BasicConstraintsValid || !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, ErrNotCA
	}
	if len(pair.Certificate) != 1 {
		return nil, fmt.Errorf("%d certificates where that of the CA belongs alone", len(pair.Certificate))
	}
	return &CA{pair.Leaf, signer}, nil
}

// Cert returns the CA's certificate, which nobody may change.
func (c *CA) Cert() *x509.Certificate { return c.cert }

// Issue makes a certificate with that role, which ends a lifetime after now or with the CA, whichever is first.
func (c *CA) Issue(role access.Role, now time.Time, lifetime time.Duration) (Pair, error) {
	if _, err := access.ParseRole(role.URL()); err != nil {
		return Pair{}, fmt.Errorf("issue a certificate for %s: %w", role, err)
	}
	if now.Before(c.cert.NotBefore) || !now.Before(c.cert.NotAfter) {
		return Pair{}, fmt.Errorf("issue a certificate for %s: its CA is valid from %s to %s, and now it is %s", role,
			date(c.cert.NotBefore), date(c.cert.NotAfter), date(now))
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	template := validFrom(now, c.End(now, lifetime))
	state(template, role)
	pair, err := sign(template, c.cert, key, c.signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", role, err)
	}
	return pair, nil
}

// End returns when a certificate ends that is issued now for a lifetime.
func (c *CA) End(now time.Time, lifetime time.Duration) time.Time {
	if end := now.Add(lifetime); end.Before(c.cert.NotAfter) {
		return end
	}
	return c.cert.NotAfter
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func validFrom(now, end time.Time) *x509.Certificate {
	return &x509.Certificate{NotBefore: now.Add(-Tolerance), NotAfter: end}
}

// sign signs for the holder of key.
func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (p Pair, err error) {
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Pair{}, err
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: inPEM("CERTIFICATE", cert), Key: inPEM("PRIVATE KEY", secret)}, nil
}

func inPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
