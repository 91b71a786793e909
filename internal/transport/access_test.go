package transport_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/transport"
)

// keep writes a certificate with a role into a folder, with the authority's and those that are trusted besides, and
// opens them as a node does.
func (a *authority) keep(t *testing.T, dir, role string, trusted ...*authority) *access.Keeper {
	t.Helper()
	uri, err := url.Parse(role)
	if err != nil {
		t.Fatal(err)
	}
	key, cert := issue(t, a, &x509.Certificate{
		URIs: []*url.URL{uri}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	files := access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for path, block := range map[string]pem.Block{
		files.CA:   {Type: "CERTIFICATE", Bytes: a.cert.Raw},
		files.Cert: {Type: "CERTIFICATE", Bytes: cert.Raw},
		files.Key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		err = errors.Join(err, os.WriteFile(path, pem.EncodeToMemory(&block), 0o600))
	}
	var more []byte
	for _, other := range trusted {
		more = append(more, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.cert.Raw})...)
	}
	old, errRead := os.ReadFile(files.CA)
	err = errors.Join(err, errRead, os.WriteFile(files.CA, append(old, more...), 0o600))
	k, errOpen := access.Open(files, time.Now)
	if err = errors.Join(err, errOpen); err != nil {
		t.Fatal(err)
	}
	return k
}

// by gives a node's links the certificates that a keeper holds.
func by(k *access.Keeper) func(*transport.LinkOptions) {
	return func(o *transport.LinkOptions) {
		o.Server, o.Client = k.ServerTLS, func() *tls.Config { return k.ClientTLS(access.IsPeer) }
		o.PeerName = func(s tls.ConnectionState) (string, error) {
			id, err := k.Identify(s)
			node, _ := id.Peer()
			return node, err
		}
	}
}

// Links take the certificates of package access as they are: a node is who its certificate says, a gateway
// is none, and what rotates counts from the next connection on.
func TestLinksGoByTheCertificatesThatNodesHave(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		a, next := newAuthority(t), newAuthority(t)
		k2 := a.keep(t, dirs[1], "quorate://peer/n2")
		n := newMemNet()
		r1 := replica(t, n.node(t, "n1", by(a.keep(t, dirs[0], "quorate://peer/n1"))), "n1", 1)
		r2 := replica(t, n.node(t, "n2", by(k2)), "n2", 1)
		gateway := replica(t, n.node(t, "n3", by(a.keep(t, dirs[2], "quorate://gateway/n3?domains=*"))), "n3", 1)
		answer(t, r1, follow)
		answer(t, r2, follow)
		if err := errors.Join(heartbeat(r1, address("n2"), 1), heartbeat(r2, address("n1"), 1)); err != nil {
			t.Error(err)
		}
		if heartbeat(gateway, address("n1"), 1) == nil || heartbeat(r1, address("n3"), 1) == nil {
			t.Error("a gateway passes for a node")
		}

		next.keep(t, dirs[1], "quorate://peer/n2")
		if changed, err := k2.Reload(); !changed || err != nil {
			t.Fatalf("reload: %v, %v", changed, err)
		}
		n.cut("n2")
		time.Sleep(10 * time.Second)
		if heartbeat(r1, address("n2"), 1) == nil {
			t.Error("n1 still takes n2, whose certificates are another authority's now")
		}
	})
}
