package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
)

const several = `
policies:
- name: conversions
  namespace: media
  domain: video-api
  match: {api_class: "yes", "on": "1.0"}
  key: [principal, "null"]
  limits:
  - {name: per-minute, rollingWindow: {limit: 3, window: 60s}}
  - {name: burst, tokenBucket: {capacity: 10, refill: 2, period: 1s}}
  tiers:
  - {when: {tier: "pro: #1"}, amounts: {per-minute: {limit: 1000}}}
- name: all
  global: true
  limits: [{name: hourly, fixedWindow: {limit: 9223372036854775807, window: 1h}}]
domains:
- {name: video-api, onNoMatch: Allow, required: [principal]}
`

// canonicalOf is a policy file's canonical form.
func canonicalOf(t *testing.T, text string) []byte {
	t.Helper()
	set, err := file.Read("test", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return set.Canonical()
}

// listed is how a node sends a set, in two parts.
func listed(canonical []byte, numbers ...uint64) []*quotav1.GetPoliciesResponse {
	part := func(json []byte, last bool) *quotav1.PolicySetPart {
		return &quotav1.PolicySetPart{Version: version(4), Json: json, Size: uint64(len(canonical)), Last: last}
	}
	half := len(canonical) / 2
	return []*quotav1.GetPoliciesResponse{
		{Partitions: enforcing(numbers...), Policies: part(canonical[:half], false)}, {Policies: part(canonical[half:], true)},
	}
}

// TestListShowsEveryLimit, and which partitions are behind.
func TestListShowsEveryLimit(t *testing.T) {
	canonical := canonicalOf(t, several)
	set, err := policy.ParseCanonical(canonical)
	if err != nil {
		t.Fatal(err)
	}
	hash := set.Hash()
	want := `version 1.4` + setName(hash[:]) + `
enforced by 1 of 2 partitions
partition 1 enforces 1.3

POLICY             DOMAIN     KEY             LIMIT       ALGORITHM      AMOUNT               PER              MODE
media/conversions  video-api  null,principal  per-minute  rollingWindow  3                    1m0s             Enforce
media/conversions  video-api  null,principal  burst       tokenBucket    10                   refill 2 per 1s  Enforce
default/all        default    (global)        hourly      fixedWindow    9223372036854775807  1h0m0s           Enforce
`
	a := &admin{listed: listed(canonical, 4, 3)}
	code, out, errs := quotactl(t, "policies", "list", "--server", serveAdmin(t, a, nil))
	if code != command.OK || out != want || errs != "" {
		t.Errorf("status %d, %q, got\n%s\nwant\n%s", code, errs, out, want)
	}
}

// TestListedYAMLIsAsPeopleWriteIt.
func TestListedYAMLIsAsPeopleWriteIt(t *testing.T) {
	want := `policies:
  - name: conversions
    namespace: media
    quota: conversions
    domain: video-api
    match:
      api_class: "yes"
      "on": "1.0"
    key: ["null", principal]
    partitionBy: ["null", principal]
    limits:
      - name: per-minute
        rollingWindow:
          limit: 3
          window: 1m0s
      - name: burst
        tokenBucket:
          capacity: 10
          refill: 2
          period: 1s
    tiers:
      - when:
          tier: "pro: #1"
        amounts:
          per-minute:
            limit: 1000
    keepHistory: 1m0s
    allowAdjust: false
    mode: Enforce
    onUnavailable: Deny
  - name: all
    namespace: default
    quota: all
    domain: default
    match: {}
    global: true
    partitionBy: []
    limits:
      - name: hourly
        fixedWindow:
          limit: 9223372036854775807
          window: 1h0m0s
    allowAdjust: false
    mode: Enforce
    onUnavailable: Deny
domains:
  - name: video-api
    onNoMatch: Allow
    required: [principal]
`
	if got := string(policyFile(canonicalOf(t, several))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestListedYAMLCanBeAppliedAgain: it says the same, to a reader as strict as a node's.
func TestListedYAMLCanBeAppliedAgain(t *testing.T) {
	for _, text := range []string{several, good, "policies: []\n"} {
		canonical := canonicalOf(t, text)
		a := &admin{listed: listed(canonical, 4)}
		code, out, errs := quotactl(t, "policies", "list", "-o", "yaml", "--server", serveAdmin(t, a, nil))
		if code != command.OK || errs != "" || !strings.HasPrefix(out, "# version 1.4, set ") || strings.Contains(out, `{"`) {
			t.Errorf("status %d, %s\n%s", code, errs, out)
		}
		if !bytes.Equal(canonicalOf(t, out), canonical) {
			t.Errorf("says another thing:\n%s", out)
		}
	}
}

// TestAListedSetOfAnotherVersionIsShownAsItIs: nothing that isn't understood is left out.
func TestAListedSetOfAnotherVersionIsShownAsItIs(t *testing.T) {
	newer := `{"policies":[{"name":"p","hologram":true}]}`
	a := &admin{listed: listed([]byte(newer), 4)}
	at := serveAdmin(t, a, nil)
	for output, body := range map[string]string{"yaml": newer + "\n", "json": ""} {
		code, out, errs := quotactl(t, "policies", "list", "-o", output, "--server", at)
		if code != command.OK || errs != "" || !strings.HasSuffix(out, body) || !strings.Contains(out, "hologram") {
			t.Errorf("%s: status %d, %s\n%s", output, code, errs, out)
		}
	}
	if code, _, errs := quotactl(t, "policies", "list", "--server", at); code != command.Failure || !strings.HasPrefix(errs, "quotactl: this version of quotactl can't read the policies") {
		t.Errorf("status %d, %s", code, errs)
	}
}

// TestListInJSONHasSetAndVersions.
func TestListInJSONHasSetAndVersions(t *testing.T) {
	canonical := canonicalOf(t, good)
	a := &admin{listed: listed(canonical, 4, 0)}
	code, out, errs := quotactl(t, "policies", "list", "-o", "json", "--server", serveAdmin(t, a, nil))
	var got bytes.Buffer
	if err := json.Compact(&got, []byte(out)); err != nil {
		t.Fatal(err)
	}
	head := `{"version":{"epoch":1,"number":4},"set_hash":"acc2ab4f3097`
	tail := `","partitions":[{"partition":0,"version":{"epoch":1,"number":4}},{"partition":1,"version":null}],"policies":` + string(canonical) + `}`
	if code != command.OK || errs != "" || !strings.HasPrefix(got.String(), head) || !strings.HasSuffix(got.String(), tail) {
		t.Errorf("status %d, %s, got\n%s\nwant\n%s...%s", code, errs, got.String(), head, tail)
	}
}

// TestAClusterWithoutPoliciesIsListed as one.
func TestAClusterWithoutPoliciesIsListed(t *testing.T) {
	a := &admin{listed: []*quotav1.GetPoliciesResponse{{Partitions: enforcing(0)}}}
	at := serveAdmin(t, a, nil)
	for output, want := range map[string]string{
		"text": "no policies yet\n",
		"yaml": "# no policies yet\npolicies: []\n",
		"json": "{\n  \"version\": null,\n  \"set_hash\": null,\n  \"partitions\": [\n    {\n      \"partition\": 0,\n      \"version\": null\n    }\n  ],\n  \"policies\": null\n}\n",
	} {
		if code, out, errs := quotactl(t, "policies", "list", "-o", output, "--server", at); code != command.OK || out != want || errs != "" {
			t.Errorf("%s: status %d, %q, %q", output, code, out, errs)
		}
	}
}
