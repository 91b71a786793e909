package partition_test

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
)

// A leader whose answer gets lost repeats what it sent. A follower that has just installed a snapshot, and has stored
// what comes behind it, finds that this joins on: the library alone refuses it, and the leader sends the
// snapshot again, for as long as it takes no newer one.
func TestHazardWhatComesBehindASnapshotIsTakenTwice(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		leader := cl.leader()
		behind := cl.others(leader)[0]
		behind.stop()
		busy(leader, 20*time.Second, func() bool { return false })
		behind.start()
		pass(5 * time.Second)
		snapshots, err := behind.stores.Snapshots.List()
		if err != nil || len(snapshots) == 0 {
			t.Fatalf("it was sent no snapshot: %v", err)
		}
		end := snapshots[0]
		first, err := behind.stores.Log.FirstIndex()
		if err != nil || first != end.Index+1 {
			t.Fatalf("its log begins at %d, and the snapshot ends at %d: %v", first, end.Index, err)
		}
		again := raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader.id), Addr: []byte(leader.id)},
			Term:      leader.group.Load().Status().Term, PrevLogEntry: end.Index, PrevLogTerm: end.Term,
		}
		var l raft.Log
		if err := leader.stores.Log.GetLog(first, &l); err != nil {
			t.Fatal(err)
		}
		again.Entries = []*raft.Log{&l}
		var got raft.AppendEntriesResponse
		if err := leader.link.AppendEntries(raft.ServerID(behind.id), raft.ServerAddress(behind.id), &again, &got); err != nil || !got.Success {
			t.Errorf("%+v, %v", got, err)
		}
	}, tuned(func(c *partition.Config) { c.LogBytes = logBound }))
}
