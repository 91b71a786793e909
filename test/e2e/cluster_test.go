package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	nodes = 3
	// patience bounds every wait but those that say otherwise. What takes longest is a node that is lost: 16 s until
	// that is noticed, 20 s until its pods are given up.
	patience = 180 * time.Second
	// lookEvery is how long a wait pauses between two looks: each starts a program.
	lookEvery = 300 * time.Millisecond
)

// kubernetes is a cluster that tools/kube runs.
type kubernetes struct {
	tools string // tools/kube
	bin   string // its programs
	run   string // its state
	env   []string
}

// startKubernetes starts what is missing of it, and stops it when the test ends.
func startKubernetes(t *testing.T) *kubernetes {
	t.Helper()
	k := &kubernetes{tools: "../../tools/kube"}
	k.bin, k.run = k.setting(t, "KUBE_BIN"), k.setting(t, "KUBE_RUN")
	k.env = append(os.Environ(),
		"PATH="+k.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+filepath.Join(k.run, "kubeconfig"),
		// A pod of a node that is lost is given up after 20 s, not 5 minutes.
		"APISERVER_ARGS=--default-unreachable-toleration-seconds=20 --default-not-ready-toleration-seconds=20",
		// Helm keeps what it remembers with the cluster.
		"HELM_CACHE_HOME="+k.run+"/helm", "HELM_CONFIG_HOME="+k.run+"/helm", "HELM_DATA_HOME="+k.run+"/helm")
	t.Cleanup(func() {
		if os.Getenv("KEEP") != "" {
			t.Logf("the cluster is left as it is: . tools/kube/env.sh; make kube-down ends it")
			return
		}
		k.script(t, "down.sh")
	})
	k.script(t, "up.sh", fmt.Sprint(nodes))
	return k
}

func (k *kubernetes) setting(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("bash", "-euc", ". "+k.tools+"/env.sh; echo $"+name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// call runs a program, with what it reads, and returns what it writes.
func (k *kubernetes) call(stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdin = k.env, strings.NewReader(stdin)
	cmd.WaitDelay = time.Second // what it started may still hold its output
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s%s", err, out, exit.Stderr)
		}
		err = fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return string(out), err
}

// script runs one of tools/kube, and says how long it took.
func (k *kubernetes) script(t *testing.T, name string, args ...string) {
	t.Helper()
	began := time.Now()
	if _, err := k.call("", filepath.Join(k.tools, name), args...); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %s: %.1f s", name, strings.Join(args, " "), time.Since(began).Seconds())
}

// try runs kubectl.
func (k *kubernetes) try(args ...string) (string, error) {
	return k.call("", filepath.Join(k.bin, "kubectl"), args...)
}

// kubectl runs kubectl, and ends the test if that fails.
func (k *kubernetes) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := k.try(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// read has kubectl get something as JSON.
func (k *kubernetes) read(into any, args ...string) error {
	out, err := k.try(append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// apply applies objects in the release's namespace.
func (k *kubernetes) apply(t *testing.T, text string) {
	t.Helper()
	if _, err := k.call(text, filepath.Join(k.bin, "kubectl"), "apply", "--namespace", namespace, "--filename", "-"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// helm runs helm.
func (k *kubernetes) helm(t *testing.T, args ...string) string {
	t.Helper()
	began := time.Now()
	out, err := k.call("", filepath.Join(k.bin, "helm"), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("helm %s: %.1f s", args[0], time.Since(began).Seconds())
	return out
}

// ask asks a port of a pod for a path, through the API server. Nobody is waited for who is cut off.
func (k *kubernetes) ask(pod string, port int, path string) (string, error) {
	limit := "--request-timeout=3s"
	if port == askerPort { // it may be busy, and is never cut off
		limit = "--request-timeout=60s"
	}
	return k.try("get", limit, "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/%s", namespace, pod, port, path))
}

// eventually looks until there is nothing left that lacks, and ends the test if that takes longer than patience.
func eventually(t *testing.T, what string, lacks func() string) {
	t.Helper()
	within(t, patience, what, lacks)
}

// within is eventually, for what takes its time.
func within(t *testing.T, limit time.Duration, what string, lacks func() string) {
	t.Helper()
	began := time.Now()
	for end := began.Add(limit); ; time.Sleep(lookEvery) {
		lack := lacks()
		if lack == "" {
			if took := time.Since(began); took > time.Second {
				t.Logf("%.0f s for %s", took.Seconds(), what)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s: %s", limit, what, lack)
		}
	}
}

// tell prints what the cluster has to say, for whoever reads of a failure.
func (k *kubernetes) tell(t *testing.T) {
	t.Helper()
	show := func(args ...string) string {
		out, err := k.try(args...)
		if err != nil {
			out = err.Error()
		}
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
		return out
	}
	show("get", "nodes", "-o", "wide")
	show("get", "pods,statefulsets,deployments,jobs,pvc", "--all-namespaces", "-o", "wide")
	show("get", "ratelimitpolicies.quorate.dev", "--all-namespaces", "-o", "yaml")
	show("get", "events", "--namespace", namespace, "--sort-by", ".lastTimestamp")
	pods, err := k.try("get", "pods", "--namespace", namespace, "-o", "name")
	if err != nil {
		return
	}
	for pod := range strings.FieldsSeq(pods) {
		show("logs", "--namespace", namespace, pod, "--all-containers", "--prefix", "--tail", "60")
		if out, err := k.try("logs", "--namespace", namespace, pod, "--all-containers", "--prefix", "--tail", "30", "--previous"); err == nil {
			t.Logf("before it was started anew: %s\n%s", pod, out)
		}
	}
}
