package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// module is whose programs they are.
const module = "github.com/quorate/quorate/"

// Programs is the folder that holds the programs, built from the sources as they are.
type Programs string

// Build builds programs, each named by its folder in the module, as in cmd/quotanode. Who calls it removes them.
func Build(folders ...string) (Programs, error) {
	dir, err := os.MkdirTemp("", "quorate-programs-")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-buildvcs=false", "-o", dir + string(filepath.Separator)}
	for _, f := range folders {
		args = append(args, module+f)
	}
	build := exec.Command("go", args...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", errors.Join(fmt.Errorf("build the programs: %w", err), os.RemoveAll(dir))
	}
	return Programs(dir), nil
}

// Remove removes them.
func (p Programs) Remove() error { return os.RemoveAll(string(p)) }

// Run builds the programs, gives them to main, and returns its exit status: what a TestMain does.
func Run(main func(Programs) int, folders ...string) int {
	p, err := Build(folders...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = p.Remove() }()
	return main(p)
}

// path is where a program lies.
func (p Programs) path(program string) string { return filepath.Join(string(p), program) }

// Quotactl runs the tool and returns its exit status and output.
func (p Programs) Quotactl(t testing.TB, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.path("quotactl"), args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return exit.ExitCode(), string(out) + string(exit.Stderr)
	}
	return 0, string(out)
}

// Issue makes certificates for all roles in a folder, as people do to try a cluster.
func (p Programs) Issue(t testing.TB, folder string, args ...string) {
	t.Helper()
	if status, out := p.Quotactl(t, append([]string{"certs", "dev", "--dir", folder}, args...)...); status != 0 {
		t.Fatalf("certs dev: status %d\n%s", status, out)
	}
}
