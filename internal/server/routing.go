package server

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
)

// Bounds of the watches that are open at once. Nodes have places of their own, so that no number of gateways
// keeps them from hearing of each other.
const (
	maxWatches     = 1024
	maxNodeWatches = 256
)

// routing is the gRPC service of that name.
type routing struct {
	quotav1.UnimplementedRoutingServer
	server         *Server
	watches, nodes atomic.Int64
}

// Watch streams what has to be known to send checks.
func (r *routing) Watch(m *quotav1.WatchRequest, stream grpc.ServerStreamingServer[quotav1.WatchResponse]) error {
	ctx, cancel := r.server.untilStop(stream.Context())
	defer cancel()
	withSeed, err := r.admit(ctx, m.GetOwnOnly())
	if err != nil {
		return err
	}
	open, most := &r.watches, int64(maxWatches)
	if m.GetOwnOnly() {
		open, most = &r.nodes, maxNodeWatches
	}
	defer open.Add(-1)
	if open.Add(1) > most {
		return status.Errorf(codes.ResourceExhausted, "%d watches are open, as many as this node takes; watch another one", most)
	}
	send := stream.Send
	if !withSeed {
		send = func(news *quotav1.WatchResponse) error { return stream.Send(withoutSeed(news)) }
	}
	err = r.server.cfg.Cluster.Watch(ctx, m.GetOwnOnly(), send)
	return r.server.ended(ctx, err)
}

// admit says whether the caller may watch, and whether it hears the seed: whoever knows it can aim keys at a
// partition, so it is for those who may check, and for nobody else.
func (r *routing) admit(ctx context.Context, ownOnly bool) (withSeed bool, err error) {
	id, err := r.server.identify(ctx)
	if err != nil {
		return false, err
	}
	withSeed = id.MayCheckSomewhere()
	switch {
	case ownOnly && !r.server.isNode(id):
		return false, r.server.forbid("own_only: is for nodes")
	case !ownOnly && !withSeed && !id.MayRead():
		return false, r.server.forbid("the caller's certificate lets it neither check nor read")
	}
	return withSeed, nil
}

// withoutSeed is the same news for those who may not check. What it is given may be shared.
func withoutSeed(news *quotav1.WatchResponse) *quotav1.WatchResponse {
	if news.GetCluster() == nil {
		return news
	}
	theirs := proto.CloneOf(news)
	theirs.Cluster.Seed = nil
	return theirs
}

// untilStop is ctx, ended by Stop as well: a call that waits for news would hold up the end of the node.
func (s *Server) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.stopping, cancel)
	return ctx, func() { unhook(); cancel() }
}

// ended is the status with which a call ends whose context may have: err is what it came to otherwise.
func (s *Server) ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil && err == nil:
		return nil
	case ctx.Err() == nil:
		return status.Convert(err).Err()
	case s.stopping.Err() != nil:
		return statusOf(s.failureOf(&partition.Outcome{Result: partition.Stopping}))
	}
	return status.FromContextError(ctx.Err()).Err()
}
