package partition_test

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// catchUp is a leader that is kept busy, and a replica that comes back on a slow disk when the leader's log is just
// about to be compacted.
type catchUp struct {
	*cluster
	leader, behind *replica
	stores         map[string]*offered
	given          int64  // snapshots, before
	heaviest       uint64 // that the leader's log ever was
}

const logBound = 256 << 10

// catchingUp has a replica catch up whose disk takes so long for each append and for each snapshot.
func catchingUp(t *testing.T, each, snapshot time.Duration, test func(c *catchUp)) {
	t.Helper()
	stores := map[string]*offered{}
	inBubble(t, func(cl *cluster) {
		c := &catchUp{cluster: cl, leader: cl.leader(), stores: stores}
		c.behind = cl.others(c.leader)[0]
		c.behind.stop()
		c.busy(15*time.Second, func() bool { return false })
		c.heaviest = 0
		if c.busy(5*time.Second, func() bool { return false }); c.heaviest > logBound+logBound/8 {
			cl.t.Fatalf("for one that is away the log weighs %d bytes", c.heaviest)
		}
		nearly := func() bool { return c.leader.stores.LogBytes() > logBound-logBound/8 }
		c.busy(10*time.Second, func() bool { return !nearly() })
		c.busy(10*time.Second, nearly)
		c.given = stores[c.leader.id].given.Load()
		c.behind.disk.slow(each)
		c.behind.start()
		stores[c.behind.id].delay.Store(int64(snapshot))
		test(c)
		c.behind.disk.slow(0)
	}, offering(stores), func(cl *cluster) {
		offer := cl.tune
		cl.tune = func(c *partition.Config) { offer(c); c.LogBytes = logBound }
	})
}

func (c *catchUp) busy(d time.Duration, enough func() bool) {
	busy(c.leader, d, func() bool {
		c.heaviest = max(c.heaviest, c.leader.stores.LogBytes())
		return enough()
	})
}

func (c *catchUp) caught() bool {
	const inHand = 64 // what its slow disk and the leader have in hand at any moment, it is always behind
	return c.behind.group.Load().Status().Applied+inHand > c.leader.group.Load().LastIndex()
}

func (c *catchUp) snapshots() int64 { return c.stores[c.leader.id].given.Load() - c.given }

// DISK-11: a replica whose disk takes longer for a snapshot than the leader takes to fill half of its log, twice and
// more, is sent one snapshot and no other: the leader keeps what comes behind it. Once it has caught up the log is
// as short as before.
func TestDISK11AReplicaOnAVerySlowDiskIsSentOneSnapshot(t *testing.T) {
	catchingUp(t, 40*time.Millisecond, 6*time.Second, func(c *catchUp) { // 16 entries each, some 130 a second come
		if c.busy(60*time.Second, c.caught); !c.caught() {
			c.t.Fatalf("not within a minute: it is at entry %d of %d after %d snapshots",
				c.behind.group.Load().Status().Applied, c.leader.group.Load().LastIndex(), c.snapshots())
		}
		if n := c.snapshots(); n != 1 {
			c.t.Errorf("it was sent %d snapshots", n)
		}
		if c.heaviest < 2*logBound {
			c.t.Errorf("the log never weighed more than %d bytes: hardly tried", c.heaviest)
		}
		c.busy(5*time.Second, func() bool { return false })
		if n := c.leader.stores.LogBytes(); n > logBound+logBound/8 {
			c.t.Errorf("afterwards the log weighs %d bytes", n)
		}
		c.behind.disk.slow(0)
		c.same()
	})
}

// A compaction that had begun before the replica was sent its snapshot spares what comes behind it.
func TestAReplicaThatComesBackDuringACompactionIsSentOneSnapshot(t *testing.T) {
	catchingUp(t, 10*time.Millisecond, 8*time.Second, func(c *catchUp) {
		own, gate := c.stores[c.leader.id], make(chan struct{})
		c.behind.stop()
		own.gate.Store(&gate)
		taken := own.taken.Load()
		if c.busy(10*time.Second, func() bool { return own.taken.Load() > taken }); own.taken.Load() == taken {
			c.t.Fatal("the leader does not compact")
		}
		c.behind.start()
		c.stores[c.behind.id].delay.Store(int64(8 * time.Second))
		for c.given = own.given.Load(); c.snapshots() == 0; {
			pass(100 * time.Millisecond)
		}
		c.busy(3*time.Second, func() bool { return false })
		close(gate)
		if c.busy(30*time.Second, c.caught); !c.caught() || c.snapshots() != 1 {
			c.t.Errorf("it was sent %d snapshots, and has caught up: %t", c.snapshots(), c.caught())
		}
	})
}

// A replica that dies while it catches up is waited for ten election timeouts, and no longer.
func TestAReplicaThatDiesWhileItCatchesUpHoldsNoLog(t *testing.T) {
	catchingUp(t, 100*time.Millisecond, 8*time.Second, func(c *catchUp) {
		had := c.behind.group.Load().Status().Applied
		c.busy(20*time.Second, func() bool { return c.behind.group.Load().Status().Applied > had })
		if c.leader.stores.LogBytes() < 2*logBound {
			c.t.Fatal("nothing is held for it when it is through with its snapshot: hardly tried")
		}
		c.isolate(c.behind)
		if pass(9 * time.Second); c.leader.stores.LogBytes() < 2*logBound {
			c.t.Error("it isn't waited for")
		}
		if pass(2 * time.Second); c.leader.stores.LogBytes() > logBound {
			n := c.leader.stores.LogBytes()
			c.t.Errorf("the log weighs %d bytes long after it died", n)
		}
		c.network.Heal()
	})
}

// A replica that takes in its snapshots slower than anything can wait for holds four times the bound at most.
func TestAReplicaThatNeverCatchesUpHoldsFourTimesTheBoundAtMost(t *testing.T) {
	catchingUp(t, 100*time.Millisecond, 29*time.Second, func(c *catchUp) {
		taken := c.stores[c.leader.id].taken.Load()
		c.busy(80*time.Second, func() bool { return false })
		if c.heaviest > 4*logBound+logBound/8 || c.heaviest < 4*logBound {
			c.t.Errorf("the log weighed %d bytes, want up to four times %d", c.heaviest, logBound)
		}
		if n := c.snapshots(); n < 2 {
			c.t.Errorf("it was sent %d snapshots: hardly tried", n)
		}
		if n := c.stores[c.leader.id].taken.Load() - taken; n < 2 {
			c.t.Errorf("the leader compacted %d times", n)
		}
	})
}
