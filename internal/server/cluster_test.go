package server_test

import (
	"context"
	"sync"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
)

// scene is a Cluster that plays what a test writes, and notes what it is told.
type scene struct {
	mu        sync.Mutex
	told      []string
	status    *quotav1.StatusResponse
	news      []*quotav1.WatchResponse
	canonical []byte
	version   *quotav1.SetVersion
	enforced  []*quotav1.PartitionVersion
	confirmed *quotav1.GetPoliciesResponse
	apply     func(ctx context.Context, set policy.Set, expected *quotav1.SetVersion, dryRun bool) (*quotav1.ApplyPoliciesResponse, error)
	err       error // of Found and Announce
	addresses map[string]string
}

func (s *scene) tell(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what)
}

func (s *scene) Status() *quotav1.StatusResponse {
	s.tell("status")
	return s.status
}

// Watch sends the news and then has none.
func (s *scene) Watch(ctx context.Context, _ bool, send func(*quotav1.WatchResponse) error) error {
	s.tell("watch")
	for _, m := range s.news {
		if err := send(m); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *scene) Policies() ([]byte, *quotav1.SetVersion, []*quotav1.PartitionVersion) {
	return s.canonical, s.version, s.enforced
}

// Confirmed is what is written for it, and the end of ctx where that is nothing.
func (s *scene) Confirmed(ctx context.Context) *quotav1.GetPoliciesResponse {
	s.tell("confirmed")
	if s.confirmed == nil {
		<-ctx.Done()
		return &quotav1.GetPoliciesResponse{ClusterPartitions: 3}
	}
	return s.confirmed
}

func (s *scene) Apply(ctx context.Context, set policy.Set, expected *quotav1.SetVersion, dryRun bool) (*quotav1.ApplyPoliciesResponse, error) {
	s.tell("apply")
	return s.apply(ctx, set, expected, dryRun)
}

func (s *scene) Describe() *quotav1.DescribeResponse {
	s.tell("describe")
	return &quotav1.DescribeResponse{Node: "n1"}
}

func (s *scene) Found(document []byte) error {
	s.tell("found " + string(document))
	return s.err
}

func (s *scene) Announce(m *quotav1.AnnounceRequest) (*quotav1.AnnounceResponse, error) {
	s.tell("announce " + m.GetId())
	return &quotav1.AnnounceResponse{Known: m.GetStarts()}, s.err
}

func (s *scene) AddressOf(leader string) string { return s.addresses[leader] }

func (s *scene) Elapsed() *quotav1.ElapsedResponse { return &quotav1.ElapsedResponse{ElapsedNs: 7} }
