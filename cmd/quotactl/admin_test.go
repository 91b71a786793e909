package main

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
)

// admin answers as the test says, and keeps what it was asked.
type admin struct {
	quotav1.UnimplementedAdminServer
	status  *quotav1.StatusResponse
	listed  []*quotav1.GetPoliciesResponse
	applied *quotav1.ApplyPoliciesResponse
	refused error // of ApplyPolicies
	failure error // of all others

	options *quotav1.ApplyOptions
	text    string
	caller  string // what its certificate says
}

func (a *admin) Status(ctx context.Context, _ *quotav1.StatusRequest) (*quotav1.StatusResponse, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			a.caller = info.State.PeerCertificates[0].URIs[0].String()
		}
	}
	return a.status, a.failure
}

func (a *admin) GetPolicies(_ *quotav1.GetPoliciesRequest, s grpc.ServerStreamingServer[quotav1.GetPoliciesResponse]) error {
	for _, m := range a.listed {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return a.failure
}

func (a *admin) ApplyPolicies(s grpc.ClientStreamingServer[quotav1.ApplyPoliciesRequest, quotav1.ApplyPoliciesResponse]) error {
	for first := true; ; first = false {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			if a.refused != nil {
				return a.refused
			}
			return s.SendAndClose(a.applied)
		}
		if err != nil {
			return err
		}
		if first {
			a.options = m.GetOptions()
		}
		a.text += string(m.GetPolicies())
	}
}

// serveAdmin serves a on this machine, with certificates if there is a keeper, and returns its address.
func serveAdmin(t *testing.T, a *admin, keeper *access.Keeper) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var options []grpc.ServerOption
	if keeper != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(keeper.ServerTLS())))
	}
	s := grpc.NewServer(options...)
	quotav1.RegisterAdminServer(s, a)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestCertificatesSayWhoAsks: with them a node is asked as their holder, and only a node is believed.
func TestCertificatesSayWhoAsks(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := quotactl(t, "certs", "dev", "--dir", dir); code != command.OK {
		t.Fatal(errs)
	}
	open := func(name string) *access.Keeper {
		k, err := access.Open(access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	as := func(name string) []string {
		return []string{"--ca", filepath.Join(dir, "ca.crt"), "--cert", filepath.Join(dir, name+".crt"), "--key", filepath.Join(dir, name+".key")}
	}
	a := &admin{status: whole()}
	at := serveAdmin(t, a, open("n1"))
	code, _, errs := quotactl(t, append([]string{"status", "--server", at}, as("reader")...)...)
	if code != command.OK || a.caller != "quorate://reader/dev" {
		t.Errorf("status %d, asked by %q: %s", code, a.caller, errs)
	}
	impostor := serveAdmin(t, a, open("reader"))
	if code, out, errs := quotactl(t, append([]string{"status", "--server", impostor}, as("reader")...)...); code != command.Failure || out != "" || !strings.Contains(errs, "quotactl: "+impostor+": Unavailable: ") {
		t.Errorf("a reader is taken for a node: status %d, %s", code, errs)
	}
	if code, _, errs := quotactl(t, "status", "--server", at); code != command.Failure || !strings.HasPrefix(errs, "quotactl: "+at+": Unavailable: ") {
		t.Errorf("in clear: status %d, %s", code, errs)
	}
}

// TestAGatewayIsBelievedInItsDomainsOnly when it answers a check.
func TestAGatewayIsBelievedInItsDomainsOnly(t *testing.T) {
	for _, c := range []struct {
		role   access.Role
		domain string
		want   bool
	}{
		{access.Role{Kind: access.Peer, Name: "n1"}, "", true},
		{access.Role{Kind: access.Peer, Name: "n1"}, "d", true},
		{access.Role{Kind: access.Gateway, Name: "g", Domains: []string{"d"}}, "d", true},
		{access.Role{Kind: access.Gateway, Name: "g", Domains: []string{"d"}}, "e", false},
		{access.Role{Kind: access.Gateway, Name: "g", AllDomains: true}, "", false},
		{access.Role{Kind: access.Reader, Name: "r"}, "d", false},
		{access.Role{Kind: access.PolicyWriter, Name: "w"}, "d", false},
	} {
		if err := decides(c.domain)(identityOf(t, c.role)); (err == nil) != c.want {
			t.Errorf("%s in %q: %v", c.role, c.domain, err)
		}
	}
}

func identityOf(t *testing.T, role access.Role) access.Identity {
	t.Helper()
	id, err := access.FromCertificate(&x509.Certificate{URIs: []*url.URL{role.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestFlagsOfCertificatesGoTogether, for every command that has them.
func TestFlagsOfCertificatesGoTogether(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for _, words := range [][]string{{"check", "a=b"}, {"inspect", "a=b"}, {"status"}, {"policies", "list"}, {"policies", "apply", os.DevNull}} {
		for _, flags := range [][]string{{"--ca", "x"}, {"--ca", "x", "--key", "y"}, {"--cert", "x", "--key", "y"}} {
			code, _, errs := quotactl(t, append(words, flags...)...)
			if code != command.Usage || !strings.HasPrefix(errs, "quotactl: --ca, --cert and --key go together") {
				t.Errorf("%q %q: status %d, %s", words, flags, code, errs)
			}
		}
		code, _, errs := quotactl(t, append(words, "--ca", missing, "--cert", missing, "--key", missing)...)
		if code != command.Failure || !strings.HasPrefix(errs, "quotactl: read the CA: open "+missing) {
			t.Errorf("%q: status %d, %s", words, code, errs)
		}
	}
}

// TestARefusalSaysWhatToDo.
func TestARefusalSaysWhatToDo(t *testing.T) {
	a := &admin{}
	at := serveAdmin(t, a, nil)
	for code, want := range map[codes.Code]string{
		codes.PermissionDenied: "PermissionDenied: why; give a certificate with the right to it by --ca, --cert and --key\n",
		codes.Unauthenticated:  "Unauthenticated: why; give a certificate with the right to it by --ca, --cert and --key\n",
		codes.DeadlineExceeded: "DeadlineExceeded: why; nothing came within --timeout 5s\n",
		codes.Internal:         "Internal: why\n",
	} {
		a.failure = status.Error(code, "why")
		for _, args := range [][]string{{"status"}, {"policies", "list"}} {
			got, out, errs := quotactl(t, append(args, "--server", at)...)
			if got != command.Failure || out != "" || errs != "quotactl: "+at+": "+want {
				t.Errorf("%v: status %d, %q, %q", args, got, out, errs)
			}
		}
	}
	for want, args := range map[string][]string{
		"--server: names none":            {"--server", ""},
		"--timeout 0s: not above 0":       {"--timeout", "0"},
		`--output "xml": not one of text`: {"-o", "xml"},
	} {
		for _, words := range [][]string{{"status"}, {"policies", "list"}} {
			if code, out, errs := quotactl(t, append(words, args...)...); code != command.Usage || out != "" || !strings.HasPrefix(errs, "quotactl: "+want) {
				t.Errorf("%v %v: status %d, %q, %q", words, args, code, out, errs)
			}
		}
	}
	if code, _, errs := quotactl(t, "status", "--server", "192.0.2.1:1"); code != command.Failure || !strings.Contains(errs, "--server: dial \"192.0.2.1:1\": not an address of this machine") {
		t.Errorf("another machine: status %d, %q", code, errs)
	}
}
