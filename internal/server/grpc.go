package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
)

// Bounds of connections over gRPC.
const (
	maxMessage    = 1 << 20
	maxStreams    = 128 // of one connection at once; each holds maxOpen checks at most
	maxGRPCHeader = 16 << 10
	// minPing is how often a client may ask whether the connection lives.
	minPing = 10 * time.Second
	// pingAfter and pingWait find connections whose other end is gone.
	pingAfter = 30 * time.Second
	pingWait  = 10 * time.Second
)

// MaxTimeout is the longest that a check may wait to be decided: longer deadlines, and none, count as
// this. A caller that needs longer to hear "unavailable" has no use for the answer.
const MaxTimeout = 5 * time.Second

func (s *Server) newGRPC() *grpc.Server {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxGRPCHeader),
		grpc.ConnectionTimeout(headerTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingWait}),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(s.guardUnary, s.authoriseUnary),
		grpc.ChainStreamInterceptor(s.guardStream, s.authoriseStream),
	}
	if s.cfg.Access != nil {
		options = append(options, grpc.Creds(s.newDoorkeeper()))
	}
	g := grpc.NewServer(options...)
	quotav1.RegisterQuotaServer(g, &quota{server: s})
	if s.cfg.Cluster != nil {
		s.RegisterCluster(g)
	}
	if s.cfg.Member != nil {
		quotav1.RegisterPeerServer(g, &peerService{server: s})
	}
	healthpb.RegisterHealthServer(g, &health{ready: s.cfg.Ready})
	reflection.Register(g)
	return g
}

var errDefect = status.Error(codes.Internal, "a defect of the node ended the call; its outcome is unknown")

func (s *Server) guardUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	if !s.guard(func() { resp, err = next(ctx, req) }) {
		return nil, errDefect
	}
	return resp, err
}

func (s *Server) guardStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	if !s.guard(func() { err = next(srv, stream) }) {
		return errDefect
	}
	return err
}

// quota is the gRPC service.
type quota struct {
	quotav1.UnimplementedQuotaServer
	server *Server
}

// Check answers one check.
func (q *quota) Check(ctx context.Context, m *quotav1.CheckRequest) (*quotav1.CheckResponse, error) {
	id, err := q.server.identify(ctx)
	if err != nil {
		return nil, err
	}
	var r partition.Request
	if f := read(&r, m, q.server.cfg.Domains); f != nil {
		return nil, statusOf(refusal(f))
	}
	if !id.MayCheck(r.Domain) {
		return nil, q.server.forbid(mayNotCheck)
	}
	r.Deadline = deadline(q.server.cfg.Monotonic(), remaining(ctx))
	c := q.server.ask(ctx, r)
	if c == nil {
		f := q.server.failureOf(&partition.Outcome{Result: partition.Unknown})
		f.Partition = nil
		return nil, statusOf(f)
	}
	if !meaningOf(c.Result).decided() {
		return nil, statusOf(q.server.failureOf(&c.Outcome))
	}
	return &quotav1.CheckResponse{Answer: answerOf(c)}, nil
}

// Inspect says what a descriptor has used.
func (q *quota) Inspect(ctx context.Context, m *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	id, err := q.server.identify(ctx)
	if err != nil {
		return nil, err
	}
	domain, f := readDomain(m.GetDomain(), q.server.cfg.Domains)
	if f != nil {
		return nil, statusOf(refusal(f))
	}
	if !id.MayInspect(domain) {
		return nil, q.server.forbid(mayNotInspect)
	}
	d, f := readDescriptor(m.GetDescriptor_())
	if f != nil {
		return nil, statusOf(refusal(f.under("descriptor")))
	}
	in := q.server.cfg.Decider.Inspect(domain, d)
	if !meaningOf(in.Result).decided() {
		return nil, statusOf(q.server.failureOf(&in.Outcome))
	}
	return usageOf(&in), nil
}

// CheckStream answers the checks of a stream.
func (q *quota) CheckStream(stream checkStream) error {
	id, err := q.server.identify(stream.Context())
	if err != nil {
		return err
	}
	return newConversation(q.server, stream, id).run()
}

func codeOf(f *quotav1.Failure) codes.Code { return codes.Code(f.GetCode()) }

// remaining is what is left of the call's deadline, 0 if it has none. Package time takes the difference
// between two readings of the monotonic clock.
func remaining(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(1, time.Until(deadline))
}

// deadline is the reading of the node's clock at which a check that came at that reading is too late; a timeout of
// 0: the longest.
func deadline(came int64, timeout time.Duration) int64 {
	if timeout <= 0 || timeout > MaxTimeout {
		timeout = MaxTimeout
	}
	return came + int64(timeout)
}

// ask sends one call and waits until it is done; nil when ctx ends first: then its outcome is unknown.
func (s *Server) ask(ctx context.Context, r partition.Request) *partition.Call {
	done := make(chan *partition.Call, 1)
	s.cfg.Decider.Submit(&partition.Call{Request: r, Done: func(c *partition.Call) { done <- c }})
	select {
	case c := <-done:
		return c
	case <-ctx.Done():
		return nil
	}
}

// health is the health service of gRPC. It is asked, and not watched: readiness is looked up when
// somebody asks, so that there is nothing to keep in step.
type health struct {
	healthpb.UnimplementedHealthServer
	ready func() (ok bool, why string)
}

// Check answers for the node as a whole and for the service Quota alike.
func (h *health) Check(_ context.Context, m *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if name := m.GetService(); name != "" && name != quotav1.Quota_ServiceDesc.ServiceName {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	serving := healthpb.HealthCheckResponse_NOT_SERVING
	if ok, _ := h.ready(); ok {
		serving = healthpb.HealthCheckResponse_SERVING
	}
	return &healthpb.HealthCheckResponse{Status: serving}, nil
}

// RegisterCluster registers the services Routing and Admin with another port of this process, one without
// certificates.
func (s *Server) RegisterCluster(r grpc.ServiceRegistrar) {
	quotav1.RegisterRoutingServer(r, &routing{server: s})
	quotav1.RegisterAdminServer(r, newAdmin(s))
}
