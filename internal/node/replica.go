package node

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

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
}

// shared is what the replicas of a process share.
type shared struct {
	dir     string
	genesis partition.Genesis
	found   bool // genesis is under way: write what it has not written yet
	network *transport.Network
	clock   *clock.Accumulator
	source  clock.Source
	metrics *partition.Metrics
	log     *slog.Logger
	fatal   func(error)
	timing  Timing
}

// openReplica opens a replica; what it opened before an error is closed again.
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
	fatal := func(err error) { sh.fatal(fmt.Errorf("replica %s: %w", name, err)) }
	r.stores, err = partition.OpenStores(filepath.Join(sh.dir, name), partition.StoreOptions{
		Elapsed:      func() int64 { return sh.clock.Read().Elapsed },
		TimeOf:       fsm.TimeOf,
		SnapshotTime: func(s io.Reader) (int64, error) { return fsm.SnapshotTime(s) },
		Check:        func(entry []byte) error { _, err := fsm.ParseHeader(entry); return err },
		Fatal:        fatal,
	})
	if err != nil {
		return r, err
	}
	if r.link, err = sh.network.Join(r.id); err != nil {
		return r, err
	}
	r.group, err = partition.Open(sh.groupConfig(r, fatal))
	return r, err
}

func (sh shared) groupConfig(r *replica, fatal func(error)) partition.Config {
	settings := fsm.Settings{
		Seed: sh.genesis.Seed, Partitions: uint16(sh.genesis.Partitions), Epoch: 1, Horizon: fsm.DefaultHorizon,
		Bound: fsm.BoundFor(fsm.DefaultNodeBound, len(sh.genesis.Replicas), sh.genesis.Partitions, len(sh.genesis.Replicas)),
	}
	settings.DomainBound = settings.Bound / 2
	return partition.Config{
		ID: r.id, Genesis: sh.genesis, Bootstrap: sh.found, Settings: &settings,
		Stores: r.stores, Transport: r.link, Clock: sh.clock, Source: sh.source,
		Log: sh.log.With("node", r.name, "partition", 0), Metrics: sh.metrics, Fatal: fatal,
		Election: sh.timing.Election, TickEvery: sh.timing.TickEvery,
	}
}

// close closes what is open: Raft before its links, the links before the disks.
func (r *replica) close() error {
	var errs []error
	if r.group != nil {
		errs = append(errs, r.group.Close())
	}
	if r.link != nil {
		errs = append(errs, r.link.Close())
	}
	if r.stores != nil {
		errs = append(errs, r.stores.Close())
	}
	return errors.Join(errs...)
}
