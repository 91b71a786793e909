package power_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/test/power/trace"
)

// patience bounds every wait. Nothing here takes a tenth of it on an idle machine.
const patience = 90 * time.Second

// needStrace skips a test where there is no strace, or where it may trace nothing; in CI it fails.
func needStrace(t *testing.T) {
	t.Helper()
	give := t.Skipf
	if os.Getenv("CI") != "" {
		give = t.Fatalf
	}
	if _, err := exec.LookPath(trace.Package); err != nil {
		give("strace isn't there (package %s): %v", trace.Package, err)
	}
	probe := trace.Command(os.DevNull, "trace=none", "true")
	if said, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).CombinedOutput(); err != nil {
		give("strace may not trace a program (ptrace not permitted, in a container without SYS_PTRACE?): %v: %s", err, said)
	}
}

// scratch is a folder for what a test writes: in memory where there is such a file system, since nothing here hangs on
// what the machine's own disk does. It is gone after the test.
func scratch(t *testing.T) string {
	t.Helper()
	const inMemory = "/dev/shm"
	folder, err := os.MkdirTemp(inMemory, "quorate-power-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// readTrace reads a trace that is complete.
func readTrace(t *testing.T, path string) []*trace.Call {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	calls, err := trace.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// record runs this program again under strace, to do what a plan says, and returns what it did. With -artifacts the
// trace is kept under this name.
func record(t *testing.T, name string, env ...string) []*trace.Call {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.ArtifactDir(), name+".trace")
	command := trace.Command(output, trace.Changes, self)
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = append(append(os.Environ(), roleVariable+"=stores"), env...)
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Run(); err != nil {
		t.Fatalf("%s under strace: %v\n%s", name, errors.Join(err, ctx.Err()), said.String())
	}
	return readTrace(t, output)
}
