package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem = sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	return a
}

// sign makes a key and a certificate for it, which a CA signs; nil: it signs itself.
func sign(t *testing.T, template *x509.Certificate, ca *authority) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue writes the three files of a holder of that role into a folder.
func (a *authority) issue(t *testing.T, dir, role string, usages ...x509.ExtKeyUsage) access.Files {
	t.Helper()
	uri, err := url.Parse(role)
	if err != nil {
		t.Fatal(err)
	}
	_, key, cert := sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, URIs: []*url.URL{uri}, ExtKeyUsage: usages}, a)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f := access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "g.crt"), Key: filepath.Join(dir, "g.key")}
	for path, text := range map[string][]byte{f.CA: a.pem, f.Cert: cert, f.Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

const (
	gatewayRole = "quorate://gateway/edge?domains=*"
	toServe     = x509.ExtKeyUsageServerAuth
	toAsk       = x509.ExtKeyUsageClientAuth
)

func flags(f access.Files) []string {
	return append([]string{"--nodes", "n1.example:8081", "--ca", f.CA, "--cert", f.Cert, "--key", f.Key}, anywhere...)
}

// TestWithCertificatesCallersOverGRPCNeedOneToo, and nodes are asked with the gateway's.
func TestWithCertificatesCallersOverGRPCNeedOneToo(t *testing.T) {
	ca := newAuthority(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &pipe{lines: make(chan string, 10)}
	c := &cluster{}
	p := program{out: out, errs: io.Discard, connect: c.connect}
	ended := make(chan int, 1)
	go func() { ended <- p.run(ctx, flags(ca.issue(t, t.TempDir(), gatewayRole, toServe, toAsk))) }()
	out.next(t, "http")
	rpc := out.next(t, "grpc")
	if c.cfg.TLS == nil {
		t.Error("nodes are asked in clear")
	}
	caller, err := access.Open(ca.issue(t, t.TempDir(), "quorate://gateway/app?domains=video-api", toAsk), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	check := func(conn *client.Conn, err error) error {
		if err != nil {
			return err
		}
		_, err = conn.Check(t.Context(), &quotav1.CheckRequest{Descriptors: []*quotav1.Descriptor{{}}})
		return errors.Join(err, conn.Close())
	}
	if err := check(client.Dial(rpc, caller.ClientTLS(isGateway))); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := check(client.Dial(rpc, nil)); err == nil {
		t.Error("a caller without a certificate is answered")
	}
	cancel()
	if status := <-ended; status != command.OK {
		t.Errorf("status %d", status)
	}
}

// TestOnlyAGatewaysCertificateIsTaken: with another one every check would be refused by the nodes.
func TestOnlyAGatewaysCertificateIsTaken(t *testing.T) {
	ca := newAuthority(t)
	for _, role := range []string{"quorate://peer/n1", "quorate://reader/r", "quorate://policy-writer/w"} {
		var c cluster
		status, _, errs := once(t, &c, flags(ca.issue(t, t.TempDir(), role, toServe, toAsk))...)
		if status != command.Failure || c.cfg.Addresses != nil || !strings.Contains(errs, "it is no gateway's, but of "+role) {
			t.Errorf("%s: status %d, %q", role, status, errs)
		}
	}
	var c cluster
	f := ca.issue(t, t.TempDir(), gatewayRole, toServe, toAsk)
	f.Key = write(t, "other.key", "none")
	if status, _, errs := once(t, &c, flags(f)...); status != command.Failure || !strings.Contains(errs, "private key "+f.Key) {
		t.Errorf("status %d, %q", status, errs)
	}
}

// TestAnAddressForGRPCNeedsACertificateForServers: with another one no caller would ever be answered there.
func TestAnAddressForGRPCNeedsACertificateForServers(t *testing.T) {
	ca := newAuthority(t)
	for name, c := range map[string]struct {
		usages []x509.ExtKeyUsage
		fit    bool
	}{
		"to serve and to ask": {[]x509.ExtKeyUsage{toServe, toAsk}, true},
		"for anything":        {[]x509.ExtKeyUsage{x509.ExtKeyUsageAny}, true},
		"without a usage":     {nil, true},
		"to ask":              {[]x509.ExtKeyUsage{toAsk}, false},
		"to ask and to sign":  {[]x509.ExtKeyUsage{toAsk, x509.ExtKeyUsageCodeSigning}, false},
	} {
		var asked cluster
		f := ca.issue(t, t.TempDir(), gatewayRole, c.usages...)
		status, out, errs := once(t, &asked, flags(f)...)
		if c.fit {
			if status != command.OK || errs != "" {
				t.Errorf("%s: status %d, %q", name, status, errs)
			}
			continue
		}
		want := "gateway: --grpc-address: callers over gRPC would all refuse the certificate in " + f.Cert + ", which isn't issued for servers: " +
			"have it issued with the extended key usage serverAuth too\n"
		if status != command.Failure || out != "" || errs != want || asked.cfg.Addresses != nil {
			t.Errorf("%s: status %d, %q, %q", name, status, out, errs)
		}
	}
}

// TestWhatIsWrongWithFilesThatWorkIsLogged: a key that everybody can read; where nobody asked for gRPC, a certificate that
// no caller there accepts.
func TestWhatIsWrongWithFilesThatWorkIsLogged(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		usages []x509.ExtKeyUsage
		mode   os.FileMode
		want   string // empty: nothing
	}{
		{[]x509.ExtKeyUsage{toServe, toAsk}, 0o600, ""},
		{[]x509.ExtKeyUsage{toAsk}, 0o600, "certificate not issued for servers"},
		{[]x509.ExtKeyUsage{toServe, toAsk}, 0o644, "private key exposed"},
	} {
		f := ca.issue(t, t.TempDir(), gatewayRole, c.usages...)
		if err := os.Chmod(f.Key, c.mode); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		g := &sidecar{program: &program{connect: new(cluster).connect}, log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := g.open(&settings{nodes: []string{"n1.example:8081"}, http: ":0", grpc: ":0", health: ":0", files: f}); err != nil {
			t.Errorf("%q: %v", c.want, err)
		}
		if got := log.String(); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("log %q, want %q", got, c.want)
		}
		if err := g.closeListeners(); err != nil {
			t.Error(err)
		}
	}
}

// TestNewCertificatesAreTakenWhileItRuns: good ones within seconds; bad ones are told, and the old ones stay.
func TestNewCertificatesAreTakenWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, dir := newAuthority(t), t.TempDir()
		keeper, err := access.Open(ca.issue(t, dir, "quorate://gateway/old?domains=*", toServe, toAsk), time.Now, isGateway)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		g := &sidecar{keeper: keeper, log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); g.watch(ctx) }()
		step := func(role, now, logged string) {
			log.Reset()
			ca.issue(t, dir, role, toServe, toAsk)
			<-time.After(access.PollEvery + time.Second)
			synctest.Wait()
			if got := keeper.Identity().String(); got != now || !strings.Contains(log.String(), logged) {
				t.Errorf("%s: in force is %s; log %q", role, got, log.String())
			}
		}
		step("quorate://gateway/new?domains=*", "quorate://gateway/new?domains=*", "certificates replaced")
		step("quorate://peer/n1", "quorate://gateway/new?domains=*", "certificates not replaced")
		cancel()
		<-ended
	})
}
