package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// Addresses of the scripted nodes. Nothing listens there: the network is in memory.
const (
	nodeA = "127.0.0.1:7001"
	nodeB = "127.0.0.1:7002"
)

// network is a cluster whose nodes answer as a test says.
type network struct {
	t     *testing.T
	nodes map[string]*scripted
}

// scripted is one node of it.
type scripted struct {
	quotav1.UnimplementedQuotaServer
	quotav1.UnimplementedRoutingServer

	address  string
	listener *bufconn.Listener
	server   *grpc.Server
	served   chan struct{}

	hold chan struct{} // nil, or closed when the node begins to read
	mute bool          // its watch tells nothing but news; a node is never silent for more than a second

	mu       sync.Mutex
	messages []*quotav1.CheckStreamRequest
	asked    []*quotav1.TaggedCheck
	answer   func(n int, m *quotav1.TaggedCheck) reply // to the nth check that the node is asked, from 1
	news     chan *quotav1.WatchResponse
	first    *quotav1.WatchResponse // nil: the node can't be watched
	sets     []*quotav1.WatchResponse
	inspect  func() (*quotav1.InspectResponse, error)
}

// reply is what becomes of one check.
type reply struct {
	answer  *quotav1.Answer
	failure *quotav1.Failure
	silent  bool     // no answer at all
	broken  bool     // the stream ends
	other   bool     // neither an answer nor a failure
	tags    []uint64 // in the place of the check's, added to it
	raw     bool     // the answer's id and partition are as the test has them
}

func newNetwork(t *testing.T, addresses ...string) *network {
	n := &network{t: t, nodes: map[string]*scripted{}}
	for _, address := range addresses {
		s := &scripted{address: address, listener: bufconn.Listen(1 << 20), served: make(chan struct{}), news: make(chan *quotav1.WatchResponse, 64)}
		s.server = grpc.NewServer()
		quotav1.RegisterQuotaServer(s.server, s)
		quotav1.RegisterRoutingServer(s.server, s)
		go func() {
			defer close(s.served)
			_ = s.server.Serve(s.listener)
		}()
		n.nodes[address] = s
	}
	return n
}

func (n *network) stop() {
	for _, s := range n.nodes {
		s.server.Stop()
		<-s.served
	}
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	s := n.nodes[address]
	if s == nil {
		return nil, errors.New("connection refused")
	}
	return s.listener.DialContext(ctx)
}

func (s *scripted) Watch(_ *quotav1.WatchRequest, stream grpc.ServerStreamingServer[quotav1.WatchResponse]) error {
	s.mu.Lock()
	first, sets := s.first, s.sets
	s.mu.Unlock()
	if first == nil {
		return status.Error(codes.Unavailable, "starting")
	}
	for _, m := range append([]*quotav1.WatchResponse{first}, sets...) {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	beats := time.NewTicker(time.Second)
	defer beats.Stop()
	if s.mute {
		beats.Stop()
	}
	for {
		select {
		case m := <-s.news:
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-beats.C:
			if err := stream.Send(&quotav1.WatchResponse{}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s *scripted) CheckStream(stream grpc.BidiStreamingServer[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]) error {
	if s.hold != nil {
		<-s.hold
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.messages = append(s.messages, m)
		s.mu.Unlock()
		for _, c := range m.GetChecks() {
			s.mu.Lock()
			s.asked = append(s.asked, c)
			n, answer := len(s.asked), s.answer
			s.mu.Unlock()
			r := answer(n, c)
			if r.broken {
				return status.Error(codes.Unavailable, "the stream is broken off")
			}
			if r.silent {
				continue
			}
			answers := &quotav1.CheckStreamResponse{Answers: []*quotav1.TaggedAnswer{r.tagged(c)}}
			for i, add := range r.tags {
				if i > 0 {
					answers.Answers = append(answers.Answers, r.tagged(c))
				}
				answers.Answers[i].Tag += add
			}
			if err := stream.Send(answers); err != nil {
				return err
			}
		}
	}
}

func (r reply) tagged(c *quotav1.TaggedCheck) *quotav1.TaggedAnswer {
	a := &quotav1.TaggedAnswer{Tag: c.GetTag()}
	switch {
	case r.other:
	case r.failure != nil:
		a.Result = &quotav1.TaggedAnswer_Failure{Failure: r.failure}
	default:
		answer := proto.CloneOf(r.answer)
		if !r.raw {
			answer.DecisionId, answer.Partition = c.GetCheck().GetDecisionId(), c.GetCheck().GetPartition()
		}
		a.Result = &quotav1.TaggedAnswer_Answer{Answer: answer}
	}
	return a
}

func (s *scripted) Inspect(context.Context, *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	return s.inspect()
}

// sends is what the node was asked.
func (s *scripted) sends() []*quotav1.TaggedCheck {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*quotav1.TaggedCheck(nil), s.asked...)
}

// The policies of the scripted cluster: three per minute and user, and one for the whole domain.
func testSet() policy.Set {
	rolling := func(name string, amount uint64) policy.Limit {
		return policy.Limit{Name: name, Algorithm: limit.RollingWindow, Amount: amount, Window: int64(time.Minute)}
	}
	return policy.Set{Policies: []policy.Policy{
		{Name: "users", Domain: "api", Key: []string{"user"}, Limits: []policy.Limit{rolling("per-minute", 3)},
			Tiers: []policy.Tier{
				{When: []keyspace.Entry{{Name: "tier", Value: "pro"}}, Amounts: []policy.Amount{{Limit: "per-minute", Amount: 10}}},
				{When: []keyspace.Entry{{Name: "tier", Value: "low"}}, Amounts: []policy.Amount{{Limit: "per-minute", Amount: 2}}},
			}},
		{Name: "hosts", Domain: "api", Key: []string{"host"}, Limits: []policy.Limit{rolling("per-minute", 100)}},
	}}
}

// clusterOf is the first message of a watch, of a cluster with so many partitions, all led by leader.
func clusterOf(partitions uint32, leader string) *quotav1.WatchResponse {
	m := &quotav1.WatchResponse{Cluster: &quotav1.Cluster{
		Id: []byte("0123456789abcdef"), Seed: []byte("fedcba9876543210"), Partitions: partitions,
	}}
	for p := range partitions {
		m.Partitions = append(m.Partitions, route(p, leader, 1, 1000))
	}
	return m
}

func route(part uint32, leader string, term uint64, time int64) *quotav1.PartitionRoute {
	return &quotav1.PartitionRoute{
		Partition: part, Leader: "n", Address: leader, Term: term, Epoch: 1, DecisionTimeNs: &time,
		Version: &quotav1.SetVersion{Epoch: 1, Number: 1},
	}
}

func policiesOf(s policy.Set, number uint64) *quotav1.WatchResponse {
	json := s.Canonical()
	return &quotav1.WatchResponse{Policies: &quotav1.PolicySetPart{
		Version: &quotav1.SetVersion{Epoch: 1, Number: number}, Json: json, Size: uint64(len(json)), Last: true,
	}}
}

// led is a network of the two nodes in which A leads all of so many partitions, with both told so.
func led(t *testing.T, partitions uint32) *network {
	n := newNetwork(t, nodeA, nodeB)
	for _, s := range n.nodes {
		s.first, s.sets = clusterOf(partitions, nodeA), []*quotav1.WatchResponse{policiesOf(testSet(), 1)}
		s.answer = func(int, *quotav1.TaggedCheck) reply { return reply{answer: allow()} }
	}
	return n
}

func (n *network) client(change ...func(*client.Config)) *client.Client {
	n.t.Helper()
	cfg := client.Config{Addresses: []string{nodeA, nodeB}, Dialer: n.dial}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func allow() *quotav1.Answer {
	left := uint64(2)
	return &quotav1.Answer{Decision: quotav1.Decision_DECISION_ALLOW, Epoch: 1, DecisionTimeNs: 2000, Remaining: &left}
}

func deny(wait time.Duration) *quotav1.Answer {
	ns, seconds, amount, left, reset := int64(wait), int64(wait/time.Second)+1, uint64(3), uint64(0), int64(wait)+7
	whole := int64(3 * time.Minute)
	return &quotav1.Answer{
		Decision: quotav1.Decision_DECISION_DENY, Reason: quotav1.Reason_REASON_LIMIT, Epoch: 1, DecisionTimeNs: 2000,
		Policy: "default/users", LimitName: "per-minute", Limit: &amount, Remaining: &left, WaitNs: &ns, RetryAfterS: &seconds,
		ResetNs: &reset, WindowNs: int64(time.Minute), WholeAmountNs: &whole,
	}
}

func fails(reason quotav1.FailureReason) reply {
	code := codes.Unavailable
	switch reason {
	case quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT:
		code = codes.InvalidArgument
	case quotav1.FailureReason_FAILURE_REASON_DECISION_ID_CONFLICT:
		code = codes.AlreadyExists
	case quotav1.FailureReason_FAILURE_REASON_STALE_TIME:
		code = codes.FailedPrecondition
	case quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED:
		code = codes.PermissionDenied
	}
	return reply{failure: &quotav1.Failure{Code: uint32(code), Reason: reason, Message: reason.String()}}
}

func sentOn(leader string) reply {
	r := fails(quotav1.FailureReason_FAILURE_REASON_NOT_LEADER)
	r.failure.Detail = &quotav1.Failure_NotLeader{NotLeader: &quotav1.NotLeader{Leader: leader}}
	return r
}

func staleTime(time int64) reply {
	r := fails(quotav1.FailureReason_FAILURE_REASON_STALE_TIME)
	r.failure.Detail = &quotav1.Failure_StaleTime{StaleTime: &quotav1.StaleTime{DecisionTimeNs: time}}
	return r
}

func stalePolicy(r *quotav1.Resolution) reply {
	f := fails(quotav1.FailureReason_FAILURE_REASON_STALE_POLICY)
	f.failure.Detail = &quotav1.Failure_StalePolicy{StalePolicy: &quotav1.StalePolicy{Resolution: r, SetVersion: r.GetSetVersion()}}
	return f
}

// asks is a check of one descriptor.
func asks(entries ...string) *quotav1.CheckRequest { return asksIn("api", entries...) }

func asksIn(domain string, entries ...string) *quotav1.CheckRequest {
	return &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{descriptor(entries...)}}
}

func descriptor(entries ...string) *quotav1.Descriptor {
	d := &quotav1.Descriptor{}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &quotav1.Entry{Name: entries[i], Value: []byte(entries[i+1])})
	}
	return d
}

func reasonOf(err error) string {
	var u *client.Unavailable
	if !errors.As(err, &u) {
		return fmt.Sprint(err)
	}
	return u.Reason.String()[len("FAILURE_REASON_"):]
}

// userIn is a user whose key lives in that one of so many partitions.
func userIn(part, partitions int) string {
	table := keyspace.EvenTable(partitions)
	seed := keyspace.Seed([]byte("fedcba9876543210"))
	for i := 0; ; i++ {
		user := fmt.Sprintf("u%d", i)
		d := keyspace.Descriptor{{Name: "user", Value: user}}
		if int(table[seed.Slot("api", d, []string{"user"})]) == part {
			return user
		}
	}
}
