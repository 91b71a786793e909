package crd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
	kjson "sigs.k8s.io/json"
)

// policyFile is the policy file that an object amounts to: its spec with its name and namespace. The spec's text stays
// as it is.
func policyFile(name, namespace, spec string) []byte {
	fields := bytes.TrimPrefix(bytes.TrimSpace([]byte(spec)), []byte("{"))
	comma := ","
	if bytes.HasPrefix(bytes.TrimSpace(fields), []byte("}")) {
		comma = ""
	}
	return fmt.Appendf(nil, `{"policies":[{"name":%q,"namespace":%q%s%s]}`, name, namespace, comma, fields)
}

// readSpec reads a spec as the policy file's reader does.
func readSpec(spec string) (policy.Set, error) { return readFile("p", "default", spec) }

func readFile(name, namespace, spec string) (policy.Set, error) {
	return file.Parse("spec", policyFile(name, namespace, spec))
}

// problems are what the reader says of a spec, nothing if it takes it.
func problems(t *testing.T, err error) []file.Problem {
	t.Helper()
	if err == nil {
		return nil
	}
	var e *file.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	return e.Problems
}

// decode reads a spec into the Go types as strictly as the API server does when it is asked to be strict.
func decode(spec []byte) (s v1alpha1.RateLimitPolicySpec, err error) {
	faults, err := kjson.UnmarshalStrict(spec, &s)
	return s, errors.Join(append(faults, err)...)
}

// encode writes the Go types as a client does.
func encode(t *testing.T, s v1alpha1.RateLimitPolicySpec) string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// specOf is the spec of an object for the one policy of a set: its canonical JSON without what is the object's.
func specOf(t *testing.T, s policy.Set) []byte {
	t.Helper()
	var wire struct{ Policies []map[string]json.RawMessage }
	if err := json.Unmarshal(s.Canonical(), &wire); err != nil || len(wire.Policies) != 1 {
		t.Fatalf("%v: %s", err, s.Canonical())
	}
	spec := wire.Policies[0]
	delete(spec, "name")
	delete(spec, "namespace")
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
