// Package cluster_test runs the programs as people run them: as processes, with signals, kills and files
// that go missing. It waits by looking, with a deadline, and kills only what it has started.
package cluster_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quorate/quorate/test/rig"
)

// programs are quotanode, quotactl and gateway, which TestMain has built.
var programs rig.Programs

func TestMain(m *testing.M) {
	os.Exit(rig.Run(func(built rig.Programs) int {
		programs = built
		// Most of a test is waiting, so that more of them fit than there are processors. Who says otherwise on the command
		// line is obeyed: that is read later.
		if err := flag.Set("test.parallel", strconv.Itoa(max(3, runtime.GOMAXPROCS(0)))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}, "cmd/quotanode", "cmd/quotactl", "cmd/gateway"))
}

// process is `quotanode dev`, running.
type process struct {
	*rig.Process
	dir string // of its data
}

// start starts `quotanode dev` on dir with addresses of its own. It ends with the test at the latest.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return &process{Process: programs.Launch(t, "quotanode", append([]string{"dev", "--data-dir", dir, "--http-address", ":0", "--grpc-address", ":0", "--metrics-address", ":0"}, args...)...), dir: dir}
}

// ready waits until the node says so.
func (p *process) ready(t *testing.T) *process {
	t.Helper()
	p.Ready(t)
	return p
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
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	address := ""
	for _, l := range p.Said() {
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
		rig.Eventually(t, "an answer", func() bool {
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
	rig.Eventually(t, "what is used up", func() bool {
		status, out := programs.Quotactl(t, "inspect", "-o", "json", "--server", p.Line(t, "grpc "), "--domain", "video-api",
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
