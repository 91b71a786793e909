package crd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
	"sigs.k8s.io/yaml"
)

// samples are the files of config/samples, in JSON, by name.
func samples(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if all[filepath.Base(name)], err = yaml.YAMLToJSONStrict(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// TestTheReaderTakesTheSamples: each alone, and all as one set, in which each can win. What a version doesn't enforce yet it
// says of the one sample that shows it.
func TestTheReaderTakesTheSamples(t *testing.T) {
	var all policy.Set
	for name, text := range samples(t) {
		var o v1alpha1.RateLimitPolicy
		if err := yaml.UnmarshalStrict(text, &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if o.APIVersion != v1alpha1.GroupVersion().String() || o.Kind != v1alpha1.Kind {
			t.Errorf("%s is a %s %s", name, o.APIVersion, o.Kind)
		}
		set, err := rehearse(t, policyFile(o.Name, "default", encode(t, o.Spec)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		all.Policies = append(all.Policies, set.Policies...)
		_, err = readFile(o.Name, "default", encode(t, o.Spec))
		var unsupported []string
		for _, p := range problems(t, err) {
			unsupported = append(unsupported, p.Path+": "+p.Message)
		}
		var want []string
		if o.Spec.Mode == "Shadow" {
			want = []string{"policies[0].mode: Shadow is not supported yet"}
		}
		if !slices.Equal(unsupported, want) {
			t.Errorf("%s: the reader says %v", name, unsupported)
		}
	}
	if found := all.Malformed(); len(found) > 0 {
		t.Errorf("together: %v", found)
	}
	if found := all.Warnings(); len(found) > 0 {
		t.Errorf("together: %v", found)
	}
}

// rehearse reads a policy file without regard to what isn't enforced yet.
func rehearse(t *testing.T, text []byte) (policy.Set, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policies.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file.ReadFileToRehearse(name)
}

// TestTheSamplesShowEverything: each field of a spec stands in some sample.
func TestTheSamplesShowEverything(t *testing.T) {
	shown := ""
	for _, text := range samples(t) {
		shown += string(text)
	}
	for _, field := range []string{
		"rollingWindow", "precision", "tokenBucket", "slidingWindowCounter", "fixedWindow", "tiers", "overrides", "costs",
		"unlimited", "global", "partitionBy", "quota", "match", "mode",
	} {
		if !strings.Contains(shown, `"`+field+`"`) {
			t.Errorf("no sample shows %s", field)
		}
	}
}

// TestTheSamplesApply as they are, with kubectl; a second time they change nothing.
func TestTheSamplesApply(t *testing.T) {
	server(t)
	var want []string
	for _, text := range samples(t) {
		var o object
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		want = append(want, o.Metadata.Name)
		t.Cleanup(func() { remove(t, o.Metadata.Name) })
	}
	slices.Sort(want)
	for _, said := range []string{"created", "unchanged"} {
		out := kubectl(t, "apply", "-f", "../../config/samples")
		for _, name := range want {
			if !strings.Contains(out, "ratelimitpolicy.quorate.dev/"+name+" "+said+"\n") {
				t.Errorf("%s is not %s: %s", name, said, out)
			}
		}
	}
	var got []string
	for _, o := range ask("GET", policies, "", nil).object(t).Items {
		got = append(got, o.Metadata.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
}
