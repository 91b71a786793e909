package node_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// leaders says which node leads each partition, as a node sees it.
func (m *member) leaders() map[int]string {
	leads := map[int]string{}
	for _, p := range m.Status().GetPartitions() {
		leads[int(p.GetRoute().GetPartition())] = p.GetRoute().GetLeader()
	}
	return leads
}

// leader waits until the running nodes agree on who leads partition 0, and returns its name. On a busy machine there may
// be none for a moment.
func (tr *trio) leader() (name string) {
	tr.t.Helper()
	tr.until("a leader that all agree on", func() bool {
		name = ""
		for _, m := range tr.running() {
			switch leads := m.leaders()[0]; {
			case leads == "", name != "" && leads != name:
				return false
			default:
				name = leads
			}
		}
		return name != "" && tr.node(name).leaders()[0] == name
	})
	return name
}

// only makes a cluster of that many partitions.
func only(partitions int) func(*trio) { return func(tr *trio) { tr.partitions = partitions } }

func TestAClusterBeginsOnlyOnceAllItsNodesAreReached(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start("n1", "n3")
	tr.until("both waiting for the third", func() bool {
		for _, m := range tr.running() {
			if state, detail := m.State(); state != "founding" || !strings.Contains(detail, "missing: n2") {
				return false
			}
		}
		return true
	})
	if ok, why := tr.node("n1").Ready(); !ok {
		t.Errorf("not ready, %s: a start in order would never get to the third node", why)
	}
	if o := tr.node("n1").ask(t, "u1"); o.Result != partition.NoQuorum {
		t.Errorf("result %d before there is a cluster", o.Result)
	}
	tr.start("n2")
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
}

func TestUsageSurvivesAStopOfAll(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	tr.want("u2", partition.Allowed)
	for _, name := range tr.names {
		tr.stop(name)
	}
	tr.start()
	tr.ready()
	tr.want("u1", partition.Denied)
	tr.want("u2", partition.Allowed, partition.Allowed, partition.Denied)
}

// One node after the other, with somebody asking all the time.
func TestARollingRestartForgetsNothing(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	for i, name := range tr.names {
		user := fmt.Sprint("u", i)
		tr.want(user, partition.Allowed)
		tr.stop(name)
		tr.want(user, partition.Allowed)
		tr.start(name)
		tr.want(user, partition.Allowed)
		tr.until(name+" up", func() bool {
			state, _ := tr.node(name).State()
			ok, _ := tr.node(name).Ready()
			return state == "up" && ok
		})
		for j := range i + 1 {
			tr.want(fmt.Sprint("u", j), partition.Denied)
		}
	}
}

func TestAFailoverForgetsNothing(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", partition.Allowed, partition.Allowed)
	was := tr.leader()
	tr.isolate(was)
	others := slices.DeleteFunc(slices.Clone(tr.names), func(n string) bool { return n == was })
	tr.until("another leader", func() bool {
		now := tr.node(others[0]).leaders()[0]
		return now != "" && now != was
	})
	tr.until("the old one to refuse", func() bool { return tr.node(was).ask(t, "u9").Result > partition.UnknownDomain })
	tr.want("u1", partition.Allowed, partition.Denied)
	tr.heal()
	tr.until("one leader in everybody's eyes", func() bool {
		return tr.node(was).leaders()[0] == tr.node(others[0]).leaders()[0]
	})
	tr.want("u1", partition.Denied)
}

func TestWithoutAMajorityNothingIsAnswered(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	tr.everywhere()
	for _, name := range tr.names {
		tr.isolate(name)
	}
	for _, m := range tr.running() {
		tr.until("no answer of "+m.ID(), func() bool { return m.ask(t, "u2").Result > partition.UnknownDomain })
		for _, user := range []string{"u1", "u2"} {
			if o := m.ask(t, user); o.Result <= partition.UnknownDomain {
				t.Errorf("%s answers %s with %d", m.ID(), user, o.Result)
			}
		}
		if in := m.Inspect("video", principal("u1")); in.Result <= partition.UnknownDomain {
			t.Errorf("inspecting: %d", in.Result)
		}
	}
}

// What genesis fixed can't be changed by a configuration.
func TestAConfigurationThatDiffersFromTheGenesisIsRefused(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready()
	tr.stop("n1")
	for name, change := range map[string]func(*node.Config){
		"partitions":  func(c *node.Config) { c.Partitions = 7 },
		"memory":      func(c *node.Config) { c.Memory = 1 << 20 },
		"replication": func(c *node.Config) { c.Replication = 1 },
		"nodes":       func(c *node.Config) { c.Nodes[2].Name = "n4" },
		"one less":    func(c *node.Config) { c.Nodes = c.Nodes[:2]; c.Replication = 2 },
		"the name":    func(c *node.Config) { c.Name = "n2" },
		"a stranger":  func(c *node.Config) { c.Name = "n9" },
	} {
		cfg := tr.config("n1")
		change(&cfg)
		if err := tr.tryStart(cfg); err == nil {
			t.Errorf("%s: it started", name)
			tr.stop(cfg.Name)
		}
	}
	tr.start("n1")
	tr.ready()
}

// A node of another cluster, at an address where this cluster has one, is not let in.
func TestAnotherClustersNodeIsNotLetIn(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.want("u1", fourth...)
	foreign := newTrio(t, only(1))
	foreign.start()
	foreign.ready()
	tr.stop("n1")
	foreign.stop("n1")
	if err := os.RemoveAll(filepath.Join(tr.dir, "n1")); err != nil {
		t.Fatal(err)
	}
	copyTree(t, filepath.Join(foreign.dir, "n1"), filepath.Join(tr.dir, "n1"))
	tr.start("n1")
	for range 20 {
		if state, _ := tr.node("n1").State(); state == "up" {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	tr.want("u1", partition.Denied)
	for _, m := range tr.running() {
		if o := m.ask(t, "u1"); o.Result == partition.Allowed {
			t.Errorf("%s allows", m.ID())
		}
	}
}

func TestClosingUnderLoadAnswersEveryCallOnce(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready().apply(threePerMinute())
	var answered, asked atomic.Int64
	var askers sync.WaitGroup
	ending := make(chan struct{})
	for i := range 8 {
		askers.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-ending:
					return
				default:
				}
				done := make(chan struct{})
				asked.Add(1)
				tr.node(tr.names[i%3]).Submit(&partition.Call{
					Request: partition.Request{Domain: "video", Cost: 1, ID: newID(), Unfenced: true, To: partition.AnyPartition,
						Descriptors: descriptors(fmt.Sprint("u", i, j))},
					Done: func(*partition.Call) { answered.Add(1); close(done) },
				})
				<-done
			}
		})
	}
	tr.until("some answers", func() bool { return answered.Load() > 200 })
	var closing sync.WaitGroup
	for _, m := range tr.running() {
		closing.Go(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	closing.Wait()
	close(ending)
	askers.Wait()
	if asked.Load() != answered.Load() {
		t.Errorf("%d asked, %d answered", asked.Load(), answered.Load())
	}
}

// With more nodes than replicas most partitions have no replica on a node: it still knows the way, and its
// partitions the policies.
func TestNodesKnowOfPartitionsThatTheyDontHost(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, func(tr *trio) { tr.names = []string{"n1", "n2", "n3", "n4", "n5"} })
	tr.start()
	tr.ready().apply(threePerMinute())
	for i := range 10 {
		tr.want(fmt.Sprint("u", i), fourth...)
	}
	wrong := 0
	for _, m := range tr.running() {
		for i := range 10 {
			switch o := m.ask(t, fmt.Sprint("u", i)); o.Result {
			case partition.Denied:
			case partition.NotLeader:
				wrong++
				if m.AddressOf(o.Leader) == "" {
					t.Errorf("%s sends u%d to %q, which has no address", m.ID(), i, o.Leader)
				}
			default:
				t.Errorf("%s: u%d ends with %d", m.ID(), i, o.Result)
			}
		}
	}
	if wrong == 0 {
		t.Error("every node answered everything")
	}
}

// Every node leads its share once all are up, also after one was away.
func TestLeadersAreSpread(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, func(tr *trio) { tr.timing.Balance = 500 * time.Millisecond })
	tr.start()
	spread := func() bool {
		leads := tr.node("n1").leaders()
		return len(leads) == 3 && len(slices.Compact(slices.Sorted(maps.Values(leads)))) == 3 && !slices.Contains(slices.Collect(maps.Values(leads)), "")
	}
	tr.until("one leader a node", spread)
	tr.stop("n2")
	tr.until("none at n2", func() bool { return !slices.Contains(slices.Collect(maps.Values(tr.node("n1").leaders())), "n2") })
	tr.start("n2")
	tr.until("one leader a node again", spread)
}

// A set comes into force everywhere, and a node that was away learns of it.
func TestPoliciesReachEveryPartition(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start()
	tr.ready()
	if o := tr.node("n1").ask(t, "u1"); o.Result != partition.Pending {
		t.Errorf("without policies: %d", o.Result)
	}
	tr.apply(threePerMinute())
	for _, m := range tr.running() {
		tr.until("the set at "+m.ID(), func() bool {
			canonical, version, partitions := m.Policies()
			for _, p := range partitions {
				if p.GetVersion().GetNumber() != 1 {
					return false
				}
			}
			return version.GetNumber() == 1 && string(canonical) == string(threePerMinute().Canonical()) && len(partitions) == 3
		})
	}
	for _, m := range tr.running() {
		_, err := m.Apply(t.Context(), policy.Set{Policies: []policy.Policy{{Name: "x"}}}, nil, false)
		var problems policy.Problems
		var elsewhere *partition.NotLeaderError
		if !errors.As(err, &problems) && !errors.As(err, &elsewhere) {
			t.Errorf("%s takes a set that is none: %v", m.ID(), err)
		}
	}
}
