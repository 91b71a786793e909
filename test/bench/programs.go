package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// The node that serves profiles, and the variable that says where.
const (
	profiledNode    = "quotanode-profiled"
	profileVariable = "QUORATE_BENCH_PROFILE"
)

// repository finds the root of this repository from the working folder.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "quotanode")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("run it within the repository")
		}
		dir = up
	}
}

// buildPrograms builds what is measured, as it is now, into a folder.
func buildPrograms(root, into string, profiled bool) error {
	if err := goBuild(root, into+string(filepath.Separator), "./cmd/quotanode", "./cmd/quotactl", "./cmd/gateway"); err != nil {
		return err
	}
	if !profiled {
		return nil
	}
	overlay := map[string]map[string]string{"Replace": {
		filepath.Join(root, "cmd", "quotanode", "bench_profile.go"): filepath.Join(root, "test", "bench", "testdata", "profile.go"),
	}}
	text, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	path := filepath.Join(into, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return goBuild(root, filepath.Join(into, profiledNode), "-overlay", path, "./cmd/quotanode")
}

func goBuild(dir, into string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-o", into}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v: %w\n%s", args, err, out)
	}
	return nil
}
