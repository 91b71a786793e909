package transport_test

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/transport"
)

// roads is a way between three nodes, with faults.
type roads struct {
	carrier func(t *testing.T, node string) carrier
	isolate func(node string)
	cut     func(from, to string) // loses what from sends to to
	heal    func()
}

// eachRoads runs a test over every transport, in a bubble.
func eachRoads(t *testing.T, test func(t *testing.T, r roads)) {
	for _, name := range []string{"Local", "Links"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if name == "Local" {
					test(t, localRoads())
				} else {
					test(t, linkRoads())
				}
			})
		})
	}
}

func localRoads() roads {
	n := transport.NewNetwork(transport.Options{})
	return roads{
		carrier: func(t *testing.T, node string) carrier { return join(t, n, address(node)) },
		isolate: func(node string) { n.Isolate(address(node)) },
		cut:     func(from, to string) { n.Cut(address(from), address(to)) },
		heal:    n.Heal,
	}
}

func linkRoads() roads {
	n := newMemNet()
	return roads{
		carrier: func(t *testing.T, node string) carrier { return replica(t, n.node(t, node), node, 1) },
		isolate: func(node string) { n.refuse(node, true); n.cut(node) },
		cut:     n.mute,
		heal:    n.heal,
	}
}

// group is three real Raft replicas, by node.
type group struct {
	rafts map[string]*raft.Raft
	acks  atomic.Int64 // answers that leaders were told of
}

var members = []string{"a", "b", "c"}

func startGroup(t *testing.T, r roads) *group {
	t.Helper()
	g := &group{rafts: map[string]*raft.Raft{}}
	for _, node := range members {
		c := r.carrier(t, node)
		c.OnAck(transport.Acks{
			Now:    func() int64 { return time.Now().UnixNano() },
			MaxAge: int64(time.Second),
			Acked:  func(raft.ServerID, uint64, int64) { g.acks.Add(1) },
		})
		g.rafts[node] = startRaft(t, node, c, nothing{})
	}
	t.Cleanup(func() {
		for _, r := range g.rafts {
			if err := r.Shutdown().Error(); err != nil {
				t.Error(err)
			}
		}
	})
	return g
}

// startRaft starts one of the members, blank.
func startRaft(t testing.TB, node string, c raft.Transport, machine raft.FSM) *raft.Raft {
	t.Helper()
	var servers []raft.Server
	for _, m := range members {
		servers = append(servers, raft.Server{ID: server(m), Address: address(m)})
	}
	config := raft.DefaultConfig()
	config.LocalID, config.Logger = server(node), hclog.NewNullLogger()
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	if err := raft.BootstrapCluster(config, store, store, snapshots, c, raft.Configuration{Servers: servers}); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(config, machine, store, store, snapshots, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// leader waits until exactly one replica leads and the others follow it.
func (g *group) leader(t *testing.T, among ...string) string {
	t.Helper()
	for range 100 {
		time.Sleep(100 * time.Millisecond) // of the bubble
		for _, a := range among {
			if g.rafts[a].State() != raft.Leader {
				continue
			}
			followed := 0
			for _, b := range among {
				if leader, _ := g.rafts[b].LeaderWithID(); leader == address(a) {
					followed++
				}
			}
			if followed == len(among) {
				return a
			}
		}
	}
	t.Fatal("no leader within 10 s")
	return ""
}

func others(of string) (rest []string) {
	for _, a := range members {
		if a != of {
			rest = append(rest, a)
		}
	}
	return rest
}

func TestRaftElectsCommitsAndSurvivesAnIsolatedLeader(t *testing.T) {
	eachRoads(t, func(t *testing.T, r roads) {
		g := startGroup(t, r)
		first := g.leader(t, members...)
		if err := g.rafts[first].Apply([]byte("x"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // of the bubble
		if g.acks.Load() < 10 {
			t.Errorf("an idle leader heard of %d answers in a second: heartbeats are not reported", g.acks.Load())
		}
		r.isolate(first)
		second := g.leader(t, others(first)...)
		if err := g.rafts[second].Apply([]byte("y"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		if g.rafts[first].State() == raft.Leader {
			t.Error("the isolated leader still leads")
		}
		term := g.rafts[second].CurrentTerm()
		r.heal()
		// Pre-vote: the one that returns must join the leader that is there, not depose it.
		if again := g.leader(t, members...); again != second || g.rafts[second].CurrentTerm() != term {
			t.Errorf("%s led term %d; after healing %s leads term %d", second, term, again, g.rafts[again].CurrentTerm())
		}
	})
}

// A leader that can send but not hear must give up; a follower that hears but can't answer must not
// disturb the rest.
func TestRaftSurvivesOneWayCuts(t *testing.T) {
	eachRoads(t, func(t *testing.T, r roads) {
		g := startGroup(t, r)
		leader := g.leader(t, members...)
		for _, b := range others(leader) {
			r.cut(b, leader)
		}
		time.Sleep(5 * time.Second) // of the bubble
		if g.rafts[leader].State() == raft.Leader {
			t.Error("a leader that hears nobody still leads")
		}
		r.heal()
		leader = g.leader(t, members...)
		if err := g.rafts[leader].Apply([]byte("z"), time.Second).Error(); err != nil {
			t.Error(err)
		}
	})
}

func TestLeadershipIsHandedOver(t *testing.T) {
	eachRoads(t, func(t *testing.T, r roads) {
		g := startGroup(t, r)
		first := g.leader(t, members...)
		to := others(first)[0]
		if err := g.rafts[first].LeadershipTransferToServer(server(to), address(to)).Error(); err != nil {
			t.Fatal(err)
		}
		if second := g.leader(t, members...); second != to {
			t.Errorf("%s leads", second)
		}
	})
}

func TestAStoppedPeerDoesNotHoldUpTheRest(t *testing.T) {
	eachRoads(t, func(t *testing.T, r roads) {
		g := startGroup(t, r)
		leader := g.leader(t, members...)
		if err := g.rafts[others(leader)[0]].Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for i := range 10 {
			if err := g.rafts[leader].Apply(fmt.Appendf(nil, "%d", i), time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begun); d > time.Second {
			t.Errorf("ten entries took %v", d)
		}
	})
}

// nothing is a state machine without state.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }
func (nothing) Restore(r io.ReadCloser) error       { return r.Close() }
func (nothing) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (nothing) Release()                            {}
