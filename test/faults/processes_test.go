package faults_test

import (
	"time"

	"github.com/quorate/quorate/test/rig"
)

// ofProcesses are what befalls processes.
func ofProcesses() []fault {
	return []fault{
		{name: "kill", about: "leaders killed", does: killLeaders},
		{name: "kill all", about: "nodes killed", does: killAll},
		{name: "freeze", about: "leaders frozen", does: freezeLeaders},
		{name: "rolling restart", about: "nodes restarted", does: restartAll},
		{name: "handover", about: "handovers", does: handOver, on: ground{steered: true}},
	}
}

// killLeaders kills one that leads, and once another one does its work brings it back; twice.
func killLeaders(c *cell) {
	for range 2 {
		victim, leads := c.someLeader()
		c.Kill(c, victim)
		c.hit("killed "+victim, leads...)
		c.count("leaders killed", 1)
		c.recover(leads)
		c.resume(c, victim)
		c.awaitAllows(50)
	}
}

// recover waits until every one of the partitions has allowed something that was asked for after the last hit.
func (c *cell) recover(partitions []int) {
	c.Helper()
	last := []hit{{c.hits[len(c.hits)-1].at, partitions}}
	rig.Eventually(c, "the partitions that were hit to allow again", func() bool {
		c.crowd.mu.Lock()
		defer c.crowd.mu.Unlock()
		return len(c.crowd.recoveries(last)) == len(partitions)
	})
}

// killAll kills all nodes at once: what is left is on their disks, and in the kernel's cache of them.
func killAll(c *cell) {
	for _, name := range rig.Names() {
		c.Kill(c, name)
		c.count("nodes killed", 1)
	}
	c.hit("killed all", c.all()...)
	c.Begin(c.owner, rig.Names()...)
	c.Ready(c, rig.Names()...)
	c.recover(c.all())
}

// freezeLeaders stops one that leads for longer than its lease and an election take, and lets it go on; twice.
func freezeLeaders(c *cell) {
	for range 2 {
		victim, leads := c.someLeader()
		c.Process[victim].Freeze(c)
		c.hit("froze "+victim, leads...)
		c.count("leaders frozen", 1)
		c.recover(leads)
		c.wait(5 * election)
		c.Process[victim].Thaw(c)
		c.awaitAllows(50)
	}
}

// restartAll stops one after the other in order, and brings it back.
func restartAll(c *cell) {
	for _, name := range rig.Names() {
		c.hit("stopping "+name, c.all()...)
		c.Terminate(c, name)
		c.resume(c, name)
		c.count("nodes restarted", 1)
		c.awaitAllows(30)
	}
}

// handOver has leaders hand over what they lead, again and again.
func handOver(c *cell) {
	for range 6 {
		leader, leads := c.someLeader()
		c.hit("handover by "+leader, leads...)
		c.steer(leader, "handover")
		after := c.terms(c)
		if now := c.Leader(c, leads[0]); now != leader || after > 0 {
			c.count("handovers", 1)
		}
		c.wait(2 * time.Duration(balance) / 3)
	}
}
