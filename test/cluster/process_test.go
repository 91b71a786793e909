// Package cluster_test runs the programs as people run them: as processes, with signals, kills and files
// that go missing. It waits by looking, with a deadline, and kills only what it has started.
package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait. Nothing here takes a tenth of it on an idle machine.
const patience = 60 * time.Second

// programs is where TestMain has built quotanode, quotactl and gateway.
var programs string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quorate-cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir+string(filepath.Separator), "../../cmd/quotanode", "../../cmd/quotactl", "../../cmd/gateway")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		return 1
	}
	programs = dir
	// Most of a test is waiting, so that more of them fit than there are processors. Who says otherwise on the command
	// line is obeyed: that is read later.
	if err := flag.Set("test.parallel", strconv.Itoa(max(3, runtime.GOMAXPROCS(0)))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// process is one of the programs, running.
type process struct {
	cmd    *exec.Cmd
	dir    string        // of the data of `quotanode dev`
	ended  chan struct{} // closed when it has ended and all of its output is read
	err    error         // of Wait, once ended
	stderr output

	mu    sync.Mutex
	lines []string
}

// output is what a process writes, readable at any time.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// end is the last of it, for people.
func (o *output) end() string {
	const enough = 8 << 10
	text := o.String()
	return text[max(0, len(text)-enough):]
}

// start starts `quotanode dev` on dir with addresses of its own. It ends with the test at the latest.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := launch(t, "quotanode", append([]string{"dev", "--data-dir", dir, "--http-address", ":0", "--grpc-address", ":0", "--metrics-address", ":0"}, args...)...)
	p.dir = dir
	return p
}

// launch starts a program. It ends with the test at the latest.
func launch(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(filepath.Join(programs, program), args...), ended: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.watch(stdout)
	t.Cleanup(func() {
		p.kill(t)
		if t.Failed() {
			t.Logf("%s %q said\n%s\n%s", program, args, strings.Join(p.said(), "\n"), p.stderr.end())
		}
	})
	return p
}

func (p *process) watch(stdout io.Reader) {
	for s := bufio.NewScanner(stdout); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

func (p *process) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// line waits for a line that begins so, and returns what follows.
func (p *process) line(t *testing.T, prefix string) (rest string) {
	t.Helper()
	eventually(t, "the line "+prefix, func() bool {
		for _, l := range p.said() {
			if after, ok := strings.CutPrefix(l, prefix); ok {
				rest = after
				return true
			}
		}
		select {
		case <-p.ended:
			t.Fatalf("ended without the line %q: %v\n%s", prefix, p.err, p.stderr.String())
		default:
		}
		return false
	})
	return rest
}

// ready waits until the node says so.
func (p *process) ready(t *testing.T) *process {
	t.Helper()
	p.line(t, "ready")
	return p
}

// kill ends the process with no warning.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	p.wait(t)
}

// terminate asks the process to end and returns its exit status.
func (p *process) terminate(t *testing.T, signal os.Signal) int {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	return p.wait(t)
}

// wait waits for the end and returns the exit status, -1 after a signal.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatal("the process doesn't end")
		return 0
	}
}

// answer is what /check says.
type answer struct {
	status     int
	retryAfter int // seconds; 0: none
	Decision   string
	Reason     string
	Remaining  *int
}

// check asks over HTTP for one conversion of the account.
func (p *process) check(t *testing.T, account string) answer {
	t.Helper()
	a, err := p.tryCheck(account)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tryCheck is check for processes that may end meanwhile.
func (p *process) tryCheck(account string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	address := ""
	for _, l := range p.said() {
		if rest, ok := strings.CutPrefix(l, "http "); ok {
			address = rest
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/check?principal="+account+"&api_class=convert", nil)
	if err != nil {
		return a, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		return a, err
	}
	a.status = response.StatusCode
	a.retryAfter, _ = strconv.Atoi(response.Header.Get("Retry-After"))
	return a, nil
}

// want asks until each status has come, in this order. On a machine with too much to do a leader may be
// unsure of its majority for a moment, and says so: then nothing was consumed, and it is asked again. Where
// an outcome is unknown, what is used up tells. It returns the last answer.
func (p *process) want(t *testing.T, account string, statuses ...int) (a answer) {
	t.Helper()
	for i, want := range statuses {
		eventually(t, "an answer", func() bool {
			a = p.check(t, account)
			if a.Reason == "outcome_unknown" && p.used(t, account) > allows.of(p, account) {
				a.status = http.StatusOK
			}
			return a.status != unavailable
		})
		if a.status != want {
			t.Fatalf("check %d of %s: %+v, want %d; %d are used up", i+1, account, a, want, p.used(t, account))
		}
		if want == allowed {
			allows.add(p, account)
		}
	}
	return a
}

// used says how many the account has used up.
func (p *process) used(t *testing.T, account string) (used int) {
	t.Helper()
	eventually(t, "what is used up", func() bool {
		status, out := quotactl(t, "inspect", "-o", "json", "--server", p.line(t, "grpc "), "--domain", "video-api",
			"principal="+account, "api_class=convert")
		var usage struct{ Limits []struct{ Used int } }
		if status != 0 || json.Unmarshal([]byte(out), &usage) != nil || len(usage.Limits) != 1 {
			return false
		}
		used = usage.Limits[0].Used
		return true
	})
	return used
}

// tally counts allows by data directory and account: they outlive processes.
type tally struct {
	mu sync.Mutex
	n  map[[2]string]int
}

var allows = tally{n: map[[2]string]int{}}

func (y *tally) of(p *process, account string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.n[[2]string{p.dir, account}]
}

func (y *tally) add(p *process, account string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.n[[2]string{p.dir, account}]++
}

// quotactl runs the tool and returns its exit status and output.
func quotactl(t *testing.T, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(programs, "quotactl"), args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return exit.ExitCode(), string(out) + string(exit.Stderr)
	}
	return 0, string(out)
}

// eventually looks until done says so.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// hourly writes a policy file under which an allowance outlives any test: three per hour.
func hourly(t *testing.T) (path string) {
	t.Helper()
	return hourlyUpTo(t, 3)
}

func hourlyUpTo(t *testing.T, limit int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "policies.yaml")
	text := fmt.Sprintf(`policies:
- name: conversions
  domain: video-api
  key: [principal, api_class]
  limits:
  - {name: hourly, rollingWindow: {limit: %d, window: 1h}}
`, limit)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var termination = []os.Signal{syscall.SIGTERM, syscall.SIGINT}
