package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/limit"
)

// program runs quotanode with a context that has ended already, so that whatever starts stops at once.
func program(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	status = run(ctx, args, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// TestWrongUsageIsToldAndEndsWith2, before anything is written.
func TestWrongUsageIsToldAndEndsWith2(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	broken := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(broken, []byte("policies:\n- name: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":  {[]string{"walk"}, `unknown command "walk"`},
		"unknown flag":     {[]string{"dev", "--port", "1"}, "unknown flag: --port"},
		"an argument":      {[]string{"dev", "x"}, `unknown command "x"`},
		"no data dir":      {[]string{"dev", "--data-dir", ""}, "--data-dir: is empty"},
		"log level":        {[]string{"dev", "--data-dir", dir, "--log-level", "loud"}, `--log-level: "loud" is not one of debug, info, warn, error`},
		"no such file":     {[]string{"dev", "--data-dir", dir, "--policies", broken + "x"}, "--policies: open " + broken + "x"},
		"invalid policies": {[]string{"dev", "--data-dir", dir, "--policies", broken}, "--policies: " + broken + ":2: "},
	} {
		status, out, errs := program(t, c.args...)
		if status != command.Usage || out != "" || !strings.HasPrefix(errs, "quotanode: "+c.want) {
			t.Errorf("%s: status %d, %q, %q", name, status, out, errs)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v", err)
	}
}

// TestAddressesThatCannotBeServedEndWith1, each with its flag, before anything is written.
func TestAddressesThatCannotBeServedEndWith1(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := filepath.Join(t.TempDir(), "data")
	for _, flag := range []string{httpFlag, grpcFlag, metricsFlag} {
		for address, want := range map[string]string{
			taken.Addr().String(): "address already in use; choose another port",
			"0.0.0.0:0":           "reachable from other machines",
		} {
			args := []string{"dev", "--data-dir", dir}
			for _, other := range []string{httpFlag, grpcFlag, metricsFlag} {
				args = append(args, "--"+other, ":0")
			}
			status, _, errs := program(t, append(args, "--"+flag, address)...)
			if status != command.Failure || !strings.HasPrefix(errs, "quotanode: --"+flag+" ") || !strings.Contains(errs, want) {
				t.Errorf("%s %s: status %d, %q", flag, address, status, errs)
			}
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v", err)
	}
}

// TestHelpTellsFlagsAndExitStatuses.
func TestHelpTellsFlagsAndExitStatuses(t *testing.T) {
	status, out, _ := program(t, "dev", "--help")
	for _, want := range []string{"Exit status: 0", "--data-dir", "./quorate-dev", "--policies", "127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082", "--log-level"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the help", want)
		}
	}
	if status != command.OK {
		t.Errorf("status %d", status)
	}
}

// TestTheSampleIsThreePerMinute for each principal and class of API.
func TestTheSampleIsThreePerMinute(t *testing.T) {
	set, err := new(options).readPolicies()
	if err != nil || len(set.Policies) != 1 || len(set.Policies[0].Limits) != 1 {
		t.Fatalf("%+v, %v", set, err)
	}
	p := set.Policies[0]
	if l := p.Limits[0]; l.Algorithm != limit.RollingWindow || l.Amount != 3 || l.Window != 60e9 {
		t.Errorf("limit %+v", l)
	}
	if p.Domain != "video-api" || strings.Join(p.Key, " ") != "api_class principal" {
		t.Errorf("policy %+v", p)
	}
}

// TestASignalAtStartStopsInOrder: what starts while it is already told to stop, stops, with status 0.
func TestASignalAtStartStopsInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	status, out, errs := program(t, "dev", "--data-dir", dir, "--"+httpFlag, ":0", "--"+grpcFlag, "localhost:0", "--"+metricsFlag, "127.0.0.1:0")
	if status != command.OK {
		t.Fatalf("status %d, %q", status, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{"data " + dir, "replica n1 n1-", "replica n2 n2-", "replica n3 n3-"}
	if len(lines) != len(want) {
		t.Fatalf("output:\n%s", out)
	}
	for i, prefix := range want {
		if !strings.HasPrefix(lines[i], prefix) {
			t.Errorf("line %d is %q, want %q...", i, lines[i], prefix)
		}
	}
}

// A disk that hangs lets nothing be closed, and must not keep the process.
func TestWhatHangsIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		from := time.Now()
		err := within(closeWithin(errors.New("stuck disk")), func() error { <-hang; return nil })
		if !errors.Is(err, errStuck) || time.Since(from) != failedWithin {
			t.Errorf("%v after %v", err, time.Since(from))
		}
		close(hang)
		if err := within(closeWithin(nil), func() error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
