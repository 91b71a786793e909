package faults_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

const (
	// installs counts followers that took in a snapshot when the harm was done.
	installs = "snapshots installed"
	// snapshotRate is how fast a snapshot comes in, so that there is time for harm.
	snapshotRate = 1 << 20
	// waitedFor is for how long a leader keeps its log for a follower that doesn't answer, and a little more: the less
	// it takes to be rid of what the follower lacks, the smaller the snapshot.
	waitedFor = 11 * election
)

// fallBehind makes a follower need a snapshot, and returns while that comes in.
func (c *cell) fallBehind() {
	c.Helper()
	leader := c.Leader(c, 0)
	others := rig.Others(leader)
	c.behind = others[c.r.IntN(len(others))]
	last := c.applied(c.behind)
	c.Kill(c, c.behind)
	c.wait(waitedFor)
	c.flood()
	for _, other := range rig.Others(c.behind) {
		c.web.Lane(other, c.behind).Slow(0, snapshotRate)
	}
	c.Begin(c.owner, c.behind)
	rig.Eventually(c, c.behind+" to take in a snapshot", func() bool {
		_, taking := c.snapshots(c.behind)
		return taking
	})
	// It is a leader's, not one of its own: it has got no further yet.
	const fewer = 200 // entries, that were on their way when it was killed
	if now := c.applied(c.behind); now > last+fewer {
		c.Errorf("%s has applied %d entries and had applied %d: it needs no snapshot", c.behind, now, last)
	}
	c.count(installs, 1)
}

// applied is the last entry that a node's replica of the first partition has applied.
func (c *cell) applied(name string) uint64 {
	c.Helper()
	for _, r := range c.replicas(c) {
		if r.GetNode() == name && r.GetPartition() == 0 {
			return r.GetApplied()
		}
	}
	return 0
}

// caughtUp waits for a snapshot that is whole.
func (c *cell) caughtUp() {
	c.Helper()
	rig.Eventually(c, c.behind+" to have a snapshot", func() bool {
		list, taking := c.snapshots(c.behind)
		return len(list) > 0 && !taking
	})
}

// flood fills the logs of those that run, until both have dropped what the follower lacks.
func (c *cell) flood() {
	c.Helper()
	first := map[string][]string{}
	c.flooded("logs without what the follower lacks", func() bool {
		for _, name := range rig.Others(c.behind) {
			list, _ := c.snapshots(name)
			if len(list) == 0 {
				return false
			}
			if first[name] == nil {
				first[name] = list
			}
			// Two newer ones: half a log lies behind the newest, and all of it is new.
			if slices.Contains(list, first[name][len(first[name])-1]) {
				return false
			}
		}
		return true
	})
}

// fillLogs asks until every node has a snapshot of its first partition.
func (c *cell) fillLogs() {
	c.Helper()
	c.flooded("snapshots everywhere", func() bool {
		for _, name := range rig.Names() {
			if list, _ := c.snapshots(name); len(list) == 0 {
				return false
			}
		}
		return true
	})
}

// flooded asks for long keys until done says so.
func (c *cell) flooded(what string, done func() bool) {
	c.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	var number atomic.Int64
	for i := range 48 {
		asking.Go(func() {
			for ctx.Err() == nil {
				c.bulk(ctx, i%len(c.clients), number.Add(1))
			}
		})
	}
	defer func() {
		stop()
		asking.Wait()
	}()
	rig.Eventually(c, what, done)
}

// bulk asks for something long, of which no history tells.
func (c *cell) bulk(ctx context.Context, through int, number int64) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	_, _ = c.clients[through].Check(ctx, &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{{Entries: []*quotav1.Entry{
		{Name: "kind", Value: []byte("bulk")},
		{Name: "principal", Value: fmt.Appendf(nil, "%s-%d-%s", c.crowd.prefix, number, strings.Repeat("x", 900))},
	}}}}) // whatever comes of it, some get into the log
}
