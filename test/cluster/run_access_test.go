package cluster_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/test/rig"
)

// TestNodesRefuseWhoMayNot: each of them, by the tool's exit status and by what it says; and none of it takes
// anything.
func TestNodesRefuseWhoMayNot(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(3)})
	foreign := filepath.Join(n.Dir, "foreign") // of another CA
	programs.Issue(t, foreign)
	elsewhere := filepath.Join(n.Dir, "elsewhere") // of the same CA, for another domain
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"ca.crt", "ca.key"} {
		copyFile(t, filepath.Join(n.Certs, file), filepath.Join(elsewhere, file))
	}
	programs.Issue(t, elsewhere, "--domains", "audio-api", "--nodes", "n4")

	policies := n.File(t, hourlyText(300))
	check := []string{"check", "--server", n.GRPC[n.Leader(t, 0)], "--domain", domain, "principal=ann", "api_class=" + apiClass}
	servers := []string{"--server", strings.Join(n.Addresses(), ",")}
	apply := append([]string{"policies", "apply", policies}, servers...)
	status := append([]string{"status"}, servers...)
	for name, refused := range map[string]struct {
		args []string
		want []string
	}{
		"no certificate, check":         {check, []string{"Unavailable"}},
		"no certificate, apply":         {apply, []string{"Unavailable"}},
		"another CA, check":             {slices.Concat(check, rig.FlagsOf(rig.FilesIn(foreign, "gateway"))), []string{"certificate signed by unknown authority"}},
		"another domain, check":         {slices.Concat(check, rig.FlagsOf(rig.FilesIn(elsewhere, "gateway"))), []string{"lets it check"}},
		"another domain, inspect":       {slices.Concat([]string{"inspect"}, check[1:], rig.FlagsOf(rig.FilesIn(elsewhere, "gateway"))), []string{"lets it inspect"}},
		"a reader, check":               {slices.Concat(check, n.Flags("reader")), []string{"lets it check"}},
		"a reader, apply":               {slices.Concat(apply, n.Flags("reader")), []string{"doesn't let it call", "ApplyPolicies", "with the right to it"}},
		"a gateway, apply":              {slices.Concat(apply, n.Flags("gateway")), []string{"doesn't let it call"}},
		"a gateway, status":             {slices.Concat(status, n.Flags("gateway")), []string{"doesn't let it call", "Status"}},
		"a policy writer, check":        {slices.Concat(check, n.Flags("policy-writer")), []string{"lets it check"}},
		"a node, check":                 {slices.Concat(check, n.Flags("n2")), []string{"lets it check"}},
		"a node, apply":                 {slices.Concat(apply, n.Flags("n2")), []string{"doesn't let it call", "ApplyPolicies"}},
		"a node of no such name, check": {slices.Concat(check, rig.FlagsOf(rig.FilesIn(elsewhere, "n4"))), []string{"lets it check"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, out := programs.Quotactl(t, refused.args...)
			if status != 1 {
				t.Errorf("status %d\n%s", status, out)
			}
			for _, want := range refused.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
	// The tool doesn't show what a node would refuse; others may.
	for _, role := range []string{"gateway", "n1"} {
		if err := insist(t, n.GRPC["n1"], rig.FilesIn(foreign, role)); err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
			t.Errorf("%s of another CA: %v", role, err)
		}
	}
	if used := n.inspect(t, "ann"); used != 0 {
		t.Errorf("what was refused has used up %d", used)
	}
	if status, out := programs.Quotactl(t, slices.Concat(check, n.Flags("gateway"))...); status != 0 && !strings.Contains(out, "leader") {
		t.Errorf("who may is refused: status %d\n%s", status, out)
	}
}

// TestANodeSpeaksWithItsOwnCertificateOnly: with another node's, or a gateway's, it doesn't start.
func TestANodeSpeaksWithItsOwnCertificateOnly(t *testing.T) {
	t.Parallel()
	n := programs.Prepare(t, rig.Shape{})
	for _, role := range []string{"n2", "gateway"} {
		p := programs.Launch(t, "quotanode", slices.Concat([]string{"run", "--config", n.Config("n1")}, n.Flags(role))...)
		if status := p.Wait(t); status != 1 || !strings.Contains(p.Stderr.String(), "give the one that was issued for this use") {
			t.Errorf("with the certificate of %s: status %d\n%s", role, status, p.Stderr.String())
		}
	}
	if _, err := os.Stat(n.Data("n1")); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
}

// insist shows a node a certificate, whether or not the node would accept it, and returns what it hears.
func insist(t *testing.T, address string, files access.Files) error {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", address, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }, // whatever is asked for
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	rig.Write(t, to, string(text))
}
