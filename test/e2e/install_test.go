package e2e_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/fence"
	"github.com/quorate/quorate/test/image"
)

const (
	root  = "../.."
	chart = root + "/charts/quorate"
)

// install brings everything into an empty cluster as README does it, with no value of the chart.
func install(t *testing.T, r *run) {
	r.clear(t)
	r.loadImages(t)
	r.newNamespace(t)
	r.person(t, nil).follows(t, blockOf(t, readme, inKubernetes, "sh", "helm install"))
	if out := r.helm(t, "get", "values", "quorate", "--namespace", namespace); !strings.Contains(out, "null") {
		t.Errorf("README gives values: %s", out)
	}
	r.whole(t)
	r.onNodesOfTheirOwn(t)
	for name, p := range r.quorateNodes(t) {
		if _, restarts := p.container(); restarts != 0 {
			t.Errorf("%s was started anew %d times before the cluster was founded: nodes wait for each other", name, restarts)
		}
	}
	if out := r.helm(t, "test", "quorate", "--namespace", namespace, "--logs"); !strings.Contains(out, "quorate-2") {
		t.Errorf("helm test doesn't show the nodes:\n%s", out)
	}
	r.installApp(t, chart, "quorate:"+appVersion(t, chart))
}

// newNamespace is one that takes no pod with a right that it doesn't need.
func (r *run) newNamespace(t *testing.T) {
	t.Helper()
	r.kubectl(t, "create", "namespace", namespace)
	r.kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
}

// onNodesOfTheirOwn: the loss of a machine is that of one node of Quorate.
func (r *run) onNodesOfTheirOwn(t *testing.T) {
	t.Helper()
	machines := map[string]string{}
	for name, p := range r.quorateNodes(t) {
		if other := machines[p.Spec.NodeName]; other != "" {
			t.Fatalf("%s and %s are both on %s", name, other, p.Spec.NodeName)
		}
		machines[p.Spec.NodeName] = name
	}
}

// clear takes away what an earlier run has left.
func (r *run) clear(t *testing.T) {
	t.Helper()
	if _, err := r.try("get", "namespace", namespace); err != nil {
		return
	}
	for _, release := range []string{"app", "quorate"} {
		_, _ = r.call("", filepath.Join(r.bin, "helm"), "uninstall", release, "--namespace", namespace, "--ignore-not-found")
	}
	r.kubectl(t, "delete", "namespace", namespace)
	r.kubectl(t, "delete", "crd", "ratelimitpolicies.quorate.dev", "--ignore-not-found")
}

// appVersion is what the chart takes for the image's tag.
func appVersion(t *testing.T, chart string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^appVersion: "?([^"\s]+)"?$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the chart has no appVersion")
	}
	return string(m[1])
}

// loadImages loads Quorate's image by the name that the chart knows, and the asker's.
func (r *run) loadImages(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	r.pack(t, filepath.Join(dir, "quorate.tar"), "quorate:"+appVersion(t, chart), root+"/dist/programs")
	program := filepath.Join(dir, "asker")
	r.env = append(r.env, "CGO_ENABLED=0")
	if _, err := r.call("", "go", "build", "-trimpath", "-o", program, "./asker"); err != nil {
		t.Fatal(err)
	}
	tar := filepath.Join(dir, "asker.tar")
	if _, err := r.call("", filepath.Join(r.bin, "mkimage"), "-tag", askerImage, "-out", tar, "/asker="+program); err != nil {
		t.Fatal(err)
	}
	r.script(t, "load-image.sh", filepath.Join(dir, "quorate.tar"), tar)
}

const (
	askerImage = "localhost/asker:1"
	askerPort  = 9090
)

// pack makes Quorate's image of a folder of programs.
func (r *run) pack(t *testing.T, tar, name, programs string) *image.Image {
	t.Helper()
	r.script(t, "image.sh", programs, tar, name)
	return readImage(t, tar)
}

func readImage(t *testing.T, tar string) *image.Image {
	t.Helper()
	i, err := image.Read(tar)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// static: a program that asks for no loader and no library.
func static(t *testing.T, name string, program []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s is linked dynamically", name)
		}
	}
}

// installApp installs applications whose chart takes the sidecar from the library of one of Quorate's charts.
func (r *run) installApp(t *testing.T, from, gateway string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "app")
	if err := os.CopyFS(dir, os.DirFS("testdata/app")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "charts/quorate-sidecar"), os.DirFS(from+"/charts/quorate-sidecar")); err != nil {
		t.Fatal(err)
	}
	r.helm(t, "install", "app", dir, "--namespace", namespace,
		"--set", "gateway="+gateway, "--set", "asker="+askerImage)
	r.load.askers = []string{"asker-0", "asker-1"}
	r.kubectl(t, "rollout", "status", "--namespace", namespace, "statefulset/asker", "--timeout", patience.String())
	for _, name := range r.load.askers {
		eventually(t, "the gateway in "+name+" to know the leaders", func() string {
			// Without policies it isn't ready, so it is asked whether it lives.
			if _, err := r.ask(name, 8082, "livez"); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// told is what an application was told.
type told struct {
	Status int
	Answer struct {
		Decision, Reason, Message, Policy string

		RetryAfter int64 `json:"retry_after"`
	}
}

// check has an application ask its gateway once.
func (r *run) check(t *testing.T, asker, query string) (a told) {
	t.Helper()
	text, err := r.ask(asker, askerPort, "ask?"+query)
	if err == nil {
		err = json.Unmarshal([]byte(text), &a)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// decided asks until there is a decision: while there is none, nothing was charged.
func (r *run) decided(t *testing.T, asker, query string) (a told) {
	t.Helper()
	eventually(t, "a decision on "+query, func() string {
		a = r.check(t, asker, query)
		if a.Status == 503 && a.Answer.Reason != "outcome_unknown" {
			return a.Answer.Message
		}
		return ""
	})
	return a
}

// threeAllowsAndADeny: declared as an object, enforced through a sidecar, as README shows it; and two others share one
// allowance.
func threeAllowsAndADeny(t *testing.T, r *run) {
	policy := firstPolicy(t)
	app := blockOf(t, kubernetesPage, "Install in five minutes", "yaml", "kind: Pod").Text
	reader := r.person(t, map[string]string{
		"policy.yaml": policy,
		"app.yaml":    strings.Replace(app, "image: busybox:1\n", "image: localhost/busybox:1\n", 1),
	})
	for _, b := range fence.Below(t, filepath.Join(root, readme), inKubernetes) {
		if b.Language == "shellsession" {
			reader.sees(t, readme, b)
		}
	}
	r.kubectl(t, "delete", "pod", "app", "--namespace", namespace, "--now")
	p := r.programmed(t, "conversions")
	t.Logf("policy conversions: %+v", p.Status.Enforced)
	const query = "principal=u44&api_class=convert"
	for i, want := range []int{200, 200, 200, 429, 429} {
		a := r.decided(t, r.load.askers[i%2], query)
		if a.Status != want {
			t.Fatalf("check %d through %s: status %d, want %d: %+v", i+1, r.load.askers[i%2], a.Status, want, a.Answer)
		}
		if want == 429 && (a.Answer.Policy != namespace+"/conversions" || a.Answer.RetryAfter < 1) {
			t.Errorf("the denial speaks of policy %q, retry after %d s", a.Answer.Policy, a.Answer.RetryAfter)
		}
	}
	if a := r.decided(t, r.load.askers[0], "principal=u45&api_class=convert"); a.Status != 200 {
		t.Errorf("another principal's first check: status %d: %+v", a.Status, a.Answer)
	}
	if out := r.kubectl(t, "get", "rlp", "conversions", "--namespace", namespace); !strings.Contains(out, fmt.Sprintf("%d/%d", partitions, partitions)) {
		t.Errorf("kubectl get rlp doesn't say how many partitions enforce it:\n%s", out)
	}
}
