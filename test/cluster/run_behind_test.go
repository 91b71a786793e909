package cluster_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/test/rig"
)

// TestANodeFarBehindCatchesUpBySnapshot: the others have dropped from their logs what it misses. Once it has caught
// up, it and one of them know all that was used up.
func TestANodeFarBehindCatchesUpBySnapshot(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(2), Partitions: 1, LogBytes: "8MiB"})
	c := n.Client(t)
	l := newLedger(2)
	flood(t, 500, func(i int) { l.ask(t, c, newID(), longAccount(i)) })
	behind := rig.Others(n.Leader(t, 0))[0]
	ahead := rig.Others(behind)
	n.Terminate(t, behind)
	asked := n.outrun(t, c, l, behind, 500)
	n.Begin(t, behind)
	rig.Eventually(t, behind+" to catch up by a snapshot", func() bool {
		partitions := n.Status(t, behind).GetPartitions()
		if len(partitions) == 0 || len(n.snapshots(t, behind)) == 0 {
			return false
		}
		applied := map[string]uint64{}
		for _, r := range partitions[0].GetReplicas() {
			applied[r.GetNode()] = r.GetApplied() + r.GetLag()
		}
		return applied[behind] > 0 && applied[behind]+16 >= applied[ahead[0]] && applied[behind]+16 >= applied[ahead[1]]
	})
	t.Logf("after %d checks; the snapshots of %s: %v", asked, behind, n.snapshots(t, behind))

	n.Kill(t, n.Leader(t, 0))
	l.sample(400).verify(t, n, c)
}

// outrun asks for accounts from the given one on until those that run have dropped what the stopped one misses, and returns
// how many there are now.
func (n *nodes) outrun(t *testing.T, c *client.Client, l *ledger, behind string, asked int) int {
	t.Helper()
	const enough = 40_000 // far more than it takes
	ahead := rig.Others(behind)
	for ; len(n.snapshots(t, ahead[0])) == 0 || len(n.snapshots(t, ahead[1])) == 0; asked += 1000 {
		if asked > enough {
			t.Fatalf("after %d checks the logs are not compacted", asked)
		}
		flood(t, 1000, func(i int) { l.ask(t, c, newID(), longAccount(asked+i)) })
	}
	if s := n.snapshots(t, behind); len(s) > 0 {
		t.Fatalf("%s has snapshots already: %v", behind, s)
	}
	return asked
}

// snapshots lists those of a node's first partition.
func (n *nodes) snapshots(t *testing.T, name string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.Data(name), "p0", "snapshots"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".tmp") {
			list = append(list, e.Name())
		}
	}
	return list
}

// longAccount makes for large entries.
func longAccount(i int) string { return fmt.Sprintf("%d-%s", i, strings.Repeat("x", 900)) }

// flood calls ask for each number below count, as fast as many callers can.
func flood(t *testing.T, count int, ask func(i int)) {
	t.Helper()
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 128 {
		callers.Go(func() {
			for i := next.Add(1) - 1; int(i) < count; i = next.Add(1) - 1 {
				ask(int(i))
			}
		})
	}
	callers.Wait()
}

// sample is a ledger with the oldest allows and the newest, as many of each, and what is open.
func (l *ledger) sample(most int) *ledger {
	ids := make([]string, 0, len(l.allows))
	for id := range l.allows {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(l.allows[a].at, l.allows[b].at) })
	s := newLedger(l.limit)
	s.open, s.failed, s.denials, s.doubts = l.open, l.failed, l.denials, l.doubts
	for i, id := range ids {
		if i < most || i >= len(ids)-most {
			s.allows[id] = l.allows[id]
		}
	}
	return s
}
