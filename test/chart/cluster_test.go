package chart_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// apiServer is a real one with a real etcd behind it, and nothing else: objects are stored, and no pod ever starts. The
// first test that needs it starts it, TestMain stops it.
var apiServer struct {
	start  sync.Once
	env    *envtest.Environment
	config string // the kubeconfig's text
	err    error
}

// cluster is a namespace of the API server, and who asks it.
type cluster struct {
	t          *testing.T
	kubeconfig string
	namespace  string
}

const assets = "KUBEBUILDER_ASSETS"

// newCluster returns a new namespace in which pod-security "restricted" is enforced, and said of all else.
func newCluster(t *testing.T, namespace string) *cluster {
	t.Helper()
	if os.Getenv(assets) == "" || os.Getenv("HELM") == "" {
		t.Skip(assets + " and HELM are not set: the folder with etcd, kube-apiserver and kubectl, and the path of helm; `make envtest` sets them")
	}
	apiServer.start.Do(startServer)
	if apiServer.err != nil {
		t.Fatal(apiServer.err)
	}
	c := &cluster{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), namespace: namespace}
	if err := os.WriteFile(c.kubeconfig, []byte(apiServer.config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.addNamespace(namespace)
	c.kubectl("config", "set-context", "--current", "--namespace", namespace)
	// There is one release in a cluster: the next test's has this one's place.
	t.Cleanup(func() { c.succeed("uninstall", "--ignore-not-found") })
	return c
}

func startServer() {
	if apiServer.err = missing(); apiServer.err != nil {
		return
	}
	apiServer.env = &envtest.Environment{ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience}
	if _, apiServer.err = apiServer.env.Start(); apiServer.err != nil {
		return
	}
	var user *envtest.AuthenticatedUser
	if user, apiServer.err = apiServer.env.AddUser(envtest.User{Name: "tests", Groups: []string{"system:masters"}}, nil); apiServer.err != nil {
		return
	}
	var config []byte
	config, apiServer.err = user.KubeConfig()
	apiServer.config = string(config)
}

// missing says which program isn't there, and what builds it.
func missing() error {
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := exec.LookPath(filepath.Join(os.Getenv(assets), program)); err != nil {
			return fmt.Errorf("%w: `tools/kube/build.sh control` builds it, as `make envtest` does", err)
		}
	}
	return nil
}

// stopServer stops it, if it runs.
func stopServer() {
	if apiServer.env == nil {
		return
	}
	if err := apiServer.env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
	}
}

func (c *cluster) addNamespace(name string) {
	c.t.Helper()
	c.kubectl("create", "namespace", name)
	for _, does := range []string{"enforce", "warn", "audit"} {
		c.kubectl("label", "namespace", name, "pod-security.kubernetes.io/"+does+"=restricted")
	}
}

// try runs kubectl.
func (c *cluster) try(args ...string) (out string, err error) {
	c.t.Helper()
	out, errs, err := execute(c.t, []string{"KUBECONFIG=" + c.kubeconfig, "HOME=" + filepath.Dir(c.kubeconfig)}, filepath.Join(os.Getenv(assets), "kubectl"), args...)
	return out + errs, err
}

// kubectl runs it and demands that it succeeds.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

// get reads an object of the namespace.
func (c *cluster) get(kind, name string) (o object) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.kubectl("get", kind, name, "--output=json")), &o); err != nil {
		c.t.Fatal(err)
	}
	return o
}

// file writes a text and returns where.
func (c *cluster) file(content string) string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// release runs a command of helm on the release quorate. Hooks are left out of what changes it: no Job would ever end.
func (c *cluster) release(command string, args ...string) (string, error) {
	c.t.Helper()
	full := append([]string{command, "quorate", "--no-hooks", "--namespace", c.namespace}, args...)
	out, errs, err := helm(c.t, []string{"KUBECONFIG=" + c.kubeconfig}, full...)
	return out + errs, err
}

// hooks are those of the release, which helm knows though they were left out.
func (c *cluster) hooks() string {
	c.t.Helper()
	out, errs, err := helm(c.t, []string{"KUBECONFIG=" + c.kubeconfig}, "get", "hooks", "quorate", "--namespace", c.namespace)
	if err != nil {
		c.t.Fatalf("helm get hooks: %v\n%s", err, errs)
	}
	return out
}

// succeed demands that a command of helm does.
func (c *cluster) succeed(command string, args ...string) string {
	c.t.Helper()
	out, err := c.release(command, args...)
	if err != nil {
		c.t.Fatalf("helm %s %v: %v\n%s", command, args, err, out)
	}
	return out
}

// refuse demands that an upgrade fails with that message, and changes nothing.
func (c *cluster) refuse(want string, args ...string) {
	c.t.Helper()
	before := c.everything()
	out, err := c.release("upgrade", args...)
	if err == nil || !strings.Contains(out, want) {
		c.t.Errorf("helm upgrade %v: %v %s\nwant %s", args, err, out, want)
	}
	if after := c.everything(); after != before {
		c.t.Errorf("helm upgrade %v was refused, and changed something:\n%s", args, firstDifference(before, after))
	}
}

// everything is the kinds, names and revisions of what a release has in the namespace, not helm's own record of it.
func (c *cluster) everything() string {
	c.t.Helper()
	return c.kubectl("get", "statefulsets,deployments,services,configmaps,poddisruptionbudgets,networkpolicies,roles",
		"--output=jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{'\\n'}{end}")
}

// commands are those of helm and kubectl that the page about Kubernetes shows, word by word.
func commands(t *testing.T) (all [][]string) {
	t.Helper()
	for i, part := range strings.Split(page(t), "```") {
		body, shell := strings.CutPrefix(part, "sh\n")
		if i%2 == 0 || !shell {
			continue
		}
		body = strings.NewReplacer("\\\n", " ", "$(", "\n", "do kubectl", "\nkubectl", ")\n", "\n").Replace(body)
		for line := range strings.Lines(body) {
			if words := strings.Fields(line); len(words) > 1 && (words[0] == "helm" || words[0] == "kubectl") {
				all = append(all, words)
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("the page has %d commands", len(all))
	}
	return all
}

// TestThePagesCommandsExist: helm and kubectl know every command and every flag that the page shows.
func TestThePagesCommandsExist(t *testing.T) {
	c := newCluster(t, "page")
	help := map[string]string{}
	for _, words := range commands(t) {
		verb := words[1]
		if verb == "--namespace" {
			verb = words[3]
		}
		known, seen := help[words[0]+verb]
		if !seen {
			if words[0] == "helm" {
				known, _, _ = helm(t, nil, verb, "--help")
			} else {
				known = c.kubectl(verb, "--help") + c.kubectl("options")
			}
			help[words[0]+verb] = known
		}
		for _, word := range words[1:] {
			flag, _, _ := strings.Cut(word, "=")
			if strings.HasPrefix(flag, "--") && !strings.Contains(known, flag) {
				t.Errorf("%s %s has no %s: %v", words[0], verb, flag, words)
			}
		}
	}
}
