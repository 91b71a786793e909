package cluster_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

// K8S-10, with real processes under load. Two nodes run a program that has the next level, one runs this one: nothing is
// raised. When the third has it, too, the level is raised. A node that then goes back ends with both levels in its
// message, and the others go on; with the newer program it is back. No allow is lost.
func TestK8S10ALevelIsRaisedOnlyOnceAllHaveIt(t *testing.T) {
	t.Parallel()
	newer := map[string]bool{"n1": true, "n2": true}
	ours, next := filepath.Join(string(programs), "quotanode"), ofTheNextLevel(t)
	n := found(t, rig.Shape{Policies: hourlyText(100), Program: func(name string) []string {
		if newer[name] {
			return []string{next, "run"}
		}
		return []string{ours, "run"}
	}})
	l, c := newLedger(100), n.Client(t)
	l.pace *= 4
	d := l.drive(t, c, n.Gateway(t).Line(t, "http "))

	rig.Eventually(t, "all to have heard who has which level", func() bool {
		return n.each(t, func(s *quotav1.StatusResponse) bool {
			for _, of := range s.GetNodes() {
				if of.GetLevel() != levelOf(newer[of.GetName()]) {
					return false
				}
			}
			return len(s.GetNodes()) == len(names)
		})
	})
	l.awaitAllows(t, 100)
	time.Sleep(5 * time.Second) // leaders look every 2 s
	l.awaitAllows(t, 100)
	rig.Eventually(t, "all to say that nothing was raised, as n3 doesn't have it", func() bool { return n.at(t, 1) })

	n.replace(t, newer, "n3", true)
	n.Ready(t, "n3")
	rig.Eventually(t, "the level to be raised", func() bool { return n.at(t, 2) })
	l.awaitAllows(t, 100)

	n.replace(t, newer, "n2", false)
	status, said := n.Process["n2"].Wait(t), n.Process["n2"].Stderr.String()
	if status != 1 || !strings.Contains(said, "level 2, and this version has level 1: a later version of the software wrote it; run that version or a newer one") {
		t.Errorf("back below the level it ended with %d and said\n%s", status, said)
	}
	l.awaitAllows(t, 100)

	newer["n2"] = true
	n.Begin(t, "n2")
	n.Ready(t, "n2")
	rig.Eventually(t, "a whole cluster", func() bool {
		status, _ := n.Ctl(t, "reader", "status")
		return status == 0 && n.at(t, 2)
	})
	l.awaitAllows(t, 100)
	d.end()
	l.verify(t, n, c)
}

func levelOf(newer bool) uint64 {
	if newer {
		return 2
	}
	return 1
}

// replace stops a node in order and starts it with the newer program, or with ours.
func (n *nodes) replace(t *testing.T, newer map[string]bool, name string, with bool) {
	t.Helper()
	n.Terminate(t, name)
	newer[name] = with
	n.Begin(t, name)
}

// each tells whether something holds of what every node says of the cluster.
func (n *nodes) each(t *testing.T, holds func(*quotav1.StatusResponse) bool) bool {
	for _, name := range names {
		if s := n.Status(t, name); s == nil || !holds(s) {
			return false
		}
	}
	return true
}

// at tells whether every replica is at that level, as its own node says.
func (n *nodes) at(t *testing.T, level uint64) bool {
	return n.each(t, func(s *quotav1.StatusResponse) bool {
		found := 0
		for _, p := range s.GetPartitions() {
			for _, r := range p.GetReplicas() {
				if r.GetNode() == s.GetNode() && r.GetLevel() == level {
					found++
				}
			}
		}
		return found > 0 && found == len(s.GetPartitions())
	})
}

// ofTheNextLevel builds a node that differs from ours in one number.
func ofTheNextLevel(t *testing.T) (program string) {
	t.Helper()
	source, err := filepath.Abs("../../internal/fsm/level.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const ours, next = "NewestLevel uint64 = 1\n", "NewestLevel uint64 = 2\n"
	if strings.Count(string(text), ours) != 1 {
		t.Fatalf("%s doesn't say %q", source, ours)
	}
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "level.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "quotanode")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	rig.Write(t, changed, strings.Replace(string(text), ours, next, 1))
	rig.Write(t, overlay, string(list))
	build := exec.Command("go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "github.com/quorate/quorate/cmd/quotanode")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}
