package chart_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/rig"
)

// install tries to install a release, which is another one than the cluster's own.
func (c *cluster) install(name, namespace string, args ...string) (string, error) {
	c.t.Helper()
	args = append([]string{"install", name, chart, "--no-hooks", "--namespace", namespace}, args...)
	out, errs, err := helm(c.t, []string{"KUBECONFIG=" + c.kubeconfig}, args...)
	return out + errs, err
}

// TestASecondReleaseIsRefused, be it in the same namespace or in another one, with words that say what to do; and the first
// one isn't touched. What it left when it was uninstalled the next one is handed over by the commands that helm shows.
func TestASecondReleaseIsRefused(t *testing.T) {
	c := newCluster(t, "first")
	c.addNamespace("second")
	c.succeed("install", chart)
	t.Cleanup(func() { c.kubectl("delete", "crd", "ratelimitpolicies.quorate.dev") })
	wide := func() string {
		return c.kubectl("get", "clusterroles,clusterrolebindings,crds", "--selector=app.kubernetes.io/name=quorate",
			"--output=jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{'\\n'}{end}")
	}
	before, beyond := c.everything(), wide()
	for _, second := range [][]string{{"other", "first"}, {"quorate", "second"}, {"quorate", "second", withoutDefinitions}} {
		out, err := c.install(second[0], second[1], second[2:]...)
		if err == nil || !strings.Contains(out, "there is a Quorate in this Kubernetes cluster already, of release quorate in namespace first") {
			t.Errorf("%v: %v %s", second, err, out)
		}
	}
	if c.everything() != before || wide() != beyond {
		t.Errorf("a release that was refused changed something:\n%s%s", c.everything(), wide())
	}
	c.succeed("upgrade", chart)
	c.succeed("uninstall")

	out, err := c.install("quorate", "second")
	if err == nil || !strings.Contains(out, "ratelimitpolicies.quorate.dev is there already, of release quorate in namespace first") {
		t.Fatalf("%v %s", err, out)
	}
	for _, command := range regexp.MustCompile(`kubectl [^;\n]*`).FindAllString(out, -1) {
		c.kubectl(strings.Fields(command)[1:]...)
	}
	out, err = c.install("quorate", "second")
	t.Cleanup(func() {
		_, _, _ = helm(t, []string{"KUBECONFIG=" + c.kubeconfig}, "uninstall", "quorate", "--no-hooks", "--namespace", "second")
	})
	if err != nil {
		t.Errorf("handed over: %v %s", err, out)
	}
}

// TestOneOperatorMayWriteStatuses: where renders are applied nobody looks what there is. Of two releases one has the right.
func TestOneOperatorMayWriteStatuses(t *testing.T) {
	c := newCluster(t, "one")
	c.addNamespace("two")
	definition := filepath.Join(root, "config", "crd", crdFile)
	c.kubectl("create", "--filename", definition)
	t.Cleanup(func() { c.kubectl("delete", "--filename", definition) })
	c.kubectl("wait", "--for=condition=Established", "--timeout=2m", "--filename", definition)
	may := func(namespace string) bool {
		out, _ := c.try("auth", "can-i", "patch", "ratelimitpolicies.quorate.dev", "--subresource=status", "--all-namespaces",
			"--as=system:serviceaccount:"+namespace+":quorate-operator")
		return strings.HasPrefix(out, "yes")
	}
	for _, namespace := range []string{"one", "two"} {
		out, errs, err := helm(t, nil, "template", "quorate", chart, "--namespace", namespace, "--show-only=templates/operator-rbac.yaml")
		if err != nil {
			t.Fatal(err, errs)
		}
		file := c.file(out)
		c.kubectl("apply", "--filename", file)
		t.Cleanup(func() { c.kubectl("delete", "--filename", file, "--ignore-not-found") })
		rig.Eventually(t, "the operator of "+namespace+" alone", func() bool { return may(namespace) && may("one") != may("two") })
	}
}

// TestSecretsAreMadeOnlyWhereTheyBelong: the right to make them, which can't be bound to names, is one in the release's own
// namespace and in those with gateways, and only where the operator issues certificates.
func TestSecretsAreMadeOnlyWhereTheyBelong(t *testing.T) {
	for mode, want := range map[string][]string{
		"operator": {"media", "quorate", "shop"}, "secrets": nil, "certManager,certificates.issuerRef.name=ca": nil,
	} {
		var where []string
		for _, o := range parse(t, template(t, chart, "--set=gatewayNamespaces={media,shop},certificates.mode="+mode)) {
			rules := rulesOf(o)
			if !slices.ContainsFunc(rules, func(r string) bool { return strings.Contains(r, "secrets.") || strings.Contains(r, "*") }) {
				continue
			}
			where = append(where, fmt.Sprint(o.at("metadata", "namespace")))
			if o["kind"] != "Role" {
				t.Errorf("%s: %s: %v", mode, nameOf(o), rules)
			}
		}
		if slices.Sort(where); !slices.Equal(where, want) {
			t.Errorf("%s: rights to Secrets in %v, want %v", mode, where, want)
		}
	}
}
