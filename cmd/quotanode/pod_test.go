package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/access"
)

// podConfig is one file for all pods: nothing in it is about one of them.
const podConfig = `dataDir: /var/lib/quorate/node
nodes:
- {name: quorate-0, links: "quorate-0.quorate-nodes.limits.svc.cluster.local:7001", grpc: "quorate-0.quorate-nodes.limits.svc.cluster.local:8081"}
- {name: quorate-1, links: "quorate-1.quorate-nodes.limits.svc.cluster.local:7001", grpc: "quorate-1.quorate-nodes.limits.svc.cluster.local:8081"}
- {name: quorate-2, links: "quorate-2.quorate-nodes.limits.svc.cluster.local:7001", grpc: "quorate-2.quorate-nodes.limits.svc.cluster.local:8081"}
listen: {links: "0.0.0.0:7001", grpc: "0.0.0.0:8081", health: "0.0.0.0:8082"}
tls: {ca: /etc/quorate/tls/ca.crt}
memory: 1GiB
logLevel: info
`

// TestOneFileServesAllPods: a pod is told by flags what differs, and its zone may be unknown. What it forgets is told.
func TestOneFileServesAllPods(t *testing.T) {
	for pod, zone := range map[string]string{"quorate-0": "eu-west-1a", "quorate-1": "", "quorate-2": "eu-west-1c"} {
		c, faults := configOf(t, podConfig, "name", pod, "zone", zone, "cert", "/etc/quorate/tls/"+pod+".crt", "key", "/etc/quorate/tls/"+pod+".key")
		if faults != "" {
			t.Fatal(faults)
		}
		want := access.Files{CA: "/etc/quorate/tls/ca.crt", Cert: "/etc/quorate/tls/" + pod + ".crt", Key: "/etc/quorate/tls/" + pod + ".key"}
		if c.Name != pod || c.Zone != zone || c.TLS != want || c.node(pod).Zone != zone ||
			c.Listen != (listenConfig{"0.0.0.0:7001", "0.0.0.0:8081", "0.0.0.0:8082"}) || c.DataDir != "/var/lib/quorate/node" {
			t.Errorf("%s: %+v", pod, c)
		}
	}
	_, faults := configOf(t, podConfig, "zone", "", "name", "")
	for _, want := range []string{"--name: \"\" is not a DNS label", "tls.cert: is missing", "tls.key: is missing"} {
		if !strings.Contains(faults, want) {
			t.Errorf("no %q in\n%s", want, faults)
		}
	}
	if strings.Contains(faults, "zone") {
		t.Error(faults)
	}
}

// TestTheDocumentationHasThePodsFile: docs/running.md shows what is tested here.
func TestTheDocumentationHasThePodsFile(t *testing.T) {
	page, err := os.ReadFile(filepath.FromSlash("../../docs/running.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), podConfig) {
		t.Errorf("docs/running.md doesn't have\n%s", podConfig)
	}
}
