package clienttest

import (
	"context"
	"crypto/rand"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/fsm"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/limit"
	"github.com/quorate/quorate/internal/policy"
)

// maxAnswers bounds the answers of one message.
const maxAnswers = 1024

var errBroken = status.Error(codes.Unavailable, "clienttest: the stream is broken off")

// quota is the service that decides.
type quota struct {
	quotav1.UnimplementedQuotaServer
	server *Server
}

// Check answers one check.
func (q *quota) Check(_ context.Context, m *quotav1.CheckRequest) (*quotav1.CheckResponse, error) {
	answer, f, lost := q.server.decide(m)
	switch {
	case lost:
		return nil, errBroken
	case f != nil:
		return nil, statusOf(f)
	}
	return &quotav1.CheckResponse{Answer: answer}, nil
}

// CheckStream answers the checks of each message in one message.
func (q *quota) CheckStream(stream grpc.BidiStreamingServer[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]) error {
	q.server.mu.Lock()
	drop := q.server.drop
	q.server.mu.Unlock()
	ended := make(chan error, 1)
	q.server.served.Go(func() { ended <- q.converse(stream) }) // ends with the stream, which ends with this call
	select {
	case err := <-ended:
		return err
	case <-drop:
		return errBroken
	}
}

func (q *quota) converse(stream grpc.BidiStreamingServer[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil // the client has no more questions, or is gone
		}
		if n := len(m.GetChecks()); n < 1 || n > maxAnswers {
			return statusOf(invalid("checks: 1 to 1024 are allowed"))
		}
		answers := &quotav1.CheckStreamResponse{}
		for _, c := range m.GetChecks() {
			answer, f, lost := q.server.decide(c.GetCheck())
			if lost {
				return errBroken
			}
			t := &quotav1.TaggedAnswer{Tag: c.GetTag(), Result: &quotav1.TaggedAnswer_Answer{Answer: answer}}
			if f != nil {
				t.Result = &quotav1.TaggedAnswer_Failure{Failure: f}
			}
			answers.Answers = append(answers.Answers, t)
		}
		if err := stream.Send(answers); err != nil {
			return err
		}
	}
}

// Inspect says what a descriptor has used.
func (q *quota) Inspect(_ context.Context, m *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	s := q.server
	s.mu.Lock()
	defer s.mu.Unlock()
	a, f := s.read(&quotav1.CheckRequest{Domain: m.GetDomain(), Descriptors: []*quotav1.Descriptor{m.GetDescriptor_()}})
	if f != nil {
		return nil, statusOf(f)
	}
	r, f := s.cells[s.home(a)].inspect(s.Now(), a)
	if f != nil {
		return nil, statusOf(f)
	}
	return r, nil
}

// decide decides one check; lost says that nobody is to hear the answer.
func (s *Server) decide(m *quotav1.CheckRequest) (answer *quotav1.Answer, f *quotav1.Failure, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, f := s.read(m)
	if f != nil {
		return nil, f, false
	}
	part := s.home(a)
	if a.explicit = m.Partition != nil; a.explicit {
		part = int(m.GetPartition())
	}
	if part >= len(s.cells) {
		return nil, failure(quotav1.FailureReason_FAILURE_REASON_NOT_LEADER), false
	}
	if len(s.faults) > 0 {
		next := s.faults[0]
		s.faults = s.faults[1:]
		if !next.lose {
			return nil, s.fail(next.reason, s.cells[part], a), false
		}
		lost = true
	}
	answer, f = s.cells[part].decide(s.Now(), a)
	return answer, f, lost
}

// fail is a failure that a test has asked for, with what its reason carries.
func (s *Server) fail(reason quotav1.FailureReason, c *cell, a *ask) *quotav1.Failure {
	switch reason {
	case quotav1.FailureReason_FAILURE_REASON_STALE_POLICY:
		r := c.resolver()
		charges, _ := r.set.ResolveCheck(nil, a.domain, a.descriptors, a.cost)
		return r.stale(a, charges)
	case quotav1.FailureReason_FAILURE_REASON_STALE_TIME:
		return failureOf(&fsm.Answer{Verdict: fsm.VerdictStaleTime, Time: c.machine.Now()})
	}
	return failure(reason)
}

// home is the partition of the first key that a check comes to, or that of its domain.
func (s *Server) home(a *ask) int {
	r := s.cells[0].resolver()
	charges, _ := r.set.ResolveCheck(nil, a.domain, a.descriptors, a.cost)
	if len(charges) == 0 {
		return int(r.slots[s.seed.Slot(a.domain, nil, nil)])
	}
	return int(r.slots[r.set.Slot(s.seed, charges[0].Policy, a.descriptors[charges[0].Descriptor])])
}

// read holds a check to the bounds of the wire.
func (s *Server) read(m *quotav1.CheckRequest) (*ask, *quotav1.Failure) {
	a := &ask{domain: m.GetDomain(), cost: max(1, m.GetCost()), fence: m.FenceNs, asked: m.GetResolution(), peek: m.GetPeek()}
	set := s.cells[0].resolver().set
	if a.domain == "" && set.Domains() == 1 {
		a.domain = set.DomainName(0)
	}
	switch n := len(m.GetDescriptors()); {
	case a.domain == "" || len(a.domain) > policy.MaxNameBytes:
		return nil, invalid("domain: is missing or too long")
	case n < 1 || n > keyspace.MaxDescriptors:
		return nil, invalid("descriptors: 1 to 16 are allowed")
	case a.cost > limit.MaxAmount:
		return nil, invalid("cost: is too large")
	case m.GetFenceNs() < 0:
		return nil, invalid("fence_ns: is negative")
	}
	for _, d := range m.GetDescriptors() {
		var entries []keyspace.Entry
		for _, e := range d.GetEntries() {
			entries = append(entries, keyspace.Entry{Name: e.GetName(), Value: string(e.GetValue())})
		}
		descriptor, err := keyspace.NewDescriptor(entries)
		if err != nil {
			return nil, invalid(err.Error())
		}
		a.descriptors = append(a.descriptors, descriptor)
	}
	switch id := m.GetDecisionId(); len(id) {
	case 0:
		_, _ = rand.Read(a.id[:]) // never fails
	case len(a.id):
		copy(a.id[:], id)
	default:
		return nil, invalid("decision_id: none or 16 bytes are allowed")
	}
	return a, nil
}
