package node_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// K8S-01: all nodes end at once and come back at other addresses. Who they are is on their disks, so they find one
// another and go on where they were.
func TestK8S01AllNodesComeBackAtOtherAddresses(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	tr.want("u2", partition.Allowed)
	for _, name := range tr.names {
		tr.kill(name)()
	}
	tr.heal()
	for _, name := range tr.names {
		tr.links[name], tr.grpc[name] = freeAddress(), freeAddress()
	}
	tr.start()
	tr.ready()
	tr.want("u1", partition.Denied)
	tr.want("u2", partition.Allowed, partition.Allowed, partition.Denied)
}

// K8S-02: a node that reaches none of the others, or only some, waits and tries again; it doesn't end, and doesn't
// begin alone. Before there is a cluster it passes for ready, so that a start in order goes on to the next.
func TestK8S02NodesWaitForOneAnother(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	waits := func(state string, names ...string) {
		t.Helper()
		for range 4 {
			<-time.After(200 * time.Millisecond) // it looks around meanwhile
			for _, name := range names {
				m := tr.node(name)
				if o := m.ask(t, "u1"); o.Result <= partition.UnknownDomain {
					t.Fatalf("%s answers with %d", name, o.Result)
				}
				select {
				case err := <-m.Failed():
					t.Fatalf("%s ends: %v", name, err)
				default:
				}
				if ok, why := m.Ready(); ok != (state == "founding") {
					t.Fatalf("%s, ready %t: %s", name, ok, why)
				}
				tr.until(name+" to be "+state, func() bool { now, _ := m.State(); return now == state })
			}
		}
	}
	for i, name := range tr.names {
		tr.start(name)
		if i < 2 {
			tr.until(name+" to look around", func() bool { state, _ := tr.node(name).State(); return state == "founding" })
			waits("founding", tr.names[:i+1]...)
		}
	}
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	for _, name := range tr.names {
		tr.stop(name)
	}
	tr.start("n2") // of a cluster that is there, alone
	waits("starting", "n2")
	tr.start("n3") // a majority
	tr.want("u1", partition.Denied)
	tr.start("n1")
	tr.until("all nodes up", tr.whole)
}

// K8S-06: without a quorum every node is alive, says that it isn't ready and why, and refuses; with one all go on.
func TestK8S06AliveNeverLooksAtQuorum(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	for _, name := range tr.names {
		tr.isolate(name)
	}
	for _, m := range tr.running() {
		tr.until(m.ID()+" not to be ready", func() bool {
			ok, why := m.Ready()
			return !ok && strings.Contains(why, "has no leader that this node knows")
		})
	}
	for range 50 {
		for _, m := range tr.running() {
			if err := m.Alive(); err != nil {
				t.Fatalf("%s passes for dead: %v", m.ID(), err)
			}
			if o := m.ask(t, "u1"); o.Result <= partition.UnknownDomain {
				t.Fatalf("%s answers with %d", m.ID(), o.Result)
			}
		}
	}
	tr.heal()
	tr.until("all nodes up", tr.whole)
	tr.want("u1", partition.Denied)
}

// K8S-12: what a later version of the software wrote is refused by name, and left as it is; put back, it is taken.
func TestK8S12WhatALaterVersionWroteIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	tr.stop("n1")
	for _, tc := range []struct{ file, old, next, names string }{
		{"genesis.json", `"version": 1`, `"version": 2`, "version 2, this software reads 1"},
		{"genesis.json", `"cluster"`, `"weights": [1], "cluster"`, "weights"},
		{"identity.json", `"name"`, `"rack": "r1", "name"`, "rack"},
		{"starts.json", `"run"`, `"boot": 7, "run"`, "boot"},
	} {
		path := filepath.Join(tr.dir, "n1", tc.file)
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		later := bytes.Replace(now, []byte(tc.old), []byte(tc.next), 1)
		if bytes.Equal(later, now) {
			t.Fatalf("%s holds no %s", tc.file, tc.old)
		}
		if err := os.WriteFile(path, later, 0o600); err != nil {
			t.Fatal(err)
		}
		before := contents(t, filepath.Join(tr.dir, "n1"))
		if err := tr.tryStart(tr.config("n1")); err == nil || !strings.Contains(err.Error(), tc.file) || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%s with %s: %v", tc.file, tc.next, err)
		}
		same(t, before, contents(t, filepath.Join(tr.dir, "n1")))
		if err := os.WriteFile(path, now, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr.start("n1")
	tr.until("all nodes up", tr.whole)
	tr.want("u1", partition.Denied)
}

// contents are those of all files below a folder, but of the lock.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" {
			return err
		}
		b, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, folder)] = string(b)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, before, after map[string]string) {
	t.Helper()
	if len(before) != len(after) {
		t.Errorf("%d files became %d", len(before), len(after))
	}
	for path, was := range before {
		if after[path] != was {
			t.Errorf("%s was changed", path)
		}
	}
}
