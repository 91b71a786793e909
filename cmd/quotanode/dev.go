package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/server"
)

const (
	// readyWithin is how long a start may take before dev says that it is still waiting.
	readyWithin = 10 * time.Second
	// stopWithin is how long a stop waits for checks in flight.
	stopWithin = 10 * time.Second
	// failedWithin is how long a node that can't go on tries to close in order.
	failedWithin = 3 * time.Second
)

// settings are what `quotanode dev` runs with.
type settings struct {
	options
	set policy.Set
	log *slog.Logger
}

// dev is a running `quotanode dev`.
type dev struct {
	settings *settings
	out      io.Writer
	cluster  *node.Cluster
	server   *server.Server
}

// run runs until ctx ends, or until the node can't go on. What it returns is a [*runError].
func (s *settings) run(ctx context.Context, out io.Writer) error {
	// Listening first: an address that is taken is found before anything is written.
	l, err := s.listen()
	if err != nil {
		return &runError{err}
	}
	if err := partition.MakeFolders(s.dataDir); err != nil {
		return &runError{errors.Join(fmt.Errorf("--data-dir: %w", err), closeAll(l))}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cluster, err := node.Open(node.Config{Dir: s.dataDir, Set: s.set, Log: s.log, Registry: registry})
	if err != nil {
		return &runError{errors.Join(s.explain(err), closeAll(l))}
	}
	d := &dev{settings: s, out: out, cluster: cluster}
	d.server = server.New(server.Config{
		Decider: cluster, Domains: cluster.Domains, Monotonic: cluster.Monotonic, Ready: cluster.Leading,
		Log: s.log, Registry: registry,
	})
	d.server.Start(l)
	d.greet()
	err = d.attend(ctx, l)
	if err = errors.Join(s.explain(err), within(closeWithin(err), d.stop)); err != nil {
		return &runError{err}
	}
	return nil
}

// listen opens all addresses, or none.
func (s *settings) listen() (l server.Listeners, err error) {
	for _, a := range []struct {
		flag, address string
		listener      *net.Listener
	}{
		{httpFlag, s.http, &l.HTTP}, {grpcFlag, s.grpc, &l.GRPC}, {metricsFlag, s.metrics, &l.Ops},
	} {
		if *a.listener, err = server.Listen(a.flag, a.address); err != nil {
			return l, errors.Join(err, closeAll(l))
		}
	}
	return l, nil
}

func closeAll(l server.Listeners) (err error) {
	for _, one := range []net.Listener{l.HTTP, l.GRPC, l.Ops} {
		if one != nil {
			err = errors.Join(err, one.Close())
		}
	}
	return err
}

// greet says what it stands on.
func (d *dev) greet() {
	fmt.Fprintf(d.out, "data %s\n", d.settings.dataDir)
	for _, r := range d.cluster.Replicas() {
		if r.Awaiting {
			fmt.Fprintf(d.out, "replica %s awaiting replacement\n", r.Name)
			continue
		}
		fmt.Fprintf(d.out, "replica %s %s\n", r.Name, r.ID)
	}
}

// attend tells when the node is ready, and waits for the end: ctx's, which is none to speak of, or an
// error. The addresses are told as soon as somebody who asks there is answered, or won't be for a while.
func (d *dev) attend(ctx context.Context, l server.Listeners) error {
	ctx, cancel := context.WithCancel(ctx)
	ready := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { ready <- d.cluster.Ready(ctx) })
	defer waiting.Wait()
	defer cancel()
	slow, told := time.NewTimer(d.patience()), false
	defer slow.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.cluster.Failed():
			return err
		case err := <-d.server.Failed():
			return err
		case <-slow.C:
			if !told {
				told = true
				d.locate(l)
				d.warn()
			}
		case err := <-ready:
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if !told {
				told = true
				d.locate(l)
			}
			d.suggest(l)
		}
	}
}

func (d *dev) locate(l server.Listeners) {
	fmt.Fprintf(d.out, "http %s\ngrpc %s\nmetrics %s\n", l.HTTP.Addr(), l.GRPC.Addr(), l.Ops.Addr())
}

// patience is how long to wait for a leader before saying so: not at all where there can be none.
func (d *dev) patience() time.Duration {
	if 2*len(d.awaiting()) > len(d.cluster.Replicas()) {
		return 0
	}
	return readyWithin
}

func (d *dev) awaiting() (names []string) {
	for _, r := range d.cluster.Replicas() {
		if r.Awaiting {
			names = append(names, r.Name)
		}
	}
	return names
}

func (d *dev) warn() {
	fmt.Fprint(d.out, "no leader: without a majority of the replicas every check is unavailable")
	if awaiting := d.awaiting(); len(awaiting) > 0 {
		fmt.Fprintf(d.out, "; awaiting replacement: %s", strings.Join(awaiting, ", "))
	}
	fmt.Fprintln(d.out)
}

// suggest says that the node is ready, and what to try.
func (d *dev) suggest(l server.Listeners) {
	fmt.Fprintln(d.out, "ready")
	if d.settings.policies != "" {
		return
	}
	const entries = "principal=alice api_class=convert"
	fmt.Fprintf(d.out, "try curl -i 'http://%s/check?%s'\n", l.HTTP.Addr(), strings.ReplaceAll(entries, " ", "&"))
	fmt.Fprintf(d.out, "try quotactl check --server %s %s\n", l.GRPC.Addr(), entries)
}

// stop closes what answers first, then what decides: a check in flight still needs it.
func (d *dev) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return errors.Join(d.server.Stop(ctx), d.cluster.Close())
}

// closeWithin is how long closing may take. A disk that hangs answers nobody, least of all Close, and the
// end of the process is what it takes for the others to elect.
func closeWithin(failure error) time.Duration {
	if failure != nil {
		return failedWithin
	}
	return 2 * stopWithin
}

var errStuck = errors.New("not everything could be closed in time; what was acknowledged is on disk")

// within gives up on what doesn't return in time. It is left behind: the process is about to end.
func within(bound time.Duration, closing func() error) error {
	done := make(chan error, 1)
	go func() { done <- closing() }()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errStuck
	}
}

// explain adds what to do about an error, where there is something.
func (s *settings) explain(err error) error {
	switch {
	case errors.Is(err, partition.ErrLocked):
		return fmt.Errorf("--data-dir %s: %w; stop that one, or choose another directory", s.dataDir, err)
	case !errors.Is(err, partition.ErrOtherSet):
		return err
	}
	which := "the sample"
	if s.policies != "" {
		which = s.policies
	}
	hash := s.set.Hash()
	return fmt.Errorf("--policies: %w\n%s is set %s. Start with the policies that the data directory was made with, "+
		"or choose another --data-dir, where nothing is used up yet", err, which, hex.EncodeToString(hash[:6]))
}
