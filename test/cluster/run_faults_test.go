package cluster_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/rig"
)

// TestAKilledLeaderForgetsNoAllowAndChargesNoneTwice: the leader of a partition dies in the middle of checks,
// comes back, and then the one that took over dies.
func TestAKilledLeaderForgetsNoAllowAndChargesNoneTwice(t *testing.T) {
	t.Parallel()
	const limit = 60
	n := found(t, rig.Shape{Policies: hourlyText(limit)})
	c, front := n.Client(t), n.Gateway(t).Line(t, "http ")
	l := newLedger(limit)
	d := l.drive(t, c, front)
	l.awaitAllows(t, 300)
	for range 2 {
		leader := n.Leader(t, 0)
		n.Kill(t, leader)
		l.awaitAllows(t, 300) // from the one that takes over
		n.Begin(t, leader)
		n.Ready(t, leader)
	}
	l.awaitAllows(t, 100)
	d.end()
	l.verify(t, n, c)
}

// TestAStopOfAllForgetsNothing: in order, and with no warning.
func TestAStopOfAllForgetsNothing(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*rig.Nodes, testing.TB, ...string){"terminated": (*rig.Nodes).Terminate, "killed": (*rig.Nodes).Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = 30
			n := found(t, rig.Shape{Policies: hourlyText(limit), Plain: name == "killed"})
			c, front := n.Client(t), n.Gateway(t).Line(t, "http ")
			l := newLedger(limit)
			d := l.drive(t, c, front)
			l.awaitAllows(t, 500)
			stop(n.Nodes, t, names...)
			n.Begin(t, names...)
			n.Ready(t, names...)
			l.awaitAllows(t, 100)
			d.end()
			l.verify(t, n, c)
		})
	}
}

// TestARollingRestartLosesNoAllow: one node after the other is stopped in order and comes back, under load.
func TestARollingRestartLosesNoAllow(t *testing.T) {
	t.Parallel()
	const limit = 80
	n := found(t, rig.Shape{Policies: hourlyText(limit)})
	c, front := n.Client(t), n.Gateway(t).Line(t, "http ")
	l := newLedger(limit)
	d := l.drive(t, c, front)
	l.awaitAllows(t, 200)
	began := time.Now()
	for _, name := range names {
		n.Terminate(t, name)
		n.Begin(t, name)
		n.Ready(t, name)
		l.awaitAllows(t, 50)
	}
	took := time.Since(began)
	d.end()
	l.verify(t, n, c)
	t.Logf("three restarts took %v", took.Round(100*time.Millisecond))
}

// TestALeaderThatWasFrozenAllowsNothingOfItsPast: it stands still while another one takes over, and then goes on,
// with checks in hand that have been decided elsewhere.
func TestALeaderThatWasFrozenAllowsNothingOfItsPast(t *testing.T) {
	t.Parallel()
	const limit = 40
	n := found(t, rig.Shape{Policies: hourlyText(limit)})
	c, front := n.Client(t), n.Gateway(t).Line(t, "http ")
	l := newLedger(limit)
	d := l.drive(t, c, front)
	l.awaitAllows(t, 200)
	for range 2 {
		frozen := n.Leader(t, 0)
		n.Process[frozen].Signal(t, syscall.SIGSTOP)
		l.awaitAllows(t, 200)
		n.Process[frozen].Signal(t, syscall.SIGCONT)
		l.awaitAllows(t, 100)
	}
	d.end()
	l.verify(t, n, c)
}

// TestANodeWhoseDiskIsGoneStaysOut: it says so, and the others go on. With one of those gone as well nothing is
// allowed until it is back: the new disk votes for nobody.
func TestANodeWhoseDiskIsGoneStaysOut(t *testing.T) {
	t.Parallel()
	const limit = 40
	n := found(t, rig.Shape{Policies: hourlyText(limit)})
	c, front := n.Client(t), n.Gateway(t).Line(t, "http ")
	l := newLedger(limit)
	d := l.drive(t, c, front)
	l.awaitAllows(t, 200)
	lost := n.Leader(t, 0)
	left := rig.Others(lost)
	n.Kill(t, lost)
	if err := os.RemoveAll(n.Data(lost)); err != nil {
		t.Fatal(err)
	}
	n.Begin(t, lost)
	n.Process[lost].Line(t, "awaiting replacement")
	l.awaitAllows(t, 200)
	rig.Eventually(t, "the others to say that it stays out", func() bool {
		status, out := programs.Quotactl(t, slices.Concat([]string{"status", "--server", n.GRPC[left[0]]}, n.Flags("reader"))...)
		return status == 1 && strings.Contains(out, "node "+lost+" is awaiting replacement: ")
	})

	n.Kill(t, left[1])
	d.end()
	before := l.told() + l.denials
	var asking sync.WaitGroup
	for i := range 20 { // accounts of all partitions
		asking.Go(func() { l.get(t, front, fmt.Sprintf("account-%d", i)) })
	}
	asking.Wait()
	if told := l.told() + l.denials; told != before {
		t.Errorf("%d decisions without a majority", told-before)
	}
	n.Begin(t, left[1])
	l.verify(t, n, c)
	if said := n.Process[lost].Said(); slices.Contains(said, "ready") {
		t.Errorf("the lost one says %q", said)
	}
}

// TestStatusTellsWhoIsMissing, by its exit status and in words, and until when.
func TestStatusTellsWhoIsMissing(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(3)})
	whole := func() bool {
		status, out := n.Ctl(t, "reader", "status")
		return status == 0 && strings.Contains(out, "3/3") && !strings.Contains(out, " is ")
	}
	rig.Eventually(t, "a whole cluster", whole)
	missing := n.Leader(t, 1)
	n.Kill(t, missing)
	rig.Eventually(t, "a status without "+missing, func() bool {
		status, out := n.Ctl(t, "reader", "status")
		return status == 1 && strings.Contains(out, "node "+missing+" is unreachable: it was heard ") && strings.Contains(out, "2/3")
	})
	n.Begin(t, missing)
	n.Ready(t, missing)
	began := time.Now()
	rig.Eventually(t, "a whole cluster again", whole)
	t.Logf("a node that came back counted as unreachable for %v", time.Since(began).Round(10*time.Millisecond))

	n.Kill(t, names...)
	if status, out := n.Ctl(t, "reader", "status"); status != 1 || !strings.Contains(out, n.GRPC["n1"]) {
		t.Errorf("with nobody there: status %d\n%s", status, out)
	}
}
