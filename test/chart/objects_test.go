package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheResourceDefinitionIsVerbatim: the chart's copy is config/crd's file, and what is rendered has its spec, byte by
// byte. It is a template, so that it is upgraded with the chart, and kept when that goes.
func TestTheResourceDefinitionIsVerbatim(t *testing.T) {
	source, copied := filepath.Join(root, "config", "crd", crdFile), filepath.Join(chart, "files", crdFile)
	want := readFile(t, source)
	if *update {
		if err := os.WriteFile(copied, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if readFile(t, copied) != want {
		t.Errorf("%s is not %s: run go test ./test/chart -update", copied, source)
	}
	if strings.Contains(want, "{{") {
		t.Error("the definition would have to be escaped")
	}
	render := template(t, chart)
	if !strings.Contains(render, "\n"+specOf(want)) {
		t.Errorf("the spec that is rendered is another:\n%s", firstDifference(specOf(want), render[strings.Index(render, "\n"+specOf(want)[:200])+1:]))
	}
	definition := find(t, parse(t, render), "CustomResourceDefinition", "ratelimitpolicies.quorate.dev")
	definition.expect(t, "keep", "metadata", "annotations", "helm.sh/resource-policy")
	original := find(t, parse(t, want), "CustomResourceDefinition", "ratelimitpolicies.quorate.dev")
	if annotations, _ := original.at("metadata", "annotations").(map[string]any); len(annotations) != 1 {
		t.Errorf("config/crd has other annotations than the chart knows: %v", annotations)
	}
	if _, err := os.Stat(filepath.Join(chart, "crds")); err == nil {
		t.Error("what is in crds/ is never upgraded")
	}
}

// TestContainersAreRestricted: all of them, by themselves: no root, no privilege, nothing to write but the volume, and no
// limit of CPU, which would freeze a node again and again.
func TestContainersAreRestricted(t *testing.T) {
	all := parse(t, template(t, app(t)))
	for _, values := range valuesFiles(t) {
		all = append(all, parse(t, template(t, chart, "--values", values))...)
	}
	seen := 0
	for _, o := range all {
		for _, kind := range []string{"containers", "initContainers"} {
			list, _ := podSpec(o)[kind].([]any)
			for _, c := range list {
				container, _ := c.(map[string]any)
				if container["name"] == "app" {
					continue // whoever's it is
				}
				seen++
				restricted(t, nameOf(o), container)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d containers", seen)
	}
}

// podSpec is what an object says of pods; empty if it says nothing.
func podSpec(o object) map[string]any {
	if o["kind"] == "Pod" {
		spec, _ := o["spec"].(map[string]any)
		return spec
	}
	spec, _ := o.at("spec", "template", "spec").(map[string]any)
	return spec
}

func restricted(t *testing.T, of string, container object) {
	t.Helper()
	for path, want := range map[string]any{
		"runAsNonRoot": true, "runAsUser": float64(65532), "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
	} {
		if got := container.at("securityContext", path); got != want {
			t.Errorf("%s: %v: %s is %v", of, container["name"], path, got)
		}
	}
	container.expect(t, "RuntimeDefault", "securityContext", "seccompProfile", "type")
	container.expect(t, "ALL", "securityContext", "capabilities", "drop", 0)
	container.expect(t, "null", "resources", "limits", "cpu")
	if container.at("resources", "limits", "memory") == nil || container.at("resources", "requests", "cpu") == nil {
		t.Errorf("%s: %v asks for %v", of, container["name"], container["resources"])
	}
}

// TestOnlyTheOperatorTalksToKubernetes: no other pod is given a token.
func TestOnlyTheOperatorTalksToKubernetes(t *testing.T) {
	for _, o := range parse(t, template(t, chart, "--values", "testdata/values/everything.yaml")) {
		spec := podSpec(o)
		if spec == nil {
			continue
		}
		operator := o.at("metadata", "name") == "quorate-operator"
		if spec["automountServiceAccountToken"] != operator || (spec["serviceAccountName"] != nil) != operator {
			t.Errorf("%s: token %v, account %v", nameOf(o), spec["automountServiceAccountToken"], spec["serviceAccountName"])
		}
	}
}

// TestTheOperatorMayDoWhatItNeedsAndNoMore holds the rules to this list, in every namespace where there are any.
func TestTheOperatorMayDoWhatItNeedsAndNoMore(t *testing.T) {
	everywhere := []string{
		"get,list,watch ratelimitpolicies.quorate.dev", "patch ratelimitpolicies/status.quorate.dev", "create,patch events.events.k8s.io",
	}
	own := []string{
		"create leases.coordination.k8s.io", "get,update,patch leases.coordination.k8s.io quorate-operator",
		"create configmaps.", "get,list,watch,update,patch,delete configmaps. quorate-held-removal",
	}
	issuing := []string{"create secrets.",
		"get,update secrets. quorate-ca,quorate-node-quorate-0,quorate-node-quorate-1,quorate-node-quorate-2,quorate-gateway"}
	for values, want := range map[string]map[string][]string{
		"certificates.mode=secrets": {"": everywhere, "quorate": own},
		"certificates.mode=certManager,certificates.issuerRef.name=ca,gatewayNamespaces={media}": {"": everywhere, "quorate": own},
		"replicas=3": {"": everywhere, "quorate": slices.Concat(own, issuing)},
		"gatewayNamespaces={media}": {
			"":        append(slices.Clone(everywhere), "get,list,watch namespaces."),
			"quorate": slices.Concat(own, issuing), "media": {"create secrets.", "get,update,delete secrets. quorate-gateway"},
		},
	} {
		got := map[string][]string{}
		for _, o := range parse(t, template(t, chart, "--set", values)) {
			if o["kind"] == "Role" || o["kind"] == "ClusterRole" {
				namespace, _ := o.at("metadata", "namespace").(string)
				got[namespace] = append(got[namespace], rulesOf(o)...)
			}
		}
		if text(t, got) != text(t, want) {
			t.Errorf("%s: the operator may\n%swant\n%s", values, text(t, got), text(t, want))
		}
	}
}

// rulesOf writes each rule as "verbs resource.group names".
func rulesOf(o object) (all []string) {
	rules, _ := o["rules"].([]any)
	for _, r := range rules {
		line := fmt.Sprintf("%s %s.%s", joined(at(r, "verbs")), joined(at(r, "resources")), joined(at(r, "apiGroups")))
		if names := at(r, "resourceNames"); names != nil {
			line += " " + joined(names)
		}
		all = append(all, line)
	}
	return all
}

func joined(list any) string {
	var all []string
	items, _ := list.([]any)
	for _, item := range items {
		all = append(all, fmt.Sprint(item))
	}
	return strings.Join(all, ",")
}

// TestTheOperatorAcceptsItsConfiguration: what it lacks here is an API server.
func TestTheOperatorAcceptsItsConfiguration(t *testing.T) {
	for name, values := range valuesFiles(t) {
		all := parse(t, template(t, chart, "--values", values))
		config, _ := find(t, all, "ConfigMap", "quorate-operator").at("data", "operator.yaml").(string)
		file := filepath.Join(t.TempDir(), "operator.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		args := argsOf(t, find(t, all, "Deployment", "quorate-operator"), map[string]string{"/etc/quorate/operator.yaml": file})
		env := []string{"KUBECONFIG=" + filepath.Join(t.TempDir(), "none"), "POD_NAMESPACE=quorate"}
		_, errs, err := execute(t, env, filepath.Join(string(programs), "operator"), args...)
		if err == nil || !strings.HasPrefix(errs, "operator: find the API server: ") {
			t.Errorf("%s: operator %v: %v\n%s\nwith\n%s", name, args, err, errs, config)
		}
	}
}

// TestCertificatesOfCertManagerHaveTheirRoles: for each node, the operator, and each namespace's gateways with the domains
// that it may use. They lie in the Secrets that pods mount in all modes.
func TestCertificatesOfCertManagerHaveTheirRoles(t *testing.T) {
	roles := map[string]string{}
	for _, o := range parse(t, template(t, chart, "--values", "testdata/values/cert-manager.yaml")) {
		if o["kind"] == "Certificate" {
			roles[fmt.Sprintf("%v/%v", o.at("metadata", "namespace"), o.at("spec", "secretName"))] = joined(o.at("spec", "uris"))
		}
	}
	want := map[string]string{
		"quorate/quorate-node-quorate-0": "quorate://peer/quorate-0", "quorate/quorate-node-quorate-1": "quorate://peer/quorate-1",
		"quorate/quorate-node-quorate-2": "quorate://peer/quorate-2", "quorate/quorate-operator": "quorate://policy-writer/quorate-operator",
		"quorate/quorate-gateway": "quorate://gateway/quorate?domains=quorate", "media/quorate-gateway": "quorate://gateway/media?domains=media,video-api",
	}
	if text(t, roles) != text(t, want) {
		t.Errorf("%s\nwant\n%s", text(t, roles), text(t, want))
	}
}

// TestAllModesMountTheSame: who makes certificates is nothing that a node or a gateway sees.
func TestAllModesMountTheSame(t *testing.T) {
	modes := []string{"certificates.mode=operator", "certificates.mode=secrets", "certificates.mode=certManager,certificates.issuerRef.name=ca"}
	first := podsOf(t, template(t, chart, "--set", "gateway.enabled=true,"+modes[0]))
	delete(first, "Deployment quorate-operator")
	for _, mode := range modes[1:] {
		pods := podsOf(t, template(t, chart, "--set", "gateway.enabled=true,"+mode))
		if diff := first.differences(t, pods); diff != "" {
			t.Errorf("%s: %s", mode, diff)
		}
	}
}

// TestWhoMayReachNodes reads the NetworkPolicy: links are for nodes alone, and gRPC isn't for everybody.
func TestWhoMayReachNodes(t *testing.T) {
	all := parse(t, template(t, chart))
	policy := find(t, all, "NetworkPolicy", "quorate-nodes")
	nodes := text(t, find(t, all, "StatefulSet", "quorate").at("spec", "selector", "matchLabels"))
	if text(t, policy.at("spec", "podSelector", "matchLabels")) != nodes {
		t.Error("it is about other pods than nodes")
	}
	policy.expect(t, "links", "spec", "ingress", 0, "ports", 0, "port")
	if text(t, policy.at("spec", "ingress", 0, "from", 0, "podSelector", "matchLabels")) != nodes || policy.at("spec", "ingress", 0, "from", 1) != nil {
		t.Error("others than nodes may open links")
	}
	policy.expect(t, "grpc", "spec", "ingress", 1, "ports", 0, "port")
	if policy.at("spec", "ingress", 1, "from", 2) == nil || policy.at("spec", "ingress", 1, "from", 3) != nil {
		t.Error("gRPC is for others than the release, labelled pods and labelled namespaces")
	}
	policy.expect(t, "health", "spec", "ingress", 2, "ports", 0, "port")
	policy.expect(t, "null", "spec", "ingress", 3)
}

// TestAConfigurationThatChangesStartsItsPodsAnew, and only those.
func TestAConfigurationThatChangesStartsItsPodsAnew(t *testing.T) {
	for set, want := range map[string][]string{
		"logLevel=info":               {"StatefulSet quorate"},
		"gatewayNamespaces={media}":   {"Deployment quorate-operator"},
		"operator.resync=10s":         {"Deployment quorate-operator"},
		"networkPolicy.enabled=false": nil,
	} {
		before, after := podsOf(t, template(t, chart)), podsOf(t, template(t, chart, "--set", set))
		var changed []string
		for name := range before {
			if before[name] != after[name] {
				changed = append(changed, name)
			}
		}
		if !slices.Equal(changed, want) {
			t.Errorf("%s starts %v, want %v", set, changed, want)
		}
	}
}
