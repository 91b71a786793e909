package partition_test

import (
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
