package crd_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// readCRD is the CRD as a value.
func readCRD(t *testing.T) tree {
	t.Helper()
	text, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	var crd tree
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// down follows names and positions.
func down(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			v = v.(tree)[step]
		case int:
			v = v.([]any)[step]
		}
	}
	return v
}

// walkSchema visits the schema of each value that a spec or a status can hold, the property it is, and whether it is the
// author's, in the spec.
func walkSchema(t *testing.T, visit func(path string, schema tree)) {
	t.Helper()
	root := down(readCRD(t), "spec", "versions", 0, "schema", "openAPIV3Schema").(tree)
	var walk func(path string, schema tree)
	walk = func(path string, schema tree) {
		visit(path, schema)
		properties, _ := schema["properties"].(tree)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			walk(strings.TrimPrefix(path+"."+name, "."), properties[name].(tree))
		}
		if items, ok := schema["items"].(tree); ok {
			walk(path+"[]", items)
		}
		if values, ok := schema["additionalProperties"].(tree); ok {
			walk(path+"{}", values)
		}
	}
	walk("", root)
}

// messages are those of the schema's rules, each once.
func messages(t *testing.T) []string {
	t.Helper()
	all := map[string]bool{}
	walkSchema(t, func(path string, schema tree) {
		rules, _ := schema["x-kubernetes-validations"].([]any)
		for _, r := range rules {
			message, _ := r.(tree)["message"].(string)
			if message == "" {
				t.Errorf("%s: the rule %s has no message", path, r.(tree)["rule"])
			}
			all[message] = true
		}
	})
	if len(all) < 15 {
		t.Fatalf("found only %d messages", len(all))
	}
	return slices.Sorted(maps.Keys(all))
}

// TestEveryFieldIsDescribed, for `kubectl explain`.
func TestEveryFieldIsDescribed(t *testing.T) {
	fields := 0
	walkSchema(t, func(path string, schema tree) {
		inner := strings.HasSuffix(path, "[]") || strings.HasSuffix(path, "{}")
		if inner || path == "metadata" {
			return
		}
		fields++
		if text, _ := schema["description"].(string); len(text) < 15 {
			t.Errorf("%s: described as %q", path, text)
		}
	})
	if fields < 60 {
		t.Errorf("looked at %d fields only", fields)
	}
}

// TestEveryListAndTextIsBounded, so that the API server can tell what a rule may cost, and so that no object is more than
// the nodes were sized for.
func TestEveryListAndTextIsBounded(t *testing.T) {
	walkSchema(t, func(path string, schema tree) {
		if !strings.HasPrefix(path, "spec.") && !strings.HasPrefix(path, "status.") {
			return
		}
		bound := ""
		switch schema["type"] {
		case "string":
			if schema["enum"] == nil && schema["format"] != "date-time" {
				bound = "maxLength"
			}
		case "array":
			bound = "maxItems"
		case "object":
			if schema["properties"] == nil {
				bound = "maxProperties"
			}
		}
		if bound != "" && schema[bound] == nil {
			t.Errorf("%s: no %s", path, bound)
		}
		if schema["x-kubernetes-preserve-unknown-fields"] != nil {
			t.Errorf("%s: keeps unknown fields", path)
		}
	})
}

// TestTheCRDIsOneFlatFile: what is in config/crd is what gets installed.
func TestTheCRDIsOneFlatFile(t *testing.T) {
	files, err := os.ReadDir(filepath.Dir(crdFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 || files[0].Name() != filepath.Base(crdFile) || !files[0].Type().IsRegular() {
		t.Errorf("config/crd holds %v", files)
	}
}

// TestNullsOfEntriesReachTheRules, also without an API server to show it: where a null isn't allowed, it is dropped.
func TestNullsOfEntriesReachTheRules(t *testing.T) {
	var nullable []string
	walkSchema(t, func(path string, schema tree) {
		if schema["nullable"] == true {
			nullable = append(nullable, path)
		}
	})
	want := []string{"spec.costs[].when{}", "spec.match{}", "spec.overrides[].when{}", "spec.tiers[].when{}"}
	if !slices.Equal(nullable, want) {
		t.Errorf("nullable are %v, want %v", nullable, want)
	}
}
