package node

import (
	"testing"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/partition"
)

// TestHowFarTheLeaderIsCountsOnlyIfItSaidSoLately: of that partition and that very disk. What isn't known is not "caught up".
func TestHowFarTheLeaderIsCountsOnlyIfItSaidSoLately(t *testing.T) {
	source := &clock.Manual{}
	source.Advance(time.Hour)
	const leader = "n2-0123456789abcdef"
	p := &peer{name: "n2"}
	self := &disk{identity: Identity{Name: "n1", Incarnation: "0123456789abcdef"}}
	n := &Node{source: source, disk: self, peers: []*peer{{name: "n3"}, p}}
	r := &replica{node: n, partition: 1}
	is := func(applied, behind uint64, known bool, when string) {
		t.Helper()
		if entries, ok := n.behindLeader(r, partition.Status{Leader: leader, Applied: applied}); entries != behind || ok != known {
			t.Errorf("%s: %d behind, known %t; want %d, %t", when, entries, ok, behind, known)
		}
	}
	is(0, 0, false, "before it was heard")
	p.heard.Store(source.Monotonic())
	is(0, 0, false, "before it said anything")
	p.replicas = []*quotav1.ReplicaStatus{{Partition: 0, Id: leader, Applied: 7}, {Partition: 1, Id: "n2-fedcba9876543210", Applied: 8}}
	is(0, 0, false, "of another partition, or another disk")
	p.replicas = append(p.replicas, &quotav1.ReplicaStatus{Partition: 1, Id: leader, Applied: 100})
	is(0, 100, true, "now")
	is(101, 0, true, "further than it said")
	source.Advance(silent)
	is(0, 100, true, "a moment ago")
	source.Advance(1)
	is(100, 0, false, "too long ago")
	if entries, known := n.behindLeader(r, partition.Status{Leader: self.identity.ServerID(), Applied: 3}); entries != 0 || !known {
		t.Errorf("of the leader itself: %d, %t", entries, known)
	}
}
