package node

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/quorate/quorate/internal/clock"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/transport"
)

// replica is one running replica with all that it has open.
type replica struct {
	name   string
	id     string
	stores *partition.Stores
	link   *transport.Local
	group  *partition.Group

	mu      sync.Mutex
	running bool  // its failures end the process
	early   error // one from before it ran
}

// shared is what the replicas of a process share.
type shared struct {
	dir     string
	genesis partition.Genesis
	network *transport.Network
	clock   *clock.Accumulator
	source  clock.Source
	metrics *partition.Metrics
	log     *slog.Logger
	fatal   func(error)
	timing  Timing
}

// openReplica opens a replica's disk and its link, and runs nothing yet; what it
// opened before an error is closed again.
func openReplica(sh shared, name string) (r *replica, err error) {
	identity, _, err := partition.OpenIdentity(sh.dir, name)
	if err != nil {
		return nil, fmt.Errorf("open replica %s: %w", name, err)
	}
	r = &replica{name: name, id: identity.ServerID()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open replica %s: %w", name, err), r.close())
			r = nil
		}
	}()
	r.stores, err = partition.OpenStores(filepath.Join(sh.dir, name), partition.StoreOptions{
		Elapsed:      func() int64 { return sh.clock.Read().Elapsed },
		TimeOf:       fsm.TimeOf,
		SnapshotTime: func(s io.Reader) (int64, error) { return fsm.SnapshotTime(s) },
		Check:        func(entry []byte) error { _, err := fsm.ParseHeader(entry); return err },
		Fatal:        func(err error) { r.fail(sh, err) },
	})
	if err != nil {
		return r, err
	}
	r.link, err = sh.network.Join(r.id)
	return r, err
}

// run starts a replica that has been opened.
func (r *replica) run(sh shared) (err error) {
	r.group, err = partition.Open(sh.groupConfig(r))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err = errors.Join(err, r.early); err != nil {
		return fmt.Errorf("start replica %s: %w", r.name, err)
	}
	r.running = true
	return nil
}

// fail hears of the first error after which the replica can't go on. Once it runs,
// that ends the process; before, it is one disk that can't be started from.
func (r *replica) fail(sh shared, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		r.early = err
		return
	}
	sh.fatal(fmt.Errorf("replica %s: %w", r.name, err))
}

func (sh shared) groupConfig(r *replica) partition.Config {
	settings := fsm.Settings{
		Seed: sh.genesis.Seed, Partitions: uint16(sh.genesis.Partitions), Epoch: 1, Horizon: fsm.DefaultHorizon,
		Bound: fsm.BoundFor(fsm.DefaultNodeBound, len(sh.genesis.Replicas), sh.genesis.Partitions, len(sh.genesis.Replicas)),
	}
	settings.DomainBound = settings.Bound / 2
	return partition.Config{
		ID: r.id, Genesis: sh.genesis, Settings: &settings,
		Stores: r.stores, Transport: r.link, Clock: sh.clock, Source: sh.source,
		Log: sh.log.With("node", r.name, "partition", 0), Metrics: sh.metrics, Fatal: func(err error) { r.fail(sh, err) },
		Election: sh.timing.Election, TickEvery: sh.timing.TickEvery,
	}
}

// leads reports whether the replica runs, leads and answers.
func (r *replica) leads() bool { return r.group != nil && r.group.Leading() }

// stop ends Raft.
func (r *replica) stop() error {
	if r.group == nil {
		return nil
	}
	return r.group.Close()
}

// close closes what is open: Raft before its links, the links before the disks.
func (r *replica) close() error {
	errs := []error{r.stop()}
	if r.link != nil {
		errs = append(errs, r.link.Close())
	}
	if r.stores != nil {
		errs = append(errs, r.stores.Close())
	}
	return errors.Join(errs...)
}
