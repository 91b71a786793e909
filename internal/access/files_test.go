package access_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/access"
)

// TestFilesThatDoNotFitAreRefused: the error names the file and says what to do, and tells nothing of a key.
func TestFilesThatDoNotFitAreRefused(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	uris := []string{"quorate://peer/n1"}
	good := ca.issue(t, uris)
	with := func(edit func(*x509.Certificate)) holder { return ca.issue(t, uris, edit) }
	for name, c := range map[string]struct {
		ca   string
		h    holder
		file string // that the error names
		want string // of what it says
	}{
		"expired":           {ca.pem, with(ends(today.Add(-time.Second))), "tls.crt", "expired at 2026-06-01T11:59:59Z; renew it"},
		"not yet valid":     {ca.pem, with(func(c *x509.Certificate) { c.NotBefore = today.Add(time.Minute) }), "tls.crt", "not valid before 2026-06-01T12:01:00Z, and now it is 2026-06-01T12:00:00Z; look at this machine's clock"},
		"without a role":    {ca.pem, ca.issue(t, nil), "tls.crt", "it has no role"},
		"a bad role":        {ca.pem, ca.issue(t, []string{"quorate://peer/N1"}), "tls.crt", "not a DNS label"},
		"another's key":     {ca.pem, holder{good.cert, ca.issue(t, uris).key}, "tls.key", "does not match public key"},
		"another CA":        {other.pem, good, "ca.crt", "have it issued by that CA"},
		"only for servers":  {ca.pem, with(usableFor(x509.ExtKeyUsageServerAuth)), "tls.crt", "key usage"},
		"only for clients":  {ca.pem, with(usableFor(x509.ExtKeyUsageClientAuth)), "tls.crt", "key usage"},
		"a CA that is none": {good.cert, good, "ca.crt", "is not a CA's; only what signs others belongs there"},
		"one CA of two":     {ca.pem + good.cert, good, "ca.crt", "certificate 2 in it"},
		"an old CA":         {newAuthority(t, ends(today.Add(-time.Second))).pem, good, "ca.crt", "put the CA's current one there"},
		"an empty CA":       {"", good, "ca.crt", "holds no certificate"},
		"an empty file":     {ca.pem, holder{"", good.key}, "tls.crt", "holds no certificate"},
		"an empty key":      {ca.pem, holder{good.cert, ""}, "tls.key", "failed to find any PEM data"},
		"a key among CAs":   {ca.pem + good.key, good, "ca.crt", `holds a "PRIVATE KEY"; only certificates belong there`},
		"swapped":           {ca.pem, holder{good.key, good.cert}, "tls.crt", `holds a "PRIVATE KEY"`},
		"cut off":           {ca.pem + other.pem[:len(other.pem)/2], good, "ca.crt", "1 of 2 certificates in it are damaged; write it again, whole"},
		"damaged":           {strings.Replace(ca.pem, "MII", "M!I", 1) + other.pem, good, "ca.crt", "damaged"},
		"no certificate":    {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), good, "ca.crt", "certificate 1 in it"},
		"too large":         {strings.Repeat("x", 1<<20+1), good, "ca.crt", "larger than any"},
	} {
		dir := t.TempDir()
		k, err := access.Open(store(t, dir, c.ca, c.h), atToday)
		if k != nil || err == nil || !strings.Contains(err.Error(), filepath.Join(dir, c.file)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s and %q", name, err, c.file, c.want)
		}
		if err != nil && strings.Contains(err.Error(), strings.Split(good.key, "\n")[1]) {
			t.Errorf("%s: the error holds the key", name)
		}
	}
}

func TestAMissingFileIsRefused(t *testing.T) {
	ca := newAuthority(t)
	h := ca.issue(t, []string{"quorate://reader/r"})
	for _, missing := range []string{"ca.crt", "tls.crt", "tls.key"} {
		f := store(t, t.TempDir(), ca.pem, h)
		path := filepath.Join(filepath.Dir(f.CA), missing)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := access.Open(f, atToday); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", missing, err)
		}
	}
	f := store(t, t.TempDir(), ca.pem, h)
	f.Key = ""
	if _, err := access.Open(f, atToday); err == nil || !strings.Contains(err.Error(), "no private key file is given") {
		t.Errorf("not given: %v", err)
	}
}

// TestAHolderThatServesNobodyNeedsNoServerCertificate: only nodes are called.
func TestAHolderThatServesNobodyNeedsNoServerCertificate(t *testing.T) {
	ca := newAuthority(t)
	h := ca.issue(t, []string{"quorate://gateway/g?domains=*"}, usableFor(x509.ExtKeyUsageClientAuth))
	g, err := access.Open(store(t, t.TempDir(), ca.pem, h), atToday)
	if err != nil {
		t.Fatal(err)
	}
	meet(t, ca.keeper(t, "quorate://peer/n1").ServerTLS(), g.ClientTLS(nil)).mustSucceed(t)
}

// TestAChainIsServedWhole: a certificate may be signed by a CA below the one that others trust.
func TestAChainIsServedWhole(t *testing.T) {
	root := newAuthority(t)
	below := &authority{key: newKey(t)}
	template := &x509.Certificate{
		NotBefore: today.Add(-day), NotAfter: today.Add(day), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	below.cert, below.pem = sign(t, template, root.cert, below.key, root.key, nil)
	h := below.issue(t, []string{"quorate://peer/n1"}, ends(today.Add(3*day)))
	if _, err := access.Open(store(t, t.TempDir(), root.pem, h), atToday); err == nil {
		t.Error("a chain with a gap fits")
	}
	h.cert += below.pem
	n1, err := access.Open(store(t, t.TempDir(), root.pem, h), atToday)
	if err != nil {
		t.Fatal(err)
	}
	n2 := root.keeper(t, "quorate://peer/n2")
	meet(t, n1.ServerTLS(), n2.ClientTLS(access.IsNode("n1"))).mustSucceed(t)
	meet(t, n2.ServerTLS(), n1.ClientTLS(access.IsNode("n2"))).mustSucceed(t)
	// What ends first ends it all.
	if want := today.Add(day); !n1.NotAfter().Equal(want) {
		t.Errorf("ends at %v, want %v", n1.NotAfter(), want)
	}
}

// TestTheBestChainCounts: a CA that renewed its own certificate is trusted by both while both are there.
func TestTheBestChainCounts(t *testing.T) {
	ca := newAuthority(t, ends(today.Add(day)))
	renewed := *ca.cert
	renewed.NotAfter = today.Add(9 * day)
	_, longer := sign(t, &renewed, nil, ca.key, ca.key, nil)
	h := ca.issue(t, []string{"quorate://peer/n1"}, ends(today.Add(5*day)))
	for bundle, want := range map[string]time.Duration{ca.pem: day, ca.pem + longer: 5 * day, longer + ca.pem: 5 * day} {
		n1, err := access.Open(store(t, t.TempDir(), bundle, h), atToday)
		if err != nil {
			t.Fatal(err)
		}
		if got := n1.NotAfter().Sub(today); got != want {
			t.Errorf("ends in %v, want %v", got, want)
		}
	}
}
