package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

const (
	// maxPolicies bounds the text of a set, in bytes.
	maxPolicies = 64 << 20
	// maxApplies bounds the calls that have such a text in hand.
	maxApplies = 4
	// uploadTimeout is how long a text may take to arrive.
	uploadTimeout = 30 * time.Second
	// maxApplyWait is the longest that a call waits for the partitions to enforce a set.
	maxApplyWait = time.Minute
	// maxConfirmWait is the longest that a call waits for majorities to confirm who leads.
	maxConfirmWait = 5 * time.Second
	// maxPart bounds the bytes of a set in one message; what else a message has needs less than the rest.
	maxPart = maxMessage - 64<<10
)

// admin is the gRPC service of that name.
type admin struct {
	quotav1.UnimplementedAdminServer
	server *Server
	places chan struct{} // of the calls to ApplyPolicies

	reading sync.Mutex // one text at a time: the tree of one takes hundreds of megabytes
}

func newAdmin(s *Server) *admin { return &admin{server: s, places: make(chan struct{}, maxApplies)} }

// Status says how the node sees the cluster.
func (a *admin) Status(context.Context, *quotav1.StatusRequest) (*quotav1.StatusResponse, error) {
	return a.server.cfg.Cluster.Status(), nil
}

// GetPolicies sends the newest set, in parts, or what is certain.
func (a *admin) GetPolicies(m *quotav1.GetPoliciesRequest, stream grpc.ServerStreamingServer[quotav1.GetPoliciesResponse]) error {
	if m.GetConfirm() {
		return a.confirm(stream)
	}
	return a.sendPolicies(stream)
}

// confirm sends what the partitions enforce for certain that this node leads.
func (a *admin) confirm(stream grpc.ServerStreamingServer[quotav1.GetPoliciesResponse]) error {
	ctx, cancel := a.server.untilStop(stream.Context())
	defer cancel()
	ctx, end := beforeItsEnd(ctx, maxConfirmWait)
	defer end()
	return stream.Send(a.server.cfg.Cluster.Confirmed(ctx))
}

func (a *admin) sendPolicies(stream grpc.ServerStreamingServer[quotav1.GetPoliciesResponse]) error {
	canonical, version, partitions := a.server.cfg.Cluster.Policies()
	m := &quotav1.GetPoliciesResponse{Partitions: partitions}
	if canonical == nil {
		return stream.Send(m)
	}
	// What thousands of partitions enforce may need more than its share of the first message.
	room := min(maxPart, max(0, maxMessage-proto.Size(m)-1<<10))
	for sent := 0; ; {
		next := min(len(canonical), sent+room)
		m.Policies = &quotav1.PolicySetPart{
			Version: version, Json: canonical[sent:next], Size: uint64(len(canonical)), Last: next == len(canonical),
		}
		if err := stream.Send(m); err != nil || m.Policies.Last {
			return err
		}
		sent, room, m = next, maxPart, &quotav1.GetPoliciesResponse{}
	}
}

// ApplyPolicies orders a set, or says what is wrong with it.
func (a *admin) ApplyPolicies(stream grpc.ClientStreamingServer[quotav1.ApplyPoliciesRequest, quotav1.ApplyPoliciesResponse]) error {
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	default:
		return statusOf(a.server.failureOf(&partition.Outcome{Result: partition.Overloaded, Detail: "other sets are being applied"}))
	}
	ctx, cancel := a.server.untilStop(stream.Context())
	defer cancel()
	o, err := a.receive(ctx, stream)
	if err != nil {
		return a.server.ended(ctx, err)
	}
	response, err := a.apply(ctx, o)
	if err != nil {
		return a.server.ended(ctx, err)
	}
	return stream.SendAndClose(response)
}

// order is what ApplyPolicies is asked for.
type order struct {
	options *quotav1.ApplyOptions
	text    []byte
}

type uploads = grpc.ClientStreamingServer[quotav1.ApplyPoliciesRequest, quotav1.ApplyPoliciesResponse]

// receive waits for an order to arrive, for as long as that may take. What reads it can be interrupted only
// by the handler's return; Server joins it.
func (a *admin) receive(ctx context.Context, stream uploads) (order, error) {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	type arrival struct {
		order
		err error
	}
	arrived := make(chan arrival, 1)
	a.server.streams.Go(func() {
		got := arrival{err: errDefect}
		a.server.guard(func() { got.order, got.err = readOrder(stream) })
		arrived <- got
	})
	select {
	case got := <-arrived:
		return got.order, got.err
	case <-ctx.Done():
		return order{}, status.Errorf(codes.DeadlineExceeded, "the policies did not arrive within %v", uploadTimeout)
	}
}

func readOrder(stream uploads) (order, error) {
	var o order
	for first := true; ; first = false {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return o, nil
		case err != nil:
			return order{}, err
		case first:
			o.options = m.GetOptions()
		case m.GetOptions() != nil:
			return order{}, statusOf(refusal(&fault{"options", "come with the first message only"}))
		}
		if len(o.text)+len(m.GetPolicies()) > maxPolicies {
			return order{}, statusOf(refusal(faultf("policies", "has more than %d bytes", maxPolicies)))
		}
		o.text = append(o.text, m.GetPolicies()...)
	}
}

// apply has the set ordered, if there is nothing wrong with it.
func (a *admin) apply(ctx context.Context, o order) (*quotav1.ApplyPoliciesResponse, error) {
	set, problems, err := a.read(ctx, o.text)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return a.refused(problems), nil
	}
	ctx, cancel := beforeItsEnd(ctx, maxApplyWait)
	defer cancel()
	response, err := a.server.cfg.Cluster.Apply(ctx, set, o.options.GetExpected(), o.options.GetDryRun())
	if refused := (policy.Problems)(nil); errors.As(err, &refused) {
		return a.refused(problemsOf(set, refused)), nil
	}
	if err != nil {
		return nil, a.notApplied(err)
	}
	response = proto.CloneOf(response)
	response.Warnings = bounded(append(response.Warnings, problemsOf(set, set.Warnings())...))
	return response, nil
}

// read reads a set, unless the call has ended by its turn.
func (a *admin) read(ctx context.Context, text []byte) (policy.Set, []*quotav1.PolicyProblem, error) {
	a.reading.Lock()
	defer a.reading.Unlock()
	if ctx.Err() != nil {
		return policy.Set{}, nil, status.FromContextError(ctx.Err()).Err()
	}
	set, problems := readSet(text)
	return set, problems, nil
}

// beforeItsEnd leaves a tenth of the call's time, a second at most, for the answer to arrive. It ends after the longest
// wait in any case.
func beforeItsEnd(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if left := remaining(ctx); left > 0 {
		wait = min(wait, left-min(left/10, time.Second))
	}
	return context.WithTimeout(ctx, wait)
}

// refused is the answer to a set that is not accepted: why, and what is in force.
func (a *admin) refused(problems []*quotav1.PolicyProblem) *quotav1.ApplyPoliciesResponse {
	canonical, version, partitions := a.server.cfg.Cluster.Policies()
	r := &quotav1.ApplyPoliciesResponse{Problems: bounded(problems), Version: version, Partitions: partitions}
	if canonical != nil {
		hash := sha256.Sum256(canonical)
		r.SetHash = hash[:]
	}
	return r
}

// notApplied is the status of a set that was not ordered, or of which nobody knows whether it was.
func (a *admin) notApplied(err error) error {
	if elsewhere := new(partition.NotLeaderError); errors.As(err, &elsewhere) {
		return statusOf(a.server.failureOf(&partition.Outcome{Result: partition.NotLeader, Leader: elsewhere.Leader, Detail: elsewhere.Why}))
	}
	if errors.Is(err, partition.ErrSetVersion) {
		return status.Error(codes.Aborted, err.Error())
	}
	return statusOf(a.server.failureOf(&partition.Outcome{Result: partition.Unknown, Detail: err.Error()}))
}
