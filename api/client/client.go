package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// ErrNotLocal says that an address is not on this machine.
var ErrNotLocal = errors.New("not an address of this machine, which is all that can be reached without certificates")

// Client is a connection to a node. It is safe for concurrent use.
type Client struct {
	conn  *grpc.ClientConn
	quota quotav1.QuotaClient
}

// Dial prepares a connection to the node at address, host:port, which must be a loopback address. It
// doesn't connect yet: the first call does, and so does each that finds the connection lost.
func Dial(address string) (*Client, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	if !at.IP.IsLoopback() {
		return nil, fmt.Errorf("dial %q: %w", address, ErrNotLocal)
	}
	conn, err := grpc.NewClient("passthrough:///"+at.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	return &Client{conn: conn, quota: quotav1.NewQuotaClient(conn)}, nil
}

// Close ends the connection, and with it what is in flight.
func (c *Client) Close() error { return c.conn.Close() }

// Check asks one question. The answer is an allow or a denial; whatever is neither is an error, an
// [*Unavailable] if the node, or the way to it, gave it.
func (c *Client) Check(ctx context.Context, question *quotav1.CheckRequest) (*quotav1.Answer, error) {
	response, err := c.quota.Check(ctx, question)
	if err != nil {
		return nil, unavailable(err)
	}
	answer := response.GetAnswer()
	switch answer.GetDecision() {
	case quotav1.Decision_DECISION_ALLOW, quotav1.Decision_DECISION_DENY:
		return answer, nil
	}
	return nil, &Unavailable{Message: fmt.Sprintf("the node's answer has the decision %d, which this version doesn't know", answer.GetDecision())}
}

// Inspect says what a descriptor has used. It consumes nothing. Its error is as that of [Client.Check].
func (c *Client) Inspect(ctx context.Context, question *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	response, err := c.quota.Inspect(ctx, question)
	if err != nil {
		return nil, unavailable(err)
	}
	return response, nil
}

// Unavailable says that there is no decision. The work must not be done.
type Unavailable struct {
	// Reason is FAILURE_REASON_UNSPECIFIED where no node said why: then the outcome is unknown.
	Reason  quotav1.FailureReason
	Message string
	// RetryAfter is when asking again is worth while, in whole seconds; 0 where nobody said.
	RetryAfter time.Duration
}

// Error is the message; its wording is no contract.
func (u *Unavailable) Error() string { return u.Message }

// unavailable takes the failure out of a status.
func unavailable(err error) error {
	s := status.Convert(err)
	for _, detail := range s.Details() {
		if f, ok := detail.(*quotav1.Failure); ok {
			return &Unavailable{
				Reason: f.GetReason(), Message: f.GetMessage(), RetryAfter: time.Duration(f.GetRetryAfterS()) * time.Second,
			}
		}
	}
	return &Unavailable{Message: fmt.Sprintf("%s: %s", s.Code(), s.Message())}
}
