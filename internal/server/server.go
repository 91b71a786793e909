package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
)

// Decider answers checks. It is safe for concurrent use.
type Decider interface {
	// Submit takes calls on their way. Each call's Done runs exactly once, perhaps before Submit returns.
	Submit(calls ...*partition.Call)
	// Inspect says what a descriptor has used.
	Inspect(domain string, d keyspace.Descriptor) partition.Inspection
}

// Config says what a Server stands on. All fields are needed but those that say otherwise.
type Config struct {
	Decider Decider
	// Cluster is behind the services Routing and Admin, Member behind Peer; nil: they are not served.
	Cluster Cluster
	Member  Member
	// Access holds the node's certificate and says who callers are; nil: there are no certificates, and the
	// node serves its own machine only.
	Access *access.Keeper
	// Domains names the domains that there are: a check need not name the only one.
	Domains func() []string
	// Monotonic reads the clock that deadlines are readings of, in ns.
	Monotonic func() int64
	// Ready says whether the node is of use to whoever asks, and if not, why, without a key or a policy's text.
	// /readyz tells both, the gRPC health service the first.
	Ready func() (ok bool, why string)
	// Alive says why the process should be started anew, nil if there is no reason; /livez tells. Nil: there
	// never is.
	Alive func() error
	Log   *slog.Logger
	// Registry takes the server's metrics, and /metrics shows all that it holds.
	Registry *prometheus.Registry
}

// Server is a node's face. Make one with [New].
type Server struct {
	cfg     Config
	metrics *metrics
	grpc    *grpc.Server
	ops     *http.Server // metrics and health

	stopping context.Context // ended by Stop: streams take no more checks
	stop     context.CancelFunc
	failed   chan error     // one place for each listener
	serving  sync.WaitGroup // one for each listener
	streams  sync.WaitGroup // receivers of streams
}

// Listeners are what a Server listens on; Ops may be nil. Without certificates GRPC is one of this machine alone.
type Listeners struct {
	GRPC, Ops net.Listener
}

// Bounds of connections over HTTP. What is asked there is small and quick; who is slower holds a connection
// for nothing.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// New returns a Server that doesn't serve yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, metrics: newMetrics(cfg.Registry), failed: make(chan error, 2)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.grpc = s.newGRPC()
	s.ops = s.newHTTP()
	return s
}

func (s *Server) newHTTP() *http.Server {
	return &http.Server{
		Handler: s.Ops(), ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
}

// Start serves on l, which is the Server's from now on, until Stop.
func (s *Server) Start(l Listeners) {
	s.serve("grpc", func() error {
		if s.cfg.Access == nil && isReachable(l.GRPC.Addr()) {
			return errors.Join(errReachable, l.GRPC.Close())
		}
		return s.grpc.Serve(l.GRPC)
	})
	if l.Ops != nil {
		s.serve("metrics", func() error { return s.ops.Serve(l.Ops) })
	}
}

// errReachable: without certificates whoever reaches a node could spend anybody's allowance.
var errReachable = errors.New("reachable from other machines without certificates")

func (s *Server) serve(what string, serve func() error) {
	s.serving.Go(func() {
		err := serve()
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
			s.failed <- fmt.Errorf("serve %s: %w", what, err)
		}
	})
}

// Failed yields the errors of listeners that stopped by themselves.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop takes no more checks, lets those in flight be answered, and returns when nothing of the Server runs
// any more. When ctx ends first, it breaks what is left and returns ctx's error. Metrics and health go
// last, so that a stop can be watched. It must be called once, after Start.
func (s *Server) Stop(ctx context.Context) error {
	s.stop()
	s.stopGRPC(ctx)
	s.streams.Wait()
	err := s.stopOps(ctx)
	s.serving.Wait()
	return err
}

func (s *Server) stopOps(ctx context.Context) error {
	if err := s.ops.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop metrics: %w", err), s.ops.Close())
	}
	return nil
}

func (s *Server) stopGRPC(ctx context.Context) {
	stopBreaking := context.AfterFunc(ctx, s.grpc.Stop)
	defer stopBreaking()
	s.grpc.GracefulStop()
}

// guard runs f, and reports whether it came to an end. A defect that panics costs the request that met
// it, is counted and logged, and leaves the node to the others.
func (s *Server) guard(f func()) (ended bool) {
	defer func() {
		if defect := recover(); defect != nil {
			s.metrics.panics.WithLabelValues(frontGRPC).Inc()
			s.cfg.Log.Error("request panicked", "panic", fmt.Sprint(defect), "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}
