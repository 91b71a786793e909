package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/gateway"
)

const (
	// lookEvery is how often a start looks whether the cluster is known.
	lookEvery = 100 * time.Millisecond
	// readyWithin is how long that may take before the log says that it is still waiting.
	readyWithin = 10 * time.Second
	// stopWithin is how long a stop waits for checks in flight.
	stopWithin = 10 * time.Second
)

// sidecar is a running gateway.
type sidecar struct {
	program   *program
	log       *slog.Logger
	listeners gateway.Listeners
	keeper    *access.Keeper // nil: no certificates
	asker     asker
	server    *gateway.Server
}

// serve runs until ctx ends, or until the gateway can't go on.
func (p *program) serve(ctx context.Context, s *settings) error {
	g := &sidecar{program: p, log: slog.New(slog.NewTextHandler(p.errs, &slog.HandlerOptions{Level: s.level}))}
	if err := g.open(s); err != nil {
		return errors.Join(err, g.closeListeners())
	}
	g.server.Start(g.listeners)
	fmt.Fprintf(p.out, "http %s\ngrpc %s\nhealth %s\n", g.listeners.HTTP.Addr(), g.listeners.GRPC.Addr(), g.listeners.Ops.Addr())
	var watching sync.WaitGroup
	watched, stopWatching := context.WithCancel(ctx)
	watching.Go(func() { g.watch(watched) })
	err := g.attend(ctx)
	stopWatching()
	watching.Wait()
	return errors.Join(err, g.close())
}

// open opens all that the gateway stands on: addresses first, so that one that is taken is found before anybody is
// asked.
func (g *sidecar) open(s *settings) (err error) {
	if err := g.listen(s); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg := client.Config{Addresses: s.nodes, Log: g.log, Registry: registry}
	if s.certificates() {
		if g.keeper, err = access.Open(s.files, time.Now, isGateway); err != nil {
			return err
		}
		if s.grpcWanted && !g.mayServe() {
			return fmt.Errorf("--%s: callers over gRPC would all refuse the certificate in %s, which isn't issued for servers: "+
				"have it issued with the extended key usage serverAuth too", grpcFlag, s.files.Cert)
		}
		g.warn()
		cfg.TLS = g.keeper.ClientTLS(access.IsPeer)
	}
	if g.asker, err = g.program.connect(cfg); err != nil {
		return fmt.Errorf("--%s: %w", nodesFlag, err)
	}
	g.server = gateway.New(gateway.Config{Asker: g.asker, Access: g.keeper, Log: g.log, Registry: registry})
	return nil
}

// listen opens all addresses, and says of each that it can't open why.
func (g *sidecar) listen(s *settings) error {
	var faults [3]error
	g.listeners.HTTP, faults[0] = gateway.ListenHTTP(httpFlag, s.http)
	g.listeners.GRPC, faults[1] = gateway.ListenGRPC(grpcFlag, s.grpc, s.certificates())
	g.listeners.Ops, faults[2] = gateway.ListenHealth(healthFlag, s.health)
	return errors.Join(faults[:]...)
}

func (g *sidecar) closeListeners() (err error) {
	for _, l := range []net.Listener{g.listeners.HTTP, g.listeners.GRPC, g.listeners.Ops} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// isGateway expects a certificate that may ask for admission somewhere: with another one every check would be refused.
func isGateway(id access.Identity) error {
	if id.MayCheckSomewhere() {
		return nil
	}
	return fmt.Errorf("%w: it is no gateway's, but of %s", access.ErrRefused, id)
}

// warn tells of what works, and shouldn't be left so.
func (g *sidecar) warn() {
	if err := g.keeper.Warning(); err != nil {
		g.log.Warn("private key exposed", "error", err)
	}
	if !g.mayServe() {
		g.log.Warn("certificate not issued for servers: callers over gRPC will refuse it; have it issued with the usage serverAuth too")
	}
}

// mayServe says whether the certificate in force is issued for servers, so that callers over gRPC can accept it.
func (g *sidecar) mayServe() bool {
	config, err := g.keeper.ServerTLS().GetConfigForClient(nil)
	if err != nil || len(config.Certificates) == 0 || config.Certificates[0].Leaf == nil {
		return false
	}
	leaf := config.Certificates[0].Leaf
	if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 { // it is for whatever there is
		return true
	}
	return slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// watch follows the certificates' files until ctx ends.
func (g *sidecar) watch(ctx context.Context) {
	if g.keeper == nil {
		return
	}
	ticks := time.NewTicker(access.PollEvery)
	defer ticks.Stop()
	g.keeper.Watch(ctx, ticks.C, func(changed bool, err error) {
		if err != nil {
			g.log.Error("certificates not replaced", "error", err)
		}
		if changed {
			g.log.Info("certificates replaced", "until", g.keeper.NotAfter())
			g.warn()
		}
	})
}

// attend tells when the cluster is known, and waits for the end: ctx's, which is none to speak of, or an error.
func (g *sidecar) attend(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	slow := time.NewTimer(readyWithin)
	defer slow.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-g.server.Failed():
			return err
		case <-slow.C:
			g.log.Warn("no node has told yet whom to ask, and about what: until then every check is unavailable")
		case <-look.C:
			if g.asker.Ready() {
				fmt.Fprintln(g.program.out, "ready")
				look.Stop()
				slow.Stop()
			}
		}
	}
}

// close closes what answers first, then whom it asks: a check in flight still needs that.
func (g *sidecar) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	err := g.server.Stop(ctx)
	g.asker.Close()
	return err
}
