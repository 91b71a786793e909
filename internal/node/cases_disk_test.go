package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/partition"
)

// lost makes a node's disk one that was never written to.
func (tr *trio) lost(name string) {
	tr.t.Helper()
	if err := os.RemoveAll(filepath.Join(tr.dir, name)); err != nil {
		tr.t.Fatal(err)
	}
}

// silent holds running nodes to refusing all that they are asked.
func (tr *trio) silent(users ...string) {
	tr.t.Helper()
	for range 10 {
		for _, m := range tr.running() {
			for _, user := range users {
				if o := m.ask(tr.t, user); o.Result <= partition.UnknownDomain {
					tr.t.Fatalf("%s answers %s with %d", m.ID(), user, o.Result)
				}
			}
		}
	}
}

func (tr *trio) staysOut(name string) {
	tr.t.Helper()
	tr.until(name+" to stay out", func() bool { state, _ := tr.node(name).State(); return state == "awaiting replacement" })
}

// DISK-01, the worst case: two of three hold what was allowed, one of them loses its disk, and the other dies. What
// is left, a blank disk and one that lags behind, elects nobody.
func TestDISK01ABlankDiskAndOneThatLagsElectNobody(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.everywhere()
	leader := tr.leader()
	var rest []string
	for _, name := range tr.names {
		if name != leader {
			rest = append(rest, name)
		}
	}
	blank, lags := rest[0], rest[1]
	tr.isolate(lags)
	tr.want("u1", fourth...)
	was := tr.node(blank).ID()
	tr.kill(blank)()
	tr.lost(blank)
	tr.kill(leader)()
	tr.heal()
	tr.start(blank)
	tr.staysOut(blank)
	if is := tr.node(blank).ID(); is == was {
		t.Errorf("a blank disk has the identity of the one before it: %s", is)
	}
	tr.silent("u1", "u2")
	if ok, why := tr.node(blank).Ready(); ok {
		t.Errorf("it passes for ready: %s", why)
	}
	for _, name := range []string{blank, lags} { // each by its own account: what it knows of others may be of before
		if tr.node(name).leaders()[0] == name {
			t.Errorf("%s leads", name)
		}
	}
	tr.start(leader) // it and the one that lags are a majority that knows
	tr.want("u1", partition.Denied)
	tr.staysOut(blank)
}

// DISK-19: nodes whose disks don't outlive them are started anew, one at a time. Each is somebody else afterwards
// and stays out; nobody begins a cluster a second time.
func TestDISK19DisksThatAreLostAtEachRestartBeginNoOtherCluster(t *testing.T) {
	for _, order := range [][]string{{"n1", "n2", "n3"}, {"n3", "n2", "n1"}} {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t, only(1))
			tr.start()
			tr.ready().apply(threePerMinute())
			tr.want("u1", fourth...)
			for i, name := range order[:2] {
				tr.stop(name)
				tr.lost(name)
				tr.start(name)
				tr.staysOut(name)
				if i == 0 {
					tr.want("u1", partition.Denied)
				}
			}
			tr.until("no answer", func() bool { return tr.node(order[2]).ask(t, "u1").Result > partition.UnknownDomain })
			tr.silent("u1", "u2")
			for range 3 { // the two of them as often as you like
				for _, name := range order[:2] {
					tr.stop(name)
					tr.lost(name)
					tr.start(name)
					tr.staysOut(name)
					tr.silent("u1", "u2")
				}
			}
		})
	}
}

// DISK-09, on disk: a replica whose snapshot is damaged, or was written by a later version of the software, stays
// out, says why and leaves it as it is. The others go on.
func TestDISK09ADamagedSnapshotOnDiskStaysOut(t *testing.T) {
	for _, tc := range []struct {
		what  string
		spoil func(t *testing.T, snapshot string)
		says  string
	}{
		{"a byte flipped", func(t *testing.T, snapshot string) {
			rewrite(t, snapshot, false, func(state []byte) { state[len(state)/2] ^= 1 })
		}, "CRC"},
		{"an earlier version", func(t *testing.T, snapshot string) {
			rewrite(t, snapshot, true, func(state []byte) { state[7]-- })
		}, "this software reads"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t, only(1))
			for _, name := range tr.names {
				cfg := tr.config(name)
				cfg.LogBytes = 16 << 10
				if err := tr.tryStart(cfg); err != nil {
					t.Fatal(err)
				}
			}
			tr.ready().apply(threePerMinute())
			tr.everywhere()
			tr.want("u1", fourth...)
			pattern := filepath.Join(tr.dir, "n2", "p0", "snapshots", "*-*-*[0-9]")
			for i := 0; ; i++ {
				tr.want(fmt.Sprint("some", i), partition.Allowed)
				if found, _ := filepath.Glob(pattern); len(found) > 0 {
					break
				}
			}
			tr.stop("n2")
			found, _ := filepath.Glob(pattern)
			for _, snapshot := range found {
				tc.spoil(t, snapshot)
			}
			before := contents(t, filepath.Join(tr.dir, "n2", "p0", "snapshots"))
			cfg, log := tr.config("n2"), &transcript{}
			cfg.Log = slog.New(slog.NewTextHandler(log, nil))
			if err := tr.tryStart(cfg); err != nil {
				t.Fatal(err)
			}
			tr.staysOut("n2")
			if got := log.String(); !strings.Contains(got, tc.says) {
				t.Errorf("it says %s, want %s", got, tc.says)
			}
			for _, r := range tr.node("n2").Status().GetPartitions()[0].GetReplicas() {
				if r.GetNode() == "n2" && !strings.Contains(r.GetDetail(), "snapshot") {
					t.Errorf("its status says %q", r.GetDetail())
				}
			}
			same(t, before, contents(t, filepath.Join(tr.dir, "n2", "p0", "snapshots")))
			tr.want("u1", partition.Denied)
		})
	}
}

// transcript is a log that is read while it is written.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *transcript) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// rewrite changes the state of a snapshot, and the checksum beside it with it, or not.
func rewrite(t *testing.T, snapshot string, sealed bool, change func(state []byte)) {
	t.Helper()
	statePath, metaPath := filepath.Join(snapshot, "state.bin"), filepath.Join(snapshot, "meta.json")
	state, err := os.ReadFile(statePath)
	text, err2 := os.ReadFile(metaPath)
	var meta map[string]any
	if err := errors.Join(err, err2, json.Unmarshal(text, &meta)); err != nil {
		t.Fatal(err)
	}
	change(state)
	if sealed {
		sum := crc64.New(crc64.MakeTable(crc64.ECMA))
		_, _ = sum.Write(state)
		meta["CRC"] = sum.Sum(nil)
	}
	text, err = json.Marshal(meta)
	if err := errors.Join(err, os.WriteFile(statePath, state, 0o600), os.WriteFile(metaPath, text, 0o600)); err != nil {
		t.Fatal(err)
	}
}
