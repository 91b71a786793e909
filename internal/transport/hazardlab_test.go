package transport_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// What the library does to the unwary, shown on three of its replicas: once over the transports as they are, once with
// a mitigation switched off. The switches are here, in front of the transports, and nowhere in the product.

// lab is three replicas, each behind a way of its own.
type lab struct {
	t *testing.T
	roads
	switches
	ways  map[string]*way
	rafts map[string]*raft.Raft
	logs  map[string]*raft.InmemStore
	done  map[string]*applied // what each has applied
	cuts  sync.Map            // [2]string: from, to
}

// way is a replica's transport with faults, and with mitigations switched off.
type way struct {
	carrier
	lab  *lab
	node string

	fast    bool               // heartbeats are handled beside the main loop, as the library's own transports have it
	poses   raft.ServerAddress // the address that the replica says it has, if not its own
	silent  atomic.Bool        // what it sends of entries and heartbeats gets lost
	handler func(raft.RPC)
	rest    chan raft.RPC // all requests but heartbeats, where those are handled apart
	once    sync.Once
	stop    chan struct{}
	pump    sync.WaitGroup
}

// switches say which mitigations are off, and what else a lab is to have.
type switches struct {
	fast   bool                 // handle heartbeats beside the main loop
	notify map[string]chan bool // Config.NotifyCh
	alone  string               // is cut off from the beginning
}

func newLab(t *testing.T, r roads, s switches) *lab {
	t.Helper()
	l := &lab{
		t: t, roads: r, switches: s, ways: map[string]*way{}, rafts: map[string]*raft.Raft{},
		logs: map[string]*raft.InmemStore{}, done: map[string]*applied{},
	}
	for _, node := range members {
		if node == s.alone {
			l.isolate(node)
		}
		l.logs[node] = raft.NewInmemStore()
		l.start(node, "")
	}
	t.Cleanup(func() {
		for _, r := range l.rafts {
			if err := r.Shutdown().Error(); err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

// start starts a replica on its log, under another address than its own if one is given.
func (l *lab) start(node string, poses raft.ServerAddress) {
	l.t.Helper()
	w := &way{carrier: l.carrier(l.t, node), lab: l, node: node, fast: l.fast, poses: poses, rest: make(chan raft.RPC), stop: make(chan struct{})}
	l.ways[node], l.done[node] = w, &applied{}
	var servers []raft.Server
	for _, m := range members {
		servers = append(servers, raft.Server{ID: server(m), Address: address(m)})
	}
	c := raft.DefaultConfig()
	c.LocalID, c.Logger, c.NotifyCh = server(node), hclog.NewNullLogger(), l.notify[node]
	store, snapshots := l.logs[node], raft.NewInmemSnapshotStore()
	if err := raft.BootstrapCluster(c, store, store, snapshots, w, raft.Configuration{Servers: servers}); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		l.t.Fatal(err)
	}
	r, err := raft.NewRaft(c, l.done[node], store, store, snapshots, w)
	if err != nil {
		l.t.Fatal(err)
	}
	l.rafts[node] = r
}

// SetHeartbeatHandler does what the library expects of a transport only where the mitigation is off.
func (w *way) SetHeartbeatHandler(f func(raft.RPC)) {
	if !w.fast {
		w.carrier.SetHeartbeatHandler(f)
		return
	}
	w.handler = f
	w.pump.Go(func() {
		for {
			select {
			case rpc := <-w.carrier.Consumer():
				if isHeartbeat(rpc) {
					w.handler(rpc)
					continue
				}
				w.pump.Go(func() { // each peer has a connection of its own
					select {
					case w.rest <- rpc:
					case <-w.stop:
					}
				})
			case <-w.stop:
				return
			}
		}
	})
}

// isHeartbeat tells what the library handles apart.
func isHeartbeat(rpc raft.RPC) bool {
	a, ok := rpc.Command.(*raft.AppendEntriesRequest)
	return ok && a.Term != 0 && a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

func (w *way) Consumer() <-chan raft.RPC {
	if w.fast {
		return w.rest
	}
	return w.carrier.Consumer()
}

func (w *way) LocalAddr() raft.ServerAddress {
	if w.poses != "" {
		return w.poses
	}
	return w.carrier.LocalAddr()
}

func (w *way) Close() error {
	w.once.Do(func() { close(w.stop) })
	err := w.carrier.Close()
	w.pump.Wait()
	return err
}

var errCut = errors.New("the way is cut")

func (w *way) blocked(to raft.ServerAddress) error {
	for _, m := range members {
		if _, cut := w.lab.cuts.Load([2]string{w.node, m}); cut && address(m) == to {
			return errCut
		}
	}
	return nil
}

func (w *way) AppendEntries(id raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, a *raft.AppendEntriesResponse) error {
	if err := w.blocked(to); err != nil || w.silent.Load() {
		return errCut
	}
	return w.carrier.AppendEntries(id, to, q, a)
}

func (w *way) RequestVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	if err := w.blocked(to); err != nil {
		return err
	}
	return w.carrier.RequestVote(id, to, q, a)
}

func (w *way) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse) error {
	if err := w.blocked(to); err != nil {
		return err
	}
	return w.carrier.RequestPreVote(id, to, q, a)
}

// cut cuts the ways between two nodes.
func (l *lab) cut(a, b string) {
	l.cuts.Store([2]string{a, b}, true)
	l.cuts.Store([2]string{b, a}, true)
}

// restart ends a replica and starts it again.
func (l *lab) restart(node string, poses raft.ServerAddress) {
	l.t.Helper()
	if err := l.rafts[node].Shutdown().Error(); err != nil {
		l.t.Fatal(err)
	}
	l.start(node, poses)
}

func (l *lab) isolate(node string) {
	for _, m := range others(node) {
		l.cut(node, m)
	}
}

func (l *lab) heal() { l.cuts.Clear() }

// beat sends one heartbeat of a leader, through any cut.
func (l *lab) beat(from, to string) error {
	w := l.ways[from]
	q := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(server(from)), Addr: []byte(address(from))},
		Term:      l.rafts[from].CurrentTerm(),
	}
	return w.carrier.AppendEntries(server(to), address(to), q, new(raft.AppendEntriesResponse))
}

// leader waits until a replica among some leads and those follow it.
func (l *lab) leader(among ...string) string {
	l.t.Helper()
	return (&group{rafts: l.rafts}).leader(l.t, among...)
}

// newest is the newest entry of a replica's log.
func (l *lab) newest(node string) *raft.Log {
	l.t.Helper()
	last, err := l.logs[node].LastIndex()
	if err != nil {
		l.t.Fatal(err)
	}
	return l.entry(node, last)
}

func (l *lab) entry(node string, index uint64) *raft.Log {
	l.t.Helper()
	var e raft.Log
	if err := l.logs[node].GetLog(index, &e); err != nil {
		l.t.Fatalf("%s has no entry %d: %v", node, index, err)
	}
	return &e
}

// differences are what no two replicas may differ in: entries of one place and one term, and what was applied.
func (l *lab) differences() (found []string) {
	for _, a := range members {
		for _, b := range members {
			if a >= b {
				continue
			}
			one, two := l.newest(a).Index, l.newest(b).Index
			for i := uint64(1); i <= min(one, two); i++ {
				x, y := l.entry(a, i), l.entry(b, i)
				if x.Term == y.Term && (x.Type != y.Type || string(x.Data) != string(y.Data)) {
					found = append(found, fmt.Sprintf("log: entry %d of term %d is %v %q at %s and %v %q at %s", i, x.Term, x.Type, x.Data, a, y.Type, y.Data, b))
				}
			}
			x, y := l.done[a].all(), l.done[b].all()
			if n := min(len(x), len(y)); !slices.Equal(x[:n], y[:n]) {
				found = append(found, fmt.Sprintf("state: %s applied %q, %s applied %q", a, x, b, y))
			}
		}
	}
	return found
}

// applied is a state machine that remembers what it was told.
type applied struct {
	mu   sync.Mutex
	list []string
}

func (a *applied) Apply(l *raft.Log) any {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, string(l.Data))
	return nil
}

func (a *applied) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.list)
}

func (*applied) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }
func (*applied) Restore(r io.ReadCloser) error       { return r.Close() }
