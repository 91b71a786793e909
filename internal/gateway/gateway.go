package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
)

// Asker is what a front asks: a client of the cluster. It is safe for concurrent use, and every call of it
// returns soon after its context has ended.
type Asker interface {
	// Check asks one question. Its error is a *client.Unavailable or its context's; then there is no
	// decision, and only the error's reason can say that nothing was charged.
	Check(ctx context.Context, question *quotav1.CheckRequest) (*quotav1.Answer, error)
	// Inspect says what one descriptor has used. Its error is as that of Check.
	Inspect(ctx context.Context, question *quotav1.InspectRequest) (*quotav1.InspectResponse, error)
	// Domains names the domains that there are: a caller need not name the only one.
	Domains() []string
	// Ready says whether it knows whom to ask, and about what.
	Ready() bool
}

// DefaultMaxInFlight is how many questions a Server asks at once where nothing else is said.
const DefaultMaxInFlight = 8192

// Config says what a Server stands on. Fields are needed unless they say what their absence means.
type Config struct {
	Asker Asker
	// Access has the certificates for callers over gRPC; nil: there are none, and callers on this machine,
	// who are all that can be listened to then, may ask everything.
	Access *access.Keeper
	// MaxInFlight bounds the questions that are asked at once, from all callers together; 0:
	// DefaultMaxInFlight. What comes beyond it is refused at once: a caller that is told so can wait, and
	// one that queues here would only be answered too late.
	MaxInFlight int
	Log         *slog.Logger
	// Registry takes the gateway's metrics, and /metrics shows all that it holds.
	Registry *prometheus.Registry
	// Also registers more services of the same gRPC port; nil: there are none.
	Also func(grpc.ServiceRegistrar)
}

// Server is a gateway's face. Make one with [New].
type Server struct {
	cfg     Config
	metrics *metrics
	grpc    *grpc.Server
	front   *http.Server // /check
	ops     *http.Server // metrics and health

	inFlight atomic.Int64
	stopping chan struct{}  // closed by Stop: streams take no more checks
	failed   chan error     // one place for each listener
	serving  sync.WaitGroup // one for each listener
	streams  sync.WaitGroup // what streams have started
}

// Listeners are what a Server listens on; nil: not at all.
type Listeners struct {
	GRPC, HTTP, Ops net.Listener
}

// Bounds of connections over HTTP. A check is small and quick; who is slower holds a connection for
// nothing.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10 // sixteen entries of a query, percent-encoded
)

// New returns a Server that doesn't serve yet.
func New(cfg Config) *Server {
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	s := &Server{cfg: cfg, stopping: make(chan struct{}), failed: make(chan error, 3)}
	s.metrics = newMetrics(cfg.Registry, func() float64 { return float64(s.inFlight.Load()) })
	if cfg.Access != nil {
		showCertificate(cfg.Registry, cfg.Access)
	}
	s.grpc = s.newGRPC()
	s.front = s.newHTTP(s.Front())
	s.ops = s.newHTTP(s.Ops())
	return s
}

func (s *Server) newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
}

// Start serves on l, which is the Server's from now on, until Stop. A listener that would let in from beyond
// this machine whoever shows no certificate is not served: [Server.Failed] says so.
func (s *Server) Start(l Listeners) {
	s.serve("grpc", l.GRPC, s.cfg.Access == nil, s.grpc.Serve)
	s.serve("http", l.HTTP, true, s.front.Serve)
	s.serve("health", l.Ops, false, s.ops.Serve)
}

// serve serves on l. Only says that callers on this machine are all that may reach it.
func (s *Server) serve(what string, l net.Listener, local bool, serve func(net.Listener) error) {
	if l == nil {
		return
	}
	if local && isReachable(l.Addr()) {
		s.failed <- errors.Join(fmt.Errorf("serve %s on %s: %w", what, l.Addr(), ErrReachable), l.Close())
		return
	}
	s.serving.Go(func() {
		err := serve(l)
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
			s.failed <- fmt.Errorf("serve %s: %w", what, err)
		}
	})
}

// Failed yields the errors of listeners that stopped by themselves, or were not served.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop takes no more checks, lets those in flight be answered, and returns when nothing of the Server runs
// any more. When ctx ends first, it breaks what is left and returns ctx's error. Metrics and health go
// last, so that a stop can be watched. It must be called once, after Start.
func (s *Server) Stop(ctx context.Context) error {
	close(s.stopping)
	var (
		both     sync.WaitGroup
		frontErr error
	)
	both.Go(func() { frontErr = stopHTTP(ctx, s.front) })
	both.Go(func() { s.stopGRPC(ctx) })
	both.Wait()
	s.streams.Wait()
	err := errors.Join(frontErr, stopHTTP(ctx, s.ops))
	s.serving.Wait()
	return err
}

func stopHTTP(ctx context.Context, h *http.Server) error {
	if err := h.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop http: %w", err), h.Close())
	}
	return nil
}

func (s *Server) stopGRPC(ctx context.Context) {
	stopBreaking := context.AfterFunc(ctx, s.grpc.Stop)
	defer stopBreaking()
	s.grpc.GracefulStop()
}

// isStopping says whether Stop was called.
func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// guard runs f, and reports whether it came to an end. A defect that panics costs the request that met
// it, is counted and logged, and leaves the gateway to the others.
func (s *Server) guard(front string, f func()) (ended bool) {
	defer func() {
		if defect := recover(); defect != nil {
			s.metrics.panics.WithLabelValues(front).Inc()
			s.cfg.Log.Error("request panicked", "front", front, "panic", fmt.Sprint(defect), "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}
