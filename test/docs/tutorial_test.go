package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/fence"
)

// TestTheTutorialShowsWhatHappens runs every command of the tutorial and compares what it prints, byte for
// byte. Its folder /tmp is one of the test's own; a policy file whose block names its path is written there.
func TestTheTutorialShowsWhatHappens(t *testing.T) {
	dir := t.TempDir()
	commands := 0
	for _, b := range fence.Blocks(t, filepath.Join(root, "docs/tutorial.md")) {
		first, _, _ := strings.Cut(b.Text, "\n")
		if name, ok := strings.CutPrefix(first, "# /tmp/"); ok && b.Language == "yaml" {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(b.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if b.Language != "console" {
			continue
		}
		for _, step := range strings.Split("\n"+b.Text, "\n$ ")[1:] {
			commands++
			command, want, _ := strings.Cut(step, "\n")
			cmd := exec.Command("sh", "-c", strings.ReplaceAll(command, "/tmp/", dir+"/"))
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			got := strings.ReplaceAll(string(out), dir+"/", "/tmp/")
			if strings.TrimRight(got, "\n") != strings.TrimRight(want, "\n") {
				t.Errorf("docs/tutorial.md:%d: %s\nprints\n%s\nshown is\n%s\n(%v)", b.Line, command, got, want, err)
			}
		}
	}
	if commands < 8 {
		t.Errorf("only %d commands found", commands)
	}
}
