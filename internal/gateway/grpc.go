package gateway

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

// MaxTimeout is the longest that a question over gRPC may take: longer deadlines, and none, count as this. A
// caller that needs longer to hear "unavailable" has no use for the answer.
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
		grpc.UnaryInterceptor(s.letInUnary),
		grpc.StreamInterceptor(s.letInStream),
	}
	if s.cfg.Access != nil {
		options = append(options, grpc.Creds(s.newDoorkeeper()))
	}
	g := grpc.NewServer(options...)
	quotav1.RegisterQuotaServer(g, &quota{server: s})
	healthpb.RegisterHealthServer(g, &health{server: s})
	if s.cfg.Also != nil {
		s.cfg.Also(g)
	}
	reflection.Register(g)
	return g
}

var errDefect = status.Error(codes.Internal, "a defect of the gateway ended the call; its outcome is unknown")

// letInUnary passes on calls of callers who are somebody, and survives what they meet.
func (s *Server) letInUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	if _, err := s.identityOf(ctx); err != nil {
		return nil, err
	}
	if !s.guard(frontGRPC, func() { resp, err = next(ctx, req) }) {
		return nil, errDefect
	}
	return resp, err
}

func (s *Server) letInStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	if _, err := s.identityOf(stream.Context()); err != nil {
		return err
	}
	if !s.guard(frontGRPC, func() { err = next(srv, stream) }) {
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
	id, err := q.server.identityOf(ctx)
	if err != nil {
		return nil, err
	}
	if refused := q.server.examine(id, m, ""); refused != nil {
		return nil, statusOf(refused)
	}
	ctx, cancel := context.WithTimeout(ctx, MaxTimeout)
	defer cancel()
	o := q.server.check(ctx, frontGRPC, m)
	if !o.decided() {
		return nil, statusOf(&o)
	}
	return &quotav1.CheckResponse{Answer: o.answer}, nil
}

// Inspect says what a descriptor has used.
func (q *quota) Inspect(ctx context.Context, m *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	id, err := q.server.identityOf(ctx)
	if err != nil {
		return nil, err
	}
	if refused := q.server.examineInspection(id, m); refused != nil {
		return nil, statusOf(refused)
	}
	ctx, cancel := context.WithTimeout(ctx, MaxTimeout)
	defer cancel()
	response, o := q.server.inspect(ctx, m)
	if response == nil {
		return nil, statusOf(&o)
	}
	return response, nil
}

// CheckStream answers the checks of a stream.
func (q *quota) CheckStream(stream checkStream) error {
	return newConversation(q.server, stream).run()
}

// failureOf is an outcome without a decision, on the wire.
func failureOf(o *outcome) *quotav1.Failure {
	f := &quotav1.Failure{Code: uint32(o.code), Reason: o.failure, Message: o.message}
	if o.retry > 0 {
		f.RetryAfterS = &o.retry
	}
	return f
}

// statusOf carries an outcome without a decision out of a unary call.
func statusOf(o *outcome) error {
	s := status.New(o.code, o.message)
	detailed, err := s.WithDetails(failureOf(o))
	if err != nil { // only for status OK, which no failure has
		return s.Err()
	}
	return detailed.Err()
}

// health is the health service of gRPC. It is asked, and not watched: readiness is looked up when
// somebody asks, so that there is nothing to keep in step.
type health struct {
	healthpb.UnimplementedHealthServer
	server *Server
}

// Check answers for the gateway as a whole and for the service Quota alike.
func (h *health) Check(_ context.Context, m *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if name := m.GetService(); name != "" && name != quotav1.Quota_ServiceDesc.ServiceName {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	serving := healthpb.HealthCheckResponse_NOT_SERVING
	if h.server.ready() {
		serving = healthpb.HealthCheckResponse_SERVING
	}
	return &healthpb.HealthCheckResponse{Status: serving}, nil
}
