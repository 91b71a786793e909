package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/cmd/internal/command"
)

// write writes a configuration and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "operator.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func nothing(string) string { return "" }

// TestEveryFaultOfAConfigurationIsToldAtOnce, with its line.
func TestEveryFaultOfAConfigurationIsToldAtOnce(t *testing.T) {
	for text, want := range map[string]string{
		"nodes: [a:8081]\nnamespace: q": "",
		`nodes: [a:8081, "b", a:8081]
nodez: [x]
resync: 1d
metricsAddress: nowhere
tls: {ca: x}
domains:
- {name: video, onNoMatch: allow}
- {name: video}
allowedDomains:
- {namespace: media}
leaderElection: perhaps
`: `F:1: nodes[1]: "b" is not HOST:PORT, as in 127.0.0.1:8081
F:1: nodes[2]: "a:8081" has no host, or is given twice
F:1: namespace: is required, here or by the environment variable POD_NAMESPACE: the operator's own
F:2: nodez: unknown field; known are nodes, tls, domains, allowedDomains, certificates, resync, leaderElection, metricsAddress, healthAddress, namespace, logLevel
F:3: resync: "1d" is not a duration; write 24h
F:4: metricsAddress: "nowhere" is not HOST:PORT, as in 127.0.0.1:8081
F:5: tls.cert: is required
F:5: tls.key: is required
F:7: domains[0].onNoMatch: "allow" is not one of Deny, Allow
F:8: domains[1].name: "video" is already the name of domains[0]
F:10: allowedDomains[0].domains: is required
F:11: leaderElection: "perhaps" is not true or false`,
		"nodes: [a:8081]\nnamespace: q\nresync: 0s\ncertificates: {nodes: [n-0], prefix: q, lifetime: 0s}": "F:3: resync: 0s is not above 0\nF:4: certificates.lifetime: 0s is not above 0",
		"nodes: [":                               "F:1: is not YAML: did not find expected node content",
		"- a":                                    "F:1: is a list, not a mapping",
		"":                                       "F:1: is empty",
		"nodes: [a:8081]\nnamespace: q\n---\n{}": "F:3: has more than one document",
		"logLevel: info": "F:1: nodes: is required: the gRPC addresses of all nodes\n" +
			"F:1: namespace: is required, here or by the environment variable POD_NAMESPACE: the operator's own",
		"nodes: 7\nnamespace: 7\nlogLevel: loud\nallowedDomains: [{domains: [], namespace: a}]": "F:1: nodes: is a single value, not a list\n" +
			"F:2: namespace: 7 is not a string; quote it: \"7\"\n" +
			"F:3: logLevel: \"loud\" is not one of debug, info, warn, error\n" +
			"F:4: allowedDomains[0].domains: is empty",
		"nodes: [a:8081]\nnamespace: q\nresync: 0.5s\ntls: {ca: a, cert: b, key: c}\ncertificates: {nodes: [n-0], prefix: q}": "F:3: resync: 500ms is out of range, 1s to 1h\n" +
			"F:5: certificates: and tls exclude each other: who issues certificates has one",
	} {
		file := write(t, text)
		_, err := readConfig(file, nothing)
		got := ""
		if err != nil {
			got = strings.ReplaceAll(err.Error(), file, "F")
		}
		if got != want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", text, got, want)
		}
	}
}

// TestAConfigurationSaysWhatItSays, with defaults for the rest.
func TestAConfigurationSaysWhatItSays(t *testing.T) {
	c, err := readConfig(write(t, `
nodes: [quorate-0.quorate-nodes.q.svc:8081]
domains: [{name: video, onNoMatch: Allow, required: [user]}]
allowedDomains: [{domains: [video, audio], namespace: media}]
certificates: {nodes: [quorate-0], prefix: quorate, lifetime: 2160h, gatewayNamespaces: [media]}
logLevel: info
`), func(name string) string { return map[string]string{"POD_NAMESPACE": "q"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace != "q" || c.Resync != time.Minute || !c.LeaderElection || c.MetricsAddress != ":8080" || c.HealthAddress != ":8081" {
		t.Errorf("defaults: %+v", c)
	}
	if len(c.Domains) != 1 || !c.Domains[0].OnNoMatchAllow || c.Domains[0].Required[0] != "user" || len(c.Allowed["media"]) != 2 {
		t.Errorf("domains %+v, allowed %v", c.Domains, c.Allowed)
	}
	if c.Certificates.Lifetime != 2160*time.Hour || c.Certificates.Namespace != "q" || c.Certificates.Domains["media"][1] != "audio" {
		t.Errorf("issuer %+v", c.Certificates)
	}
}

// TestWrongUsageEndsWith2, before anybody is asked.
func TestWrongUsageEndsWith2(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"run", "x"}, {"run", "--config", "/nonexistent/o.yaml"}, {"run", "--nodes", "x"}, {"walk"}} {
		var out, errs bytes.Buffer
		p := program{out: &out, errs: &errs, getenv: nothing, kube: func() (*rest.Config, error) {
			t.Errorf("%v: the API server is looked for", args)
			return nil, io.EOF
		}}
		if status := p.run(t.Context(), args); status != command.Usage || errs.Len() == 0 {
			t.Errorf("%v: status %d, %q", args, status, errs.String())
		}
	}
}

// TestItWaitsForAnAPIServerThatIsAway: it is alive, isn't ready, and ends in order when it is told to.
func TestItWaitsForAnAPIServerThatIsAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	p := program{out: w, errs: io.Discard, getenv: nothing, kube: func() (*rest.Config, error) {
		return &rest.Config{Host: "https://127.0.0.1:1"}, nil // nobody listens there
	}}
	file := write(t, "nodes: ['127.0.0.1:1']\nnamespace: q\nmetricsAddress: '127.0.0.1:0'\nhealthAddress: '127.0.0.1:0'")
	ended := make(chan int, 1)
	go func() {
		ended <- p.run(ctx, []string{"run", "--config", file})
		w.Close() // nothing more is said
	}()
	addresses := map[string]string{}
	for range 2 {
		var name, address string
		if n, err := fmt.Fscan(r, &name, &address); n != 2 || err != nil {
			t.Fatal(err)
		}
		addresses[name] = address
	}
	for url, want := range map[string]string{
		addresses["health"] + "/livez":    "200 ok",
		addresses["health"] + "/healthz":  "200 ok",
		addresses["metrics"] + "/metrics": "200 ",
		addresses["health"] + "/nothing":  "404 ",
	} {
		response, err := http.Get("http://" + url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if got := response.Status[:4] + string(body); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, %v", url, got, err)
		}
		response.Body.Close()
	}
	cancel()
	if status := <-ended; status != command.OK {
		t.Errorf("status %d", status)
	}
}
