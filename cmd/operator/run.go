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
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/api/meta"
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

	"github.com/quorate/quorate/api/client"
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
	// syncWithin is how long the API server, or the resource definition, is waited for at the start.
	syncWithin = 24 * time.Hour
	// stopWithin bounds the end of an HTTP server: whoever looks can look again.
	stopWithin = time.Second
)

// station is a running operator.
type station struct {
	*program
	config *config
	log    *slog.Logger
	mgr    manager.Manager
}

// serve runs until ctx ends, or until it loses its lease, as to an API server that is away: whoever runs the process begins
// it anew. At the start it waits for the API server.
func (p *program) serve(ctx context.Context, c *config) error {
	handler := slog.NewTextHandler(p.errs, &slog.HandlerOptions{Level: c.LogLevel})
	log.SetLogger(logr.FromSlogHandler(handler))
	klog.SetLogger(logr.FromSlogHandler(handler))
	s := &station{program: p, config: c, log: slog.New(handler)}
	if err := s.build(); err != nil {
		return err
	}
	if err := s.mgr.Start(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// build makes the manager, with all that it runs.
func (s *station) build() (err error) {
	registry := prometheus.NewRegistry()
	if s.mgr, err = s.manager(); err != nil {
		return err
	}
	if err := s.controllers(registry); err != nil {
		return err
	}
	handler := promhttp.HandlerFor(prometheus.Gatherers{metrics.Registry, registry}, promhttp.HandlerOpts{})
	return errors.Join(
		s.listen("metrics", s.config.MetricsAddress, map[string]http.Handler{"GET /metrics": handler}),
		// It is alive whatever becomes of the API server: starting it anew wouldn't help.
		s.listen("health", s.config.HealthAddress, map[string]http.Handler{
			"GET /livez": http.HandlerFunc(ok), "GET /healthz": http.HandlerFunc(ok), "GET /readyz": http.HandlerFunc(s.ready),
		}),
	)
}

func (s *station) manager() (manager.Manager, error) {
	kube, err := s.kube()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := operator.AddToScheme(scheme); err != nil {
		return nil, err
	}
	lock, err := s.lease(kube)
	if err != nil {
		return nil, err
	}
	again, lease, renew, retry := true, leaseDuration, renewDeadline, retryPeriod
	mapper := func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return operator.Mapper(), nil }
	return manager.New(kube, manager.Options{
		MapperProvider: mapper,
		Scheme:         scheme, Cache: operator.CacheOptions(s.config.Namespace), Logger: log.Log,
		Metrics:        metricsserver.Options{BindAddress: "0"}, // ours have a registry of their own, and say where they listen
		LeaderElection: s.config.LeaderElection, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Controller: ctrlconfig.Controller{CacheSyncTimeout: syncWithin, SkipNameValidation: &again}, // tests run several in a process
	})
}

// lease is held by who leads. It tells no events, which would take the right to.
func (s *station) lease(kube *rest.Config) (resourcelock.Interface, error) {
	leases, err := coordination.NewForConfig(kube)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: s.config.Namespace, Name: leaseName}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())},
	}, nil
}

// controllers adds what only the leader runs.
func (s *station) controllers(registry *prometheus.Registry) error {
	security, err := s.security(registry)
	if err != nil {
		return err
	}
	var nodes *client.Admin
	return operator.SetupWithManager(s.mgr, operator.Config{
		Nodes: func(ctx context.Context) (operator.Nodes, error) { // for one caller at a time
			if nodes != nil {
				return nodes, nil
			}
			config, err := security(ctx)
			if err != nil {
				return nil, fmt.Errorf("the operator's certificate: %w", err)
			}
			if nodes, err = client.NewAdmin(s.config.Nodes, config); err != nil {
				return nil, err
			}
			return nodes, nil
		},
		Domains: s.config.Domains, Allowed: s.config.Allowed, Namespace: s.config.Namespace, Resync: s.config.Resync,
		Log: s.log, Metrics: operator.NewMetrics(registry),
	})
}

// security tells with which certificate nodes are asked, and may wait for one; nil: none is needed on this machine. Where
// the operator issues certificates, it adds that.
func (s *station) security(registry *prometheus.Registry) (func(context.Context) (*tls.Config, error), error) {
	of := func(k *access.Keeper, err error) (*tls.Config, error) {
		if err != nil {
			return nil, err
		}
		return k.ClientTLS(access.IsPeer), nil
	}
	switch {
	case s.config.TLS != nil:
		config, err := of(s.follow(*s.config.TLS))
		return func(context.Context) (*tls.Config, error) { return config, nil }, err
	case s.config.Certificates == nil:
		return func(context.Context) (*tls.Config, error) { return nil, nil }, nil
	}
	s.config.Certificates.Log = s.log
	iss, err := issuer.New(*s.config.Certificates)
	if err != nil {
		return nil, err
	}
	registry.MustRegister(iss)
	return func(ctx context.Context) (*tls.Config, error) { return of(iss.Keeper(ctx)) }, iss.SetupWithManager(s.mgr)
}

// follow reads certificates, and has the manager look for others in their place.
func (s *station) follow(files access.Files) (*access.Keeper, error) {
	keeper, err := access.Open(files, time.Now)
	if err != nil {
		return nil, err
	}
	return keeper, s.mgr.Add(onEach(func(ctx context.Context) error {
		ticks := time.NewTicker(access.PollEvery)
		defer ticks.Stop()
		keeper.Watch(ctx, ticks.C, func(changed bool, err error) {
			s.log.Warn("certificates", "replaced", changed, "error", err)
		})
		return nil
	}))
}

// onEach is what a manager runs whether or not its process leads.
type onEach func(context.Context) error

// Start is called by the manager.
func (f onEach) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection says that it doesn't.
func (onEach) NeedLeaderElection() bool { return false }

// listen has the manager serve HTTP, whether or not this process leads.
func (s *station) listen(name, address string, handlers map[string]http.Handler) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%s %q: %w", name, address, err)
	}
	mux := http.NewServeMux()
	for pattern, handler := range handlers {
		mux.Handle(pattern, handler)
	}
	fmt.Fprintf(s.out, "%s %s\n", name, l.Addr())
	within := stopWithin
	return s.mgr.Add(&manager.Server{
		Name: name, Listener: l, ShutdownTimeout: &within, Server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
	})
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// ready says that the API server has told of all objects that are watched.
func (s *station) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), stopWithin)
	defer cancel()
	if !s.mgr.GetCache().WaitForCacheSync(ctx) {
		http.Error(w, "the API server hasn't told of all policies yet", http.StatusServiceUnavailable)
		return
	}
	ok(w, r)
}
