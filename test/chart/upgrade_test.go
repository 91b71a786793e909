package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withoutDefinitions: the resource definition belongs to one release of a cluster; most tests leave it out.
const withoutDefinitions = "--set=crds.install=false"

// TestTheAPIServerAcceptsEveryObject: what is rendered, object by object, by a real API server that knows every field, in
// namespaces that enforce pod-security "restricted". A warning is an error.
func TestTheAPIServerAcceptsEveryObject(t *testing.T) {
	c := newCluster(t, "quorate")
	c.addNamespace("media")
	c.addNamespace("shop")
	c.kubectl("apply", "--filename", "testdata/others/definitions.yaml")
	c.kubectl("wait", "--for=condition=Established", "--timeout=2m", "--filename", "testdata/others/definitions.yaml")
	renders := map[string]string{"app": template(t, app(t))}
	for name, values := range valuesFiles(t) {
		renders[name] = template(t, chart, "--values", values)
	}
	for name, render := range renders {
		out, err := c.dryRun(render)
		if want := len(parse(t, render)); err != nil || strings.Count(out, "serverside-applied") != want {
			t.Errorf("%s: %v, and of %d objects were accepted\n%s", name, err, want, out)
		}
	}
	c.refusesMistakes(renders["default"])
}

// dryRun has the API server say what it would do with a render.
func (c *cluster) dryRun(render string) (string, error) {
	c.t.Helper()
	return c.try("apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "--filename", c.file(render))
}

// refusesMistakes makes some in a render: the API server says so.
func (c *cluster) refusesMistakes(render string) {
	c.t.Helper()
	for right, wrong := range map[string]string{
		"readOnlyRootFilesystem":                   "readOnlyRootFileSystem",
		"allowPrivilegeEscalation: false":          "allowPrivilegeEscalation: true",
		"capabilities: {drop: [ALL]}":              "capabilities: {drop: [NET_RAW]}",
		"publishNotReadyAddresses: true":           "publishNotReadyAddresses: yes, please",
		"podManagementPolicy: Parallel":            "podManagementPolicy: AllAtOnce",
		"rollingUpdate: {maxUnavailable: 1}":       "rollingUpdate: {maxUnavailable: 1, maxSurge: 1}",
		"whenDeleted: Retain":                      "whenDeleted: Sometimes",
		"fieldPath: metadata.name}":                "fieldPath: metadata.zone}",
		"  - ports: [{port: grpc, protocol: TCP}]": "  - ports: [{port: grpc, protocol: gRPC}]",
	} {
		if !strings.Contains(render, right) {
			c.t.Errorf("nothing rendered has %q", right)
		}
		if out, err := c.dryRun(strings.ReplaceAll(render, right, wrong)); err == nil {
			c.t.Errorf("%s: accepted\n%s", wrong, out)
		}
	}
}

// TestK8S08AnUpgradeOfTheVersionSucceeds, on a real API server, which refuses changes of what can't change; and a rollback.
func TestK8S08AnUpgradeOfTheVersionSucceeds(t *testing.T) {
	c := newCluster(t, "k8s-08")
	c.succeed("install", chart, withoutDefinitions)
	uid := c.get("statefulset", "quorate").at("metadata", "uid")
	c.succeed("upgrade", otherVersion(t, "9.8.7", true), withoutDefinitions)
	c.get("statefulset", "quorate").expect(t, "quorate:9.8.7", "spec", "template", "spec", "containers", 0, "image")
	c.succeed("rollback")
	set := c.get("statefulset", "quorate")
	set.expect(t, "quorate:0.1.0", "spec", "template", "spec", "containers", 0, "image")
	if set.at("metadata", "uid") != uid {
		t.Error("the StatefulSet is another one")
	}
}

// TestK8S09VolumesNeverChange: an upgrade that would change them is refused before anything is changed, and the way
// that the page describes works.
func TestK8S09VolumesNeverChange(t *testing.T) {
	c := newCluster(t, "k8s-09")
	c.succeed("install", chart, withoutDefinitions)
	c.refuse(`storage.size: is "8Gi" and can't become "9Gi"`, chart, withoutDefinitions, "--set=storage.size=9Gi")
	c.refuse(`storage.storageClass: is "" and can't become "fast"`, chart, withoutDefinitions, "--set=storage.storageClass=fast")
	c.succeed("upgrade", chart, withoutDefinitions, "--set=logLevel=info")
	// Nothing collects garbage here, so the pods would stay as they do with --cascade=orphan, which waits for that.
	c.kubectl("delete", "statefulset", "quorate")
	c.succeed("upgrade", chart, withoutDefinitions, "--set=storage.size=9Gi")
	c.get("statefulset", "quorate").expect(t, "9Gi", "spec", "volumeClaimTemplates", 0, "spec", "resources", "requests", "storage")
	c.refuse(`storage.size: is "9Gi" and can't become "8Gi"`, chart, withoutDefinitions)
}

// TestK8S13ScalingIsRefused, and whatever else genesis fixes, in both directions: by an upgrade, by a new installation on
// volumes that were kept, and by the API server where a render is applied that could look up nothing.
func TestK8S13ScalingIsRefused(t *testing.T) {
	c := newCluster(t, "k8s-13")
	c.succeed("install", chart, withoutDefinitions, "--set=replicas=5")
	for set, want := range map[string]string{
		"replicas=3":               "replicas: is 5 and can't become 3",
		"replicas=7":               "replicas: is 5 and can't become 7",
		"replicas=5,partitions=8":  "partitions: is 5 and can't become 8",
		"replicas=5,replication=5": "replication: is 3 and can't become 5",
		"replicas=5,memory=256MiB": "memory: is 512MiB and can't become 256MiB",
		"replicas=1":               "replicas: 1: it takes 3 nodes",
	} {
		c.refuse(want, chart, withoutDefinitions, "--set="+set)
	}
	c.succeed("upgrade", chart, withoutDefinitions, "--set=replicas=5,partitions=5") // the same, said
	render := template(t, chart, withoutDefinitions, "--namespace", c.namespace, "--set=replicas=3")
	out, err := c.try("apply", "--server-side", "--force-conflicts", "--filename", c.file(render))
	if err == nil || !strings.Contains(out, "updates to statefulset spec for fields other than") {
		t.Errorf("the API server: %v %s", err, out)
	}
	c.get("statefulset", "quorate").expect(t, "5", "spec", "replicas")

	c.keepVolume()
	c.succeed("uninstall")
	if out, err := c.release("install", chart, withoutDefinitions); err == nil || !strings.Contains(out, "replicas: is 5 and can't become 3") {
		t.Errorf("installed on the volumes of another cluster: %v %s", err, out)
	}
	c.succeed("install", chart, withoutDefinitions, "--set=replicas=5")
}

// keepVolume makes the first node's claim, as Kubernetes makes it of the StatefulSet's template.
func (c *cluster) keepVolume() {
	c.t.Helper()
	claim := object{"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
	made, _ := c.get("statefulset", "quorate").at("spec", "volumeClaimTemplates", 0).(map[string]any)
	metadata, _ := made["metadata"].(map[string]any)
	metadata["name"] = "data-quorate-0"
	claim["metadata"], claim["spec"] = metadata, made["spec"]
	c.kubectl("create", "--filename", c.file(text(c.t, claim)))
}

// TestAnotherNameIsAnotherCluster: so an upgrade can't give one.
func TestAnotherNameIsAnotherCluster(t *testing.T) {
	c := newCluster(t, "renamed")
	c.succeed("install", chart, withoutDefinitions)
	c.refuse("fullnameOverride: the cluster is called quorate and can't be called other", chart, withoutDefinitions, "--set=fullnameOverride=other")
}

// TestTheUpgradeCheckIsForClustersThatRun: not for a first installation, not while no node is ready, not where it is turned
// off. Where there is one, the API server accepts it.
func TestTheUpgradeCheckIsForClustersThatRun(t *testing.T) {
	c := newCluster(t, "checked")
	const job = "quorate-upgrade-check"
	expect := func(when string, want bool) {
		t.Helper()
		if got := c.hooks(); strings.Contains(got, job) != want || !strings.Contains(got, "quorate-test") {
			t.Errorf("%s: the check is there: %v, want %v\n%s", when, !want, want, got)
		}
	}
	c.succeed("install", chart, withoutDefinitions)
	expect("first installation", false)
	c.succeed("upgrade", chart, withoutDefinitions)
	expect("no node is ready", false)
	c.kubectl("patch", "statefulset", "quorate", "--subresource=status", "--type=merge",
		`--patch={"status":{"replicas":3,"readyReplicas":2,"availableReplicas":2}}`)
	c.succeed("upgrade", chart, withoutDefinitions, "--set=upgradeCheck.enabled=false")
	expect("turned off", false)
	c.succeed("upgrade", chart, withoutDefinitions)
	expect("two nodes are ready", true)
	for _, o := range parse(t, c.hooks()) {
		if o.at("metadata", "name") == job {
			o.expect(t, "pre-upgrade", "metadata", "annotations", "helm.sh/hook")
			if out, err := c.dryRun(text(t, o)); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	}
}

// TestCRD18PoliciesOutliveTheChart: two versions up, back, uninstalled and installed again: every policy is still there. The
// resource definition is upgraded with the chart.
func TestCRD18PoliciesOutliveTheChart(t *testing.T) {
	c := newCluster(t, "crd-18")
	const definition = "ratelimitpolicies.quorate.dev"
	c.succeed("install", chart)
	c.kubectl("wait", "--for=condition=Established", "--timeout=2m", "crd/"+definition)
	c.kubectl("create", "--filename", c.file(policy))
	uid := func() any { return c.get(definition, "three").at("metadata", "uid") }
	was := uid()
	for _, version := range []string{"9.8.7", "9.8.8"} {
		c.succeed("upgrade", withMark(t, version))
		c.get("crd", definition).expect(t, mark(version), "spec", "names", "categories", 1)
	}
	c.succeed("rollback", "1")
	c.get("crd", definition).expect(t, "null", "spec", "names", "categories", 1)
	c.succeed("uninstall")
	if uid() != was {
		t.Error("the policy went with the release")
	}
	c.succeed("install", chart)
	if uid() != was {
		t.Error("the policy is another one")
	}
	c.succeed("uninstall")
	c.kubectl("delete", "crd", definition)
}

func mark(version string) string { return "v" + strings.ReplaceAll(version, ".", "-") }

// withMark is the chart in another version, whose resource definition has that version as a category.
func withMark(t *testing.T, version string) string {
	t.Helper()
	folder := otherVersion(t, version, true)
	file := filepath.Join(folder, "files", crdFile)
	content := strings.Replace(readFile(t, file), "    categories:\n    - quorate\n", "    categories:\n    - quorate\n    - "+mark(version)+"\n", 1)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}
