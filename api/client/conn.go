package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// ErrNotLocal says that an address is not on this machine.
var ErrNotLocal = errors.New("not an address of this machine, which is all that can be reached without certificates")

// maxRedirects is how many leaders a Conn is sent on to for one question.
const maxRedirects = 3

// Conn is a connection to one address, a node's or a gateway's, for people and tools. It is safe for
// concurrent use.
type Conn struct {
	conn   *grpc.ClientConn
	quota  quotav1.QuotaClient
	config *tls.Config
}

// Dial prepares a connection to the node or gateway at address, host:port. Without a TLS configuration that
// must be a loopback address. It doesn't connect yet: the first call does, and so does each that finds the
// connection lost.
func Dial(address string, config *tls.Config) (*Conn, error) {
	conn, err := dial(address, config)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, quota: quotav1.NewQuotaClient(conn), config: config}, nil
}

// dial prepares a connection; nothing leaves this machine in clear.
func dial(address string, config *tls.Config, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	target, security := address, insecure.NewCredentials()
	if config != nil {
		security = credentials.NewTLS(config)
	} else {
		at, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("dial %q: %w", address, err)
		}
		if !at.IP.IsLoopback() {
			return nil, fmt.Errorf("dial %q: %w", address, ErrNotLocal)
		}
		target = at.String()
	}
	conn, err := grpc.NewClient("passthrough:///"+target, append(options, grpc.WithTransportCredentials(security))...)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	return conn, nil
}

// Close ends the connection, and with it what is in flight.
func (c *Conn) Close() error { return c.conn.Close() }

// Check asks one question. The answer is an allow or a denial; whatever is neither is an error, an
// [*Unavailable] if a node, or the way to it, gave it.
//
// A node that doesn't lead sends the question on to the leader. It has provably not proposed it, so under
// one id it is still asked once, and may go without a fence. Nothing else is repeated: who does that after an
// unknown outcome gives the same decision id and the same fence each time.
func (c *Conn) Check(ctx context.Context, question *quotav1.CheckRequest) (*quotav1.Answer, error) {
	if len(question.GetDecisionId()) == 0 { // the same at each hop
		question = proto.CloneOf(question)
		id := newID()
		question.DecisionId = id[:]
	}
	var response *quotav1.CheckResponse
	err := c.follow(func(q quotav1.QuotaClient) (err error) {
		response, err = q.Check(ctx, question)
		return err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	answer := response.GetAnswer()
	switch answer.GetDecision() {
	case quotav1.Decision_DECISION_ALLOW, quotav1.Decision_DECISION_DENY:
		return answer, nil
	case quotav1.Decision_DECISION_WOULD_ALLOW:
		if question.GetPeek() {
			return answer, nil
		}
	}
	return nil, &Unavailable{
		Code:    codes.Unknown,
		Message: fmt.Sprintf("the node's answer has the decision %d, which this version doesn't know", answer.GetDecision()),
	}
}

// Inspect says what a descriptor has used. It consumes nothing. Its error is as that of [Conn.Check].
func (c *Conn) Inspect(ctx context.Context, question *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	var response *quotav1.InspectResponse
	err := c.follow(func(q quotav1.QuotaClient) (err error) {
		response, err = q.Inspect(ctx, question)
		return err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return response, nil
}

// follow calls ask, and again with each leader that the answer names.
func (c *Conn) follow(ask func(quotav1.QuotaClient) error) error {
	err := ask(c.quota)
	for range maxRedirects {
		leader := leaderIn(err)
		if leader == "" {
			return err
		}
		hop, dialling := dial(leader, c.config)
		if dialling != nil {
			return status.Errorf(codes.Unavailable, "the leader answers elsewhere: %v", dialling)
		}
		err = ask(quotav1.NewQuotaClient(hop))
		_ = hop.Close() // all that it was for is done
	}
	return err
}

// leaderIn is the address that a node says to ask in its place, empty if it says none.
func leaderIn(err error) string {
	if err == nil {
		return ""
	}
	f := failureIn(status.Convert(err))
	if f.GetReason() != quotav1.FailureReason_FAILURE_REASON_NOT_LEADER {
		return ""
	}
	return f.GetNotLeader().GetLeader()
}
