// Package chart_test renders charts/quorate with the real helm and holds what comes out to what the chart promises:
// against golden files, against the programs that are to run with it, and (cluster_test.go) against a real API server.
//
// HELM is the program's path; without it these tests are skipped. `make chart` and `make envtest` set it.
package chart_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/rig"
)

const (
	root    = "../.."
	chart   = root + "/charts/quorate"
	library = chart + "/charts/quorate-sidecar"
	crdFile = "quorate.dev_ratelimitpolicies.yaml"
	// patience is how long one run of a program may take on a busy machine.
	patience = 5 * time.Minute
)

var update = flag.Bool("update", false, "write the golden files, and the chart's copy of the resource definition, anew")

// programs are those of the image, built once for the tests that need them.
var programs rig.Programs

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("HELM") == "" {
		os.Exit(m.Run())
	}
	os.Exit(rig.Run(func(p rig.Programs) int {
		programs = p
		defer stopServer()
		return m.Run()
	}, "cmd/quotanode", "cmd/quotactl", "cmd/gateway", "cmd/operator"))
}

// helm runs helm and returns what it prints, and what it says of it. Other variables come on top of the environment.
func helm(t *testing.T, env []string, args ...string) (out, errs string, err error) {
	t.Helper()
	path := os.Getenv("HELM")
	if path == "" {
		t.Skip("HELM is not set: it is the path of helm, and `make helm` prints it")
	}
	if _, err := exec.LookPath(path); err != nil {
		t.Fatalf("HELM: %v: `make helm` builds it and prints its path", err)
	}
	// Nothing of whoever runs the tests: no plugins, no repositories, no cluster.
	home := t.TempDir()
	env = append([]string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home, "KUBECONFIG=" + os.DevNull}, env...)
	return execute(t, env, path, args...)
}

func execute(t *testing.T, env []string, path string, args ...string) (out, errs string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // not the test's, which is over when it is cleaned up
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, append(os.Environ(), env...)
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// template renders the chart as release quorate in the namespace quorate.
func template(t *testing.T, folder string, args ...string) string {
	t.Helper()
	out, errs, err := helm(t, nil, append([]string{"template", "quorate", folder, "--namespace", "quorate"}, args...)...)
	if err != nil || errs != "" {
		t.Fatalf("helm template %v: %v\n%s", args, err, errs)
	}
	return out
}

// refused renders the chart, demands that it fails, and returns what helm says.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	_, errs, err := helm(t, nil, append([]string{"template", "quorate", chart, "--namespace", "quorate"}, args...)...)
	if err == nil {
		t.Fatalf("helm template %v: rendered", args)
	}
	return errs
}

// object is one object of Kubernetes.
type object map[string]any

// parse reads a stream of them.
func parse(t *testing.T, text string) (all []object) {
	t.Helper()
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(part), &o); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		t.Fatal("nothing was rendered")
	}
	return all
}

// find returns the only object of that kind and name.
func find(t *testing.T, all []object, kind, name string) object {
	t.Helper()
	var found []object
	for _, o := range all {
		if o["kind"] == kind && o.at("metadata", "name") == name {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects are %s %s", len(found), kind, name)
	}
	return found[0]
}

// at follows names and, in lists, indexes; nil where there is nothing.
func (o object) at(path ...any) any { return at(map[string]any(o), path...) }

func at(value any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := value.(map[string]any)
			value = m[s]
		case int:
			list, _ := value.([]any)
			if s >= len(list) {
				return nil
			}
			value = list[s]
		}
	}
	return value
}

// text is a value as YAML, for comparing.
func text(t *testing.T, value any) string {
	t.Helper()
	out, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// valuesFiles are the renders that golden files hold, by name.
func valuesFiles(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	byName := map[string]string{}
	for _, f := range files {
		byName[strings.TrimSuffix(filepath.Base(f), ".yaml")] = f
	}
	return byName
}

// TestLintIsContent: helm's own linter, with warnings as errors, for the chart with each of the values, and the library.
func TestLintIsContent(t *testing.T) {
	for name, values := range valuesFiles(t) {
		if out, errs, err := helm(t, nil, "lint", "--strict", "--namespace", "quorate", "--values", values, chart); err != nil {
			t.Errorf("%s: %v\n%s%s", name, err, out, errs)
		}
	}
	if out, errs, err := helm(t, nil, "lint", "--strict", library); err != nil {
		t.Errorf("the library: %v\n%s%s", err, out, errs)
	}
}

// TestRendersAreGolden compares each render with its file. The resource definition's spec stands in config/crd.
func TestRendersAreGolden(t *testing.T) {
	for name, values := range valuesFiles(t) {
		got := withoutDefinition(t, template(t, chart, "--values", values))
		golden(t, name+".yaml", got)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := readFile(t, path); got != want {
		t.Errorf("%s differs; look at it with `go test ./test/chart -update` and git diff.\nIt is now\n%s", path, firstDifference(want, got))
	}
}

// firstDifference is the first line in which two texts differ, and some more.
func firstDifference(want, got string) string {
	old, now := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range now {
		if i >= len(old) || old[i] != now[i] {
			return fmt.Sprintf("line %d: %s", i+1, strings.Join(now[i:min(i+5, len(now))], "\n"))
		}
	}
	return fmt.Sprintf("its first %d lines", len(now))
}

// withoutDefinition cuts the spec out of the resource definition.
func withoutDefinition(t *testing.T, render string) string {
	t.Helper()
	definition := specOf(readFile(t, filepath.Join(chart, "files", crdFile)))
	before, after, found := strings.Cut(render, definition)
	if !found {
		return render
	}
	return before + "# spec: as in config/crd\n" + after
}

// specOf is what stands in a resource definition from its spec on.
func specOf(definition string) string {
	return definition[strings.Index(definition, "\nspec:\n")+1:]
}

// TestRendersAreStable: GitOps compares renders. Two of the same values are the same, in all modes: nothing in them is
// drawn, and nothing depends on the time.
func TestRendersAreStable(t *testing.T) {
	for name, values := range valuesFiles(t) {
		first, second := template(t, chart, "--values", values), template(t, copyFolder(t, chart), "--values", values)
		if first != second {
			t.Errorf("%s: two renders differ", name)
		}
	}
}

// TestEverythingHasItsPlace: each object says its namespace, so that it gets there whoever applies the render, and the
// labels of its release.
func TestEverythingHasItsPlace(t *testing.T) {
	clusterWide := []string{"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
	for name, values := range valuesFiles(t) {
		for _, o := range parse(t, template(t, chart, "--values", values)) {
			kind, _ := o["kind"].(string)
			what := fmt.Sprintf("%s: %s %v", name, kind, o.at("metadata", "name"))
			if o.at("metadata", "name") == "extra" {
				continue // the user's own
			}
			if o.at("metadata", "labels", "app.kubernetes.io/instance") != "quorate" {
				t.Errorf("%s: has no label of its release", what)
			}
			if _, ok := o.at("metadata", "namespace").(string); ok == slices.Contains(clusterWide, kind) {
				t.Errorf("%s: namespace %v", what, o.at("metadata", "namespace"))
			}
		}
	}
}

// copyFolder copies a chart, so that a test may change it.
func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(from))
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// otherVersion is the chart with another version, and the programs' with it if asked for.
func otherVersion(t *testing.T, version string, programs bool) string {
	t.Helper()
	folder := copyFolder(t, chart)
	file := filepath.Join(folder, "Chart.yaml")
	content := strings.Replace(readFile(t, file), "\nversion: 0.1.0\n", "\nversion: "+version+"\n", 1)
	if programs {
		content = strings.Replace(content, "\nappVersion: 0.1.0\n", "\nappVersion: "+version+"\n", 1)
	}
	if content == readFile(t, file) {
		t.Fatal("Chart.yaml has no version 0.1.0 any more: this test has to know the new one")
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}
