package server

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
)

// Without certificates nobody can say who calls, and nobody from beyond this machine can: then a caller has
// the rights of access.Loopback, and is believed to be the node that it says it is.

var errNoCertificate = errors.New("no certificate was shown")

// identify returns who makes a call.
func (s *Server) identify(ctx context.Context) (access.Identity, error) {
	if s.cfg.Access == nil {
		return access.Loopback(), nil
	}
	c := callerOf(ctx)
	if c == nil {
		return access.Identity{}, unauthenticated(errNoCertificate)
	}
	id, err := c.identify()
	if err != nil {
		s.metrics.refuse(refusedCertificate)
		return access.Identity{}, unauthenticated(err)
	}
	return id, nil
}

func unauthenticated(err error) error {
	return status.Errorf(codes.Unauthenticated, "the caller's certificate is not accepted: %v", err)
}

// authorise says whether the caller may call the method at all.
func (s *Server) authorise(ctx context.Context, method string) error {
	id, err := s.identify(ctx)
	if err != nil {
		return err
	}
	if !s.mayCall(id, method) {
		return s.forbid("the caller's certificate doesn't let it call " + method)
	}
	return nil
}

// mayCall is the table of methods. Quota and Routing go on asking: for domains, for what is wanted. What
// the table lacks nobody may call.
func (s *Server) mayCall(id access.Identity, method string) bool {
	switch method {
	case quotav1.Quota_Check_FullMethodName, quotav1.Quota_CheckStream_FullMethodName, quotav1.Quota_Inspect_FullMethodName,
		quotav1.Routing_Watch_FullMethodName,
		healthpb.Health_Check_FullMethodName, healthpb.Health_List_FullMethodName, healthpb.Health_Watch_FullMethodName,
		reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName,
		reflectionalphapb.ServerReflection_ServerReflectionInfo_FullMethodName:
		return true
	case quotav1.Admin_Status_FullMethodName, quotav1.Admin_GetPolicies_FullMethodName:
		return id.MayRead() || s.isNode(id)
	case quotav1.Admin_ApplyPolicies_FullMethodName:
		return id.MayWritePolicies()
	case quotav1.Peer_Describe_FullMethodName, quotav1.Peer_Found_FullMethodName, quotav1.Peer_Announce_FullMethodName,
		quotav1.Peer_Elapsed_FullMethodName:
		return s.isNode(id)
	}
	return false
}

// isNode says whether the caller is a node of the cluster.
func (s *Server) isNode(id access.Identity) bool {
	_, ok := id.Peer()
	return ok || s.cfg.Access == nil
}

// isNodeNamed says whether the caller is that node.
func (s *Server) isNodeNamed(id access.Identity, name string) bool {
	node, ok := id.Peer()
	return ok && node == name || s.cfg.Access == nil
}

const (
	mayNotCheck   = "domain: is none in which the caller's certificate lets it check"
	mayNotInspect = "domain: is none in which the caller's certificate lets it inspect"
)

// forbidden is the failure of whoever has no right to what it asks for.
func (s *Server) forbidden(message string) *quotav1.Failure {
	s.metrics.refuse(refusedPermission)
	return &quotav1.Failure{
		Code: uint32(codes.PermissionDenied), Reason: quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED, Message: message,
	}
}

func (s *Server) forbid(message string) error { return statusOf(s.forbidden(message)) }

func (s *Server) authoriseUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := s.authorise(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// authoriseStream also ends the stream when the caller's certificate does.
func (s *Server) authoriseStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := s.authorise(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	c := callerOf(stream.Context())
	if c == nil { // there are no certificates
		return next(srv, stream)
	}
	ctx, end := context.WithCancelCause(stream.Context())
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx, end) })
	defer watching.Wait()
	defer end(nil)
	watched := &watchedStream{stream, ctx}
	err := next(srv, watched)
	if cut := watched.cut(); cut != nil {
		s.metrics.refuse(refusedCertificate)
		return cut
	}
	return err
}

// watchedStream is a stream that is over when its caller is no longer accepted.
type watchedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context ends with the stream, or when its caller is no longer accepted.
func (w *watchedStream) Context() context.Context { return w.ctx }

// cut is why the stream is over though neither side ended it, nil if it isn't.
func (w *watchedStream) cut() error {
	if cause := context.Cause(w.ctx); status.Code(cause) == codes.Unauthenticated {
		return cause
	}
	return nil
}

// SendMsg sends nothing to whoever is no longer accepted.
func (w *watchedStream) SendMsg(m any) error {
	if err := w.cut(); err != nil {
		return err
	}
	return w.ServerStream.SendMsg(m)
}
