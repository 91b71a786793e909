package cluster_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/test/rig"
)

const (
	allowed     = http.StatusOK
	denied      = http.StatusTooManyRequests
	unavailable = http.StatusServiceUnavailable
)

// TestThreePerMinuteAndTheFourthIsTooMany: what the README begins with, under the built-in sample.
func TestThreePerMinuteAndTheFourthIsTooMany(t *testing.T) {
	t.Parallel()
	p := start(t, filepath.Join(t.TempDir(), "data")).ready(t)
	a := p.want(t, "alice", allowed, allowed, allowed, denied)
	if a.Decision != "deny" || a.Reason != "limit" || a.Remaining == nil || *a.Remaining != 0 {
		t.Errorf("the fourth: %+v", a)
	}
	// The first of them is at most a minute old; 61 is a minute and 0.2 %.
	if a.retryAfter < 1 || a.retryAfter > 61 {
		t.Errorf("Retry-After: %d", a.retryAfter)
	}
	p.want(t, "bob", allowed)

	grpc := p.Line(t, "grpc ")
	ask := []string{"--server", grpc, "--domain", "video-api", "principal=bob", "api_class=convert"}
	for i, want := range []int{0, 0, 3, 3} {
		id := fmt.Sprintf("%032x", i) // so that repeating it after "unavailable" takes nothing more
		var status int
		var out string
		rig.Eventually(t, "a decision", func() bool {
			status, out = programs.Quotactl(t, append([]string{"check", "--id", id}, ask...)...)
			return status != 1
		})
		if status != want {
			t.Errorf("quotactl check %d: status %d\n%s", i, status, out)
		}
	}
	status, out := programs.Quotactl(t, append([]string{"inspect"}, ask...)...)
	if fields := strings.Fields(out); status != 0 || !strings.Contains(strings.Join(fields, " "), "default/conversions per-minute rollingWindow 3 0 3 1m0s") {
		t.Errorf("quotactl inspect: status %d\n%s", status, out)
	}
}

// TestDevConfirmsForAllItsNodes: at its one address all partitions are confirmed, whichever of its nodes leads them.
func TestDevConfirmsForAllItsNodes(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir()).ready(t)
	admin, err := client.NewAdmin([]string{p.Line(t, "grpc ")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }() // nothing is in flight
	rig.Eventually(t, "all partitions confirmed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
		defer cancel()
		e, err := admin.Enforced(ctx)
		return err == nil && e.Complete() && e.Partitions == 3 && e.Versions[2].GetNumber() == 1
	})
}

// TestAKilledProcessHasForgottenNothing: not once, and not after several kills in the middle of checks.
func TestAKilledProcessHasForgottenNothing(t *testing.T) {
	t.Parallel()
	dir, policies := t.TempDir(), hourly(t)
	p := start(t, dir, "--policies", policies).ready(t)
	p.want(t, "alice", allowed, allowed, allowed, denied)
	p.want(t, "bob", allowed)
	p.Kill(t)

	p = start(t, dir, "--policies", policies).ready(t)
	p.want(t, "alice", denied)
	p.want(t, "bob", allowed, allowed, denied)

	// Killed while four askers ask: whoever was told "allow" was, and there are never more than three.
	var told atomic.Int64
	for round := range 2 {
		var askers sync.WaitGroup
		for range 4 {
			askers.Go(func() {
				for range 5 {
					if a, err := p.tryCheck("carol"); err == nil && a.status == allowed {
						told.Add(1)
					}
				}
			})
		}
		if round == 0 {
			p.Kill(t)
			askers.Wait()
			p = start(t, dir, "--policies", policies).ready(t)
		}
		askers.Wait()
	}
	if n := told.Load(); n > 3 {
		t.Errorf("%d were allowed, at most 3 may be", n)
	}
	p.want(t, "carol", denied)
}

// TestALostDiskNeverAllowsAFourth: a replica whose folder is gone stays out and is reported; the two others
// remember.
func TestALostDiskNeverAllowsAFourth(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"n1", "n2", "n3"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			dir, policies := t.TempDir(), hourly(t)
			p := start(t, dir, "--policies", policies).ready(t)
			p.want(t, "alice", allowed, allowed, allowed, denied)
			p.Kill(t)
			remove(t, dir, lost)

			p = start(t, dir, "--policies", policies)
			p.Line(t, "replica "+lost+" awaiting replacement")
			p.Line(t, "http ")
			for { // also before it is ready: never an allow
				a := p.check(t, "alice")
				if a.status == denied {
					break
				}
				if a.status != unavailable {
					t.Fatalf("%+v", a)
				}
			}
			p.ready(t)
			p.want(t, "alice", denied, denied, denied)
			p.want(t, "bob", allowed)
		})
	}
}

// TestWithoutAMajorityEverythingIsUnavailable: the process runs, says so, and allows nobody.
func TestWithoutAMajorityEverythingIsUnavailable(t *testing.T) {
	t.Parallel()
	dir, policies := t.TempDir(), hourly(t)
	p := start(t, dir, "--policies", policies).ready(t)
	p.want(t, "alice", allowed, allowed, allowed, denied)
	p.Kill(t)
	remove(t, dir, "n1", "n3")

	p = start(t, dir, "--policies", policies)
	if rest := p.Line(t, "no leader: "); !strings.HasSuffix(rest, "awaiting replacement: n1, n3") {
		t.Errorf("it says %q", rest)
	}
	for _, account := range []string{"alice", "somebody-new"} {
		for range 10 {
			if a := p.check(t, account); a.status != unavailable || a.retryAfter != 1 || a.Decision != "unavailable" {
				t.Fatalf("%s: %+v", account, a)
			}
		}
	}
	response, err := http.Get("http://" + p.Line(t, "metrics ") + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != unavailable {
		t.Errorf("/readyz: status %d", response.StatusCode)
	}
	if status := p.Terminate(t, termination[0]); status != 0 {
		t.Errorf("ended with %d\n%s", status, p.Stderr.String())
	}
}

// TestOtherAmountsAreTakenAtTheNextStart, and what was used up before stays so.
func TestOtherAmountsAreTakenAtTheNextStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, "--policies", hourly(t)).ready(t)
	p.want(t, "alice", allowed, allowed)
	p.Kill(t)

	p = start(t, dir, "--policies", hourlyUpTo(t, 5)).ready(t)
	p.want(t, "alice", allowed, allowed, allowed, denied)
	p.Kill(t)

	p = start(t, dir, "--policies", hourly(t)).ready(t)
	p.want(t, "alice", denied)
	p.want(t, "bob", allowed, allowed, allowed, denied)
}

// TestPoliciesThatCantFollowAreRefusedAtTheNextStart: the sample has another limit over another window. The
// process ends and says what stands against them, and what was in force goes on being so.
func TestPoliciesThatCantFollowAreRefusedAtTheNextStart(t *testing.T) {
	t.Parallel()
	dir, policies := t.TempDir(), hourly(t)
	p := start(t, dir, "--policies", policies).ready(t)
	p.want(t, "alice", allowed)
	p.Kill(t)

	other := start(t, dir) // with the sample
	if status := other.Wait(t); status != 1 {
		t.Errorf("ended with %d", status)
	}
	said := other.Stderr.String()
	for _, want := range []string{"quotanode: --policies: the sample can't take the place of the policies in force", "limits",
		"Start with policies that can", "choose another --data-dir"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	p = start(t, dir, "--policies", policies).ready(t)
	p.want(t, "alice", allowed, allowed, denied)
}

// TestASecondProcessOnADirectoryIsRefused, and the first one goes on.
func TestASecondProcessOnADirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir).ready(t)
	second := start(t, dir)
	if status := second.Wait(t); status != 1 {
		t.Errorf("ended with %d", status)
	}
	if said := second.Stderr.String(); !strings.Contains(said, "quotanode: --data-dir "+dir+": ") || !strings.Contains(said, "another process") {
		t.Errorf("it says\n%s", said)
	}
	p.want(t, "alice", allowed, allowed, allowed, denied)
}

// TestASignalStopsInOrder: with status 0, nothing to complain about, and nothing forgotten.
func TestASignalStopsInOrder(t *testing.T) {
	t.Parallel()
	dir, policies := t.TempDir(), hourly(t)
	for i, signal := range termination {
		p := start(t, dir, "--policies", policies).ready(t)
		p.want(t, "alice", [][]int{{allowed, allowed, allowed, denied}, {denied}}[i]...)
		if status := p.Terminate(t, signal); status != 0 {
			t.Errorf("%v: ended with %d", signal, status)
		}
		if said := p.Stderr.String(); strings.Contains(said, "quotanode:") {
			t.Errorf("%v: it says\n%s", signal, said)
		}
	}
}

func remove(t *testing.T, dir string, replicas ...string) {
	t.Helper()
	for _, name := range replicas {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}
