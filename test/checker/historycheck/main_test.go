package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandSaysWhatItFound: by its exit status, and in words.
func TestCommandSaysWhatItFound(t *testing.T) {
	nonsense := filepath.Join(t.TempDir(), "nonsense.jsonl")
	if err := os.WriteFile(nonsense, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"../testdata/good-failover.jsonl"}, 0, "verdict: kept"},
		{[]string{"-allows", "5", "../testdata/good-failover.jsonl"}, 1, "only 4 allows, and 5 are needed"},
		{[]string{"../testdata/fourth-in-a-window.jsonl"}, 1, "4 units in (9, 1009]"},
		{[]string{"../testdata/fourth-in-a-window.jsonl"}, 1, "line 5: {\"kind\":\"check\""},
		{[]string{"../testdata/live-denial-goes-back.jsonl"}, 1, "violations of \"denial\": 1"},
		{[]string{"-live", "../testdata/live-denial-goes-back.jsonl"}, 1, "violations of \"forward\": 1"},
		{[]string{"-fast", "2000", "../testdata/clock-too-fast.jsonl"}, 0, "verdict: kept"},
		{[]string{nonsense}, 2, "line 1: kind \"\""},
		{[]string{"no-such-file"}, 2, "no such file"},
		{[]string{}, 2, "usage:"},
	} {
		var out, errs strings.Builder
		if status := run(c.args, &out, &errs); status != c.status || !strings.Contains(out.String()+errs.String(), c.says) {
			t.Errorf("%v: status %d, want %d with %q\n%s%s", c.args, status, c.status, c.says, out.String(), errs.String())
		}
	}
}
