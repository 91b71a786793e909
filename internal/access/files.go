package access

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// maxFileBytes is far above any bundle; what is larger is some other file.
	maxFileBytes = 1 << 20
	// maxReadings bounds how often files are read that change between two readings.
	maxReadings = 10
)

// Files names the PEM files of one holder.
type Files struct {
	CA   string // the CAs to trust, one or more
	Cert string // its certificate, then those between it and the CA, if any
	Key  string // the certificate's private key
}

// Contents is what the files hold, together.
type Contents struct{ CA, Cert, Key string }

// readWhole reads the files as they were at one moment. Kubernetes swaps all of them at once, by a symlink
// to their folder; a swap between two reads gives a mixture, and no single file shows that it belongs to
// one. Two readings that are the same had no swap between them.
func (f Files) readWhole(read func(path string) ([]byte, error)) (Contents, error) {
	before, err := f.readOnce(read)
	for range maxReadings {
		if err != nil {
			return Contents{}, err
		}
		var now Contents
		if now, err = f.readOnce(read); err == nil && now == before {
			return now, nil
		}
		before = now
	}
	return Contents{}, fmt.Errorf("%s, %s and %s keep changing while they are read; replace all three at once", f.CA, f.Cert, f.Key)
}

func (f Files) readOnce(read func(path string) ([]byte, error)) (c Contents, err error) {
	for _, file := range []struct {
		path, what string
		into       *string
	}{
		{f.CA, "CA", &c.CA}, {f.Cert, "certificate", &c.Cert}, {f.Key, "private key", &c.Key},
	} {
		if file.path == "" {
			return Contents{}, fmt.Errorf("no %s file is given; CA, certificate and private key go together", file.what)
		}
		text, err := read(file.path)
		if err != nil {
			return Contents{}, fmt.Errorf("read the %s: %w", file.what, err)
		}
		*file.into = string(text)
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("%s: larger than any PEM file of certificates (%d bytes)", path, maxFileBytes)
	}
	return text, errors.Join(err, f.Close())
}

// material is what one reading of the files gave, checked. It never changes.
type material struct {
	contents Contents
	pair     tls.Certificate
	roots    *x509.CertPool
	identity Identity
	notAfter time.Time
	server   *tls.Config
}

// check makes material of contents or says which file doesn't fit, and what to do.
func (f Files) check(c Contents, now time.Time) (*material, error) {
	m := &material{contents: c}
	var err error
	if m.roots, err = f.checkCA(c.CA, now); err != nil {
		return nil, err
	}
	chain, err := parseCertificates(f.Cert, c.Cert)
	if err != nil {
		return nil, err
	}
	// Its certificate was parsed before, so that all that it can refuse now is the key.
	if m.pair, err = tls.X509KeyPair([]byte(c.Cert), []byte(c.Key)); err != nil {
		return nil, fmt.Errorf("private key %s: %w; it has to be that of the first certificate in %s", f.Key, err, f.Cert)
	}
	leaf := chain[0]
	switch {
	case now.After(leaf.NotAfter):
		return nil, fmt.Errorf("certificate %s: expired at %s; renew it", f.Cert, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return nil, fmt.Errorf("certificate %s: not valid before %s, and now it is %s; look at this machine's clock",
			f.Cert, leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if m.identity, err = FromCertificate(leaf); err != nil {
		return nil, fmt.Errorf("certificate %s: %w; have it issued again", f.Cert, err)
	}
	if m.notAfter, err = m.checkChain(chain, now); err != nil {
		return nil, fmt.Errorf("certificate %s, CA %s: %w; the other side would refuse it: have it issued by that CA, with that usage", f.Cert, f.CA, err)
	}
	return m, nil
}

func (f Files) checkCA(text string, now time.Time) (*x509.CertPool, error) {
	all, err := parseCertificates(f.CA, text)
	if err != nil {
		return nil, err
	}
	pool, valid := x509.NewCertPool(), false
	for i, c := range all {
		if !c.BasicConstraintsValid || !c.IsCA {
			return nil, fmt.Errorf("CA %s: certificate %d in it (%s) is not a CA's; only what signs others belongs there", f.CA, i+1, quote(c.Subject.String()))
		}
		pool.AddCert(c)
		valid = valid || !now.Before(c.NotBefore) && !now.After(c.NotAfter)
	}
	if !valid {
		return nil, fmt.Errorf("CA %s: no certificate in it is valid at %s; put the CA's current one there", f.CA, now.UTC().Format(time.RFC3339))
	}
	return pool, nil
}

// checkChain verifies a certificate as the other side will: everybody dials, and nodes are dialled too. It
// returns when the best chain ends, which may be before the certificate does.
func (m *material) checkChain(chain []*x509.Certificate, now time.Time) (end time.Time, err error) {
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, node := m.identity.Peer(); node {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	for _, usage := range usages {
		chains, err := m.verify(chain, now, usage)
		if err != nil {
			return time.Time{}, err
		}
		end = lastEnd(chains)
	}
	return end, nil
}

// verify returns the chains from the first certificate to a CA, by way of the others.
func (m *material) verify(certs []*x509.Certificate, now time.Time, usage x509.ExtKeyUsage) ([][]*x509.Certificate, error) {
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	return certs[0].Verify(x509.VerifyOptions{
		Roots: m.roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
}

// lastEnd returns when the last of the chains ends; one ends with the first of its certificates that does.
func lastEnd(chains [][]*x509.Certificate) (last time.Time) {
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(last) {
			last = end
		}
	}
	return last
}

// parseCertificates reads a PEM file of certificates, at least one.
func parseCertificates(path, text string) ([]*x509.Certificate, error) {
	const begin = "-----BEGIN"
	var all []*x509.Certificate
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s: holds a %s; only certificates belong there", path, quote(block.Type))
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d in it: %w", path, len(all)+1, err)
		}
		all = append(all, c)
	}
	switch n := strings.Count(text, begin); {
	case n == 0:
		return nil, fmt.Errorf("%s: holds no certificate; a PEM file has them between %s CERTIFICATE----- and its end", path, begin)
	case n != len(all): // the decoder passes over what is cut off or damaged
		return nil, fmt.Errorf("%s: %d of %d certificates in it are damaged; write it again, whole", path, n-len(all), n)
	}
	return all, nil
}
