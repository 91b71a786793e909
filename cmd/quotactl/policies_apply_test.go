package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
)

func version(number uint64) *quotav1.SetVersion { return &quotav1.SetVersion{Epoch: 1, Number: number} }

// enforcing is partitions from 0 that enforce these numbers, 0 for none.
func enforcing(numbers ...uint64) (all []*quotav1.PartitionVersion) {
	for i, n := range numbers {
		p := &quotav1.PartitionVersion{Partition: uint32(i)}
		if n > 0 {
			p.Version = version(n)
		}
		all = append(all, p)
	}
	return all
}

// setHash is that of good.
var setHash = []byte{0xac, 0xc2, 0xab, 0x4f, 0x30, 0x97, 1, 2, 3}

// goodFile writes good to a folder that becomes the working directory.
func goodFile(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("p.yaml", []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestApplySaysWhatCameIntoForceAndWhere.
func TestApplySaysWhatCameIntoForceAndWhere(t *testing.T) {
	goodFile(t)
	a := &admin{}
	at := serveAdmin(t, a, nil)
	for name, c := range map[string]struct {
		response *quotav1.ApplyPoliciesResponse
		code     int
		out      string
		errs     string
	}{
		"changed": {
			&quotav1.ApplyPoliciesResponse{Version: version(4), SetHash: setHash, Changed: true, Partitions: enforcing(4, 4, 4)}, command.OK,
			"p.yaml: version 1.4, changed, set acc2ab4f3097\nenforced by 3 of 3 partitions\n", "",
		},
		"unchanged": {
			&quotav1.ApplyPoliciesResponse{Version: version(4), SetHash: setHash, Partitions: enforcing(4)}, command.OK,
			"p.yaml: version 1.4, unchanged, set acc2ab4f3097\nenforced by 1 of 1 partition\n", "",
		},
		"overtaken": {
			&quotav1.ApplyPoliciesResponse{Version: version(4), Changed: true, Partitions: append(enforcing(5),
				&quotav1.PartitionVersion{Partition: 1, Version: &quotav1.SetVersion{Epoch: 2}})}, command.OK,
			"p.yaml: version 1.4, changed\nenforced by 2 of 2 partitions\n", "",
		},
		"not everywhere yet": {
			&quotav1.ApplyPoliciesResponse{Version: version(4), SetHash: setHash, Changed: true, Partitions: enforcing(4, 3, 0)}, command.Failure,
			"p.yaml: version 1.4, changed, set acc2ab4f3097\nenforced by 1 of 3 partitions\npartition 1 enforces 1.3\npartition 2 enforces none\n",
			"quotactl: version 1.4 is accepted, and 2 more partitions will enforce it: quotactl policies list shows when\n",
		},
		"with a warning": {
			&quotav1.ApplyPoliciesResponse{
				Version: version(4), Partitions: enforcing(4),
				Warnings: []*quotav1.PolicyProblem{{Policy: "default/p", Field: "limits[0]", Reason: "never applies", Line: 5}},
			}, command.OK,
			"p.yaml: version 1.4, unchanged\nenforced by 1 of 1 partition\n", "p.yaml:5: warning: default/p: limits[0]: never applies\n",
		},
		"no version": {&quotav1.ApplyPoliciesResponse{}, command.Failure, "p.yaml: version none, unchanged\n", "quotactl: the node names no version: take the policies for not applied\n"},
	} {
		a.applied, a.text = c.response, ""
		code, out, errs := quotactl(t, "policies", "apply", "p.yaml", "--server", at)
		if code != c.code || out != c.out || errs != c.errs {
			t.Errorf("%s: status %d, got\n%s%s\nwant %d\n%s%s", name, code, out, errs, c.code, c.out, c.errs)
		}
		if a.text != good || !proto.Equal(a.options, &quotav1.ApplyOptions{}) {
			t.Errorf("%s: sent %q, %v", name, a.text, a.options)
		}
	}
}

// TestARefusedSetIsToldInFull: every problem has its place, policy, field and reason.
func TestARefusedSetIsToldInFull(t *testing.T) {
	goodFile(t)
	a := &admin{applied: &quotav1.ApplyPoliciesResponse{Version: version(3), Problems: []*quotav1.PolicyProblem{
		{Policy: "default/p", Field: "limits[0].rollingWindow.window", Reason: "can't be changed yet", Line: 5},
		{Policy: "media/gone", Reason: "its key can't change"},
		{Reason: "is not YAML\x1b", Line: 9},
	}}}
	at := serveAdmin(t, a, nil)
	want := `p.yaml:5: default/p: limits[0].rollingWindow.window: can't be changed yet
p.yaml: media/gone: its key can't change
p.yaml:9: is not YAML?
quotactl: p.yaml is refused, for 3 reasons; in force is still version 1.3
`
	for _, flags := range [][]string{{}, {"--dry-run"}} {
		code, out, errs := quotactl(t, append([]string{"policies", "apply", "p.yaml", "--server", at}, flags...)...)
		if code != command.Failure || out != "" || errs != want {
			t.Errorf("%q: status %d, %q, got\n%s\nwant\n%s", flags, code, out, errs, want)
		}
	}
}

// TestARefusedChangeHasTheLinesOfTheFile: the node that compares sets knows none.
func TestARefusedChangeHasTheLinesOfTheFile(t *testing.T) {
	goodFile(t)
	refused := []*quotav1.PolicyProblem{
		{Policy: "default/p", Field: "limits[0].rollingWindow.window", Reason: "can't be changed yet"},
		{Policy: "default/p", Field: "partitionBy", Reason: "can't be changed"},
		{Policy: "default/p", Reason: "differs"},
		{Field: "policies", Reason: "too many are deleted"},
		{Policy: "default/q", Field: "key", Reason: "is in no line"},
		{Reason: "is all wrong"},
	}
	at := serveAdmin(t, &admin{applied: &quotav1.ApplyPoliciesResponse{Problems: refused, Warnings: refused[:1]}}, nil)
	want := `p.yaml:5: warning: default/p: limits[0].rollingWindow.window: can't be changed yet
p.yaml:5: default/p: limits[0].rollingWindow.window: can't be changed yet
p.yaml:3: default/p: partitionBy: can't be changed
p.yaml:3: default/p: differs
p.yaml:2: policies: too many are deleted
p.yaml: default/q: key: is in no line
p.yaml: is all wrong
quotactl: p.yaml is refused, for 6 reasons; in force is still version none
`
	code, out, errs := quotactl(t, "policies", "apply", "p.yaml", "--server", at)
	if code != command.Failure || out != "" || errs != want {
		t.Errorf("status %d, %q, got\n%s\nwant\n%s", code, out, errs, want)
	}
}

// TestOptionsOfApplyGoAlong.
func TestOptionsOfApplyGoAlong(t *testing.T) {
	goodFile(t)
	a := &admin{applied: &quotav1.ApplyPoliciesResponse{Version: version(3), SetHash: setHash}}
	at := serveAdmin(t, a, nil)
	code, out, errs := quotactl(t, "policies", "apply", "p.yaml", "--server", at, "--dry-run", "--expected", "1.3")
	if code != command.OK || errs != "" || out != "p.yaml: would be accepted; in force is version 1.3, set acc2ab4f3097\n" ||
		!proto.Equal(a.options, &quotav1.ApplyOptions{DryRun: true, Expected: version(3)}) {
		t.Errorf("status %d, %q, %q, %v", code, out, errs, a.options)
	}
	a.applied.Version = nil
	if _, out, _ := quotactl(t, "policies", "apply", "p.yaml", "--server", at, "--dry-run", "--expected", "0.0"); out != "p.yaml: would be accepted; in force is version none, set acc2ab4f3097\n" ||
		!proto.Equal(a.options.GetExpected(), &quotav1.SetVersion{}) || a.options.Expected == nil {
		t.Errorf("%q, %v", out, a.options)
	}
	for _, wrong := range []string{"3", "1.", ".3", "1.3.2", "-1.3", "1,3", "a.b"} {
		if code, _, errs := quotactl(t, "policies", "apply", "p.yaml", "--server", at, "--expected="+wrong); code != command.Usage ||
			!strings.HasPrefix(errs, `quotactl: --expected "`+wrong+`": not EPOCH.NUMBER`) {
			t.Errorf("%s: status %d, %q", wrong, code, errs)
		}
	}
}

// TestApplyFailsAsAWhole: what no node took, and what can't be read.
func TestApplyFailsAsAWhole(t *testing.T) {
	goodFile(t)
	a := &admin{}
	at := serveAdmin(t, a, nil)
	if err := errors.Join(os.WriteFile("large.yaml", nil, 0o600), os.Truncate("large.yaml", client.MaxPolicyBytes+1), os.Mkdir("folder", 0o700)); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{
		"open none.yaml: no such file":           "none.yaml",
		"large.yaml: larger than 67108864 bytes": "large.yaml",
		"read folder: read folder: is a":         "folder",
	} {
		if code, out, errs := quotactl(t, "policies", "apply", path, "--server", at); code != command.Failure || out != "" || !strings.HasPrefix(errs, "quotactl: "+want) {
			t.Errorf("%s: status %d, %q, %q", path, code, out, errs)
		}
	}
	if a.text != "" {
		t.Errorf("sent %q", a.text)
	}
	a.refused = status.Error(codes.Aborted, "version 1.7 is in force")
	want := "quotactl: " + at + ": Aborted: version 1.7 is in force; look at it by quotactl policies list, and apply again if that is still right\n"
	if code, out, errs := quotactl(t, "policies", "apply", "p.yaml", "--server", at); code != command.Failure || out != "" || errs != want {
		t.Errorf("status %d, %q, got\n%s\nwant\n%s", code, out, errs, want)
	}
	for _, args := range [][]string{{}, {"p.yaml", "q.yaml"}, {"p.yaml", "--force"}} {
		if code, _, _ := quotactl(t, append([]string{"policies", "apply"}, args...)...); code != command.Usage {
			t.Errorf("%q: status %d", args, code)
		}
	}
}

// TestApplyReadsStandardInput where the file is -.
func TestApplyReadsStandardInput(t *testing.T) {
	a := &admin{applied: &quotav1.ApplyPoliciesResponse{Version: version(4), Partitions: enforcing(4)}}
	r := runWith(good, "policies", "apply", "-", "--server", serveAdmin(t, a, nil))
	if r.status != command.OK || a.text != good || !strings.HasPrefix(r.out, "-: version 1.4, unchanged\n") {
		t.Errorf("status %d, sent %q, %s%s", r.status, a.text, r.out, r.errs)
	}
}
