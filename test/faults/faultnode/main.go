// Command faultnode is a node for tests: what `quotanode run` wires, with clocks that can be made wrong while it
// runs, handovers on demand, and shorter periods. It reads the same configuration, and in it a section of its own,
// `test`. It is steered over HTTP on a loopback address, which it tells.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/server"
)

func main() {
	path := flag.String("config", "", "the configuration, as of quotanode run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, *path); err != nil {
		fmt.Fprintf(os.Stderr, "faultnode: %v\n", err)
		os.Exit(1)
	}
}

// station is the running node.
type station struct {
	*node.Node
	config  *config
	source  *skewed
	wall    *wall
	keeper  *access.Keeper // nil: no certificates
	log     *slog.Logger
	server  *server.Server
	control *http.Server
	links   net.Listener
}

func run(ctx context.Context, path string) error {
	c, err := readConfig(path)
	if err != nil {
		return err
	}
	s := &station{config: c, wall: &wall{}, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	s.wall.shift.Store(int64(c.Test.Wall))
	if s.source, err = newSkewed(); err != nil {
		return err
	}
	if c.TLS.CA != "" {
		if s.keeper, err = access.Open(c.TLS.files(), s.wall.now, access.IsNode(c.Name)); err != nil {
			return err
		}
	}
	if err := s.open(); err != nil {
		return err
	}
	err = s.attend(ctx)
	return errors.Join(err, s.stop(err))
}

// open opens listeners, the node, and what answers.
func (s *station) open() (err error) {
	c := s.config
	self := c.self()
	if s.links, err = server.Listen("links", self.Links, s.keeper != nil); err != nil {
		return err
	}
	grpc, err := server.Listen("grpc", self.GRPC, s.keeper != nil)
	if err != nil {
		return err
	}
	health, err := server.ListenHealth("health", "127.0.0.1:0")
	if err != nil {
		return err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if s.Node, err = node.Open(s.nodeConfig(registry)); err != nil {
		return err
	}
	n := s.Node
	s.server = server.New(server.Config{
		Decider: n, Cluster: n, Member: n, Domains: n.Domains, Monotonic: n.Monotonic, Ready: n.Ready, Alive: n.Alive,
		Access: s.keeper, Log: s.log, Registry: registry,
	})
	s.server.Start(server.Listeners{GRPC: grpc, Ops: health})
	s.control = &http.Server{Handler: s.steering(), ReadHeaderTimeout: time.Second}
	go func() { _ = s.control.Serve(control) }() // ends with the process
	fmt.Printf("health %s\ncontrol %s\n", health.Addr(), control.Addr())
	return nil
}

func (s *station) nodeConfig(registry *prometheus.Registry) node.Config {
	c := s.config
	cfg := node.Config{
		Name: c.Name, Dir: c.DataDir, Partitions: c.Partitions, LogBytes: c.Test.LogBytes, Links: s.links, Keeper: s.keeper,
		Log: s.log, Registry: registry, Source: s.source,
		Timing: node.Timing{Election: c.Election, Balance: c.Test.Balance, Compare: c.Test.Compare},
	}
	for _, n := range c.Nodes {
		cfg.Nodes = append(cfg.Nodes, node.Address{Name: n.Name, Links: n.Links, GRPC: n.GRPC})
	}
	return cfg
}

// attend tells how the node is until the end.
func (s *station) attend(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.keeper != nil {
		ticks := time.NewTicker(access.PollEvery / 5)
		defer ticks.Stop()
		watching.Go(func() { s.keeper.Watch(ctx, ticks.C, s.certificates) })
	}
	look, told := time.NewTicker(20*time.Millisecond), ""
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.Failed():
			return err
		case err := <-s.server.Failed():
			return err
		case <-look.C:
			if line := s.line(); line != told {
				told = line
				fmt.Println(line)
			}
		}
	}
}

func (s *station) certificates(_ bool, err error) {
	if err != nil {
		s.log.Error("certificates", "error", err)
	}
}

func (s *station) line() string {
	state, detail := s.State()
	if state != "up" {
		return state + ": " + detail
	}
	switch ok, why := s.Ready(); {
	case !ok:
		return "not ready: " + why
	case !s.Led():
		return "waiting for leaders"
	}
	return "ready"
}

// stop ends in order, or after a failure at once: the process is about to end.
func (s *station) stop(failure error) error {
	if failure != nil {
		return nil
	}
	s.HandOver()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(s.server.Stop(ctx), s.Close(), s.control.Close())
}
