package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nodesOf returns the StatefulSet of a render, and its only container.
func nodesOf(t *testing.T, args ...string) (set object, node object) {
	t.Helper()
	set = find(t, parse(t, template(t, chart, args...)), "StatefulSet", "quorate")
	node, ok := set.at("spec", "template", "spec", "containers", 0).(map[string]any)
	if !ok {
		t.Fatal("no container")
	}
	return set, node
}

// expect compares what stands at a path.
func (o object) expect(t *testing.T, want string, path ...any) {
	t.Helper()
	if got := strings.TrimSpace(text(t, o.at(path...))); got != want {
		t.Errorf("%v: %s, want %s", path, got, want)
	}
}

// TestK8S01NodesAreFoundByNamesThatStay: pods come back with other addresses, so no address is written down anywhere.
func TestK8S01NodesAreFoundByNamesThatStay(t *testing.T) {
	all := parse(t, template(t, chart))
	set := find(t, all, "StatefulSet", "quorate")
	set.expect(t, "quorate-nodes", "spec", "serviceName")
	find(t, all, "Service", "quorate-nodes").expect(t, "None", "spec", "clusterIP")
	config, _ := find(t, all, "ConfigMap", "quorate-nodes").at("data", "node.yaml").(string)
	for i := range 3 {
		for _, at := range []string{`links: "%s:7001"`, `grpc: "%s:8081"`} {
			want := fmt.Sprintf(at, fmt.Sprintf("quorate-%d.quorate-nodes.quorate.svc", i))
			if !strings.Contains(config, want) {
				t.Errorf("the nodes' configuration has no %s:\n%s", want, config)
			}
		}
	}
	operator, _ := find(t, all, "ConfigMap", "quorate-operator").at("data", "operator.yaml").(string)
	if !strings.Contains(operator, `"quorate-2.quorate-nodes.quorate.svc:8081"`) {
		t.Errorf("the operator's configuration doesn't name the nodes:\n%s", operator)
	}
}

// TestK8S02NodesFindEachOtherBeforeTheyAreReady: all pods start at once, and have names before they are ready; nothing
// in a pod waits for a name to be there.
func TestK8S02NodesFindEachOtherBeforeTheyAreReady(t *testing.T) {
	all := parse(t, template(t, chart))
	find(t, all, "Service", "quorate-nodes").expect(t, "true", "spec", "publishNotReadyAddresses")
	set := find(t, all, "StatefulSet", "quorate")
	set.expect(t, "Parallel", "spec", "podManagementPolicy")
	set.expect(t, "null", "spec", "template", "spec", "initContainers")
}

// TestK8S05ALongRestoreIsNoReasonToKill: until a node answers, only the startup probe counts, for half an hour; later only
// whether it is alive.
func TestK8S05ALongRestoreIsNoReasonToKill(t *testing.T) {
	_, node := nodesOf(t)
	node.expect(t, "/livez", "startupProbe", "httpGet", "path")
	period, _ := node.at("startupProbe", "periodSeconds").(float64)
	failures, _ := node.at("startupProbe", "failureThreshold").(float64)
	if period*failures < 1800 {
		t.Errorf("a start may take %v s", period*failures)
	}
}

// TestK8S06OnlyReadinessKnowsOfQuorum: what restarts a node never looks at others. (That /livez doesn't is shown in
// internal/node.)
func TestK8S06OnlyReadinessKnowsOfQuorum(t *testing.T) {
	_, node := nodesOf(t)
	node.expect(t, "/livez", "livenessProbe", "httpGet", "path")
	node.expect(t, "/livez", "startupProbe", "httpGet", "path")
	node.expect(t, "/readyz", "readinessProbe", "httpGet", "path")
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		node.expect(t, "health", probe, "httpGet", "port")
	}
}

// TestK8S08AVersionChangesNothingThatCannotChange: with another version of the chart and of the programs, what Kubernetes
// never lets change is the same; and the chart's version alone starts no pod anew.
func TestK8S08AVersionChangesNothingThatCannotChange(t *testing.T) {
	for name, values := range valuesFiles(t) {
		old := template(t, chart, "--values", values)
		if diff := fixedOf(t, old).differences(t, fixedOf(t, template(t, otherVersion(t, "9.8.7", true), "--values", values))); diff != "" {
			t.Errorf("%s: what can't change: %s", name, diff)
		}
		if diff := podsOf(t, old).differences(t, podsOf(t, template(t, otherVersion(t, "9.8.7", false), "--values", values))); diff != "" {
			t.Errorf("%s: pods start anew: %s", name, diff)
		}
	}
}

// parts are parts of objects, by what they are of.
type parts map[string]string

// differences says in which parts others differ.
func (p parts) differences(t *testing.T, others parts) string {
	t.Helper()
	if len(p) == 0 {
		t.Fatal("there is nothing to compare")
	}
	var found []string
	for name, part := range p {
		if others[name] != part {
			found = append(found, fmt.Sprintf("%s\n%s", name, firstDifference(part, others[name])))
		}
	}
	return strings.Join(found, "\n")
}

func nameOf(o object) string { return fmt.Sprintf("%v %v", o["kind"], o.at("metadata", "name")) }

// fixedOf is all of a render that an API server refuses to change.
func fixedOf(t *testing.T, render string) parts {
	t.Helper()
	fixed := parts{}
	for _, o := range parse(t, render) {
		switch o["kind"] {
		case "StatefulSet":
			spec, _ := o["spec"].(map[string]any)
			for _, may := range []string{"replicas", "template", "updateStrategy", "minReadySeconds", "persistentVolumeClaimRetentionPolicy"} {
				delete(spec, may)
			}
			fixed[nameOf(o)] = text(t, spec)
		case "Deployment":
			fixed[nameOf(o)] = text(t, o.at("spec", "selector"))
		case "RoleBinding", "ClusterRoleBinding":
			fixed[nameOf(o)] = text(t, o["roleRef"])
		}
	}
	return fixed
}

// podsOf are the templates of pods of a render.
func podsOf(t *testing.T, render string) parts {
	t.Helper()
	pods := parts{}
	for _, o := range parse(t, render) {
		if template := o.at("spec", "template"); template != nil {
			pods[nameOf(o)] = text(t, template)
		}
	}
	return pods
}

// TestK8S16OnlyOddNumbersOfNodes: the nodes that the configuration names are as many as pods start, and never fewer than
// three or an even number.
func TestK8S16OnlyOddNumbersOfNodes(t *testing.T) {
	for _, n := range []int{0, 1, 2, 4, 6} {
		got := refused(t, "--set", fmt.Sprintf("replicas=%d", n))
		if want := fmt.Sprintf("replicas: %d: it takes 3 nodes, or a larger odd number", n); !strings.Contains(got, want) {
			t.Errorf("%d nodes: %s", n, got)
		}
	}
	for _, n := range []int{3, 5, 7} {
		all := parse(t, template(t, chart, "--set", fmt.Sprintf("replicas=%d", n)))
		find(t, all, "StatefulSet", "quorate").expect(t, fmt.Sprint(n), "spec", "replicas")
		config, _ := find(t, all, "ConfigMap", "quorate-nodes").at("data", "node.yaml").(string)
		if got := strings.Count(config, "- {name: "); got != n {
			t.Errorf("%d pods, and the configuration names %d nodes:\n%s", n, got, config)
		}
	}
}

// TestNodesAcceptTheirConfiguration gives each pod's node what its pod would give it, certificates too.
func TestNodesAcceptTheirConfiguration(t *testing.T) {
	for name, values := range valuesFiles(t) {
		all := parse(t, template(t, chart, "--values", values))
		set := find(t, all, "StatefulSet", "quorate")
		pods := podNames(set)
		folder := t.TempDir()
		tls, file := filepath.Join(folder, "tls"), filepath.Join(folder, "node.yaml")
		programs.Issue(t, tls, "--nodes", strings.Join(pods, ","), "--domains", "quorate")
		config, _ := find(t, all, "ConfigMap", "quorate-nodes").at("data", "node.yaml").(string)
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, "/etc/quorate/tls", tls)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			args := argsOf(t, set, map[string]string{"$(POD_NAME)": pod, "$(ZONE)": "a", "/etc/quorate/node.yaml": file, "/etc/quorate/tls": tls})
			out, errs, err := execute(t, nil, filepath.Join(string(programs), "quotanode"), append(args, "--check")...)
			if err != nil || !strings.HasPrefix(out, "ok\n") || !strings.Contains(out, pod+".crt") {
				t.Errorf("%s: quotanode %v: %v\n%s%s", name, args, err, out, errs)
			}
		}
	}
}

// podNames are those of a StatefulSet's pods.
func podNames(set object) (all []string) {
	replicas, _ := set.at("spec", "replicas").(float64)
	for i := range int(replicas) {
		all = append(all, fmt.Sprintf("%v-%d", set.at("metadata", "name"), i))
	}
	return all
}

// argsOf is what the first container of an object with pods is started with, as Kubernetes expands it.
func argsOf(t *testing.T, o object, with map[string]string) []string {
	t.Helper()
	list, _ := o.at("spec", "template", "spec", "containers", 0, "args").([]any)
	var args []string
	for _, a := range list {
		arg := fmt.Sprint(a)
		for name, value := range with {
			arg = strings.ReplaceAll(arg, name, value)
		}
		args = append(args, arg)
	}
	if len(args) == 0 {
		t.Fatalf("%s is started with nothing", nameOf(o))
	}
	return args
}

// TestNodesHaveTheirCertificates: each pod finds the files that its flags name in the volume, and nothing is optional.
func TestNodesHaveTheirCertificates(t *testing.T) {
	set, node := nodesOf(t)
	node.expect(t, "/etc/quorate/tls", "volumeMounts", 2, "mountPath")
	sources := text(t, set.at("spec", "template", "spec", "volumes", 1, "projected", "sources"))
	for _, want := range []string{"path: ca.crt", "path: quorate-0.crt", "path: quorate-1.crt", "path: quorate-2.key", "name: quorate-node-quorate-2"} {
		if !strings.Contains(sources, want) {
			t.Errorf("no %s in\n%s", want, sources)
		}
	}
	if strings.Contains(sources, "optional") {
		t.Errorf("a pod would start without its certificate:\n%s", sources)
	}
}

// TestVolumesOutliveEverything: neither an uninstall nor a scale down removes a disk.
func TestVolumesOutliveEverything(t *testing.T) {
	set, _ := nodesOf(t)
	set.expect(t, "Retain", "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted")
	set.expect(t, "Retain", "spec", "persistentVolumeClaimRetentionPolicy", "whenScaled")
}

// TestOneNodeAtATime: rolling updates and drains.
func TestOneNodeAtATime(t *testing.T) {
	all := parse(t, template(t, chart))
	set := find(t, all, "StatefulSet", "quorate")
	set.expect(t, "1", "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
	budget := find(t, all, "PodDisruptionBudget", "quorate")
	budget.expect(t, "1", "spec", "maxUnavailable")
	if text(t, budget.at("spec", "selector")) != text(t, set.at("spec", "selector")) {
		t.Error("the budget is of other pods")
	}
	if seconds, _ := set.at("spec", "minReadySeconds").(float64); seconds < 1 {
		t.Error("the next node is stopped as soon as one is ready")
	}
	if seconds, _ := set.at("spec", "template", "spec", "terminationGracePeriodSeconds").(float64); seconds < 30 {
		t.Errorf("a node has %v s to hand over and stop", seconds)
	}
}
