package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// app is a chart of somebody else that depends on the library.
func app(t *testing.T) string {
	t.Helper()
	folder := copyFolder(t, "testdata/app")
	if err := os.CopyFS(filepath.Join(folder, "charts", "quorate-sidecar"), os.DirFS(library)); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestTheSidecarIsInOtherCharts: the library alone, in a chart that knows nothing else of Quorate.
func TestTheSidecarIsInOtherCharts(t *testing.T) {
	render := template(t, app(t))
	golden(t, "app.yaml", render)
	pod := find(t, parse(t, render), "Pod", "app")
	// Native: starts before the application, ends after it.
	pod.expect(t, "Always", "spec", "initContainers", 0, "restartPolicy")
	pod.expect(t, "/livez", "spec", "initContainers", 0, "startupProbe", "httpGet", "path")
	pod.expect(t, "null", "spec", "initContainers", 0, "readinessProbe")
	pod.expect(t, "quorate-gateway", "spec", "volumes", 0, "secret", "secretName")
}

// TestTheSidecarsSettings: all that can be said of it arrives, and what it doesn't know is refused.
func TestTheSidecarsSettings(t *testing.T) {
	render := template(t, app(t), "--set", "gateway.cluster=q,gateway.nodes=5,gateway.http=127.0.0.1:9080,gateway.grpc=127.0.0.1:9081,"+
		"gateway.healthPort=9082,gateway.memory=1Gi,gateway.cpu=1,gateway.pullPolicy=Never,gateway.logLevel=info,volumes.secret=mine", "--set-string", "volumes.mode=0440")
	for _, want := range []string{
		"q-4.q-nodes.quorate.svc:8081", "--http-address=127.0.0.1:9080", "--grpc-address=127.0.0.1:9081", "--health-address=0.0.0.0:9082",
		"containerPort: 9082", `memory: "1Gi"`, `cpu: "1"`, "imagePullPolicy: Never", "--log-level=info", "secretName: mine", "defaultMode: 0440", "value: 921MiB",
	} {
		if !strings.Contains(render, want) {
			t.Errorf("no %s in\n%s", want, render)
		}
	}
	for set, want := range map[string]string{
		"gateway.port=8080":      `quorate.gatewaySidecar: "port" is unknown; known are`,
		"gateway.namespace=null": "quorate.gatewaySidecar: namespace is required",
		"gateway.image=null":     "quorate.gatewaySidecar: image is required",
		"gateway.memory=lots":    `"lots" is not a size here`,
		"volumes.name=x":         `quorate.gatewayVolumes: "name" is unknown`,
	} {
		if _, errs, err := helm(t, nil, "template", "app", app(t), "--set", set); err == nil || !strings.Contains(errs, want) {
			t.Errorf("%s: %v %s", set, err, errs)
		}
	}
}

// TestGatewaysKnowTheirFlags: the program takes what the sidecar and the Deployment start it with; what it lacks are the
// certificates.
func TestGatewaysKnowTheirFlags(t *testing.T) {
	deployment := find(t, parse(t, template(t, chart, "--set", "gateway.enabled=true")), "Deployment", "quorate-gateway")
	pod := find(t, parse(t, template(t, app(t))), "Pod", "app")
	pod["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": pod.at("spec", "initContainers")}}}
	for _, o := range []object{deployment, pod} {
		args := argsOf(t, o, map[string]string{"127.0.0.1:8080": "127.0.0.1:0", "127.0.0.1:8081": "127.0.0.1:0", "0.0.0.0:8081": "127.0.0.1:0", "0.0.0.0:8082": "127.0.0.1:0"})
		_, errs, err := execute(t, nil, filepath.Join(string(programs), "gateway"), args...)
		if err == nil || !strings.Contains(errs, "read the CA: open /etc/quorate/tls/ca.crt") {
			t.Errorf("%s: gateway %v: %v %s", nameOf(o), args, err, errs)
		}
	}
}

// TestTheStatusPodKnowsItsFlags: so does quotactl.
func TestTheStatusPodKnowsItsFlags(t *testing.T) {
	pod := find(t, parse(t, template(t, chart)), "Pod", "quorate-test")
	pod["spec"] = map[string]any{"template": map[string]any{"spec": pod["spec"]}}
	_, errs, err := execute(t, nil, filepath.Join(string(programs), "quotactl"), argsOf(t, pod, nil)...)
	if err == nil || !strings.Contains(errs, "read the CA: open /etc/quorate/tls/ca.crt") {
		t.Errorf("%v %s", err, errs)
	}
}

// TestTheGatewayListensInClearOnLoopbackOnly: HTTP never leaves the pod; gRPC does in the Deployment, where callers show
// certificates.
func TestTheGatewayListensInClearOnLoopbackOnly(t *testing.T) {
	render := template(t, chart, "--set", "gateway.enabled=true")
	address := regexp.MustCompile(`--http-address=(\S+)`)
	found := address.FindAllStringSubmatch(render+template(t, app(t)), -1)
	if len(found) != 2 {
		t.Fatalf("%d gateways", len(found))
	}
	for _, f := range found {
		if !strings.HasPrefix(f[1], "127.0.0.1:") {
			t.Errorf("HTTP on %s", f[1])
		}
	}
	service := find(t, parse(t, render), "Service", "quorate-gateway")
	service.expect(t, "8081", "spec", "ports", 0, "port")
	service.expect(t, "null", "spec", "ports", 1)
}

// page is the page about Kubernetes.
func page(t *testing.T) string { return readFile(t, filepath.Join(root, "docs", "kubernetes.md")) }

// TestTheDocumentedSidecarIsTheLibrarys: who has no Helm copies it from the page.
func TestTheDocumentedSidecarIsTheLibrarys(t *testing.T) {
	for part := range strings.SplitSeq(page(t), "```") {
		if body, ok := strings.CutPrefix(part, "yaml\n"); ok && strings.Contains(body, "name: quorate-gateway") && strings.Contains(body, "kind: Pod") {
			documented := find(t, parse(t, body), "Pod", "app").at("spec", "initContainers", 0)
			rendered := find(t, parse(t, template(t, app(t))), "Pod", "app").at("spec", "initContainers", 0)
			if text(t, documented) != text(t, rendered) {
				t.Errorf("docs/kubernetes.md: the sidecar is\n%s\nand is to be\n%s", text(t, documented), text(t, rendered))
			}
			return
		}
	}
	t.Error("docs/kubernetes.md has no pod with a sidecar")
}

// TestTheDocumentationKnowsEveryValue: those that the page names exist, and the page names all at the top.
func TestTheDocumentationKnowsEveryValue(t *testing.T) {
	var top []string
	for line := range strings.Lines(readFile(t, filepath.Join(chart, "values.yaml"))) {
		if name, _, found := strings.Cut(line, ":"); found && regexp.MustCompile(`^[a-z][a-zA-Z]*$`).MatchString(name) {
			top = append(top, name)
		}
	}
	for _, name := range top {
		if !regexp.MustCompile("`" + name + "[`.]").MatchString(page(t)) {
			t.Errorf("docs/kubernetes.md doesn't name the value %s", name)
		}
	}
	for _, set := range regexp.MustCompile(`--set ([a-zA-Z]+)`).FindAllStringSubmatch(page(t), -1) {
		if !slices.Contains(top, set[1]) {
			t.Errorf("docs/kubernetes.md sets %s, and there is no such value", set[1])
		}
	}
}
