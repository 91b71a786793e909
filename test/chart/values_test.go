package chart_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWrongValuesAreRefused: by the schema, or by what values say together; each with a message that names the value.
func TestWrongValuesAreRefused(t *testing.T) {
	for values, want := range map[string]string{
		`{nonsense: 1}`:                            "additional properties 'nonsense' not allowed",
		`{image: {tagg: x}}`:                       "additional properties 'tagg' not allowed",
		`{image: {repository: ""}}`:                "at '/image/repository'",
		`{replicas: "3"}`:                          "at '/replicas': got string, want integer",
		`{replicas: 3.5}`:                          "at '/replicas'",
		`{replication: 4}`:                         "at '/replication'",
		`{replication: 5}`:                         "replication: 5 replicas don't fit on 3 nodes",
		`{partitions: 0}`:                          "at '/partitions'",
		`{partitions: 4097}`:                       "at '/partitions'",
		`{partitions: 4096}`:                       "memory: 512MiB leaves less than 256KiB for each of 4096 partitions",
		`{memory: 1G}`:                             "at '/memory'",
		`{memory: 8MiB}`:                           "memory: 8MiB is too little",
		`{memory: 1GiB}`:                           "resources.memory: 1536Mi is too little for memory: 1GiB: it takes 2304Mi",
		`{resources: {memory: 1.5Gi}}`:             "at '/resources/memory'",
		`{resources: {limits: {cpu: 1}}}`:          "additional properties 'limits' not allowed",
		`{storage: {size: 10}}`:                    "at '/storage/size'",
		`{storage: {class: fast}}`:                 "additional properties 'class' not allowed",
		`{logLevel: loud}`:                         "at '/logLevel'",
		`{zones: {whenUnsatisfiable: Sometimes}}`:  "at '/zones/whenUnsatisfiable'",
		`{hosts: {antiAffinity: preferred}}`:       "at '/hosts/antiAffinity'",
		`{fullnameOverride: a.b}`:                  `"a.b" can't be part of the names`,
		`{fullnameOverride: Quorate}`:              `"Quorate" can't be part of the names`,
		`{domains: [{name: Video}]}`:               "at '/domains/0/name'",
		`{domains: [{name: v, onNoMatch: allow}]}`: "at '/domains/0/onNoMatch'",
		`{domains: [{name: v, requires: [a]}]}`:    "additional properties 'requires' not allowed",
		`{allowedDomains: [{namespace: media}]}`:   "missing property 'domains'",
		`{allowedDomains: {media: [video]}}`:       "at '/allowedDomains'",
		`{gatewayNamespaces: [media, media]}`:      "at '/gatewayNamespaces'",
		`{gatewayNamespaces: [Media]}`:             "at '/gatewayNamespaces/0'",
		`{gatewayNamespaces: [quorate]}`:           "gatewayNamespaces: leave out quorate",
		`{certificates: {mode: none}}`:             "at '/certificates/mode'",
		`{certificates: {mode: certManager}}`:      "certificates.issuerRef.name: is required",
		`{certificates: {lifetime: 90d}}`:          "at '/certificates/lifetime'",
		`{operator: {replicas: 0}}`:                "at '/operator/replicas'",
		`{operator: {resync: 60}}`:                 "at '/operator/resync'",
		`{gateway: {enabled: "yes"}}`:              "at '/gateway/enabled'",
		`{podAnnotations: {a: 1}}`:                 "at '/podAnnotations/a'",
		`{dashboards: {files: {quorate: "{}"}}}`:   "at '/dashboards/files'",
		`{extraObjects: [{kind: Secret}]}`:         "at '/extraObjects/0'",
		`{quorate-sidecar: {image: x}}`:            "at '/quorate-sidecar'",
		`{crds: {keep: false}}`:                    "additional properties 'keep' not allowed",
		`{allowedDomains: [{namespace: a, domains: [b]}, {namespace: a, domains: [c]}]}`: "allowedDomains: a comes twice",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := refused(t, "--values", file); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", values, got, want)
		}
	}
}

// TestNamesOfReleases: a name that can't become part of the nodes' names is refused before anything is made.
func TestNamesOfReleases(t *testing.T) {
	for release, want := range map[string]string{
		"media":         "media-quorate-nodes",
		"quorate-media": "quorate-media-nodes",
		"1st":           "", "a.b": "",
		"this-is-a-very-long-name-of-a-release": "",
	} {
		out, errs, err := helm(t, nil, "template", release, chart, "--namespace", "quorate")
		switch {
		case want == "" && (err == nil || !strings.Contains(errs, "can't be part of the names")):
			t.Errorf("%s: %v %s", release, err, errs)
		case want != "" && err != nil:
			t.Errorf("%s: %v %s", release, err, errs)
		case want != "":
			find(t, parse(t, out), "Service", want)
		}
	}
}

// TestTheSchemaKnowsEveryValue: all objects of the schema are closed, and it and values.yaml have the same values.
func TestTheSchemaKnowsEveryValue(t *testing.T) {
	var schema, values map[string]any
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(chart, "values.schema.json"))), &schema); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(readFile(t, filepath.Join(chart, "values.yaml"))), &values); err != nil {
		t.Fatal(err)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name := range values {
		if properties[name] == nil {
			t.Errorf("the schema doesn't know %s", name)
		}
	}
	for name := range properties {
		if _, there := values[name]; !there && name != "global" && name != "quorate-sidecar" {
			t.Errorf("values.yaml doesn't show %s", name)
		}
	}
	closed(t, "", schema)
}

// closed demands of each object with properties that it takes no others.
func closed(t *testing.T, path string, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		if _, isObject := v["properties"].(map[string]any); isObject && v["additionalProperties"] != false {
			t.Errorf("schema %s takes any property", path)
		}
		for name, below := range v {
			closed(t, path+"/"+name, below)
		}
	case []any:
		for _, below := range v {
			closed(t, path+"[]", below)
		}
	}
}
