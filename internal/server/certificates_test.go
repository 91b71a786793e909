package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/server"
)

// The roles that tests call in.
const (
	nodeN1      = "quorate://peer/n1"
	nodeN2      = "quorate://peer/n2"
	gatewayHere = "quorate://gateway/g?domains=video-api"
	gatewayElse = "quorate://gateway/g?domains=other"
	writer      = "quorate://policy-writer/w"
	reader      = "quorate://reader/r"
)

// authority is a CA. It is valid for a day, from the time of the test on, which may be a bubble's.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{}
	a.key, a.cert = a.sign(t, &x509.Certificate{
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) sign(t testing.TB, template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.Subject, template.NotBefore = pkix.Name{CommonName: "test"}, time.Now().Add(-time.Minute)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

// issue writes a certificate with a role (none: empty) into a folder, with its key and the CA.
func (a *authority) issue(t testing.TB, dir, role string, lasting time.Duration) access.Files {
	t.Helper()
	template := &x509.Certificate{
		NotAfter: time.Now().Add(lasting), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if role != "" {
		uri, err := url.Parse(role)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{uri}
	}
	key, cert := a.sign(t, template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	files := access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for path, block := range map[string]pem.Block{
		files.CA:   {Type: "CERTIFICATE", Bytes: a.cert.Raw},
		files.Cert: {Type: "CERTIFICATE", Bytes: cert.Raw},
		files.Key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		err = errors.Join(err, os.WriteFile(path, pem.EncodeToMemory(&block), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// keep opens a certificate that lasts for an hour.
func (a *authority) keep(t testing.TB, dir, role string) *access.Keeper {
	t.Helper()
	k, err := access.Open(a.issue(t, dir, role, time.Hour), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// secured is a node with certificates, and the CA that its callers have theirs from.
type secured struct {
	*node
	ca       *authority
	listener *bufconn.Listener
	conns    []*grpc.ClientConn
	dir      string // of the node's certificate
	keeper   *access.Keeper
}

// newSecured starts a node n1 with certificates.
func newSecured(t testing.TB, d server.Decider, c member, dir string) *secured {
	t.Helper()
	s := &secured{ca: newAuthority(t), listener: bufconn.Listen(1 << 20), dir: dir}
	s.keeper = s.ca.keep(t, dir, nodeN1)
	s.node = newNodeWith(d, func(cfg *server.Config) { cfg.Access, cfg.Cluster, cfg.Member = s.keeper, c, c })
	s.Start(server.Listeners{GRPC: s.listener, Ops: bufconn.Listen(1 << 10)})
	return s
}

// dial connects with these credentials.
func (s *secured) dial(t testing.TB, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(c),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	s.conns = append(s.conns, conn)
	return conn
}

// as connects in a role.
func (s *secured) as(t testing.TB, role string) *grpc.ClientConn {
	t.Helper()
	return s.dial(t, credentials.NewTLS(s.ca.keep(t, t.TempDir(), role).ClientTLS(nil)))
}

// close ends all connections and the node.
func (s *secured) close(t testing.TB) {
	t.Helper()
	for _, conn := range s.conns {
		if err := conn.Close(); err != nil {
			t.Errorf("close a connection: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}
