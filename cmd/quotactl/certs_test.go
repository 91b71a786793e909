package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
)

// certs runs `quotactl certs ARGS...`.
func certs(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{Use: "quotactl", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(newCertsCommand())
	status = command.Run(t.Context(), root, append([]string{"certs"}, args...), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func makeCerts(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := certs(t, append([]string{"dev"}, args...)...)
	if status != command.OK || errs != "" {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	return out
}

func openCert(t *testing.T, dir, name string) *access.Keeper {
	t.Helper()
	k, err := access.Open(access.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// contentsOf reads a folder: name to content.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// TestCertsDevMakesOneForEachRole, says so, and lets only their owner read the keys.
func TestCertsDevMakesOneForEachRole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	out := makeCerts(t, "--dir", dir, "--nodes", "n1,n2", "--domains", "video,mail", "--days", "30")
	end := openCert(t, dir, "n1").NotAfter()
	if left := time.Until(end); left > 30*day || left < 30*day-time.Minute {
		t.Errorf("valid for %v, want 30 days", left)
	}
	until := ", until " + end.UTC().Format(time.DateOnly) + "\n"
	var want strings.Builder
	for _, c := range []struct{ name, role string }{
		{"ca", "the CA of the others"}, {"n1", "quorate://peer/n1"}, {"n2", "quorate://peer/n2"},
		{"gateway", "quorate://gateway/dev?domains=mail,video"}, {"policy-writer", "quorate://policy-writer/dev"}, {"reader", "quorate://reader/dev"},
	} {
		path := filepath.Join(dir, c.name)
		want.WriteString("made " + path + ".crt: " + c.role + until + "made " + path + ".key\n")
		mustHaveMode(t, path+".crt", 0o644)
		mustHaveMode(t, path+".key", 0o600)
		if c.name == "ca" {
			continue
		}
		if k := openCert(t, dir, c.name); k.Identity().String() != c.role || k.Warning() != nil {
			t.Errorf("%s: %s, %v", c.name, k.Identity(), k.Warning())
		}
	}
	want.WriteString("They are for trying out only: the CA's key lies beside them, and nobody renews them.\n")
	if out != want.String() {
		t.Errorf("got\n%swant\n%s", out, want.String())
	}
	mustHaveMode(t, dir, 0o700)
	if n := len(contentsOf(t, dir)); n != 12 {
		t.Errorf("%d files", n)
	}
}

func mustHaveMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s: mode %04o, want %04o", path, got, want)
	}
}

// TestCertsDevServersAreFoundByNameAndAddressToo: a node and the gateway, by clients that know no roles; and nobody
// else's serves.
func TestCertsDevServersAreFoundByNameAndAddressToo(t *testing.T) {
	dir := t.TempDir()
	makeCerts(t, "--dir", dir, "--nodes", "n1")
	all := contentsOf(t, dir)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(all["ca.crt"])) {
		t.Fatal("no CA")
	}
	local := []string{"localhost", "127.0.0.1", "::1"}
	for name, serves := range map[string][]string{"n1": append(local, "n1"), "gateway": local, "policy-writer": nil, "reader": nil} {
		pair, err := tls.X509KeyPair([]byte(all[name+".crt"]), []byte(all[name+".key"]))
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"localhost", "n1", "gateway", "127.0.0.1", "::1", "127.0.0.2"} {
			_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
			if (err == nil) != slices.Contains(serves, host) {
				t.Errorf("%s as %s: %v", name, host, err)
			}
		}
	}
}

// TestCertsDevAreOfOneCA: a gateway is let in by a node, and lets in an application that has the gateway's certificate
// too; but it passes for no node.
func TestCertsDevAreOfOneCA(t *testing.T) {
	dir := t.TempDir()
	makeCerts(t, "--dir", dir)
	gateway := openCert(t, dir, "gateway")
	isGateway := func(id access.Identity) error {
		if !id.MayCheckSomewhere() {
			return access.ErrRefused
		}
		return nil
	}
	for name, c := range map[string]struct {
		server string
		expect func(access.Identity) error
		met    bool
	}{
		"a node": {"n3", access.IsNode("n3"), true}, "a gateway": {"gateway", isGateway, true},
		"a gateway for a node": {"gateway", access.IsPeer, false},
	} {
		a, b := net.Pipe()
		served := make(chan error, 1)
		server := openCert(t, dir, c.server).ServerTLS()
		go func() { served <- errors.Join(tls.Server(b, server).Handshake(), b.Close()) }()
		err := errors.Join(tls.Client(a, gateway.ClientTLS(c.expect)).Handshake(), a.Close())
		if other := <-served; (err == nil && other == nil) != c.met {
			t.Errorf("%s: %v, %v", name, err, other)
		}
	}
}

// TestCertsDevNeverOverwrites: a second run keeps all that is there and makes what is missing, with the same CA.
func TestCertsDevNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	makeCerts(t, "--dir", dir, "--nodes", "n1", "--days", "10")
	before := contentsOf(t, dir)
	out := makeCerts(t, "--dir", dir, "--nodes", "n1,n2", "--domains", "other", "--days", "100")
	after := contentsOf(t, dir)
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was written over", name)
		}
	}
	if len(after) != len(before)+2 {
		t.Errorf("%d files, then %d", len(before), len(after))
	}
	for _, want := range []string{"kept " + dir + "/ca.crt: ", "kept " + dir + "/n1.key\n", "kept " + dir + "/gateway.crt: quorate://gateway/dev?domains=*, ", "made " + dir + "/n2.crt: quorate://peer/n2, "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// The CA signs nothing beyond its own end.
	if n1, n2 := openCert(t, dir, "n1"), openCert(t, dir, "n2"); !n2.NotAfter().Equal(n1.NotAfter()) {
		t.Errorf("n1 ends at %v, n2 at %v", n1.NotAfter(), n2.NotAfter())
	}
	if again := makeCerts(t, "--dir", dir, "--nodes", "n1,n2"); strings.Contains(again, "made ") {
		t.Errorf("a third run:\n%s", again)
	}
}

// TestCertsDevSaysWhatIsInTheWay, changes nothing of it, and ends with 1.
func TestCertsDevSaysWhatIsInTheWay(t *testing.T) {
	other := t.TempDir()
	makeCerts(t, "--dir", other, "--nodes", "n1")
	foreign := contentsOf(t, other)
	for name, c := range map[string]struct {
		set  map[string]string // files to replace; empty: to remove
		want string
	}{
		"a CA without its key":    {map[string]string{"ca.key": ""}, "ca.crt is there without its other half"},
		"a CA's key without it":   {map[string]string{"ca.crt": ""}, "ca.key is there without its other half"},
		"a node without its key":  {map[string]string{"n1.key": ""}, "n1.crt is there without its other half"},
		"another CA's key":        {map[string]string{"ca.key": foreign["ca.key"]}, "private key does not match"},
		"no CA":                   {map[string]string{"ca.crt": foreign["n1.crt"], "ca.key": foreign["n1.key"]}, "ca.crt is not a CA's"},
		"another CA":              {map[string]string{"ca.crt": foreign["ca.crt"], "ca.key": foreign["ca.key"]}, "remove them to have them made anew"},
		"another CA's node":       {map[string]string{"n1.crt": foreign["n1.crt"], "n1.key": foreign["n1.key"]}, "n1.key are there but of no use"},
		"a node's key of another": {map[string]string{"n1.key": foreign["n1.key"]}, "n1.key are there but of no use"},
	} {
		dir := t.TempDir()
		makeCerts(t, "--dir", dir, "--nodes", "n1")
		for file, text := range c.set {
			err := os.Remove(filepath.Join(dir, file))
			if err == nil && text != "" {
				err = os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		before := contentsOf(t, dir)
		status, _, errs := certs(t, "dev", "--dir", dir, "--nodes", "n1,n2")
		if status != command.Failure || !strings.Contains(errs, c.want) || strings.Contains(errs, "--help") {
			t.Errorf("%s: status %d, want it to say %q:\n%s", name, status, c.want, errs)
		}
		after := contentsOf(t, dir)
		for file, text := range before {
			if after[file] != text {
				t.Errorf("%s: %s was changed", name, file)
			}
		}
	}
	file := writeFile(t, "a-file", "")
	if status, _, errs := certs(t, "dev", "--dir", file); status != command.Failure || !strings.Contains(errs, file) {
		t.Errorf("a file for a folder: status %d, %s", status, errs)
	}
}

// TestCertsDevRefusesWrongUsage, and makes nothing.
func TestCertsDevRefusesWrongUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	for args, want := range map[string]string{
		"--days 0":          "--days 0: not from 1 to 3650",
		"--days 3651":       "--days 3651",
		"--days x":          "invalid argument",
		"--nodes N1":        `--nodes "N1": its node is not a DNS label`,
		"--nodes n1,":       `--nodes "": its node is not a DNS label`,
		"--nodes ../x":      `--nodes "../x": its node is not a DNS label`,
		"--nodes n1,n1":     `--nodes "n1": there is another n1.crt`,
		"--nodes ca":        `--nodes "ca": there is another ca.crt`,
		"--nodes n1,reader": `--nodes "reader": there is another reader.crt`,
		"--nodes=":          "--nodes: names none",
		"--domains=":        "--domains []: a gateway needs domains=",
		"--domains a,,b":    `--domains ["a" "" "b"]: a domain is empty`,
		"--domains a,a":     `domain "a" is named twice`,
		"--dir=":            "--dir: is empty",
		"n1":                "unknown command",
		"--force":           "unknown flag",
	} {
		status, out, errs := certs(t, append([]string{"dev", "--dir", dir}, strings.Fields(args)...)...)
		if status != command.Usage || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, want it to say %q:\n%s%s", args, status, want, out, errs)
		}
	}
	if status, _, errs := certs(t, "prod"); status != command.Usage || !strings.Contains(errs, "unknown command") {
		t.Errorf("a misspelt command: status %d, %s", status, errs)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder was made: %v", err)
	}
}
