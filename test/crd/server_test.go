package crd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

const (
	crdFile  = "../../config/crd/quorate.dev_ratelimitpolicies.yaml"
	crds     = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	crdName  = "ratelimitpolicies.quorate.dev"
	policies = "/apis/quorate.dev/v1alpha1/namespaces/default/ratelimitpolicies"

	applyPatch = "application/apply-patch+yaml"
	mergePatch = "application/merge-patch+json"
)

// api is the one API server of this package, which the first test that needs it starts.
var api struct {
	once sync.Once
	env  *envtest.Environment
	http *http.Client
	base *url.URL
	err  error
	crd  answer // to the CRD's creation
}

func TestMain(m *testing.M) {
	code := m.Run()
	if api.env != nil {
		if err := api.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// answer is what the API server says.
type answer struct {
	status   int
	warnings []string
	body     []byte
}

// String is empty if the answer is a yes, else the message.
func (a answer) String() string {
	if a.status < 300 {
		return ""
	}
	var status struct{ Message string }
	if err := json.Unmarshal(a.body, &status); err != nil || status.Message == "" {
		return fmt.Sprintf("%d: %s", a.status, a.body)
	}
	return status.Message
}

// object decodes the answer, which must be a yes.
func (a answer) object(t *testing.T) (o object) {
	t.Helper()
	if text := a.String(); text != "" {
		t.Fatal(text)
	}
	if err := json.Unmarshal(a.body, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// object is what these tests look at of an object.
type object struct {
	Metadata struct {
		Name            string `json:"name"`
		Generation      int64  `json:"generation"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec   json.RawMessage `json:"spec"`
	Status json.RawMessage `json:"status"`
	Items  []object        `json:"items"`
}

// server starts the API server with the CRD, or skips the test where there is none.
func server(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("needs an API server: KUBEBUILDER_ASSETS is not set (make envtest)")
	}
	api.once.Do(func() { api.err = startServer() })
	if api.err != nil {
		t.Fatal(api.err)
	}
}

func startServer() error {
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := exec.LookPath(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), program)); err != nil {
			return fmt.Errorf("%w: `tools/kube/build.sh control` builds it, as `make envtest` does", err)
		}
	}
	env := &envtest.Environment{ControlPlaneStartTimeout: 3 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	cfg, err := env.Start()
	if err != nil {
		return err
	}
	api.env = env
	cfg.QPS = -1
	if api.http, err = rest.HTTPClientFor(cfg); err != nil {
		return err
	}
	if api.base, _, err = rest.DefaultServerUrlFor(cfg); err != nil {
		return err
	}
	text, err := os.ReadFile(crdFile)
	if err != nil {
		return err
	}
	crd, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	if api.crd = ask("POST", crds, "", crd); api.crd.String() != "" {
		return fmt.Errorf("create the CRD: %s", api.crd)
	}
	// Established isn't all: the paths are served a moment later.
	return wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		return ask("GET", policies, "", nil).status == http.StatusOK, nil
	})
}

// ask sends a request; query has no question mark. An answer that doesn't come has status 0.
func ask(method, path, query string, body []byte, contentType ...string) answer {
	u := *api.base
	u.Path, u.RawQuery = path, query
	req, err := http.NewRequest(method, u.String(), bytes.NewReader(body))
	if err != nil {
		return failed(err)
	}
	req.Header.Set("Content-Type", append(contentType, "application/json")[0])
	resp, err := api.http.Do(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return failed(err)
	}
	return answer{resp.StatusCode, resp.Header.Values("Warning"), text}
}

func failed(err error) answer { return answer{status: 999, body: []byte(err.Error())} }

// Queries. Strict is what kubectl asks for; without it an unknown field is dropped with a warning.
const (
	strict = "fieldValidation=Strict"
	dryRun = strict + "&dryRun=All"
)

// policyObject is the object with that spec, in JSON.
func policyObject(name, spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"quorate.dev/v1alpha1","kind":"RateLimitPolicy","metadata":{"name":%q},"spec":%s}`, name, spec)
}

// tryCreate asks whether an object with that spec could be created.
func tryCreate(spec string) answer { return ask("POST", policies, dryRun, policyObject("p", spec)) }

// create creates an object, which goes with the test.
func create(t *testing.T, name, spec string) object {
	t.Helper()
	t.Cleanup(func() { remove(t, name) })
	return ask("POST", policies, strict, policyObject(name, spec)).object(t)
}

func remove(t *testing.T, name string) {
	t.Helper()
	if a := ask("DELETE", policies+"/"+name, "", nil); a.String() != "" && a.status != http.StatusNotFound {
		t.Error(a)
	}
}

// kubectl runs it against the server.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, api.env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(api.env.ControlPlane.KubectlPath, append([]string{"--kubeconfig", config}, args...)...)
	// Its discovery is cached below the home folder.
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, stderr.String())
	}
	if text := strings.TrimSpace(stderr.String()); text != "" && !strings.HasPrefix(text, "No resources found") {
		t.Errorf("kubectl %v says %s", args, text)
	}
	return string(out)
}
