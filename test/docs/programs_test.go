package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programs are the commands of this repository, built once for all tests that want them.
type programs struct {
	once   sync.Once
	folder string
	err    error
}

var built programs

func TestMain(m *testing.M) {
	status := m.Run()
	if built.folder != "" {
		if err := os.RemoveAll(built.folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

// binaries returns the folder with quotanode, quotactl and gateway.
func binaries(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.folder, built.err = os.MkdirTemp("", "quorate-docs-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", built.folder+string(filepath.Separator), "./cmd/quotanode", "./cmd/quotactl", "./cmd/gateway")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.folder
}
