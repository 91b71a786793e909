package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/rig"
)

// TestTheOperatorsRightsSuffice runs the operator of a release with no more rights than the chart gives it, and none of
// its Secrets there: it makes what the chart's pods mount, by name and key, in a namespace with gateways too, and is told
// of policies. Nothing that it tries is forbidden.
func TestTheOperatorsRightsSuffice(t *testing.T) {
	c := newCluster(t, "rights")
	c.addNamespace("rights-media")
	c.kubectl("label", "namespace", "rights-media", "quorate.dev/gateway=true")
	c.succeed("install", chart, "--set=gateway.enabled=true,gatewayNamespaces={rights-media}")
	t.Cleanup(func() {
		c.succeed("uninstall")
		c.kubectl("delete", "crd", "ratelimitpolicies.quorate.dev")
	})
	c.kubectl("wait", "--for=condition=Established", "--timeout=2m", "crd/ratelimitpolicies.quorate.dev")
	c.kubectl("create", "--filename", c.file(policy))
	operator := c.startOperator()

	mounted := mounts(c.get("statefulset", "quorate"))
	for secret, keys := range mounts(c.get("deployment", "quorate-gateway")) {
		mounted[secret] = keys
	}
	if len(mounted) != 4 {
		t.Fatalf("pods mount %v", mounted)
	}
	for secret, keys := range mounted {
		for _, key := range append(keys, "tls.crt", "tls.key") {
			c.awaits(operator, c.namespace, "secret/"+secret, fmt.Sprintf("{.data.%s}", strings.ReplaceAll(key, ".", `\.`)))
		}
	}
	c.awaits(operator, "rights-media", "secret/quorate-gateway", `{.data.ca\.crt}`)
	c.awaits(operator, c.namespace, "ratelimitpolicies.quorate.dev/three", `{.status.conditions[?(@.type=="Programmed")].reason}`)
	c.awaits(operator, c.namespace, "lease/quorate-operator", "{.spec.holderIdentity}")
	c.kubectl("label", "namespace", "rights-media", "quorate.dev/gateway-")
	rig.Eventually(t, "the Secret to go with the label", func() bool {
		return c.kubectl("--namespace", "rights-media", "get", "secret", "quorate-gateway", "--ignore-not-found") == ""
	})
	if said := operator.Stderr.String(); regexp.MustCompile(`(?i)forbidden|cannot (get|list|watch|create|update|patch|delete)`).MatchString(said) {
		t.Errorf("something was forbidden:\n%s", said)
	}
}

// policy is a small one.
const policy = `apiVersion: quorate.dev/v1alpha1
kind: RateLimitPolicy
metadata: {name: three}
spec:
  key: [principal]
  limits:
  - {name: per-minute, rollingWindow: {limit: 3, window: 60s}}
`

// mounts are the keys that the pods of an object name of each Secret; of a whole one ca.crt.
func mounts(o object) map[string][]string {
	keys := map[string][]string{}
	volumes, _ := o.at("spec", "template", "spec", "volumes").([]any)
	for _, v := range volumes {
		if name, ok := at(v, "secret", "secretName").(string); ok {
			keys[name] = []string{"ca.crt"}
		}
		sources, _ := at(v, "projected", "sources").([]any)
		for _, s := range sources {
			name, _ := at(s, "secret", "name").(string)
			items, _ := at(s, "secret", "items").([]any)
			for _, item := range items {
				keys[name] = append(keys[name], fmt.Sprint(at(item, "key")))
			}
		}
	}
	return keys
}

// awaits waits until an object is there and has something at that path.
func (c *cluster) awaits(p *rig.Process, namespace, name, path string) {
	c.t.Helper()
	rig.Eventually(c.t, fmt.Sprintf("%s of %s in %s", path, name, namespace), func() bool {
		if !p.Running() {
			c.t.Fatal("the operator has ended")
		}
		out, err := c.try("--namespace", namespace, "get", name, "--output=jsonpath="+path)
		return err == nil && out != ""
	})
}

// startOperator runs the operator with the release's configuration, as the release's account.
func (c *cluster) startOperator() *rig.Process {
	c.t.Helper()
	var kubeconfig map[string]any
	if err := yaml.Unmarshal([]byte(apiServer.config), &kubeconfig); err != nil {
		c.t.Fatal(err)
	}
	user, _ := at(kubeconfig, "users", 0, "user").(map[string]any)
	user["as"] = "system:serviceaccount:" + c.namespace + ":quorate-operator"
	config, _ := c.get("configmap", "quorate-operator").at("data", "operator.yaml").(string)
	config = regexp.MustCompile(`0\.0\.0\.0:\d+`).ReplaceAllString(config, "127.0.0.1:0")
	folder := c.t.TempDir()
	for name, content := range map[string]string{"kubeconfig": text(c.t, kubeconfig), "operator.yaml": config} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	return rig.Start(c.t, "env", "KUBECONFIG="+filepath.Join(folder, "kubeconfig"), "POD_NAMESPACE="+c.namespace,
		filepath.Join(string(programs), "operator"), "run", "--config="+filepath.Join(folder, "operator.yaml"))
}
