package node_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

// leveled is a trio whose nodes have those levels.
func leveled(n1, n2, n3 uint64) func(*trio) {
	return func(tr *trio) { tr.levels = map[string]uint64{"n1": n1, "n2": n2, "n3": n3} }
}

// atLevel tells whether every replica of the running nodes is at that level.
func (tr *trio) atLevel(level uint64) bool {
	for _, m := range tr.running() {
		for _, p := range m.Status().GetPartitions() {
			for _, r := range p.GetReplicas() {
				if r.GetId() == m.ID() && r.GetLevel() != level {
					return false
				}
			}
		}
	}
	return true
}

// K8S-10: while one node has an older level, or isn't there, nothing is raised and checks are decided; once all have the
// newer one it is.
func TestK8S10ALevelIsRaisedOnlyOnceAllNodesHaveSaidIt(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, leveled(2, 2, 1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.until("all to hear each other's levels", func() bool {
		for _, m := range tr.running() {
			for _, s := range m.Status().GetNodes() {
				if s.GetLevel() != tr.levels[s.GetName()] {
					return false
				}
			}
		}
		return true
	})
	stays := func(user string) {
		t.Helper()
		for i := range 15 { // a leader looks every 2 s
			<-time.After(200 * time.Millisecond)
			tr.want(fmt.Sprint(user, i), partition.Allowed)
			if !tr.atLevel(1) {
				t.Fatalf("raised: %v", tr.node("n1").Status())
			}
		}
	}
	stays("all")
	tr.stop("n3")
	stays("two")
	tr.want("u1", fourth...)
	tr.levels["n3"] = 2
	tr.start("n3")
	tr.until("the level to be raised", func() bool { return tr.whole() && tr.atLevel(2) })
	tr.want("u1", partition.Denied)
	tr.want("u2", fourth...)
}

// K8S-10, K8S-12: a node that goes back below the level of its partitions doesn't start, says both levels, and changes
// nothing, whether a log or a snapshot tells the level. The others go on; with the newer version it takes part again.
func TestK8S10ANodeThatLacksTheLevelIsRefused(t *testing.T) {
	for where, says := range map[string]string{
		"in the log":   "log entries of level 2, and this version has level 1",
		"in snapshots": "snapshots of level 2, and this version has level 1",
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t, leveled(2, 2, 2), only(1))
			begin, write := tr.begins(where)
			begin()
			tr.ready().apply(threePerMinute())
			tr.want("u1", fourth...)
			tr.until("the level to be raised", func() bool { return tr.atLevel(2) })
			write()
			tr.stop("n2")
			folder := filepath.Join(tr.dir, "n2")
			before := contents(t, folder)
			tr.levels["n2"] = 1
			tr.start("n2")
			why := tr.ends("n2").Error()
			for _, want := range []string{"open partition ", says, "a later version of the software wrote it; run that version or a newer one"} {
				if !strings.Contains(why, want) {
					t.Errorf("it says %q, and not %q", why, want)
				}
			}
			tr.want("u2", fourth...)
			tr.stop("n2")
			same(t, before, contents(t, folder))

			tr.levels["n2"] = 2
			tr.start("n2")
			tr.until("all nodes up", tr.whole)
			tr.want("u1", partition.Denied)
		})
	}
}

// begins says how nodes start, and what has them write the level there.
func (tr *trio) begins(where string) (begin, write func()) {
	if where == "in snapshots" {
		return tr.beginsSmall, func() { tr.snapshotted("n2", 0) }
	}
	return func() { tr.start() }, func() {}
}

// A node that was cut off while the level was raised, and then went back, has nothing of it on its disk. The others don't
// note its start, so that it doesn't run, and nobody counts on it; its disk isn't taken for lost.
func TestK8S10ANodeThatMissedTheLevelDoesNotRunBelowIt(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, leveled(2, 2, 1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	tr.stop("n3")
	tr.isolate("n3")
	tr.levels["n3"] = 2
	tr.start("n3") // it is heard, and gets nothing
	tr.until("the level to be raised", func() bool { return tr.raisedBut("n3") })
	tr.stop("n3")
	tr.heal()
	tr.levels["n3"] = 1
	tr.start("n3")
	tr.until("n3 to be refused", func() bool {
		state, detail := tr.node("n3").State()
		return state == "starting" && strings.Contains(detail, "has level 2, and n3 has level 1")
	})
	tr.want("u2", fourth...)
	tr.stop("n3")
	tr.levels["n3"] = 2
	tr.start("n3")
	tr.until("all nodes up", func() bool { return tr.whole() && tr.atLevel(2) })
	tr.want("u1", partition.Denied)
}

// raisedBut tells whether the level is 2 at all nodes but one.
func (tr *trio) raisedBut(name string) bool {
	for _, m := range tr.running() {
		for _, p := range m.Status().GetPartitions() {
			for _, r := range p.GetReplicas() {
				if r.GetId() == m.ID() && (r.GetLevel() == 2) == (r.GetNode() == name) {
					return false
				}
			}
		}
	}
	return true
}
