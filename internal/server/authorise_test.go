package server_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

var allRoles = []string{nodeN2, gatewayHere, writer, reader}

// methods says who may call what, before anybody looks at what is asked.
var methods = map[string][]string{
	"/quorate.quota.v1.Quota/Check":         allRoles,
	"/quorate.quota.v1.Quota/CheckStream":   allRoles,
	"/quorate.quota.v1.Quota/Inspect":       allRoles,
	"/quorate.quota.v1.Routing/Watch":       {gatewayHere, writer, reader}, // an empty request is for all partitions
	"/quorate.quota.v1.Admin/Status":        {nodeN2, writer, reader},
	"/quorate.quota.v1.Admin/GetPolicies":   {nodeN2, writer, reader},
	"/quorate.quota.v1.Admin/ApplyPolicies": {writer},
	"/quorate.quota.v1.Peer/Describe":       {nodeN2},
	"/quorate.quota.v1.Peer/Found":          {nodeN2},
	"/quorate.quota.v1.Peer/Announce":       {nodeN2},
	"/quorate.quota.v1.Peer/Elapsed":        {nodeN2},

	"/grpc.health.v1.Health/Check":                                   allRoles,
	"/grpc.health.v1.Health/List":                                    allRoles,
	"/grpc.health.v1.Health/Watch":                                   allRoles,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      allRoles,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": allRoles,
}

// TestWhatIsNotGrantedIsRefused walks every method that there is, in every role.
func TestWhatIsNotGrantedIsRefused(t *testing.T) {
	c := &scene{news: []*quotav1.WatchResponse{{}}, status: &quotav1.StatusResponse{}}
	s := newSecured(t, answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Allowed) }), c, t.TempDir())
	defer s.close(t)
	s.domains = []string{"a", "b"} // so that an empty message stands for none of them
	served := s.Methods()
	if got, want := slices.Sorted(maps.Keys(served)), slices.Sorted(maps.Keys(methods)); !slices.Equal(got, want) {
		t.Fatalf("served: %q\nin the table: %q", got, want)
	}
	for _, role := range allRoles {
		conn := s.as(t, role)
		for method, granted := range methods {
			code := callEmpty(t, conn, method)
			if refused := code == codes.PermissionDenied; refused == slices.Contains(granted, role) {
				t.Errorf("%s calls %s: %v", role, method, code)
			}
			if code == codes.Unauthenticated {
				t.Errorf("%s calls %s: %v", role, method, code)
			}
		}
	}
	for _, told := range c.told {
		if strings.HasPrefix(told, "found") || strings.HasPrefix(told, "announce") {
			t.Errorf("an empty message came through: %s", told)
		}
	}
}

// callEmpty calls a method with an empty message and returns the code of its first answer.
func callEmpty(t *testing.T, conn *grpc.ClientConn, method string) codes.Code {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	// Any message without fields is an empty one of every kind, and keeps what it doesn't know.
	if err := stream.SendMsg(&quotav1.StatusRequest{}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(&quotav1.StatusRequest{})
	if errors.Is(err, io.EOF) {
		return codes.OK
	}
	return status.Code(err)
}

// rights are what a role has in the domain video-api.
var rights = map[string]struct{ check, inspect bool }{
	nodeN2:                          {false, false},
	gatewayHere:                     {true, true},
	gatewayElse:                     {false, false},
	"quorate://gateway/g?domains=*": {true, true},
	writer:                          {false, false},
	reader:                          {false, true},
}

// newAsked is a node with certificates whose Decider allows everything and notes what it is asked.
func newAsked(t *testing.T) (*recorder, *secured) {
	var r recorder
	d := answering(func(c *partition.Call) partition.Outcome {
		r.requests = append(r.requests, c.Request)
		return outcomeOf(partition.Allowed)
	})
	d.inspect = func(domain string, _ keyspace.Descriptor) partition.Inspection {
		r.inspected = append(r.inspected, domain)
		return partition.Inspection{Outcome: outcomeOf(partition.Allowed)}
	}
	return &r, newSecured(t, d, nil, t.TempDir())
}

func mustBeForbidden(t *testing.T, what string, err error) {
	t.Helper()
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("%s: %v", what, err)
		return
	}
	if f := failureIn(t, err); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED ||
		codes.Code(f.GetCode()) != codes.PermissionDenied || f.GetMessage() == "" || strings.Contains(f.GetMessage(), "video-api") {
		t.Errorf("%s: %v", what, f)
	}
}

// TestWhoMayAskInWhichDomain: a check needs a gateway's certificate that names the domain, and so does Inspect,
// unless it is a reader's. Whoever leaves out the only domain there is asks in that one.
func TestWhoMayAskInWhichDomain(t *testing.T) {
	for role, may := range rights {
		r, s := newAsked(t)
		client := quotav1.NewQuotaClient(s.as(t, role))
		for _, domain := range []string{"video-api", ""} {
			m := checkOf("u42")
			m.Domain = domain
			_, err := client.Check(t.Context(), m)
			if may.check && err != nil {
				t.Errorf("%s checks in %q: %v", role, domain, err)
			} else if !may.check {
				mustBeForbidden(t, role+" checks", err)
			}
			_, err = client.Inspect(t.Context(), &quotav1.InspectRequest{Domain: domain, Descriptor_: m.Descriptors[0]})
			if may.inspect && err != nil {
				t.Errorf("%s inspects %q: %v", role, domain, err)
			} else if !may.inspect {
				mustBeForbidden(t, role+" inspects", err)
			}
		}
		s.close(t)
		if (len(r.requests) > 0) != may.check || (len(r.inspected) > 0) != may.inspect {
			t.Errorf("%s: %d checks and %d inspections came through", role, len(r.requests), len(r.inspected))
		}
	}
}

// TestAPeerMayCheckNothing: being a node gives no right to anybody's allowance, in no domain.
func TestAPeerMayCheckNothing(t *testing.T) {
	r, s := newAsked(t)
	defer s.close(t)
	client := quotav1.NewQuotaClient(s.as(t, nodeN2))
	for _, domain := range []string{"video-api", "", "n2", "*"} {
		m := checkOf("u42")
		m.Domain = domain
		_, err := client.Check(t.Context(), m)
		mustBeForbidden(t, domain, err)
		m.Peek = true
		_, err = client.Check(t.Context(), m)
		mustBeForbidden(t, domain, err)
	}
	if len(r.requests) > 0 {
		t.Errorf("%d checks came through", len(r.requests))
	}
}

// TestAStreamRefusesEachCheckByItself: those in another domain fail, the others are decided, and the stream
// goes on.
func TestAStreamRefusesEachCheckByItself(t *testing.T) {
	r, s := newAsked(t)
	defer s.close(t)
	stream, err := quotav1.NewQuotaClient(s.as(t, gatewayHere)).CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.requests = nil
		m := message(0, 4)
		m.Checks[1].Check.Domain, m.Checks[3].Check.Domain = "other", ""
		send(t, stream, m)
		answers, _ := receive(t, stream, 4)
		for _, a := range answers {
			f := a.GetFailure()
			switch {
			case a.GetTag() == 1 && (f.GetReason() != quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED ||
				codes.Code(f.GetCode()) != codes.PermissionDenied || !strings.HasPrefix(f.GetMessage(), "checks[1].check.domain: ")):
				t.Errorf("in another domain: %v", a)
			case a.GetTag() != 1 && a.GetAnswer().GetDecision() != quotav1.Decision_DECISION_ALLOW:
				t.Errorf("in its own domain: %v", a)
			}
		}
		if len(r.requests) != 3 {
			t.Errorf("%d checks came through", len(r.requests))
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

var cluster = &quotav1.Cluster{Id: []byte("0123456789abcdef"), Seed: []byte("fedcba9876543210"), Partitions: 3, Slots: []byte{0, 1}}

// TestOnlyThoseWhoMayCheckHearTheSeed: it comes with the first message, to gateways of any domain. Readers and
// nodes get everything else.
func TestOnlyThoseWhoMayCheckHearTheSeed(t *testing.T) {
	first := &quotav1.WatchResponse{Cluster: cluster, Partitions: []*quotav1.PartitionRoute{{Partition: 2}}}
	c := &scene{news: []*quotav1.WatchResponse{first, {Policies: &quotav1.PolicySetPart{Last: true}}}}
	s := newSecured(t, &script{}, c, t.TempDir())
	defer s.close(t)
	for _, w := range []struct {
		role          string
		ownOnly, seed bool
	}{
		{gatewayHere, false, true}, {gatewayElse, false, true}, {reader, false, false}, {writer, false, false}, {nodeN2, true, false},
	} {
		watch, err := quotav1.NewRoutingClient(s.as(t, w.role)).Watch(t.Context(), &quotav1.WatchRequest{OwnOnly: w.ownOnly})
		if err != nil {
			t.Fatal(err)
		}
		m, err := watch.Recv()
		if err != nil {
			t.Fatalf("%s: %v", w.role, err)
		}
		if got := m.GetCluster(); (len(got.GetSeed()) > 0) != w.seed || string(got.GetId()) != string(cluster.Id) ||
			got.GetPartitions() != 3 || len(got.GetSlots()) != 2 || m.GetPartitions()[0].GetPartition() != 2 {
			t.Errorf("%s hears %v", w.role, m)
		}
		if m, err = watch.Recv(); err != nil || !m.GetPolicies().GetLast() {
			t.Errorf("%s hears %v, %v", w.role, m, err)
		}
	}
	if len(first.GetCluster().GetSeed()) == 0 {
		t.Error("what all watchers share was changed")
	}
}

// TestOnlyNodesWatchWhatANodeLeads: own_only is between nodes.
func TestOnlyNodesWatchWhatANodeLeads(t *testing.T) {
	c := &scene{news: []*quotav1.WatchResponse{{Cluster: cluster}}}
	s := newSecured(t, &script{}, c, t.TempDir())
	defer s.close(t)
	for _, role := range []string{gatewayHere, reader, writer} {
		mustBeForbidden(t, role, watchError(t, s.as(t, role), true))
	}
	mustBeForbidden(t, "a node, all", watchError(t, s.as(t, nodeN2), false))
	if err := watchError(t, s.as(t, nodeN2), true); err != nil {
		t.Errorf("a node, another one's own: %v", err)
	}
}

// watchError begins a watch and returns what comes in the place of its first message.
func watchError(t *testing.T, conn *grpc.ClientConn, ownOnly bool) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := quotav1.NewRoutingClient(conn).Watch(ctx, &quotav1.WatchRequest{OwnOnly: ownOnly})
	if err != nil {
		t.Fatal(err)
	}
	_, err = watch.Recv()
	return err
}

// TestOnlyWritersApplyPolicies: to read them is not enough.
func TestOnlyWritersApplyPolicies(t *testing.T) {
	c := &scene{apply: func(context.Context, policy.Set, *quotav1.SetVersion, bool) (*quotav1.ApplyPoliciesResponse, error) {
		return &quotav1.ApplyPoliciesResponse{Changed: true}, nil
	}}
	s := newSecured(t, &script{}, c, t.TempDir())
	defer s.close(t)
	for _, role := range []string{nodeN2, gatewayHere, reader} {
		_, err := applyText(t, s.as(t, role), nil, "policies: []")
		mustBeForbidden(t, role, err)
	}
	if len(c.told) > 0 {
		t.Fatalf("came through: %q", c.told)
	}
	if r, err := applyText(t, s.as(t, writer), nil, "policies: []"); err != nil || !r.GetChanged() {
		t.Errorf("a writer: %v, %v", r, err)
	}
}

const (
	idOfN2 = "n2-0123456789abcdef"
	idOfN3 = "n3-0123456789abcdef"
)

// TestANodeSpeaksForItselfOnly: by another one's name it neither asks nor announces.
func TestANodeSpeaksForItselfOnly(t *testing.T) {
	c := &scene{}
	s := newSecured(t, &script{}, c, t.TempDir())
	defer s.close(t)
	peer := quotav1.NewPeerClient(s.as(t, nodeN2))
	if r, err := peer.Describe(t.Context(), &quotav1.DescribeRequest{From: "n2"}); err != nil || r.GetNode() != "n1" {
		t.Errorf("by its own name: %v, %v", r, err)
	}
	own := &quotav1.AnnounceRequest{Id: idOfN2, Starts: []*quotav1.GroupStart{{Id: idOfN2, Group: 0}, {Id: idOfN2, Group: 1}}}
	if r, err := peer.Announce(t.Context(), own); err != nil || len(r.GetKnown()) != 2 {
		t.Errorf("its own start: %v, %v", r, err)
	}
	if _, err := peer.Found(t.Context(), &quotav1.FoundRequest{Genesis: []byte("{}")}); err != nil {
		t.Errorf("found: %v", err)
	}
	if want := []string{"describe", "announce " + idOfN2, "found {}"}; !slices.Equal(c.told, want) {
		t.Fatalf("told %q", c.told)
	}
	_, err := peer.Describe(t.Context(), &quotav1.DescribeRequest{From: "n3"})
	mustBeForbidden(t, "by another name", err)
	_, err = peer.Announce(t.Context(), &quotav1.AnnounceRequest{Id: idOfN3})
	mustBeForbidden(t, "another one's start", err)
	_, err = peer.Announce(t.Context(), &quotav1.AnnounceRequest{Id: idOfN2, Starts: []*quotav1.GroupStart{{Id: idOfN3}}})
	if f := failureIn(t, err); f.GetMessage() != "starts[0].id: is of another node than the one that announces itself" {
		t.Errorf("another one's replica: %v", f)
	}
	if len(c.told) != 3 {
		t.Errorf("told %q", c.told)
	}
}

// TestWithoutCertificatesCallersAreBelieved, for they are on this machine.
func TestWithoutCertificatesCallersAreBelieved(t *testing.T) {
	c := &scene{news: []*quotav1.WatchResponse{{Cluster: cluster}}, status: &quotav1.StatusResponse{Node: "n1"}}
	n := newNodeWith(answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Allowed) }), withCluster(c))
	client, conn, stop := n.start(t)
	defer stop()
	if _, err := client.Check(t.Context(), checkOf("u42")); err != nil {
		t.Error(err)
	}
	for _, ownOnly := range []bool{false, true} {
		if err := watchError(t, conn, ownOnly); err != nil {
			t.Errorf("watch, own only %v: %v", ownOnly, err)
		}
	}
	for _, name := range []string{"n2", "n3"} {
		if _, err := quotav1.NewPeerClient(conn).Describe(t.Context(), &quotav1.DescribeRequest{From: name}); err != nil {
			t.Errorf("from %s: %v", name, err)
		}
	}
	if m, err := quotav1.NewAdminClient(conn).Status(t.Context(), &quotav1.StatusRequest{}); err != nil || m.GetNode() != "n1" {
		t.Errorf("status: %v, %v", m, err)
	}
}
