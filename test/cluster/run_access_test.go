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
)

// TestNodesRefuseWhoMayNot: each of them, by the tool's exit status and by what it says; and none of it takes
// anything.
func TestNodesRefuseWhoMayNot(t *testing.T) {
	t.Parallel()
	n := found(t, shape{policies: hourlyText(3)})
	foreign := filepath.Join(n.dir, "foreign") // of another CA
	issue(t, foreign)
	elsewhere := filepath.Join(n.dir, "elsewhere") // of the same CA, for another domain
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"ca.crt", "ca.key"} {
		copyFile(t, filepath.Join(n.certs, file), filepath.Join(elsewhere, file))
	}
	issue(t, elsewhere, "--domains", "audio-api", "--nodes", "n4")

	policies := n.file(t, hourlyText(300))
	check := []string{"check", "--server", n.grpc[n.leader(t, 0)], "--domain", domain, "principal=ann", "api_class=" + apiClass}
	servers := []string{"--server", strings.Join(n.addresses(), ",")}
	apply := append([]string{"policies", "apply", policies}, servers...)
	status := append([]string{"status"}, servers...)
	for name, refused := range map[string]struct {
		args []string
		want []string
	}{
		"no certificate, check":         {check, []string{"Unavailable"}},
		"no certificate, apply":         {apply, []string{"Unavailable"}},
		"another CA, check":             {slices.Concat(check, flagsOf(filesIn(foreign, "gateway"))), []string{"certificate signed by unknown authority"}},
		"another domain, check":         {slices.Concat(check, flagsOf(filesIn(elsewhere, "gateway"))), []string{"lets it check"}},
		"another domain, inspect":       {slices.Concat([]string{"inspect"}, check[1:], flagsOf(filesIn(elsewhere, "gateway"))), []string{"lets it inspect"}},
		"a reader, check":               {slices.Concat(check, n.flags("reader")), []string{"lets it check"}},
		"a reader, apply":               {slices.Concat(apply, n.flags("reader")), []string{"doesn't let it call", "ApplyPolicies", "with the right to it"}},
		"a gateway, apply":              {slices.Concat(apply, n.flags("gateway")), []string{"doesn't let it call"}},
		"a gateway, status":             {slices.Concat(status, n.flags("gateway")), []string{"doesn't let it call", "Status"}},
		"a policy writer, check":        {slices.Concat(check, n.flags("policy-writer")), []string{"lets it check"}},
		"a node, check":                 {slices.Concat(check, n.flags("n2")), []string{"lets it check"}},
		"a node, apply":                 {slices.Concat(apply, n.flags("n2")), []string{"doesn't let it call", "ApplyPolicies"}},
		"a node of no such name, check": {slices.Concat(check, flagsOf(filesIn(elsewhere, "n4"))), []string{"lets it check"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, out := quotactl(t, refused.args...)
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
		if err := insist(t, n.grpc["n1"], filesIn(foreign, role)); err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
			t.Errorf("%s of another CA: %v", role, err)
		}
	}
	if used := n.inspect(t, "ann"); used != 0 {
		t.Errorf("what was refused has used up %d", used)
	}
	if status, out := quotactl(t, slices.Concat(check, n.flags("gateway"))...); status != 0 && !strings.Contains(out, "leader") {
		t.Errorf("who may is refused: status %d\n%s", status, out)
	}
}

// TestANodeSpeaksWithItsOwnCertificateOnly: with another node's, or a gateway's, it doesn't start.
func TestANodeSpeaksWithItsOwnCertificateOnly(t *testing.T) {
	t.Parallel()
	n := &nodes{dir: t.TempDir(), grpc: map[string]string{}, process: map[string]*process{}}
	n.certs = filepath.Join(n.dir, "certs")
	issue(t, n.certs)
	n.configure(t, shape{})
	for _, role := range []string{"n2", "gateway"} {
		p := launch(t, "quotanode", slices.Concat([]string{"run", "--config", n.config("n1")}, n.flags(role))...)
		if status := p.wait(t); status != 1 || !strings.Contains(p.stderr.String(), "give the one that was issued for this use") {
			t.Errorf("with the certificate of %s: status %d\n%s", role, status, p.stderr.String())
		}
	}
	if _, err := os.Stat(n.data("n1")); !os.IsNotExist(err) {
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
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
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
	write(t, to, string(text))
}
