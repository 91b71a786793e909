package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// certify makes a certificate that signs itself, of whoever is at the address.
func certify(t *testing.T, address string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(address)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// TestWithCertificatesAnyNodeIsAsked, and only one that shows the right one.
func TestWithCertificatesAnyNodeIsAsked(t *testing.T) {
	const far = "192.0.2.7"
	pair, roots := certify(t, far)
	node := &scripted{
		listener: bufconn.Listen(1 << 20), first: clusterOf(1, far+":8081"), sets: []*quotav1.WatchResponse{policiesOf(testSet(), 1)},
		answer: always(allowed), news: make(chan *quotav1.WatchResponse),
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})))
	quotav1.RegisterQuotaServer(server, node)
	quotav1.RegisterRoutingServer(server, node)
	served := make(chan error, 1)
	go func() { served <- server.Serve(node.listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	_, others := certify(t, far)
	for want, trusted := range map[string]*x509.CertPool{"allow": roots, "NO_QUORUM": others} {
		c, err := client.New(client.Config{
			Addresses: []string{far + ":8081"}, TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS13},
			Dialer:  func(ctx context.Context, _ string) (net.Conn, error) { return node.listener.DialContext(ctx) },
			Timeout: 500 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if want == "allow" { // however long a handshake takes here
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if got := said(c.Check(ctx, asks("user", "u1"))); got != want {
				t.Error(got)
			}
		} else if got := said(c.Check(t.Context(), asks("user", "u1"))); got != want {
			t.Error(got)
		}
		c.Close()
	}
}
