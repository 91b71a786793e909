package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

// inParts cuts a text into what messages take.
func inParts(text string) (parts []string) {
	for part := range slices.Chunk([]byte(text), 1<<20-1<<10) {
		parts = append(parts, string(part))
	}
	return parts
}

// TestALargeSetComesAsJSON, in any form of it; as YAML it is told to.
func TestALargeSetComesAsJSON(t *testing.T) {
	var got policy.Set
	conn := onCluster(t, applying(func(_ context.Context, set policy.Set, _ *quotav1.SetVersion, _ bool) (*quotav1.ApplyPoliciesResponse, error) {
		got = set
		return &quotav1.ApplyPoliciesResponse{Changed: true}, nil
	}))
	padding := strings.Repeat(" ", file.MaxYAML)
	text := fmt.Sprintf(`{%s"policies": [`, padding) + `
  {"name": "a", "namespace": "media", "key": ["principal"], "limits": [{"name": "l", "fixedWindow": {"limit": 3, "window": "60s"}}]}
]}`
	r, err := applyText(t, conn, nil, inParts(text)...)
	if err != nil || len(r.GetProblems()) > 0 || len(got.Policies) != 1 || got.Policies[0].Quota != "a" {
		t.Errorf("%v, %v: %s", r, err, got.Canonical())
	}
	r, err = applyText(t, conn, nil, inParts(strings.Replace(text, "60s", "1d", 1))...)
	if p := r.GetProblems(); err != nil || len(p) != 1 || p[0].GetPolicy() != "media/a" || p[0].GetField() != "limits[0].fixedWindow.window" || p[0].GetLine() != 2 {
		t.Errorf("a fault: %v, %v", p, err)
	}
	r, err = applyText(t, conn, nil, inParts(padding+twoPolicies)...)
	if p := r.GetProblems(); err != nil || len(p) != 1 || !strings.Contains(p[0].GetReason(), "write it as JSON") {
		t.Errorf("in YAML: %v, %v", p, err)
	}
}

// TestProblemsOfATextNameTheirPolicy, and the field in it; where the policy's name can't be read, the field is that of the
// set.
func TestProblemsOfATextNameTheirPolicy(t *testing.T) {
	conn := onCluster(t, refusing(nil))
	for text, want := range map[string]string{
		strings.Replace(twoPolicies, "name: b, namespace: media,", "name: b,", 1) + "  mode: x\n":                                    "|",
		strings.Replace(twoPolicies, "limit: 9", "limit: no", 1):                                                                     "media/b|limits[0].rollingWindow.limit",
		strings.Replace(twoPolicies, "name: b,", "name: 3,", 1):                                                                      "|policies[1].name",
		strings.Replace(twoPolicies, "{name: b,", "{name: b, colour: red,", 1):                                                       "media/b|colour",
		strings.Replace(twoPolicies, "namespace: media, domain: video-api, match", "domain: d, match", 1) + "domains: [{name: 3}]\n": "|domains[0].name",
		strings.Replace(twoPolicies, "name: b, namespace: media", "name: a, namespace: media", 1):                                    "media/a|name",
	} {
		r, err := applyText(t, conn, nil, text)
		if err != nil || len(r.GetProblems()) != 1 {
			t.Errorf("%s: %v, %v", text, r, err)
			continue
		}
		if p := r.GetProblems()[0]; p.GetPolicy()+"|"+p.GetField() != want || p.GetLine() == 0 {
			t.Errorf("%s: %v, want %s", text, p, want)
		}
	}
}
