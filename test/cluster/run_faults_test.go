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
)

// TestAKilledLeaderForgetsNoAllowAndChargesNoneTwice: the leader of a partition dies in the middle of checks,
// comes back, and then the one that took over dies.
func TestAKilledLeaderForgetsNoAllowAndChargesNoneTwice(t *testing.T) {
	t.Parallel()
	const limit = 60
	n := found(t, shape{policies: hourlyText(limit)})
	c, front := n.client(t), n.gateway(t).line(t, "http ")
	l := newLedger(limit)
	d := l.drive(t, c, front)
	l.awaitAllows(t, 300)
	for range 2 {
		leader := n.leader(t, 0)
		n.kill(t, leader)
		l.awaitAllows(t, 300) // from the one that takes over
		n.begin(t, leader)
		n.ready(t, leader)
	}
	l.awaitAllows(t, 100)
	d.end()
	l.verify(t, n, c)
}

// TestAStopOfAllForgetsNothing: in order, and with no warning.
func TestAStopOfAllForgetsNothing(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*nodes, *testing.T, ...string){"terminated": (*nodes).terminate, "killed": (*nodes).kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = 30
			n := found(t, shape{policies: hourlyText(limit), plain: name == "killed"})
			c, front := n.client(t), n.gateway(t).line(t, "http ")
			l := newLedger(limit)
			d := l.drive(t, c, front)
			l.awaitAllows(t, 500)
			stop(n, t, names...)
			n.begin(t, names...)
			n.ready(t, names...)
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
	n := found(t, shape{policies: hourlyText(limit)})
	c, front := n.client(t), n.gateway(t).line(t, "http ")
	l := newLedger(limit)
	d := l.drive(t, c, front)
	l.awaitAllows(t, 200)
	began := time.Now()
	for _, name := range names {
		n.terminate(t, name)
		n.begin(t, name)
		n.ready(t, name)
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
	n := found(t, shape{policies: hourlyText(limit)})
	c, front := n.client(t), n.gateway(t).line(t, "http ")
	l := newLedger(limit)
	d := l.drive(t, c, front)
	l.awaitAllows(t, 200)
	for range 2 {
		frozen := n.leader(t, 0)
		n.signal(t, frozen, syscall.SIGSTOP)
		l.awaitAllows(t, 200)
		n.signal(t, frozen, syscall.SIGCONT)
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
	n := found(t, shape{policies: hourlyText(limit)})
	c, front := n.client(t), n.gateway(t).line(t, "http ")
	l := newLedger(limit)
	d := l.drive(t, c, front)
	l.awaitAllows(t, 200)
	lost := n.leader(t, 0)
	left := others(lost)
	n.kill(t, lost)
	if err := os.RemoveAll(n.data(lost)); err != nil {
		t.Fatal(err)
	}
	n.begin(t, lost)
	n.process[lost].line(t, "awaiting replacement")
	l.awaitAllows(t, 200)
	eventually(t, "the others to say that it stays out", func() bool {
		status, out := quotactl(t, slices.Concat([]string{"status", "--server", n.grpc[left[0]]}, n.flags("reader"))...)
		return status == 1 && strings.Contains(out, "node "+lost+" is awaiting replacement: ")
	})

	n.kill(t, left[1])
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
	n.begin(t, left[1])
	l.verify(t, n, c)
	if said := n.process[lost].said(); slices.Contains(said, "ready") {
		t.Errorf("the lost one says %q", said)
	}
}

// TestStatusTellsWhoIsMissing, by its exit status and in words, and until when.
func TestStatusTellsWhoIsMissing(t *testing.T) {
	t.Parallel()
	n := found(t, shape{policies: hourlyText(3)})
	whole := func() bool {
		status, out := n.ctl(t, "reader", "status")
		return status == 0 && strings.Contains(out, "3/3") && !strings.Contains(out, " is ")
	}
	eventually(t, "a whole cluster", whole)
	missing := n.leader(t, 1)
	n.kill(t, missing)
	eventually(t, "a status without "+missing, func() bool {
		status, out := n.ctl(t, "reader", "status")
		return status == 1 && strings.Contains(out, "node "+missing+" is unreachable: it was heard ") && strings.Contains(out, "2/3")
	})
	n.begin(t, missing)
	n.ready(t, missing)
	began := time.Now()
	eventually(t, "a whole cluster again", whole)
	t.Logf("a node that came back counted as unreachable for %v", time.Since(began).Round(10*time.Millisecond))

	n.kill(t, names...)
	if status, out := n.ctl(t, "reader", "status"); status != 1 || !strings.Contains(out, n.grpc["n1"]) {
		t.Errorf("with nobody there: status %d\n%s", status, out)
	}
}
