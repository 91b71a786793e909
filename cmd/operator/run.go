package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/operator"
	"github.com/quorate/quorate/internal/operator/issuer"
)

const (
	leaseName = "quorate-operator"
	// An API server that is restarted costs nobody the lease; a leader that dies costs half a minute.
	leaseDuration = 30 * time.Second
	renewDeadline = 20 * time.Second
	retryPeriod   = 4 * time.Second
	// pauseBefore is how long it waits before it begins anew, as after it lost its lease.
	pauseBefore = 5 * time.Second
)

// station is a running operator.
type station struct {
	*program
	config *config
	log    *slog.Logger
	kube   *rest.Config
	name   string // under which it leads: each of its managers, so that the next one needn't wait for the lease to end

	ready    atomic.Bool                         // the manager runs, and its cache is in sync
	registry atomic.Pointer[prometheus.Registry] // of the manager that runs
}

// serve runs until ctx ends. An API server that is away is waited for: the manager that lost its lease to that ends, and
// another one begins.
func (p *program) serve(ctx context.Context, c *config) error {
	handler := slog.NewTextHandler(p.errs, &slog.HandlerOptions{Level: c.LogLevel})
	s := &station{program: p, config: c, log: slog.New(handler)}
	log.SetLogger(logr.FromSlogHandler(handler))
	klog.SetLogger(logr.FromSlogHandler(handler))
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	s.name = fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())
	if s.kube, err = p.kube(); err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	security, watch, err := s.files()
	if err != nil {
		return err
	}
	stop, err := s.listen()
	if err != nil {
		return err
	}
	defer stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watching.Go(func() { watch(watched) })
	for {
		err := s.manage(ctx, security)
		s.ready.Store(false)
		if ctx.Err() != nil {
			return nil
		}
		s.log.Error("begin anew", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pauseBefore):
		}
	}
}

type security = func(context.Context) (*tls.Config, error)

// files is the certificate from files, and what follows them; nil: there are none.
func (s *station) files() (security, func(context.Context), error) {
	f := s.config.TLS
	if f == nil {
		return nil, func(context.Context) {}, nil
	}
	keeper, err := access.Open(*f, time.Now)
	if err != nil {
		return nil, nil, err
	}
	return func(context.Context) (*tls.Config, error) { return keeper.ClientTLS(access.IsPeer), nil },
		func(ctx context.Context) {
			ticks := time.NewTicker(access.PollEvery)
			defer ticks.Stop()
			keeper.Watch(ctx, ticks.C, func(changed bool, err error) {
				s.log.Warn("certificates", "replaced", changed, "error", err)
			})
		}, nil
}

// manage runs one manager until it ends.
func (s *station) manage(ctx context.Context, security security) (err error) {
	registry := prometheus.NewRegistry()
	mgr, err := s.manager()
	if err != nil {
		return err
	}
	c := s.config
	switch {
	case c.Certificates != nil:
		c.Certificates.Log = s.log
		iss, err := issuer.New(*c.Certificates)
		if err != nil {
			return err
		}
		if err := iss.SetupWithManager(mgr); err != nil {
			return err
		}
		registry.MustRegister(iss)
		security = issued(iss)
	case security == nil: // nodes on this machine
		security = func(context.Context) (*tls.Config, error) { return nil, nil }
	}
	nodes := operator.NewCluster(c.Nodes, security)
	defer func() { err = errors.Join(err, nodes.Close()) }()
	if err := operator.SetupWithManager(mgr, operator.Config{
		Nodes: nodes, Domains: c.Domains, Allowed: c.Allowed, Namespace: c.Namespace, Resync: c.Resync,
		Log: s.log, Metrics: operator.NewMetrics(registry),
	}); err != nil {
		return err
	}
	s.registry.Store(registry)
	if err := mgr.Add(onEach(func(ctx context.Context) { s.ready.Store(mgr.GetCache().WaitForCacheSync(ctx)) })); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// onEach runs whether or not this process leads.
type onEach func(context.Context)

// Start is called by the manager.
func (f onEach) Start(ctx context.Context) error { f(ctx); return nil }

// NeedLeaderElection says that it doesn't.
func (onEach) NeedLeaderElection() bool { return false }

// issued is the operator's own certificate, which only the leader has.
func issued(iss *issuer.Issuer) security {
	return func(ctx context.Context) (*tls.Config, error) {
		keeper, err := iss.Keeper(ctx)
		if err != nil {
			return nil, err
		}
		return keeper.ClientTLS(access.IsPeer), nil
	}
}

func (s *station) manager() (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := operator.AddToScheme(scheme); err != nil {
		return nil, err
	}
	lock, err := s.lease()
	if err != nil {
		return nil, err
	}
	again, lease, renew, retry := true, leaseDuration, renewDeadline, retryPeriod
	return manager.New(s.kube, manager.Options{
		Scheme: scheme, Cache: operator.CacheOptions(s.config.Namespace), Logger: log.Log,
		Metrics:        metricsserver.Options{BindAddress: "0"}, // ours outlive the manager
		LeaderElection: s.config.LeaderElection, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Controller: ctrlconfig.Controller{SkipNameValidation: &again}, // each manager has the same ones
	})
}

// lease is held by who leads. It tells no events, which would take the right to.
func (s *station) lease() (resourcelock.Interface, error) {
	client, err := coordination.NewForConfig(s.kube)
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.config.Namespace, Name: leaseName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.name},
	}, nil
}

// listen serves metrics and health for as long as the process runs.
func (s *station) listen() (stop func(), err error) {
	var servers []*http.Server
	var serving sync.WaitGroup
	stop = func() {
		for _, h := range servers {
			_ = h.Close() // whoever looks can look again
		}
		serving.Wait()
	}
	serve := func(name, address string, mux *http.ServeMux) error {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("%s %q: %w", name, address, err)
		}
		fmt.Fprintf(s.out, "%s %s\n", name, l.Addr())
		h := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
		servers = append(servers, h)
		serving.Go(func() { _ = h.Serve(l) }) // until it is closed
		return nil
	}
	if err := errors.Join(serve("metrics", s.config.MetricsAddress, s.metrics()), serve("health", s.config.HealthAddress, s.health())); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (s *station) metrics() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		all := prometheus.Gatherers{metrics.Registry}
		if own := s.registry.Load(); own != nil {
			all = append(all, own)
		}
		promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
	return mux
}

// health says that the process is alive whatever becomes of the API server: starting it anew wouldn't help.
func (s *station) health() *http.ServeMux {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "the API server hasn't told of all policies yet", http.StatusServiceUnavailable)
			return
		}
		alive(w, r)
	})
	return mux
}
