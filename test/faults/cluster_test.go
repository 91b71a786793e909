package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/checker"
	"github.com/quorate/quorate/test/rig"
)

const (
	election = 300 * time.Millisecond
	// compareOver is the least time over which steered nodes compare clocks. Ten seconds are for quartzes that are
	// off by a little; here one is off by ten times as much.
	compareOver = 4 * time.Second
	balance     = 500 * time.Millisecond // of steered nodes
	smallLog    = 1 << 20                // of steered nodes, in bytes
	wallOffset  = 2 * time.Hour          // of all steered nodes, so that certificates are valid an hour before and after
	gateways    = 4                      // clients that the callers share
)

// cluster is three nodes, who asks them, and what is between them.
type cluster struct {
	*rig.Nodes
	owner   *testing.T // whose processes they are: they outlive cells
	on      ground
	web     *rig.Web // nil where nodes are in namespaces
	spaces  *spaces
	clients []*client.Client
	editor  *editor
	broken  bool
}

// foundCluster starts one.
func foundCluster(t *testing.T, on ground) *cluster {
	t.Helper()
	c := &cluster{owner: t, on: on}
	s := rig.Shape{Partitions: on.partitions, Election: election}
	if on.spaces {
		c.spaces = openSpaces(t)
		s.Host, s.Program = c.spaces.host, c.spaces.program
	} else {
		c.web = rig.NewWeb()
		s.Web = c.web
	}
	if on.steered {
		s.Program = func(string) []string { return []string{filepath.Join(string(programs), "faultnode")} }
		s.More = func(string) string {
			return fmt.Sprintf("test: {logBytes: %d, balance: %v, compare: %v, wall: %v}\n", smallLog, balance, compareOver, wallOffset)
		}
	}
	c.Nodes = programs.Prepare(t, s)
	if on.mounted {
		mountDisks(t, c.Nodes)
	}
	c.Begin(t, rig.Names()...)
	c.Ready(t, rig.Names()...)
	for range gateways {
		one, err := client.New(c.ClientConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.Close)
		c.clients = append(c.clients, one)
	}
	c.editor = &editor{admin: func() (*client.Admin, error) { return client.NewAdmin(c.editorAddresses(), c.TLS(t, "policy-writer")) }}
	return c
}

// editorAddresses are those of all nodes, beginning with any: one that stays out may be among them, and it is no use
// to ask that one first again and again.
func (c *cluster) editorAddresses() []string {
	list := c.Addresses()
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// leave ends it before its owner does.
func (c *cluster) leave() {
	for _, one := range c.clients {
		one.Close()
	}
	c.Kill(c.owner, rig.Names()...)
	if c.spaces != nil {
		c.spaces.close()
	}
}

// resume starts nodes anew, which outlive the cell, and waits until they are ready.
func (c *cluster) resume(t testing.TB, which ...string) {
	t.Helper()
	c.Begin(c.owner, which...)
	c.Ready(t, which...)
}

// whole waits until every node is up, every partition has a leader whom all of them know, and no replica is behind.
func (c *cluster) whole(t testing.TB) {
	t.Helper()
	rig.Eventually(t, "a whole cluster", func() bool {
		leaders := map[string]bool{}
		for _, name := range rig.Names() {
			s := c.Status(t, name)
			if len(s.GetPartitions()) == 0 {
				return false
			}
			said := fmt.Sprint(leadersOf(s))
			leaders[said] = true
			if !isWhole(s) {
				return false
			}
		}
		return len(leaders) == 1
	})
}

func leadersOf(s *quotav1.StatusResponse) (list []string) {
	for _, p := range s.GetPartitions() {
		list = append(list, p.GetRoute().GetLeader())
	}
	return list
}

func isWhole(s *quotav1.StatusResponse) bool {
	for _, n := range s.GetNodes() {
		if n.GetState() != "up" {
			return false
		}
	}
	for _, p := range s.GetPartitions() {
		most := uint64(0)
		for _, r := range p.GetReplicas() {
			most = max(most, r.GetApplied())
		}
		for _, r := range p.GetReplicas() {
			const near = 200 // entries: what was told a second ago
			if r.GetState() != "leader" && r.GetState() != "follower" || r.GetApplied()+near < most || r.GetClockDoubted() {
				return false
			}
		}
	}
	return !slices.Contains(leadersOf(s), "")
}

// replicas are those of nodes that run and answer, each as its own node tells it.
func (c *cluster) replicas(t testing.TB) (list []*quotav1.ReplicaStatus) {
	t.Helper()
	for _, name := range rig.Names() {
		if !c.Running(name) {
			continue
		}
		for _, p := range c.Status(t, name).GetPartitions() {
			for _, r := range p.GetReplicas() {
				if r.GetNode() == name && (r.GetState() == "leader" || r.GetState() == "follower") {
					list = append(list, r)
				}
			}
		}
	}
	return list
}

// terms adds up the newest term of each partition: how often it rises is how many elections there were.
func (c *cluster) terms(t testing.TB) (sum uint64) {
	t.Helper()
	newest := map[uint32]uint64{}
	for _, r := range c.replicas(t) {
		newest[r.GetPartition()] = max(newest[r.GetPartition()], r.GetTerm())
	}
	for _, term := range newest {
		sum += term
	}
	return sum
}

// ledBy are the partitions that a node leads.
func (c *cluster) ledBy(t testing.TB, name string) (list []int) {
	t.Helper()
	for p := range c.on.partitions {
		if c.Leader(t, p) == name {
			list = append(list, p)
		}
	}
	return list
}

// compareStates writes the state hashes of all replicas, once every replica of a partition that takes part has
// applied the same. It returns an error where that never comes.
func (c *cluster) compareStates(t testing.TB, w *checker.Writer) error {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for ; time.Now().Before(end); pause(context.Background(), 50*time.Millisecond) {
		list := c.replicas(t)
		count, index := map[uint32]int{}, map[uint32]map[uint64]bool{}
		for _, r := range list {
			p := r.GetPartition()
			if index[p] == nil {
				index[p] = map[uint64]bool{}
			}
			count[p]++
			index[p][r.GetApplied()] = true
		}
		if !alike(c.on.partitions, count, index) {
			continue
		}
		for _, r := range list {
			line := &checker.State{Node: r.GetNode(), Partition: int(r.GetPartition()), Index: r.GetApplied(), Hash: fmt.Sprintf("%016x", r.GetStateHash())}
			if err := w.Write(line); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("replicas never had applied the same: %v", c.replicas(t))
}

// alike reports whether each partition has two replicas at least, and all at one index.
func alike(partitions int, count map[uint32]int, index map[uint32]map[uint64]bool) bool {
	for p := range partitions {
		if count[uint32(p)] < 2 || len(index[uint32(p)]) != 1 {
			return false
		}
	}
	return true
}

// snapshots lists the finished snapshots of a node's first partition; taking says whether one is being written.
func (c *cluster) snapshots(name string) (list []string, taking bool) {
	entries, err := os.ReadDir(filepath.Join(c.Data(name), "p0", "snapshots"))
	if err != nil {
		return nil, false // not made yet
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			taking = true
		} else {
			list = append(list, e.Name())
		}
	}
	return list, taking
}
