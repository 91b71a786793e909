package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

const (
	// MaxPolicyBytes is the longest text that [Admin.Apply] sends, and the largest set that [Admin.Policies]
	// takes.
	MaxPolicyBytes = 64 << 20
	// policyPart leaves room in a message of 1 MiB for what else is in it.
	policyPart = 1<<20 - 64<<10
	// maxPartitions is how many a cluster can have.
	maxPartitions = 4096
	// maxHops is how many leaders Apply follows: each is named by the one before.
	maxHops = 5
)

// Admin looks at a cluster, and reads and writes its policies, by way of any of its nodes. Every answer is
// that of one node. It is safe for concurrent use.
type Admin struct {
	nodes  []adminNode
	config *tls.Config
}

// adminNode is one address.
type adminNode struct {
	address string
	conn    *grpc.ClientConn
	admin   quotav1.AdminClient
}

// NodeError is a node's refusal, or what failed on the way to it.
type NodeError struct {
	Address string
	Code    codes.Code
	Message string
	// Failure is what the node says besides; nil: nothing, or no node spoke.
	Failure *quotav1.Failure
}

// Error is for people; its wording is no contract.
func (e *NodeError) Error() string {
	if e.Failure != nil {
		return e.Address + ": " + e.Message
	}
	return fmt.Sprintf("%s: %s: %s", e.Address, e.Code, e.Message)
}

// Denied says that the caller's certificate doesn't give the right to this, or that there is none.
func (e *NodeError) Denied() bool {
	return e.Code == codes.PermissionDenied || e.Code == codes.Unauthenticated
}

// Conflict says that another version of the policies is in force than the one expected.
func (e *NodeError) Conflict() bool { return e.Code == codes.Aborted }

// Late says that no answer came within the time for it.
func (e *NodeError) Late() bool { return e.Code == codes.DeadlineExceeded }

// NewAdmin prepares connections to the nodes at the addresses, each host:port; one is enough. Without a TLS
// configuration all of them, and all leaders that they name, must be loopback addresses. It connects when it
// is asked for something. The caller closes it.
func NewAdmin(addresses []string, config *tls.Config) (*Admin, error) {
	if len(addresses) == 0 {
		return nil, errors.New("no address of a node is given")
	}
	a := &Admin{config: config}
	for _, address := range addresses {
		n, err := a.dial(address)
		if err != nil {
			return nil, errors.Join(err, a.Close())
		}
		a.nodes = append(a.nodes, n)
	}
	return a, nil
}

func (a *Admin) dial(address string) (adminNode, error) {
	conn, err := dial(address, a.config,
		// As for checks: an Admin may live long, and meet a node again that went without a word, at another IP address.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWait, PermitWithoutStream: true}),
		grpc.WithConnectParams(connecting()))
	if err != nil {
		return adminNode{}, err
	}
	return adminNode{address: address, conn: conn, admin: quotav1.NewAdminClient(conn)}, nil
}

// Close ends the connections, and with them what is in flight.
func (a *Admin) Close() (err error) {
	for _, n := range a.nodes {
		err = errors.Join(err, n.conn.Close())
	}
	return err
}

// Status returns how the first node that answers sees the cluster. Its error is a [*NodeError] for each node
// that was asked, joined.
func (a *Admin) Status(ctx context.Context) (*quotav1.StatusResponse, error) {
	_, s, err := first(ctx, a.nodes)
	return s, err
}

// first returns the first of the nodes that answers, by its place among them, with its status.
func first(ctx context.Context, nodes []adminNode) (at int, s *quotav1.StatusResponse, err error) {
	at = -1
	err = each(ctx, nodes, func(ctx context.Context, n adminNode) (err error) {
		at++
		s, err = n.admin.Status(ctx, &quotav1.StatusRequest{})
		return err
	})
	return at, s, err
}

// each asks one node after the other, until one answers or refuses: no other one would answer that
// otherwise. A node that is silent, or of which nothing makes sense, doesn't take the time of those after it.
func each(ctx context.Context, nodes []adminNode, ask func(context.Context, adminNode) error) error {
	var failed []error
	for i, n := range nodes {
		err := func() error {
			ctx, cancel := share(ctx, len(nodes)-i)
			defer cancel()
			return ask(ctx, n)
		}()
		if err == nil {
			return nil
		}
		e := nodeError(n.address, err)
		failed = append(failed, e)
		if !slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Internal}, e.Code) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// share bounds one attempt of as many as are left.
func share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}

func nodeError(address string, err error) *NodeError {
	var e *NodeError
	if errors.As(err, &e) {
		return e
	}
	s := status.Convert(err)
	return &NodeError{Address: address, Code: s.Code(), Message: plain(s.Message()), Failure: failureIn(s)}
}

// plain takes what went wrong with a connection out of what the library wraps around it.
func plain(message string) string {
	_, quoted, found := strings.Cut(message, "desc = ")
	if prefix, err := strconv.QuotedPrefix(quoted); found && err == nil {
		if text, err := strconv.Unquote(prefix); err == nil {
			return strings.TrimPrefix(text, "transport: ")
		}
	}
	return message
}

// Policies returns the newest policy set that the first node which answers knows, in canonical form, nil if there is none
// yet, its version, and what each partition enforces. A node that knows none as new as atLeast, which is known to be in
// force, is passed over; nil: any set will do. Its error is as that of [Admin.Status].
func (a *Admin) Policies(ctx context.Context, atLeast *quotav1.SetVersion) (canonical []byte, version *quotav1.SetVersion, partitions []*quotav1.PartitionVersion, err error) {
	var p policyParts
	err = each(ctx, a.nodes, func(ctx context.Context, n adminNode) error {
		p = policyParts{}
		if err := p.receive(ctx, n.admin); err != nil {
			return err
		}
		if VersionOf(p.version).Before(VersionOf(atLeast)) {
			return status.Errorf(codes.Unavailable, "the node knows an older set of policies than version %v", VersionOf(atLeast))
		}
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return p.canonical, p.version, p.partitions, nil
}

// policyParts is a set of which not all may be here yet.
type policyParts struct {
	canonical  []byte
	version    *quotav1.SetVersion
	partitions []*quotav1.PartitionVersion
	size       uint64
	complete   bool
}

func (p *policyParts) receive(ctx context.Context, admin quotav1.AdminClient) error {
	ctx, cancel := context.WithCancel(ctx) // ends a stream that isn't read to its end
	defer cancel()
	stream, err := admin.GetPolicies(ctx, &quotav1.GetPoliciesRequest{})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return p.end(first)
		}
		if err != nil {
			return err
		}
		if err := p.add(m, first); err != nil {
			return err
		}
	}
}

// add takes a message's part, and refuses one that doesn't go on where the last one stopped.
func (p *policyParts) add(m *quotav1.GetPoliciesResponse, first bool) error {
	if first {
		p.partitions = m.GetPartitions()
	} else if len(m.GetPartitions()) > 0 {
		return malformed("versions come twice")
	}
	if len(p.partitions) > maxPartitions {
		return malformed("there are %d partitions", len(p.partitions))
	}
	part := m.GetPolicies()
	if part == nil {
		return nil
	}
	if p.version == nil {
		p.version, p.size = part.GetVersion(), part.GetSize()
	}
	switch got := uint64(len(p.canonical) + len(part.GetJson())); {
	case part.GetVersion() == nil:
		return malformed("a part has no version")
	case p.complete, !proto.Equal(p.version, part.GetVersion()), part.GetSize() != p.size:
		return malformed("parts of two sets are mixed")
	case p.size > MaxPolicyBytes:
		return malformed("the set has %d bytes, more than the %d that are taken", p.size, MaxPolicyBytes)
	case got > p.size, part.GetLast() && got != p.size:
		return malformed("the set has %d bytes, not the %d announced", got, p.size)
	}
	p.canonical = append(p.canonical, part.GetJson()...)
	p.complete = part.GetLast()
	return nil
}

func (p *policyParts) end(empty bool) error {
	switch {
	case empty:
		return malformed("there is none")
	case p.version != nil && !p.complete:
		return malformed("the set ends after %d of %d bytes", len(p.canonical), p.size)
	}
	return nil
}

// malformed says that a node's answer is none that it may give.
func malformed(format string, args ...any) error {
	return status.Errorf(codes.Internal, "the answer is malformed: "+format, args...)
}

// Apply puts the policy file in text, YAML or JSON, in the place of the policies in force. It finds a node
// that answers, sends the text, and goes on to the leader where that node names it, and to the next node where it knows
// none. A set that is not accepted is no error: the response has its problems. An error is a [*NodeError], or several,
// joined. The text is sent once to a node that takes it: what fails after that may have come into force nevertheless,
// and applying the same text again finds out. The nodes wait for all partitions until shortly before ctx's deadline.
func (a *Admin) Apply(ctx context.Context, text []byte, options *quotav1.ApplyOptions) (*quotav1.ApplyPoliciesResponse, error) {
	if len(text) > MaxPolicyBytes {
		return nil, fmt.Errorf("policies of %d bytes; at most %d are taken", len(text), MaxPolicyBytes)
	}
	var failed []error
	for rest := a.nodes; ; {
		at, _, err := first(ctx, rest)
		if err != nil {
			return nil, errors.Join(append(failed, err)...)
		}
		response, err := a.applyFrom(ctx, rest[at], text, options)
		if err == nil {
			return response, nil
		}
		failed, rest = append(failed, err), rest[at+1:]
		if e := new(NodeError); !errors.As(err, &e) || !e.leaderless() || len(rest) == 0 {
			return nil, errors.Join(failed...)
		}
	}
}

// leaderless says that the node didn't take the set, for certain, and doesn't know who would.
func (e *NodeError) leaderless() bool {
	return e.Failure.GetReason() == quotav1.FailureReason_FAILURE_REASON_NOT_LEADER && e.Failure.GetNotLeader().GetLeader() == ""
}

// applyFrom sends the text to a node, and on to each leader that is named.
func (a *Admin) applyFrom(ctx context.Context, n adminNode, text []byte, options *quotav1.ApplyOptions) (*quotav1.ApplyPoliciesResponse, error) {
	passed := []string{n.address}
	for {
		response, err := n.apply(ctx, text, options)
		if err == nil {
			return response, nil
		}
		e := nodeError(n.address, err)
		leader := e.Failure.GetNotLeader().GetLeader()
		if e.Failure.GetReason() != quotav1.FailureReason_FAILURE_REASON_NOT_LEADER || leader == "" {
			return nil, e
		}
		if len(passed) > maxHops {
			return nil, fmt.Errorf("the nodes don't agree on who leads: asked %s: %w", strings.Join(passed, ", "), e)
		}
		next, err := a.dial(leader)
		if err != nil {
			return nil, fmt.Errorf("%s says that %s leads: %w", n.address, leader, err)
		}
		defer func() { _ = next.conn.Close() }() // of no use any more
		n, passed = next, append(passed, leader)
	}
}

// apply sends the text to one node.
func (n *adminNode) apply(ctx context.Context, text []byte, options *quotav1.ApplyOptions) (*quotav1.ApplyPoliciesResponse, error) {
	ctx, cancel := context.WithCancel(ctx) // ends a stream that isn't read to its end
	defer cancel()
	stream, err := n.admin.ApplyPolicies(ctx)
	if err != nil {
		return nil, err
	}
	m := &quotav1.ApplyPoliciesRequest{Options: options}
	for sent := false; !sent || len(text) > 0; sent = true {
		part := min(len(text), policyPart)
		m.Policies, text = text[:part], text[part:]
		if err := stream.Send(m); err != nil { // the stream's end says why
			break
		}
		m = &quotav1.ApplyPoliciesRequest{}
	}
	return stream.CloseAndRecv()
}
