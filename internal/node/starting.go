package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/transport"
)

const (
	// foundEvery is how often a node that isn't in a cluster yet looks around.
	foundEvery = 250 * time.Millisecond
	// announceEvery is how often one that waits for its start to be noted asks again.
	announceEvery = 250 * time.Millisecond
	// refreshEvery is how often others hear how far the replicas have come.
	refreshEvery = 10 * time.Second
)

// begin finds or founds the cluster, and runs the node's replicas. It returns an error after which the process
// must end; a node that stays out is none.
func (n *Node) begin(ctx context.Context) error {
	if n.disk.lost != "" {
		n.stayOut(fmt.Errorf("others have refused this disk, and %s says why: %s", lostFile, n.disk.lost))
		return nil
	}
	fresh := !n.describe().founded
	if fresh {
		switch err := n.found(ctx); {
		case errors.Is(err, ErrForeignDisk), errors.Is(err, ErrBlank):
			n.condemn(err) // or blank disks alone might found a cluster in the place of one that is lost
			n.stayOut(err)
			return nil
		case err != nil:
			return err
		}
	}
	g := *n.describe().genesis
	if !g.names(n.disk.identity.ServerID()) {
		n.stayOut(fmt.Errorf("%w: this is %s", ErrForeignDisk, n.disk.identity.ServerID()))
		return nil
	}
	n.phase.Store(&phase{state: starting})
	h, err := n.host(g)
	if err != nil {
		return err
	}
	h.fresh = fresh
	return n.announce(ctx, h)
}

// stayOut leaves the whole node out until its disk is replaced.
func (n *Node) stayOut(why error) {
	n.log.Error("awaiting replacement", "error", why)
	if n.hosting.Load() == nil {
		if err := n.cfg.Links.Close(); err != nil { // or others would wait for it to say hello
			n.log.Warn("close the links of a node that stays out", "error", err)
		}
	}
	n.phase.Store(&phase{state: awaiting, detail: why.Error()})
}

// found returns once this node may begin.
func (n *Node) found(ctx context.Context) error {
	told := ""
	for {
		next, why := planFounding(n.describe(), n.describeOthers(ctx))
		if next == stayOut {
			return why
		}
		if why == nil {
			why = n.take(ctx, next)
		}
		if why == nil && next == begin {
			return nil
		}
		if why != nil {
			n.phase.Store(&phase{state: founding, detail: why.Error()})
			if why.Error() != told {
				told = why.Error()
				n.log.Info("no cluster yet", "reason", told)
			}
		}
		if !pause(ctx, foundEvery) {
			return ctx.Err()
		}
	}
}

// take takes a step of the way to a cluster.
func (n *Node) take(ctx context.Context, next step) error {
	switch next {
	case draw:
		return n.draw(ctx)
	case pass:
		return n.passOn(ctx)
	}
	return nil
}

// draw makes the genesis document, from what all initial nodes say of themselves at this moment.
func (n *Node) draw(ctx context.Context) error {
	self, others := n.describe(), n.describeOthers(ctx)
	if next, why := planFounding(self, others); next != draw || why != nil {
		return why
	}
	members := []Member{{ID: self.id, Zone: self.zone}}
	for _, d := range others {
		members = append(members, Member{ID: d.id, Zone: d.zone})
	}
	return n.Found(newGenesis(members, self.partitions, self.replication, self.memory).encode())
}

// passOn hands the document to all.
func (n *Node) passOn(ctx context.Context) error {
	document := n.describe().genesis.encode()
	errs := make([]error, len(n.peers))
	var all sync.WaitGroup
	for i, p := range n.peers {
		all.Go(func() { errs[i] = p.found(ctx, document) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Found takes the genesis document. It fails with [ErrForeignDisk] or [ErrGenesisDiffers], wrapped, if it isn't
// this disk's.
func (n *Node) Found(document []byte) error {
	g, err := parseGenesis(document)
	if err != nil {
		return err
	}
	n.founds.Lock()
	defer n.founds.Unlock()
	return n.disk.write(g)
}

// host opens the links and the replicas, and founds those that have to be.
func (n *Node) host(g Genesis) (*hosting, error) {
	links, err := transport.New(n.linkOptions(g))
	if err != nil {
		return nil, err
	}
	h := &hosting{genesis: g, links: links}
	if err := n.openReplicas(h, g.hosted(n.disk.identity.ServerID())); err != nil {
		return nil, errors.Join(err, h.abandon())
	}
	if err := n.foundReplicas(h); err != nil {
		return nil, errors.Join(err, h.abandon())
	}
	n.hosting.Store(h)
	return h, nil
}

// abandon closes what was opened.
func (h *hosting) abandon() error {
	var errs []error
	for _, r := range h.replicas {
		errs = append(errs, r.close())
	}
	return errors.Join(append(errs, h.links.Close())...)
}

// foundReplicas writes the founding entries where they are due, all of them before the first replica runs.
func (n *Node) foundReplicas(h *hosting) error {
	n.founds.Lock()
	defer n.founds.Unlock()
	if n.disk.founded {
		return nil
	}
	for _, r := range h.replicas {
		if why := r.keptOut(); why != nil {
			return fmt.Errorf("found partition %d: %w", r.partition, why)
		}
		if err := r.stores.Bootstrap(r.members); err != nil {
			return fmt.Errorf("found partition %d: %w", r.partition, err)
		}
	}
	return n.disk.markFounded()
}

func (n *Node) linkOptions(g Genesis) transport.LinkOptions {
	o := transport.LinkOptions{
		Self: n.cfg.Name, Cluster: g.Cluster, Listener: n.cfg.Links, Dial: n.cfg.DialLink, Log: n.log, Now: n.source.Monotonic,
	}
	if k := n.cfg.Keeper; k != nil {
		o.Server = k.ServerTLS
		o.Client = func() *tls.Config { return k.ClientTLS(access.IsPeer) }
		o.PeerName = func(s tls.ConnectionState) (string, error) {
			id, err := k.Identify(s) // by what is in force now, also while a connection is open
			if err != nil {
				return "", err
			}
			name, _ := id.Peer()
			return name, nil
		}
	}
	return o
}

// announce tells the others of this start, runs each replica as soon as a majority of its partition has noted
// it, and goes on to tell those who haven't heard.
func (n *Node) announce(ctx context.Context, h *hosting) error {
	switch err := n.beginStarts(h); {
	case errors.Is(err, partition.ErrRewound):
		return n.rewound(h, err)
	case err != nil:
		return err
	}
	heard := map[string]bool{n.cfg.Name: true}
	for {
		var differs error
		for name, err := range n.announceAll(ctx, h) {
			switch {
			case errors.Is(err, partition.ErrRewound):
				return n.rewound(h, err)
			case errors.Is(err, errElection), errors.Is(err, partition.ErrLevel):
				differs = err
			case err == nil:
				heard[name] = true
			}
		}
		n.startNoted(h, heard, differs)
		wait := announceEvery
		if len(heard) == len(n.cfg.Nodes) && n.rested(h) {
			wait = refreshEvery
		}
		if !pause(ctx, wait) {
			return nil
		}
	}
}

// beginStarts gives every replica its next start number. One whose disk can't take it is kept out. It returns an error
// where a disk is full, which ends the process until there is room, and [partition.ErrRewound] where the node's own
// notes know better than a replica's folder: another try would have a number that they don't know.
func (n *Node) beginStarts(h *hosting) error {
	for _, r := range h.replicas {
		if r.keptOut() != nil {
			continue
		}
		start, err := r.stores.BeginStart()
		if err == nil {
			err = n.disk.notes.hear([]sight{{n.disk.identity.ServerID(), r.partition, start, n.run}})
		}
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, partition.ErrRewound) {
			return fmt.Errorf("start partition %d: %w", r.partition, err)
		}
		if err != nil {
			r.keepOut(err)
		}
	}
	return nil
}

// rewound is what becomes of a node whose disk others know better: one that runs ends at once.
func (n *Node) rewound(h *hosting, why error) error {
	n.condemn(why)
	for _, r := range h.replicas {
		if r.running() != nil {
			return why
		}
	}
	for _, r := range h.replicas {
		r.keepOut(why)
	}
	n.stayOut(why)
	return nil
}

// condemn notes on the disk that it is lost, for good: its next start would have a number that nobody has heard of.
func (n *Node) condemn(why error) {
	if err := n.disk.markLost(why.Error()); err != nil {
		n.log.Error("note that the disk is lost", "error", err)
	}
}

// startNoted runs the replicas whose start a majority of their partition has noted, this node included; none while
// there is a reason against it.
func (n *Node) startNoted(h *hosting, heard map[string]bool, against error) {
	for _, r := range h.replicas {
		noted := 0
		for _, id := range r.members {
			if heard[nameOf(id)] {
				noted++
			}
		}
		if r.running() != nil || r.keptOut() != nil || 2*noted <= len(r.members) || !n.rested(h) || against != nil {
			continue
		}
		if err := r.start(h.genesis); err != nil {
			r.keepOut(err)
		}
	}
	now := n.phaseOf(h)
	if now.state == starting && against != nil {
		now.detail = against.Error()
	}
	n.phase.Store(now)
}

// rested tells whether every lease has ended that this node's disk may have given in an earlier life. Its replicas
// would vote for another leader at once, on whom a leader that they have answered a moment ago doesn't reckon.
func (n *Node) rested(h *hosting) bool {
	return h.fresh || n.Monotonic()-n.opened >= int64(n.cfg.Timing.Election)
}

func (n *Node) phaseOf(h *hosting) *phase {
	var out, waits []int
	for _, r := range h.replicas {
		switch {
		case r.keptOut() != nil:
			out = append(out, r.partition)
		case r.running() == nil:
			waits = append(waits, r.partition)
		}
	}
	switch {
	case len(out) > 0:
		return &phase{awaiting, fmt.Sprintf("its replicas of partitions %v stay out until they are replaced", out)}
	case len(waits) > 0 && !n.rested(h):
		return &phase{starting, "waiting until no leader counts on what it answered before it stopped"}
	case len(waits) > 0:
		return &phase{starting, fmt.Sprintf("its replicas of partitions %v start once a majority has noted their start", waits)}
	}
	return &phase{state: up}
}

// sights are how the node's replicas show themselves now.
func (n *Node) sights(h *hosting) (shown []sight) {
	for _, r := range h.replicas {
		if r.keptOut() != nil {
			continue
		}
		if start, err := r.stores.Seen(); err == nil { // a store that failed tells nothing anymore
			shown = append(shown, sight{n.disk.identity.ServerID(), r.partition, start, n.run})
		}
	}
	return shown
}

// announceAll tells all others of this start, and takes in what they know.
func (n *Node) announceAll(ctx context.Context, h *hosting) map[string]error {
	shown := n.sights(h)
	var mu sync.Mutex
	results := map[string]error{}
	var all sync.WaitGroup
	for _, p := range n.peers {
		all.Go(func() {
			known, err := p.announce(ctx, h.genesis.idOf(p.name), n.disk.identity.ServerID(), shown)
			if err == nil {
				err = n.disk.notes.merge(ofMembers(h.genesis, known))
			}
			mu.Lock()
			defer mu.Unlock()
			results[p.name] = err
		})
	}
	all.Wait()
	return results
}

// ofMembers leaves out what is said of replicas that the cluster doesn't have.
func ofMembers(g Genesis, known []sight) (list []sight) {
	for _, s := range known {
		if s.Group < len(g.Groups) && slices.Contains(g.Groups[s.Group], s.ID) {
			list = append(list, s)
		}
	}
	return list
}

// tellEndWithin bounds how long a stop tries to tell others how it ended.
const tellEndWithin = time.Second

// tellEnd tells the others, and notes, how far the replicas had come when they stopped.
func (n *Node) tellEnd(h *hosting) {
	if slices.ContainsFunc(h.replicas, func(r *replica) bool { return r.running() != nil }) {
		ctx, cancel := context.WithTimeout(context.Background(), tellEndWithin)
		defer cancel()
		n.announceAll(ctx, h)
		if err := n.disk.notes.merge(n.sights(h)); err != nil {
			n.log.Warn("note how the replicas ended", "error", err)
		}
	}
}

// pause waits; false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
