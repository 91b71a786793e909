package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/server"
)

// runner is a running `quotanode run`.
type runner struct {
	config   *runConfig
	out      io.Writer
	log      *slog.Logger
	registry *prometheus.Registry
	keeper   *access.Keeper // nil: no certificates
	links    net.Listener
	grpc     net.Listener
	health   net.Listener
	station  *station
}

// runNode runs a node until ctx ends, or until it can't go on. What it returns is a [*command.Error].
func runNode(ctx context.Context, c *runConfig, out, errs io.Writer) error {
	r := &runner{
		config: c, out: out, registry: newRegistry(),
		log: slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: c.LogLevel})),
	}
	if err := r.open(); err != nil {
		return command.Failed(err)
	}
	err := r.attend(ctx)
	if err = errors.Join(err, within(closeWithin(err), r.station.stop)); err != nil {
		return command.Failed(err)
	}
	return nil
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// open opens certificates and listeners before anything is written: what is wrong with them is found first.
func (r *runner) open() (err error) {
	c := r.config
	if c.TLS.CA != "" {
		if r.keeper, err = access.Open(c.TLS, time.Now, access.IsNode(c.Name)); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		if warning := r.keeper.Warning(); warning != nil {
			r.log.Warn("certificates", "error", warning)
		}
	}
	if err := r.listen(); err != nil {
		return errors.Join(err, closeAll(r.links, r.grpc, r.health))
	}
	r.station, err = openStation(r.nodeConfig(), server.Config{Access: r.keeper, Log: r.log, Registry: r.registry}, r.grpc, r.health)
	if errors.Is(err, partition.ErrLocked) {
		return fmt.Errorf("dataDir %s: %w; stop that one, or give this node a folder of its own", c.DataDir, err)
	}
	return err
}

func (r *runner) listen() (err error) {
	c, certificates := r.config.Listen, r.keeper != nil
	if r.links, err = server.Listen("links-address", c.Links, certificates); err != nil {
		return err
	}
	if r.grpc, err = server.Listen("grpc-address", c.GRPC, certificates); err != nil {
		return err
	}
	r.health, err = server.ListenHealth("health-address", c.Health)
	return err
}

func (r *runner) nodeConfig() node.Config {
	c := r.config
	cfg := node.Config{
		Name: c.Name, Zone: c.Zone, Dir: c.DataDir, Partitions: c.Partitions, Replication: c.Replication, Memory: c.Memory,
		LogBytes: c.LogBytes, Links: r.links, Keeper: r.keeper, Log: r.log, Registry: r.registry,
		Timing: node.Timing{Election: c.Election},
	}
	for _, n := range c.Nodes {
		cfg.Nodes = append(cfg.Nodes, node.Address{Name: n.Name, Links: n.Links, GRPC: n.GRPC})
	}
	return cfg
}

// attend tells how the node comes on, follows its certificates, and waits for the end: ctx's, which is none to
// speak of, or an error.
func (r *runner) attend(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if r.keeper != nil {
		watching.Go(func() { watchCertificates(ctx, r.keeper, r.log) })
	}
	fmt.Fprintf(r.out, "node %s\nlinks %s\ngrpc %s\nhealth %s\n", r.station.ID(), r.links.Addr(), r.grpc.Addr(), r.health.Addr())
	told := ""
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-r.station.Failed():
			return err
		case err := <-r.station.server.Failed():
			return err
		case <-look.C:
			if line := r.line(); line != told {
				told = line
				fmt.Fprintln(r.out, line)
			}
		}
	}
}

// line says how the node is, in a line: "ready" once it is up and ready, else its state and what keeps it.
func (r *runner) line() string {
	state, detail := r.station.State()
	if ok, why := r.station.Ready(); state == "up" {
		switch {
		case ok && r.station.Led():
			return "ready"
		case ok:
			return "waiting for leaders"
		}
		return "not ready: " + why
	}
	if detail == "" {
		return state
	}
	return state + ": " + detail
}

// watchCertificates follows the files until ctx ends.
func watchCertificates(ctx context.Context, k *access.Keeper, log *slog.Logger) {
	ticks := time.NewTicker(access.PollEvery)
	defer ticks.Stop()
	k.Watch(ctx, ticks.C, func(changed bool, err error) {
		switch {
		case err != nil:
			log.Error("certificates", "error", err)
		case changed:
			log.Info("other certificates are in force", "until", k.NotAfter())
		}
		if warning := k.Warning(); warning != nil {
			log.Warn("certificates", "error", warning)
		}
	})
}
