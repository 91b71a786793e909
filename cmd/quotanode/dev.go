package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/gateway"
	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/server"
)

// readyWithin is how long a start may take before dev says that it is still waiting.
const readyWithin = 10 * time.Second

// settings are what `quotanode dev` runs with.
type settings struct {
	options
	set policy.Set
	log *slog.Logger
}

// dev is a running `quotanode dev`: three nodes of this process, and a gateway that asks them.
type dev struct {
	settings *settings
	out      io.Writer
	registry *prometheus.Registry
	names    []string
	stations map[string]*station // those that could be opened
	broken   map[string]error    // the others
	told     map[string]bool     // whose replacement is awaited, and who has been told of
	client   *client.Client
	gateway  *gateway.Server
}

// run runs until ctx ends, or until the nodes can't go on. What it returns is a [*command.Error].
func (s *settings) run(ctx context.Context, out io.Writer) error {
	// Listening first: an address that is taken is found before anything is written.
	l, err := s.listen()
	if err != nil {
		return command.Failed(err)
	}
	if err := partition.MakeFolders(s.dataDir); err != nil {
		return command.Failed(errors.Join(fmt.Errorf("--data-dir: %w", err), closeAll(l.HTTP, l.GRPC, l.Ops)))
	}
	d := &dev{
		settings: s, out: out, registry: newRegistry(), names: []string{"n1", "n2", "n3"},
		stations: map[string]*station{}, broken: map[string]error{}, told: map[string]bool{},
	}
	if err := d.open(l); err != nil {
		return command.Failed(errors.Join(s.explain(err), within(failedWithin, d.stop), closeAll(l.HTTP, l.GRPC, l.Ops)))
	}
	err = d.attend(ctx, l)
	if err = errors.Join(s.explain(err), within(closeWithin(err), d.stop)); err != nil {
		return command.Failed(err)
	}
	return nil
}

// listen opens all addresses, or none.
func (s *settings) listen() (l gateway.Listeners, err error) {
	if l.HTTP, err = gateway.ListenHTTP(httpFlag, s.http); err != nil {
		return l, err
	}
	if l.GRPC, err = gateway.ListenGRPC(grpcFlag, s.grpc, false); err == nil {
		l.Ops, err = server.Listen(metricsFlag, s.metrics, false)
	}
	if err != nil {
		return l, errors.Join(err, closeAll(l.HTTP, l.GRPC))
	}
	return l, nil
}

// open opens the nodes, each at loopback addresses of its own, and the gateway.
func (d *dev) open(l gateway.Listeners) error {
	links, grpc, addresses, err := d.addresses()
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "data %s\n", d.settings.dataDir)
	for i, name := range d.names {
		if err := d.openNode(name, addresses, links[i], grpc[i]); err != nil {
			return errors.Join(err, closeAll(append(links[i+1:], grpc[i+1:]...)...))
		}
	}
	if len(d.stations) == 0 {
		return errors.Join(errNoneOpened, d.brokenErrors())
	}
	return d.openGateway(l, addresses)
}

var errNoneOpened = errors.New("no node's disk can be opened")

func (d *dev) brokenErrors() (err error) {
	for _, name := range d.names {
		if why := d.broken[name]; why != nil {
			err = errors.Join(err, fmt.Errorf("node %s: %w", name, why))
		}
	}
	return err
}

// addresses opens two listeners for each node.
func (d *dev) addresses() (links, grpc []net.Listener, all []node.Address, err error) {
	for _, name := range d.names {
		var two [2]net.Listener
		for i := range two {
			if two[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				return nil, nil, nil, errors.Join(err, closeAll(append(links, grpc...)...))
			}
		}
		links, grpc = append(links, two[0]), append(grpc, two[1])
		all = append(all, node.Address{Name: name, Links: two[0].Addr().String(), GRPC: two[1].Addr().String()})
	}
	return links, grpc, all, nil
}

// openNode opens a node. One whose disk can't be opened is lost; the two others may still be a majority.
func (d *dev) openNode(name string, addresses []node.Address, links, grpc net.Listener) error {
	log := d.settings.log
	registerer := prometheus.WrapRegistererWith(prometheus.Labels{"node": name}, d.registry)
	st, err := openStation(node.Config{
		Name: name, Dir: filepath.Join(d.settings.dataDir, name), Nodes: addresses, Links: links, Log: log, Registry: registerer,
	}, server.Config{Log: log, Registry: prometheus.NewRegistry()}, grpc, nil)
	switch {
	case errors.Is(err, partition.ErrLocked):
		return err
	case err != nil:
		log.Error("awaiting replacement", "node", name, "error", err)
		d.broken[name] = err
	default:
		d.stations[name] = st
		fmt.Fprintf(d.out, "replica %s %s\n", name, st.ID())
	}
	return nil
}

// failure is the first that any of the nodes tells; nil: none has.
func (d *dev) failure() error {
	for _, st := range d.stations {
		select {
		case err := <-st.Failed():
			return err
		case err := <-st.server.Failed():
			return err
		default:
		}
	}
	return nil
}

func (d *dev) openGateway(l gateway.Listeners, addresses []node.Address) (err error) {
	cfg := client.Config{Log: d.settings.log, Registry: d.registry}
	for _, a := range addresses {
		cfg.Addresses = append(cfg.Addresses, a.GRPC)
	}
	if d.client, err = client.New(cfg); err != nil {
		return err
	}
	admin := server.New(server.Config{Cluster: anyNode{d}, Log: d.settings.log, Registry: prometheus.NewRegistry()})
	d.gateway = gateway.New(gateway.Config{Asker: d.client, Log: d.settings.log, Registry: d.registry, Also: admin.RegisterCluster})
	d.gateway.Start(l)
	return nil
}

// some is a node that takes part; if there is none, any.
func (d *dev) some() (st *station) {
	for _, name := range d.names {
		one := d.stations[name]
		if one == nil {
			continue
		}
		if state, _ := one.State(); state != awaitingReplacement {
			return one
		}
		st = one
	}
	return st
}

// awaitingReplacement is a node's state when it stays out.
const awaitingReplacement = "awaiting replacement"

// attend puts the policies in force, tells when all is ready, and waits for the end: ctx's, which is none to
// speak of, or an error.
func (d *dev) attend(ctx context.Context, l gateway.Listeners) error {
	ctx, cancel := context.WithCancel(ctx)
	applied := make(chan error, 1)
	var applying sync.WaitGroup
	applying.Go(func() { applied <- d.apply(ctx) })
	defer applying.Wait()
	defer cancel()
	g := greeting{dev: d, listeners: l, slow: time.Now().Add(readyWithin)}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.gateway.Failed():
			return err
		case err := <-applied:
			if err != nil && ctx.Err() == nil {
				return err
			}
			g.inForce = err == nil
		case <-look.C:
			if err := d.failure(); err != nil {
				return err
			}
			g.look()
		}
	}
}

// apply puts the policies in force, once a leader takes them, and returns when every partition enforces them. It
// fails where they are not accepted.
func (d *dev) apply(ctx context.Context) error {
	for {
		trying, cancel := context.WithTimeout(ctx, applyWithin)
		m, err := anyNode{d}.Apply(trying, d.settings.set, nil, false)
		cancel()
		if err == nil && enforcedByAll(m) || errors.As(err, new(policy.Problems)) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// enforcedByAll tells whether the set that is in force is so in every partition: a try that ends before doesn't fail.
func enforcedByAll(m *quotav1.ApplyPoliciesResponse) bool {
	v := m.GetVersion()
	return v != nil && !slices.ContainsFunc(m.GetPartitions(), func(p *quotav1.PartitionVersion) bool {
		return p.GetVersion().GetEpoch() != v.GetEpoch() || p.GetVersion().GetNumber() != v.GetNumber()
	})
}

// applyWithin bounds one try to put the policies in force.
const applyWithin = 3 * time.Second

// greeting tells, as it comes, how the nodes are and where to ask.
type greeting struct {
	*dev
	listeners        gateway.Listeners
	slow             time.Time // when to say that it takes long
	inForce          bool      // the policies are
	located, greeted bool
}

// look tells what is new. The addresses are told as soon as somebody who asks there is answered, or won't be for
// a while: at once where most nodes are lost.
func (g *greeting) look() {
	awaiting := g.tellAwaiting()
	if !g.greeted && g.inForce && g.client.Ready() && g.leading() {
		g.greeted = true
		g.locate()
		fmt.Fprintln(g.out, "ready")
		g.suggest()
	}
	if !g.located && (time.Now().After(g.slow) || 2*len(awaiting) > len(g.names)) {
		g.locate()
		g.warn(awaiting)
	}
}

// tellAwaiting tells of nodes that stay out, once each, and returns them all.
func (d *dev) tellAwaiting() (awaiting []string) {
	for _, name := range d.names {
		if st := d.stations[name]; st != nil {
			if state, _ := st.State(); state != awaitingReplacement {
				continue
			}
		}
		awaiting = append(awaiting, name)
		if !d.told[name] {
			d.told[name] = true
			fmt.Fprintf(d.out, "replica %s %s\n", name, awaitingReplacement)
		}
	}
	return awaiting
}

// leading tells whether every partition has a leader in the eyes of a node that takes part.
func (d *dev) leading() bool {
	st := d.some()
	return st != nil && st.Leading()
}

func (g *greeting) locate() {
	if !g.located {
		g.located = true
		l := g.listeners
		fmt.Fprintf(g.out, "http %s\ngrpc %s\nmetrics %s\n", l.HTTP.Addr(), l.GRPC.Addr(), l.Ops.Addr())
	}
}

func (g *greeting) warn(awaiting []string) {
	fmt.Fprint(g.out, "no leader: without a majority of the replicas every check is unavailable")
	if len(awaiting) > 0 {
		fmt.Fprintf(g.out, "; awaiting replacement: %s", strings.Join(awaiting, ", "))
	}
	fmt.Fprintln(g.out)
}

// suggest says what to try.
func (g *greeting) suggest() {
	if g.settings.policies != "" {
		return
	}
	const entries = "principal=alice api_class=convert"
	fmt.Fprintf(g.out, "try curl -i 'http://%s/check?%s'\n", g.listeners.HTTP.Addr(), strings.ReplaceAll(entries, " ", "&"))
	fmt.Fprintf(g.out, "try quotactl check --server %s %s\n", g.listeners.GRPC.Addr(), entries)
}

// stop closes what answers first, then what decides: a check in flight still needs it. The nodes stop all at
// once: there is nobody to hand over to.
func (d *dev) stop() (err error) {
	if d.gateway != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		err = d.gateway.Stop(ctx)
	}
	if d.client != nil {
		d.client.Close()
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, st := range d.stations {
		all.Go(func() {
			failed := st.stop()
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, failed)
		})
	}
	all.Wait()
	return err
}

// explain adds what to do about an error, where there is something.
func (s *settings) explain(err error) error {
	var problems policy.Problems
	switch {
	case errors.Is(err, partition.ErrLocked):
		return fmt.Errorf("--data-dir %s: %w; stop that one, or choose another directory", s.dataDir, err)
	case !errors.As(err, &problems):
		return err
	}
	which := "the sample"
	if s.policies != "" {
		which = s.policies
	}
	return fmt.Errorf("--policies: %s can't take the place of the policies in force: %w\nStart with policies that can, "+
		"or choose another --data-dir, where nothing is used up yet", which, err)
}
