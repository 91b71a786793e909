package client

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

var errLeft = errors.New("the answer is of an epoch that was left")

// Inspect says what one descriptor has used and has left, by the leader of its partition. It consumes and
// reserves nothing. Its error is an [*Unavailable].
func (c *Client) Inspect(ctx context.Context, question *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	response, f := c.inspect(ctx, question)
	if f != nil {
		return nil, f
	}
	return response, nil
}

func (c *Client) inspect(ctx context.Context, m *quotav1.InspectRequest) (*quotav1.InspectResponse, *Unavailable) {
	q, bad := readQuestion(&quotav1.CheckRequest{
		Domain: m.GetDomain(), Descriptors: []*quotav1.Descriptor{m.GetDescriptor_()},
	})
	if bad != nil {
		return nil, bad
	}
	if f := c.enter(); f != nil {
		return nil, unavailableOf(f)
	}
	defer c.leave()
	ctx, cancel := c.withDeadline(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	in := inquiry{client: c, ctx: ctx, deadline: deadline, question: q}
	p, f := in.resolve()
	if f != nil {
		return nil, unavailableOf(f)
	}
	// As with a check, but that nothing can be charged: a look, of which only the way of sending is another.
	k := &ask{client: c, ctx: ctx, deadline: deadline, part: p.parts[0], route: in.view.routes[p.parts[0]], peek: true}
	request := &quotav1.InspectRequest{Domain: q.domain, Descriptor_: q.wire[0]}
	response := k.inspect(request)
	if response == nil {
		return nil, unavailableOf(in.final(k.last))
	}
	return response, nil
}

// inspect asks until a node has answered, nil if none did.
func (k *ask) inspect(m *quotav1.InspectRequest) *quotav1.InspectResponse {
	for {
		address, _ := k.whom()
		if address == "" {
			return nil
		}
		k.sends++
		response, err := k.client.inspectAt(k.ctx, address, m)
		if err == nil && k.route.learn(response.GetEpoch(), 0, false) {
			return response
		}
		if k.refused(address, err) {
			return nil
		}
	}
}

// refused deals with a call that brought nothing to believe, as judge does with a stream's.
func (k *ask) refused(address string, err error) (done bool) {
	s := status.Convert(err)
	if f := failureIn(s); f != nil {
		_, done = k.judge(address, result{tagged: &quotav1.TaggedAnswer{Result: &quotav1.TaggedAnswer_Failure{Failure: f}}})
		return done
	}
	switch s.Code() {
	case codes.OK:
		err = errLeft
	case codes.Unauthenticated, codes.PermissionDenied:
		k.last = &quotav1.Failure{Code: uint32(s.Code()), Reason: notPermitted, Message: s.Message()}
		return true
	case codes.Unimplemented:
		k.last = &quotav1.Failure{Code: uint32(s.Code()), Reason: notSupported, Message: s.Message()}
		return true
	}
	return k.lost(address, result{err: err})
}

func (c *Client) inspectAt(ctx context.Context, address string, m *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	l, err := c.links.to(address)
	if err != nil {
		return nil, err
	}
	return l.quota.Inspect(ctx, m)
}
