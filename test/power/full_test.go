package power_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/rig"
)

// smallDisk is the size of a node's file system here.
const smallDisk = "size=24m"

// mountSmall gives each node a small file system of its own, in memory. They are unmounted with the test.
func mountSmall(t *testing.T, n *rig.Nodes) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("only root may mount a small file system")
		}
		t.Skip("only root may mount a small file system")
	}
	for _, name := range rig.Names() {
		at := n.Disk(name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", smallDisk, "tmpfs", at).CombinedOutput(); err != nil {
			t.Fatalf("mount: %v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
				t.Errorf("umount %s: %v: %s", at, err, out)
			}
		})
	}
}

// fill leaves a node's disk no room, and returns what frees it again.
func fill(t *testing.T, n *rig.Nodes, name string) (free func()) {
	t.Helper()
	ballast := filepath.Join(n.Disk(name), "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
}

// endsFull waits until nodes have ended because their disks are full, and say so.
func endsFull(t *testing.T, n *rig.Nodes, which ...string) {
	t.Helper()
	for _, name := range which {
		rig.Eventually(t, name+" to end", func() bool { return !n.Running(name) })
		if said := n.Process[name].Stderr.End(); !strings.Contains(said, "no space left on device") || !strings.Contains(said, n.Data(name)) {
			t.Errorf("%s has ended and doesn't say that there is no room in its folder:\n%s", name, said)
		}
	}
}

// TestDISK04DISK05FullDisksOfRealNodes: under load the disk of one node fills up, which ends it, and the others go on;
// then theirs. Nothing is allowed any more. Started again they end again, saying why, and take nothing for lost; and once
// there is room they go on by themselves, with every allow that was told of.
func TestDISK04DISK05FullDisksOfRealNodes(t *testing.T) {
	n := programs.Prepare(t, rig.Shape{Plain: true, Partitions: 1, Election: time.Second})
	mountSmall(t, n)
	n.Begin(t, rig.Names()...)
	n.Ready(t, rig.Names()...)
	n.Enforce(t, policyText(limitOf))
	c := n.Client(t)
	w := gather(t, c)
	w.awaitAllows(t, 200)

	first := n.Leader(t, 0)
	rest := rig.Others(first)
	frees := []func(){fill(t, n, first)}
	endsFull(t, n, first)
	w.awaitAllows(t, 100)
	for _, name := range rest {
		frees = append(frees, fill(t, n, name))
	}
	// One of two can't write once the other has ended; it may go on reading.
	rig.Eventually(t, "a second node to end", func() bool { return !n.Running(rest[0]) || !n.Running(rest[1]) })
	full := time.Now().UnixNano()
	n.Begin(t, first)
	endsFull(t, n, first)
	for _, name := range rest {
		if !n.Running(name) {
			endsFull(t, n, name)
			n.Begin(t, name)
			endsFull(t, n, name)
		}
	}
	const refusals = 40
	rig.Eventually(t, "many to ask in vain", func() bool { return w.failedSince(full) >= refusals })
	freed := time.Now().UnixNano()
	for _, free := range frees {
		free()
	}
	for _, name := range rig.Names() {
		if !n.Running(name) {
			n.Begin(t, name)
		}
	}
	n.Ready(t, rig.Names()...)
	w.awaitAllows(t, 100)
	w.disperse()

	for _, q := range w.all {
		if q.allowed && q.sent > full && q.answered < freed {
			t.Errorf("%s was allowed while all disks were full", q.account)
		}
	}
	each(w.owed(time.Now().UnixNano()), func(account string, o owed) {
		if used := used(t, c, account); used < o.least || used > o.most || used > limitOf {
			t.Errorf("of %s %d units are used up; told were %d, asked %d", account, used, o.least, o.most)
		}
	})
	t.Logf("%d questions, %d allows; no disk had room for %v, in which %d asked in vain", len(w.all), w.allows(), time.Duration(freed-full).Round(time.Millisecond), w.failedSince(full))
}
