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

// group is three real Raft replicas over a Network, on a bubble's time.
type group struct {
	network *transport.Network
	rafts   map[raft.ServerAddress]*raft.Raft
	acks    atomic.Int64 // answers that leaders were told of
}

func startGroup(t *testing.T) *group {
	t.Helper()
	g := &group{
		network: transport.NewNetwork(transport.Options{}),
		rafts:   map[raft.ServerAddress]*raft.Raft{},
	}
	var servers []raft.Server
	for _, a := range []raft.ServerAddress{"a", "b", "c"} {
		servers = append(servers, raft.Server{ID: raft.ServerID(a), Address: a})
	}
	for _, s := range servers {
		l, err := g.network.Join(string(s.Address))
		if err != nil {
			t.Fatal(err)
		}
		l.OnAck(transport.Acks{
			Now:    func() int64 { return time.Now().UnixNano() },
			MaxAge: int64(time.Second),
			Acked:  func(raft.ServerID, uint64, int64) { g.acks.Add(1) },
		})
		config := raft.DefaultConfig()
		config.LocalID, config.Logger = s.ID, hclog.NewNullLogger()
		store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(config, store, store, snapshots, l, raft.Configuration{Servers: servers}); err != nil {
			t.Fatal(err)
		}
		if g.rafts[s.Address], err = raft.NewRaft(config, nothing{}, store, store, snapshots, l); err != nil {
			t.Fatal(err)
		}
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

// leader waits until exactly one replica leads and the others follow it.
func (g *group) leader(t *testing.T, among ...raft.ServerAddress) raft.ServerAddress {
	t.Helper()
	for range 100 {
		time.Sleep(100 * time.Millisecond) // of the bubble
		for _, a := range among {
			if g.rafts[a].State() != raft.Leader {
				continue
			}
			followed := 0
			for _, b := range among {
				if leader, _ := g.rafts[b].LeaderWithID(); leader == a {
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

func others(of raft.ServerAddress) (rest []raft.ServerAddress) {
	for _, a := range []raft.ServerAddress{"a", "b", "c"} {
		if a != of {
			rest = append(rest, a)
		}
	}
	return rest
}

func TestRaftElectsCommitsAndSurvivesAnIsolatedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGroup(t)
		first := g.leader(t, "a", "b", "c")
		if err := g.rafts[first].Apply([]byte("x"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // of the bubble
		if g.acks.Load() < 10 {
			t.Errorf("an idle leader heard of %d answers in a second: heartbeats are not reported", g.acks.Load())
		}
		g.network.Isolate(first)
		second := g.leader(t, others(first)...)
		if err := g.rafts[second].Apply([]byte("y"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		if g.rafts[first].State() == raft.Leader {
			t.Error("the isolated leader still leads")
		}
		term := g.rafts[second].CurrentTerm()
		g.network.Heal()
		// Pre-vote: the one that returns must join the leader that is there, not depose it.
		if again := g.leader(t, "a", "b", "c"); again != second || g.rafts[second].CurrentTerm() != term {
			t.Errorf("%s led term %d; after healing %s leads term %d", second, term, again, g.rafts[again].CurrentTerm())
		}
	})
}

// A leader that can send but not hear must give up; a follower that hears but can't answer must not
// disturb the rest.
func TestRaftSurvivesOneWayCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGroup(t)
		leader := g.leader(t, "a", "b", "c")
		for _, b := range others(leader) {
			g.network.Cut(b, leader)
		}
		time.Sleep(5 * time.Second) // of the bubble
		if g.rafts[leader].State() == raft.Leader {
			t.Error("a leader that hears nobody still leads")
		}
		g.network.Heal()
		leader = g.leader(t, "a", "b", "c")
		if err := g.rafts[leader].Apply([]byte("z"), time.Second).Error(); err != nil {
			t.Error(err)
		}
	})
}

func TestAStoppedPeerDoesNotHoldUpTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGroup(t)
		leader := g.leader(t, "a", "b", "c")
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
