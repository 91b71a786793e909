package node

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/transport"
)

// hosting is what a node runs once it has its genesis.
type hosting struct {
	genesis  Genesis
	links    *transport.Links
	replicas []*replica // in the order of their partitions
	fresh    bool       // it was founded by this process
}

// of returns the node's replica of a partition that runs, nil if there is none.
func (h *hosting) of(p int) *replica {
	if h == nil {
		return nil
	}
	for _, r := range h.replicas {
		if r.partition == p && r.running() != nil {
			return r
		}
	}
	return nil
}

// replica is this node's part of one partition. Its stores are open unless it is kept out.
type replica struct {
	node      *Node
	partition int
	members   []string // server ids, the one that leads where it can first
	stores    *partition.Stores
	link      *transport.Remote
	group     atomic.Pointer[partition.Group] // nil until it runs
	doubted   atomic.Bool                     // the node's clock is too fast to lead it

	mu     sync.Mutex
	ran    bool  // its failures end the process
	early  error // one from before it ran
	closed bool
	out    error // why it is kept out
}

func (r *replica) running() *partition.Group { return r.group.Load() }

// openReplicas opens the disks of all replicas and runs nothing yet. What can't be opened is kept out, and says why; but
// a disk that is full is none that is lost, nor is one that a later version of the software wrote on: of that nothing is
// touched, whichever replica's it is.
func (n *Node) openReplicas(h *hosting, partitions []int) error {
	for _, p := range partitions {
		r := &replica{node: n, partition: p, members: h.genesis.Groups[p]}
		h.replicas = append(h.replicas, r)
		err := r.inspect(n.disk.group(p))
		if errors.Is(err, partition.ErrLaterFormat) {
			return fmt.Errorf("open partition %d: %w; run that version or a newer one", p, err)
		}
		if err := r.judge(err); err != nil {
			return err
		}
	}
	for _, r := range h.replicas {
		if r.keptOut() != nil {
			continue
		}
		if err := r.judge(r.open(h.links)); err != nil {
			return err
		}
	}
	return nil
}

// judge keeps a replica out that can't be opened, and returns what is no fault of its disk.
func (r *replica) judge(err error) error {
	switch {
	case errors.Is(err, partition.ErrLocked), errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("open partition %d: %w", r.partition, err)
	case err != nil:
		r.keepOut(err)
	}
	return nil
}

func (r *replica) open(links *transport.Links) (err error) {
	n := r.node
	folder := n.disk.group(r.partition)
	if err := partition.MakeFolders(folder); err != nil {
		return err
	}
	r.stores, err = partition.OpenStores(folder, partition.StoreOptions{
		Elapsed:      func() int64 { return n.clock.Read().Elapsed },
		TimeOf:       fsm.TimeOf,
		SnapshotTime: func(s io.Reader) (int64, error) { return fsm.SnapshotTime(s) },
		Check:        func(entry []byte) error { _, err := fsm.ParseHeader(entry); return err },
		Fatal:        r.fail,
		Appended:     n.metrics.Appended,
	})
	if err != nil {
		return err
	}
	id := n.disk.identity.ServerID()
	r.link, err = links.Join(uint32(r.partition), id)
	if err != nil {
		return errors.Join(err, r.stores.Close())
	}
	return nil
}

// inspect refuses a folder that has lost what it held.
func (r *replica) inspect(folder string) error {
	holds, err := partition.InspectUpTo(folder, r.node.cfg.Level)
	switch {
	case err != nil:
		return err
	case !r.node.disk.founded && holds.Formed:
		return fmt.Errorf("%s holds entries of a cluster that this disk was not founded in", folder)
	case r.node.disk.founded && !holds.Formed && holds.LastIndex == 0:
		return partition.ErrLogLost
	}
	return nil
}

// start runs a replica whose start all that must have noted have noted.
func (r *replica) start(g Genesis) error {
	n := r.node
	settings := g.settings(r.partition)
	group, err := partition.Open(partition.Config{
		ID: n.disk.identity.ServerID(), Replicas: r.members, Settings: &settings, Newest: n.cfg.Level, Said: n.said,
		Stores: r.stores, Transport: r.link, Clock: n.clock, Source: n.source,
		Log: n.log.With("partition", r.partition), Metrics: n.metrics, Fatal: r.fail,
		Election: n.cfg.Timing.Election, TickEvery: n.cfg.Timing.TickEvery, LogBytes: n.cfg.LogBytes,
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	early := r.early
	r.ran = early == nil
	r.mu.Unlock()
	if early != nil { // not under the lock: what ends may fail again
		return errors.Join(early, group.Close())
	}
	group.DoubtClock(r.doubted.Load()) // as the last comparison has it
	r.group.Store(group)
	return nil
}

// fail hears of the first error after which the replica can't go on. Once it runs, that ends the process;
// before, it is a disk that can't be started from.
func (r *replica) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ran {
		r.early = err
		return
	}
	r.node.fail(fmt.Errorf("partition %d: %w", r.partition, err))
}

// keepOut leaves the replica out until it is replaced.
func (r *replica) keepOut(why error) {
	r.node.log.Error("awaiting replacement", "partition", r.partition, "error", why)
	r.mu.Lock()
	r.out = why
	r.mu.Unlock()
	if err := r.close(); err != nil {
		r.node.log.Warn("close a replica that stays out", "partition", r.partition, "error", err)
	}
}

// keptOut says why the replica is kept out; nil: it isn't.
func (r *replica) keptOut() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out
}

// stop ends Raft.
func (r *replica) stop() error {
	if g := r.running(); g != nil {
		return g.Close()
	}
	return nil
}

// close closes what is open: Raft before its links, the links before the disks.
func (r *replica) close() error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	if closed {
		return nil
	}
	errs := []error{r.stop()}
	if r.link != nil {
		errs = append(errs, r.link.Close())
	}
	if r.stores != nil {
		errs = append(errs, r.stores.Close())
	}
	return errors.Join(errs...)
}
