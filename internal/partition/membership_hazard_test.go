package partition_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/partition"
)

// A disk is lost. A blank one in its place promised nothing and remembers nothing: it would vote for a replica that
// lacks what a majority acknowledged. With a new id, which is what a new disk has, nobody asks it.
func TestHazardABlankDiskHasNoVote(t *testing.T) {
	for _, tc := range []struct {
		name           string
		off, bootstrap bool
	}{
		{"on", false, false},
		{"off, blank", true, false},
		{"off, founded anew", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			blank := map[string]bool{}
			inBubble(t, func(cl *cluster) {
				r := cl.leader()
				lost, behind := cl.others(r)[0], cl.others(r)[1]
				pass(time.Second) // all have the policies
				cl.isolate(behind)
				r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Allowed)
				r.stop()
				lost.stop()
				anew := lost.replaceDisk(tc.off)
				blank[anew.id] = !tc.bootstrap
				cl.network.Heal()
				anew.start()
				if tc.off {
					cl.leader().oneMore(true)
					return
				}
				for range 600 { // a minute
					pass(100 * time.Millisecond)
					for _, o := range []*replica{behind, anew} {
						if o.group.Load().RaftState() == raft.Leader {
							t.Fatalf("%s is elected by a blank disk", o.id)
						}
					}
				}
				if at, err := anew.disk.LastIndex(); err != nil || at != 0 {
					t.Errorf("the blank disk has %d entries, %v", at, err)
				}
				r.start()
				cl.leader(r, behind).oneMore(false)
			}, tuned(func(c *partition.Config) { c.Bootstrap = c.Bootstrap && !blank[c.ID] }))
		})
	}
}

// replaceDisk puts a blank disk in the place of the replica's, under the same id or under one of its own.
func (r *replica) replaceDisk(sameID bool) *replica {
	cl := r.cluster
	r.must(os.RemoveAll(filepath.Join(cl.dir, r.id)))
	r.disk = &shelf{InmemStore: raft.NewInmemStore()}
	if sameID {
		return r
	}
	registry := prometheus.NewRegistry()
	anew := &replica{cluster: cl, id: r.id + "-2", clock: r.clock, disk: r.disk, registry: registry, metrics: partition.NewMetrics(registry)}
	cl.replicas = append(cl.replicas, anew)
	return anew
}

// What Raft says of an entry that it didn't apply proves in three cases that it is in no log. In every other the entry
// may be applied yet, by whoever leads next: its callers must hear that nobody knows, and find out with the same id.
func TestHazardOnlyThreeErrorsProveThatNothingWasLogged(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		g := cl.others(cl.leader())[0].group.Load() // it can name another leader
		for i, tc := range []struct {
			err  error
			want partition.Result
		}{
			{raft.ErrNotLeader, partition.NotLeader},
			{raft.ErrEnqueueTimeout, partition.NotLeader},
			{raft.ErrLeadershipTransferInProgress, partition.NotLeader},
			{raft.ErrLeadershipLost, partition.Unknown},
			{raft.ErrRaftShutdown, partition.Unknown},
			{raft.ErrAbortedByRestore, partition.Unknown},
			{raft.ErrLeader, partition.Unknown},
			{raft.ErrNothingNewToSnapshot, partition.Unknown},
			{partition.ErrStoresClosed, partition.Unknown},
			{errors.New("no space left on device"), partition.Unknown},
			{fmt.Errorf("one that we never heard of: %w", os.ErrClosed), partition.Unknown},
		} {
			s := cl.call(cl.request("three", "u1"))
			seq := uint64(1)<<40 + uint64(i)
			g.Await(g.Status().Term, seq, s.Call)
			g.Settle(seq, tc.err)
			if o := s.wait(); o.Result != tc.want {
				t.Errorf("%v: %s, want %s", tc.err, name(o.Result), name(tc.want))
			}
		}
	})
}
