package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const good = `
policies:
- name: p
  key: [principal]
  limits: [{name: l, rollingWindow: {limit: 3, window: 60s}}]
domains:
- {name: other}
`

const bad = `
policies:
- name: P
  key: [principal]
  limits: [{name: l, rollingWindow: {limit: 3, window: 1d}}]
`

// policies runs the command in a folder with a good and a bad file.
func policies(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"good.yaml": good, "bad.yaml": bad} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, problems bytes.Buffer
	cmd := newPoliciesCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&problems)
	err = cmd.Execute()
	return out.String(), problems.String(), err
}

func TestValidateGoodFile(t *testing.T) {
	stdout, stderr, err := policies(t, "validate", "good.yaml")
	if want := "good.yaml: ok, 1 policy, 2 domains, set acc2ab4f3097\n"; stdout != want || stderr != "" || err != nil {
		t.Errorf("got %q, %q, %v\nwant %q", stdout, stderr, err, want)
	}
}

// TestValidateBadFile: every problem has its line on standard error, and nothing else is printed.
func TestValidateBadFile(t *testing.T) {
	stdout, stderr, err := policies(t, "validate", "bad.yaml")
	want := `bad.yaml:3: policies[0].name: "P" may hold only lower-case letters, digits, '-' and '.'
bad.yaml:5: policies[0].limits[0].rollingWindow.window: "1d" is not a duration; write 24h
`
	if stdout != "" || stderr != want || !errors.Is(err, errInvalid) {
		t.Errorf("got %q, %v\n%s\nwant\n%s", stdout, err, stderr, want)
	}
}

// TestValidateReadsAllFiles: one that is wrong or absent hides none of the others.
func TestValidateReadsAllFiles(t *testing.T) {
	stdout, stderr, err := policies(t, "validate", "absent.yaml", "good.yaml", filepath.Join(".", "bad.yaml"), "good.yaml")
	if bytes.Count([]byte(stdout), []byte("ok")) != 2 || bytes.Count([]byte(stderr), []byte("\n")) != 3 || !errors.Is(err, errInvalid) {
		t.Errorf("got\n%s%s%v", stdout, stderr, err)
	}
}

// TestUsageErrorsAreOthers: the program tells them from invalid policies by errInvalid.
func TestUsageErrorsAreOthers(t *testing.T) {
	for _, args := range [][]string{{"validate"}, {"validate", "--strict", "good.yaml"}, {"check"}} {
		if _, _, err := policies(t, args...); err == nil || errors.Is(err, errInvalid) {
			t.Errorf("%v: got %v", args, err)
		}
	}
}
