package partition_test

import (
	"encoding/binary"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/transport"
)

// trio is three real Raft replicas on real stores, in a bubble.
type trio struct {
	t       *testing.T
	dir     string
	network *transport.Network
	benches []*bench
	rafts   []*raft.Raft
	states  []*lastTime
}

// lastTime is a state machine that knows the last time it was told.
type lastTime struct{ at atomic.Int64 }

func (s *lastTime) Apply(l *raft.Log) any {
	at, _ := timeOf(l.Data, l.Term)
	s.at.Store(at)
	return nil
}

func (s *lastTime) Snapshot() (raft.FSMSnapshot, error) { return savedTime(s.at.Load()), nil }

func (s *lastTime) Restore(r io.ReadCloser) error {
	at, err := snapshotTime(r)
	s.at.Store(at)
	return err
}

type savedTime int64

func (s savedTime) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(binary.BigEndian.AppendUint64(nil, uint64(s))); err != nil {
		return err
	}
	return sink.Close()
}

func (savedTime) Release() {}

func newTrio(t *testing.T) *trio {
	t.Helper()
	tr := &trio{t: t, dir: t.TempDir(), network: transport.NewNetwork(transport.Options{})}
	tr.start()
	t.Cleanup(tr.stop)
	return tr
}

func (tr *trio) start() {
	tr.t.Helper()
	tr.benches, tr.rafts, tr.states = nil, nil, nil
	for _, name := range []string{"a", "b", "c"} {
		b := &bench{t: tr.t, folder: filepath.Join(tr.dir, name)}
		b.must(partition.MakeFolders(b.folder))
		b.open()
		b.must(b.Bootstrap([]string{"a", "b", "c"}))
		link, err := tr.network.Join(name)
		b.must(err)
		config := raft.DefaultConfig()
		config.LocalID, config.Logger, config.TrailingLogs = raft.ServerID(name), hclog.NewNullLogger(), 1
		state := &lastTime{}
		r, err := raft.NewRaft(config, state, b.Log, b.Stable, b.Snapshots, link)
		b.must(err)
		tr.benches, tr.rafts, tr.states = append(tr.benches, b), append(tr.rafts, r), append(tr.states, state)
	}
}

func (tr *trio) stop() {
	for i, r := range tr.rafts {
		tr.benches[i].must(r.Shutdown().Error())
		tr.benches[i].must(tr.benches[i].Close())
		if got := tr.benches[i].fatals(); got != nil {
			tr.t.Error(got)
		}
	}
	tr.rafts = nil
}

// until waits for something to come true, in the bubble's time.
func (tr *trio) until(what string, f func() bool) {
	tr.t.Helper()
	for range 600 {
		if f() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	tr.t.Fatalf("not within 30 s: %s", what)
}

func (tr *trio) leader() int {
	tr.t.Helper()
	leader := -1
	tr.until("a leader", func() bool {
		for i, r := range tr.rafts {
			if r.State() == raft.Leader {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}

func (tr *trio) apply(leader int, at int64) {
	tr.t.Helper()
	tr.benches[leader].must(tr.rafts[leader].Apply(entry(0, tr.rafts[leader].CurrentTerm(), at).Data, time.Second).Error())
}

func TestRaftKeepsWhatItDecidedOverARestartOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t)
		tr.apply(tr.leader(), 41)
		tr.apply(tr.leader(), 42)
		tr.stop()
		tr.start()
		leader := tr.leader()
		tr.benches[leader].must(tr.rafts[leader].Barrier(time.Second).Error())
		if got := tr.states[leader].at.Load(); got != 42 {
			t.Errorf("the state is %d", got)
		}
		if got := tr.benches[leader].Held(); got.Time != 42 || got.At != 0 {
			t.Errorf("held %+v", got)
		}
	})
}

// A replica that lags behind gets a snapshot from the leader; from then on it holds the time of
// that, as if it had got the entries.
func TestRaftInstallsASnapshotAndHeldFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t)
		leader := tr.leader()
		lags := (leader + 1) % 3
		tr.apply(leader, 1)
		tr.until("all have it", func() bool { return tr.states[lags].at.Load() == 1 })
		tr.network.Isolate(raft.ServerAddress([]string{"a", "b", "c"}[lags]))
		for at := range int64(20) {
			tr.apply(leader, 100+at)
		}
		tr.benches[leader].must(tr.rafts[leader].Snapshot().Error())
		tr.benches[lags].now.Store(777)
		tr.network.Heal()
		tr.until("the snapshot is installed", func() bool { return tr.states[lags].at.Load() == 119 })
		if list, err := tr.benches[lags].Snapshots.List(); err != nil || len(list) != 1 {
			t.Errorf("%d snapshots, %v: it was not installed", len(list), err)
		}
		if got := tr.benches[lags].Held(); got.Time != 119 || got.At != 777 {
			t.Errorf("held %+v", got)
		}
		tr.apply(tr.leader(), 120)
		tr.until("the log goes on", func() bool { return tr.states[lags].at.Load() == 120 })
	})
}
