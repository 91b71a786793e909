package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// adminNode answers an Admin as the test says.
type adminNode struct {
	quotav1.UnimplementedAdminServer
	name     string
	silent   bool // until the caller gives up
	failure  error
	parts    []*quotav1.GetPoliciesResponse
	response *quotav1.ApplyPoliciesResponse
	leader   string // ApplyPolicies names it

	asked    atomic.Int64
	confirms atomic.Int64 // of asked, with confirm
	applied  atomic.Int64
	options  *quotav1.ApplyOptions
	text     []byte
	largest  int // message of ApplyPolicies, in bytes
}

func (n *adminNode) Status(ctx context.Context, _ *quotav1.StatusRequest) (*quotav1.StatusResponse, error) {
	n.asked.Add(1)
	if n.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &quotav1.StatusResponse{Node: n.name}, n.failure
}

func (n *adminNode) GetPolicies(m *quotav1.GetPoliciesRequest, s grpc.ServerStreamingServer[quotav1.GetPoliciesResponse]) error {
	n.asked.Add(1)
	if m.GetConfirm() {
		n.confirms.Add(1)
	}
	if n.silent {
		<-s.Context().Done()
		return s.Context().Err()
	}
	for _, m := range n.parts {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return n.failure
}

func (n *adminNode) ApplyPolicies(s grpc.ClientStreamingServer[quotav1.ApplyPoliciesRequest, quotav1.ApplyPoliciesResponse]) error {
	n.applied.Add(1)
	if n.leader != "" {
		return notLeader(n.leader)
	}
	n.text = nil
	for first := true; ; first = false {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(n.response)
		}
		if err != nil {
			return err
		}
		if first {
			n.options = m.GetOptions()
		}
		n.text, n.largest = append(n.text, m.GetPolicies()...), max(n.largest, proto.Size(m))
	}
}

// notLeader is what a node answers that doesn't order policy sets.
func notLeader(leader string) error {
	s, err := status.New(codes.Unavailable, "another node leads").WithDetails(&quotav1.Failure{
		Code: uint32(codes.Unavailable), Reason: quotav1.FailureReason_FAILURE_REASON_NOT_LEADER, Message: "another node leads",
		Detail: &quotav1.Failure_NotLeader{NotLeader: &quotav1.NotLeader{Leader: leader}},
	})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// serveAdmin serves n on this machine and returns its address.
func serveAdmin(t *testing.T, n quotav1.AdminServer) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	quotav1.RegisterAdminServer(s, n)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// nobody returns an address at which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

func newAdmin(t *testing.T, addresses ...string) *client.Admin {
	t.Helper()
	a, err := client.NewAdmin(addresses, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// TestAdminAsksTheNextNodeWhereOneIsDown or silent, and no other one where one refuses.
func TestAdminAsksTheNextNodeWhereOneIsDown(t *testing.T) {
	silent, up := &adminNode{silent: true}, &adminNode{name: "n3"}
	a := newAdmin(t, nobody(t), serveAdmin(t, silent), serveAdmin(t, up))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if s, err := a.Status(ctx); err != nil || s.GetNode() != "n3" || silent.asked.Load() != 1 {
		t.Errorf("%v, %v", s, err)
	}
	refusing, other := &adminNode{failure: status.Error(codes.PermissionDenied, "no reader")}, &adminNode{}
	at := serveAdmin(t, refusing)
	_, err := newAdmin(t, at, serveAdmin(t, other)).Status(t.Context())
	var e *client.NodeError
	if !errors.As(err, &e) || e.Code != codes.PermissionDenied || e.Error() != at+": PermissionDenied: no reader" || other.asked.Load() != 0 {
		t.Errorf("%v, and the other was asked %d times", err, other.asked.Load())
	}
	first, second := nobody(t), nobody(t)
	if _, err := newAdmin(t, first, second).Status(t.Context()); err == nil || !strings.Contains(err.Error(), first+": Unavailable: Error while dialing: dial tcp ") || !strings.Contains(err.Error(), second+": Unavailable") {
		t.Errorf("nobody is there: %v", err)
	}
}

// TestAdminLeavesThisMachineOnlyWithCertificates, by no address that it is given and by none that a node names.
func TestAdminLeavesThisMachineOnlyWithCertificates(t *testing.T) {
	if _, err := client.NewAdmin([]string{"127.0.0.1:1", "192.0.2.1:1"}, nil); !errors.Is(err, client.ErrNotLocal) {
		t.Error(err)
	}
	if _, err := client.NewAdmin(nil, nil); err == nil {
		t.Error("no address will do")
	}
	a := newAdmin(t, serveAdmin(t, &adminNode{leader: "192.0.2.1:1"}))
	if _, err := a.Apply(t.Context(), nil, nil); !errors.Is(err, client.ErrNotLocal) {
		t.Error(err)
	}
}

// part is a part of a set of that size.
func part(number uint64, json string, size int, last bool) *quotav1.PolicySetPart {
	return &quotav1.PolicySetPart{Version: &quotav1.SetVersion{Epoch: 1, Number: number}, Json: []byte(json), Size: uint64(size), Last: last}
}

// TestPoliciesArePutTogether, with what each partition enforces.
func TestPoliciesArePutTogether(t *testing.T) {
	enforced := []*quotav1.PartitionVersion{{Partition: 0, Version: &quotav1.SetVersion{Epoch: 1, Number: 7}}, {Partition: 1}}
	n := &adminNode{parts: []*quotav1.GetPoliciesResponse{
		{Partitions: enforced, Policies: part(7, "abc", 8, false)}, {Policies: part(7, "de", 8, false)}, {Policies: part(7, "fgh", 8, true)},
	}}
	a := newAdmin(t, nobody(t), serveAdmin(t, n))
	set, version, partitions, err := a.Policies(t.Context(), nil)
	if err != nil || string(set) != "abcdefgh" || version.GetNumber() != 7 || len(partitions) != 2 || partitions[1].GetVersion() != nil {
		t.Errorf("%q, %v, %v, %v", set, version, partitions, err)
	}
	n.parts = []*quotav1.GetPoliciesResponse{{Partitions: enforced[1:]}}
	if set, version, partitions, err = a.Policies(t.Context(), nil); err != nil || set != nil || version != nil || len(partitions) != 1 {
		t.Errorf("no set yet: %q, %v, %v, %v", set, version, partitions, err)
	}
}

// TestANodeThatIsBehindIsPassedOver where a newer set is known to be in force, and one that makes no sense anyway.
func TestANodeThatIsBehindIsPassedOver(t *testing.T) {
	behind := &adminNode{parts: []*quotav1.GetPoliciesResponse{{Policies: part(7, "old", 3, true)}}}
	newest := &adminNode{parts: []*quotav1.GetPoliciesResponse{{Policies: part(8, "new", 3, true)}}}
	none := &adminNode{parts: []*quotav1.GetPoliciesResponse{{}}}
	broken := &adminNode{parts: []*quotav1.GetPoliciesResponse{{Policies: part(9, "to", 9, true)}}}
	a := newAdmin(t, serveAdmin(t, broken), serveAdmin(t, none), serveAdmin(t, behind), serveAdmin(t, newest))
	for want, atLeast := range map[string]*quotav1.SetVersion{"": nil, "old": {Epoch: 1, Number: 7}, "new": {Epoch: 1, Number: 8}} {
		if set, _, _, err := a.Policies(t.Context(), atLeast); err != nil || string(set) != want {
			t.Errorf("at least %v: %q, %v", atLeast, set, err)
		}
	}
	if set, _, _, err := a.Policies(t.Context(), &quotav1.SetVersion{Epoch: 2}); err == nil || strings.Count(err.Error(), "older set of policies than version 2.0") != 3 || set != nil {
		t.Errorf("%q, %v", set, err)
	}
}

// TestPoliciesThatDontFitTogetherAreRefused: half a set is none.
func TestPoliciesThatDontFitTogetherAreRefused(t *testing.T) {
	of := func(parts ...*quotav1.PolicySetPart) (all []*quotav1.GetPoliciesResponse) {
		for _, p := range parts {
			all = append(all, &quotav1.GetPoliciesResponse{Policies: p})
		}
		return all
	}
	again := []*quotav1.PartitionVersion{{}}
	n := &adminNode{}
	a := newAdmin(t, serveAdmin(t, n))
	for want, parts := range map[string][]*quotav1.GetPoliciesResponse{
		"there is none":                            nil,
		"the set ends after 3 of 8 bytes":          of(part(7, "abc", 8, false)),
		"parts of two sets are mixed":              of(part(7, "abc", 8, false), part(8, "defgh", 8, true)),
		"the set has 9 bytes, not the 8 announced": of(part(7, "abc", 8, false), part(7, "defghi", 8, true)),
		"the set has 7 bytes, not the 8 announced": of(part(7, "abc", 8, false), part(7, "defg", 8, true)),
		"the set has 67108865 bytes, more than":    of(part(7, "abc", client.MaxPolicyBytes+1, false)),
		"a part has no version":                    of(&quotav1.PolicySetPart{Json: []byte("a"), Size: 1, Last: true}),
		"versions come twice":                      {{Partitions: again}, {Partitions: again}},
		"there are 4097 partitions":                {{Partitions: make([]*quotav1.PartitionVersion, 4097)}},
	} {
		for i := range parts {
			for j := range parts[i].GetPartitions() {
				parts[i].Partitions[j] = &quotav1.PartitionVersion{}
			}
		}
		n.parts = parts
		if set, _, _, err := a.Policies(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) || set != nil {
			t.Errorf("%s: %q, %v", want, set, err)
		}
	}
	n.parts = of(part(7, "abc", 3, true), part(7, "", 3, true))
	if _, _, _, err := a.Policies(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "mixed") {
		t.Errorf("after the last part: %v", err)
	}
}

// TestApplyFollowsTheLeader, and sends the whole text in messages of at most a megabyte.
func TestApplyFollowsTheLeader(t *testing.T) {
	leader := &adminNode{response: &quotav1.ApplyPoliciesResponse{Changed: true}}
	wrong := &adminNode{leader: serveAdmin(t, leader)}
	follower := &adminNode{leader: serveAdmin(t, wrong)}
	a := newAdmin(t, nobody(t), serveAdmin(t, follower))
	options := &quotav1.ApplyOptions{Expected: &quotav1.SetVersion{Epoch: 1, Number: 6}, DryRun: true}
	for _, size := range []int{0, 1, 1<<20 - 64<<10, 3<<20 + 5} {
		text := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		r, err := a.Apply(t.Context(), text, options)
		if err != nil || !r.GetChanged() || !bytes.Equal(leader.text, text) || !proto.Equal(leader.options, options) || leader.largest > 1<<20 {
			t.Errorf("%d bytes: %v, %v, got %d with %v, at most %d at once", size, r, err, len(leader.text), leader.options, leader.largest)
		}
	}
	if _, err := a.Apply(t.Context(), make([]byte, client.MaxPolicyBytes+1), nil); err == nil || leader.applied.Load() != 4 {
		t.Errorf("too much: %v", err)
	}
}

// TestApplyIsSentToOneLeaderOnly: what may have come into force is never sent again elsewhere, and nodes that
// name each other end it.
func TestApplyIsSentToOneLeaderOnly(t *testing.T) {
	for _, failure := range []error{status.Error(codes.Unavailable, "it stops"), status.Error(codes.Aborted, "version 1.7 is in force")} {
		failing, other := &failingApply{failure: failure}, &adminNode{}
		a := newAdmin(t, serveAdmin(t, failing), serveAdmin(t, other))
		_, err := a.Apply(t.Context(), []byte("policies: []"), nil)
		var e *client.NodeError
		if !errors.As(err, &e) || e.Code != status.Code(failure) || failing.applied.Load() != 1 || other.applied.Load() != 0 {
			t.Errorf("%v, sent %d and %d times", err, failing.applied.Load(), other.applied.Load())
		}
	}
	one, two := &adminNode{}, &adminNode{}
	one.leader = serveAdmin(t, two)
	two.leader = serveAdmin(t, one)
	_, err := newAdmin(t, two.leader).Apply(t.Context(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "don't agree on who leads") || one.applied.Load()+two.applied.Load() != 6 {
		t.Errorf("%v, sent %d times", err, one.applied.Load()+two.applied.Load())
	}
}

// TestApplyGoesOnFromANodeThatKnowsNoLeader, as one that awaits replacement: it took nothing for certain, and others may
// know. Where nobody does, all that they said is told.
func TestApplyGoesOnFromANodeThatKnowsNoLeader(t *testing.T) {
	leader := &adminNode{response: &quotav1.ApplyPoliciesResponse{Changed: true}}
	out, follower := &failingApply{failure: notLeader("")}, &adminNode{leader: serveAdmin(t, leader)}
	at := serveAdmin(t, out)
	r, err := newAdmin(t, at, nobody(t), at, serveAdmin(t, follower)).Apply(t.Context(), []byte("policies: []"), nil)
	if err != nil || !r.GetChanged() || out.applied.Load() != 2 || leader.applied.Load() != 1 {
		t.Errorf("%v, %v, asked %d and %d times", r, err, out.applied.Load(), leader.applied.Load())
	}
	gone := nobody(t)
	_, err = newAdmin(t, at, gone).Apply(t.Context(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), at+": another node leads") || !strings.Contains(err.Error(), gone+": Unavailable: ") {
		t.Errorf("nobody knows: %v", err)
	}
}

// failingApply is up, and fails what is applied.
type failingApply struct {
	quotav1.UnimplementedAdminServer
	failure error
	applied atomic.Int64
}

func (n *failingApply) Status(context.Context, *quotav1.StatusRequest) (*quotav1.StatusResponse, error) {
	return &quotav1.StatusResponse{}, nil
}

func (n *failingApply) ApplyPolicies(grpc.ClientStreamingServer[quotav1.ApplyPoliciesRequest, quotav1.ApplyPoliciesResponse]) error {
	n.applied.Add(1)
	return n.failure
}

// TestARefusalWithAFailureIsToldInItsWords.
func TestARefusalWithAFailureIsToldInItsWords(t *testing.T) {
	e := &client.NodeError{Address: "h:1", Code: codes.Unavailable, Message: "no leader is known"}
	for code, want := range map[codes.Code]string{
		codes.PermissionDenied: "denied", codes.Unauthenticated: "denied", codes.Aborted: "conflict", codes.DeadlineExceeded: "late", codes.Unavailable: "",
	} {
		e, got := &client.NodeError{Code: code}, ""
		for word, is := range map[string]bool{"denied": e.Denied(), "conflict": e.Conflict(), "late": e.Late()} {
			if is {
				got += word
			}
		}
		if got != want {
			t.Errorf("%v is %q", code, got)
		}
	}
	with := *e
	with.Failure = &quotav1.Failure{}
	if got := fmt.Sprint(e, "; ", &with); got != "h:1: Unavailable: no leader is known; h:1: no leader is known" {
		t.Error(got)
	}
}
