package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
	"github.com/quorate/quorate/internal/policy/file"
	"github.com/quorate/quorate/internal/server"
)

// member is a node, to everybody.
type member interface {
	server.Cluster
	server.Member
}

func withCluster(c member) func(*server.Config) {
	return func(cfg *server.Config) { cfg.Cluster, cfg.Member = c, c }
}

// applyText sends a set in messages of the given texts.
func applyText(t *testing.T, conn *grpc.ClientConn, options *quotav1.ApplyOptions, texts ...string) (*quotav1.ApplyPoliciesResponse, error) {
	t.Helper()
	stream, err := quotav1.NewAdminClient(conn).ApplyPolicies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		m := &quotav1.ApplyPoliciesRequest{Policies: []byte(text)}
		if i == 0 {
			m.Options = options
		}
		if err := stream.Send(m); errors.Is(err, io.EOF) { // it is over; the answer says why
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return stream.CloseAndRecv()
}

const twoPolicies = `policies:
- {name: a, namespace: media, domain: video-api, key: [principal], limits: [{name: per-minute, rollingWindow: {limit: 3, window: 60s}}]}
- {name: b, namespace: media, domain: video-api, match: {tier: pro}, key: [principal], limits: [{name: per-minute, rollingWindow: {limit: 9, window: 60s}}]}
`

// applying is a scene in which a set is in force and f takes others.
func applying(f func(ctx context.Context, set policy.Set, expected *quotav1.SetVersion, dryRun bool) (*quotav1.ApplyPoliciesResponse, error)) *scene {
	return &scene{
		canonical: []byte(`{"policies":[]}`), version: &quotav1.SetVersion{Epoch: 1, Number: 7},
		enforced: []*quotav1.PartitionVersion{{Partition: 0, Version: &quotav1.SetVersion{Epoch: 1, Number: 6}}},
		apply:    f, addresses: map[string]string{idOfN2: "n2.example:8081"},
	}
}

func refusing(err error) *scene {
	return applying(func(context.Context, policy.Set, *quotav1.SetVersion, bool) (*quotav1.ApplyPoliciesResponse, error) {
		return nil, err
	})
}

// onCluster serves c, without certificates, and gives a connection.
func onCluster(t *testing.T, c member) *grpc.ClientConn {
	t.Helper()
	_, conn, stop := newNodeWith(&script{}, withCluster(c)).start(t)
	t.Cleanup(stop)
	return conn
}

// TestASetArrivesAsItWasSent: as YAML or in canonical form, in one message or many, with its options.
func TestASetArrivesAsItWasSent(t *testing.T) {
	want, err := file.Read("policies", strings.NewReader(twoPolicies))
	if err != nil {
		t.Fatal(err)
	}
	var got policy.Set
	var expected *quotav1.SetVersion
	var dry bool
	c := applying(func(_ context.Context, set policy.Set, e *quotav1.SetVersion, d bool) (*quotav1.ApplyPoliciesResponse, error) {
		got, expected, dry = set, e, d
		return &quotav1.ApplyPoliciesResponse{Version: &quotav1.SetVersion{Epoch: 1, Number: 8}, Changed: true}, nil
	})
	conn := onCluster(t, c)
	canonical := string(want.Canonical())
	for name, texts := range map[string][]string{
		"YAML": {twoPolicies}, "canonical": {canonical}, "in parts": {"", canonical[:10], "", canonical[10:]},
	} {
		options := &quotav1.ApplyOptions{Expected: &quotav1.SetVersion{Epoch: 1, Number: 7}, DryRun: true}
		r, err := applyText(t, conn, options, texts...)
		if err != nil || len(r.GetProblems()) > 0 || r.GetVersion().GetNumber() != 8 || !r.GetChanged() {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if !reflect.DeepEqual(got, want) || expected.GetNumber() != 7 || !dry {
			t.Errorf("%s: applied %v, expecting %v, dry: %v", name, got, expected, dry)
		}
	}
	if _, err := applyText(t, conn, nil, twoPolicies); err != nil || expected != nil || dry {
		t.Errorf("without options: %v; expecting %v, dry: %v", err, expected, dry)
	}
}

// TestASetIsRefusedAsAWhole: nothing of it is applied when anything of it is wrong, everything that is wrong is
// told with its place, and what is in force is said.
func TestASetIsRefusedAsAWhole(t *testing.T) {
	c := refusing(errors.New("came through"))
	conn := onCluster(t, c)
	hash := sha256.Sum256(c.canonical)
	broken := strings.Replace(strings.Replace(twoPolicies, "window: 60s", "window: 0s", 1), "limit: 9", "limt: 9", 1)
	canonical := `{"policies":[` + strings.Replace(canonicalPolicies(t)[0], `"mode":"Enforce"`, `"mode":"Shadow"`, 1) + "," + canonicalPolicies(t)[1] + `]}`
	for text, want := range map[string][]*quotav1.PolicyProblem{
		broken: {
			{Policy: "media/a", Field: "limits[0].rollingWindow.window", Line: 2},
			{Policy: "media/b", Field: "limits[0].rollingWindow.limt", Line: 3},
		},
		"":            {{Line: 1}},
		"{":           {{Line: 1}},
		"\x00\xff":    {{Line: 1}},
		"policies: 1": {{Field: "policies", Line: 1}},
		canonical:     {{Policy: "media/a", Field: "mode"}},
	} {
		r, err := applyText(t, conn, nil, text)
		if err != nil || len(r.GetProblems()) != len(want) {
			t.Errorf("%q: %v, %v", text, r, err)
			continue
		}
		for i, p := range r.GetProblems() {
			if p.GetReason() == "" || p.GetPolicy() != want[i].Policy || p.GetField() != want[i].Field || p.GetLine() != want[i].Line {
				t.Errorf("%q: problem %d: %v", text, i, p)
			}
		}
		if r.GetVersion().GetNumber() != 7 || string(r.GetSetHash()) != string(hash[:]) || r.GetChanged() || len(r.GetPartitions()) != 1 {
			t.Errorf("%q: in force is %v", text, r)
		}
	}
	if len(c.told) > 0 {
		t.Errorf("told %q", c.told)
	}
}

// canonicalPolicies are the two policies, each in canonical form.
func canonicalPolicies(t *testing.T) []string {
	t.Helper()
	set, err := file.Read("policies", strings.NewReader(twoPolicies))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, p := range set.Policies {
		one := string(policy.Set{Policies: []policy.Policy{p}}.Canonical())
		texts = append(texts, strings.TrimSuffix(strings.TrimPrefix(one, `{"policies":[`), "]}"))
	}
	return texts
}

// TestAChangeThatIsNotAcceptedNamesPolicyAndField, also where the policy is one that the set doesn't hold.
func TestAChangeThatIsNotAcceptedNamesPolicyAndField(t *testing.T) {
	conn := onCluster(t, refusing(fmt.Errorf("change: %w", policy.Problems{
		{Path: "policies[1].limits[0].rollingWindow.window", Message: "can't be changed yet"},
		{Path: "policies[0]", Message: "is another allowance"}, {Path: "policies[2].key", Message: "is gone"},
		{Path: "domains[0].name", Message: "is wrong"}, {Message: "too many"},
	})))
	r, err := applyText(t, conn, nil, twoPolicies)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.GetProblems() {
		got = append(got, p.GetPolicy()+"|"+p.GetField()+"|"+p.GetReason())
	}
	want := []string{
		"media/b|limits[0].rollingWindow.window|can't be changed yet", "media/a||is another allowance", "|policies[2].key|is gone",
		"|domains[0].name|is wrong", "||too many",
	}
	if !slices.Equal(got, want) || r.GetVersion().GetNumber() != 7 {
		t.Errorf("told %q, version %v", got, r.GetVersion())
	}
}

// TestWhatIsProbablyNotMeantIsTold, with a set that is accepted.
func TestWhatIsProbablyNotMeantIsTold(t *testing.T) {
	c := applying(func(context.Context, policy.Set, *quotav1.SetVersion, bool) (*quotav1.ApplyPoliciesResponse, error) {
		return &quotav1.ApplyPoliciesResponse{Changed: true}, nil
	})
	shadowed := strings.Replace(twoPolicies, "match: {tier: pro}, ", "", 1)
	r, err := applyText(t, onCluster(t, c), nil, shadowed)
	if err != nil || !r.GetChanged() || len(r.GetWarnings()) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	if w := r.GetWarnings()[0]; w.GetPolicy() != "media/b" || !strings.HasPrefix(w.GetReason(), "never wins") {
		t.Errorf("warned of %v", w)
	}
}

// TestWhyASetWasNotApplied: another version, another leader, or nobody knows.
func TestWhyASetWasNotApplied(t *testing.T) {
	_, err := applyText(t, onCluster(t, refusing(fmt.Errorf("apply: %w", partition.ErrSetVersion))), nil, twoPolicies)
	if status.Code(err) != codes.Aborted {
		t.Errorf("another version: %v", err)
	}
	for leader, address := range map[string]string{idOfN2: "n2.example:8081", idOfN3: "", "": ""} {
		_, err = applyText(t, onCluster(t, refusing(fmt.Errorf("apply: %w", &partition.NotLeaderError{Leader: leader}))), nil, twoPolicies)
		if f := failureIn(t, err); status.Code(err) != codes.Unavailable || f.GetReason() != quotav1.FailureReason_FAILURE_REASON_NOT_LEADER ||
			f.GetNotLeader() == nil || f.GetNotLeader().GetLeader() != address || f.GetPartition() != 0 {
			t.Errorf("leader %q: %v", leader, f)
		}
	}
	_, err = applyText(t, onCluster(t, refusing(errors.New("the log is gone"))), nil, twoPolicies)
	if f := failureIn(t, err); status.Code(err) != codes.Unavailable || f.GetReason() != quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN {
		t.Errorf("nobody knows: %v", f)
	}
}

// TestASetHasItsBounds: bytes, options, calls at once.
func TestASetHasItsBounds(t *testing.T) {
	c := refusing(errors.New("came through"))
	conn := onCluster(t, c)
	part := strings.Repeat(" ", 1<<20-1<<10)
	parts := make([]string, server.MaxPolicies/len(part)+2)
	for i := range parts {
		parts[i] = part
	}
	_, err := applyText(t, conn, nil, parts...)
	if f := failureIn(t, err); status.Code(err) != codes.InvalidArgument || f.GetMessage() != "policies: has more than 67108864 bytes" {
		t.Errorf("too long: %v", f)
	}
	_, err = applyText(t, conn, nil, strings.Repeat(" ", 1<<20))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message too long: %v", err)
	}
	stream, err := quotav1.NewAdminClient(conn).ApplyPolicies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.Send(&quotav1.ApplyPoliciesRequest{Options: &quotav1.ApplyOptions{DryRun: true}}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	_, err = stream.CloseAndRecv()
	if f := failureIn(t, err); f.GetMessage() != "options: come with the first message only" {
		t.Errorf("options twice: %v", f)
	}
	if len(c.told) > 0 {
		t.Errorf("told %q", c.told)
	}
}

// TestOnlySoManySetsAtOnce: who comes beyond that is told to come again, and a text that doesn't arrive gives its
// place back.
func TestOnlySoManySetsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn, stop := newNodeWith(&script{}, withCluster(refusing(errors.New("came through")))).start(t)
		defer nothingRuns(t)
		defer stop()
		var slow []grpc.ClientStreamingClient[quotav1.ApplyPoliciesRequest, quotav1.ApplyPoliciesResponse]
		for range server.MaxApplies {
			s, err := quotav1.NewAdminClient(conn).ApplyPolicies(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, s)
		}
		synctest.Wait()
		_, err := applyText(t, conn, nil, twoPolicies)
		if f := failureIn(t, err); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_OVERLOADED || f.GetRetryAfterS() != 1 {
			t.Errorf("beyond: %v", f)
		}
		for _, s := range slow {
			if err := s.RecvMsg(&quotav1.ApplyPoliciesResponse{}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("what doesn't arrive: %v", err)
			}
		}
		if _, err := applyText(t, conn, nil, "{"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestAnApplyAnswersBeforeItsDeadline: what waits for the partitions gives up early enough to tell.
func TestAnApplyAnswersBeforeItsDeadline(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{
		time.Second: 900 * time.Millisecond, 30 * time.Second: 29 * time.Second, time.Hour: time.Minute, 0: time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			var waited time.Duration
			_, conn, stop := newNodeWith(&script{}, withCluster(applying(
				func(ctx context.Context, _ policy.Set, _ *quotav1.SetVersion, _ bool) (*quotav1.ApplyPoliciesResponse, error) {
					start := time.Now()
					<-ctx.Done()
					waited = time.Since(start)
					return &quotav1.ApplyPoliciesResponse{Changed: true}, nil
				}))).start(t)
			defer stop()
			ctx := t.Context()
			if deadline > 0 {
				limited, cancel := context.WithTimeout(ctx, deadline)
				defer cancel()
				ctx = limited
			}
			stream, err := quotav1.NewAdminClient(conn).ApplyPolicies(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&quotav1.ApplyPoliciesRequest{Policies: []byte(twoPolicies)}); err != nil {
				t.Fatal(err)
			}
			if r, err := stream.CloseAndRecv(); err != nil || !r.GetChanged() || waited != want {
				t.Errorf("deadline %v: waited %v: %v, %v", deadline, waited, r, err)
			}
		})
	}
}

// TestProblemsFitIntoOneMessage: however many there are, and however long what they name.
func TestProblemsFitIntoOneMessage(t *testing.T) {
	var many policy.Problems
	for range 100_000 {
		many = append(many, policy.Problem{Path: "policies[0]." + strings.Repeat("é", 1000), Message: "is wrong"})
	}
	r, err := applyText(t, onCluster(t, refusing(many)), nil, twoPolicies)
	if err != nil || proto.Size(r) > server.MaxMessage {
		t.Fatalf("%d bytes, %v", proto.Size(r), err)
	}
	told := r.GetProblems()
	if want := fmt.Sprintf("and %d more", len(many)-(len(told)-1)); told[len(told)-1].GetReason() != want || len(told) < 100 {
		t.Errorf("%d are told, the last one is %v", len(told), told[len(told)-1])
	}
}

// TestPoliciesComeInParts that a message takes, however many partitions there are to tell of first.
func TestPoliciesComeInParts(t *testing.T) {
	c := &scene{canonical: make([]byte, 5<<19+1), version: &quotav1.SetVersion{Epoch: 2, Number: 9}}
	_, _ = rand.NewChaCha8([32]byte{}).Read(c.canonical)
	for i := range uint32(4096) {
		c.enforced = append(c.enforced, &quotav1.PartitionVersion{Partition: i, Version: &quotav1.SetVersion{Epoch: math.MaxUint64, Number: math.MaxUint64}})
	}
	got, partitions := policiesOf(t, onCluster(t, c), c)
	if !bytes.Equal(got, c.canonical) || len(partitions) != len(c.enforced) || partitions[4095].GetVersion().GetNumber() != math.MaxUint64 {
		t.Errorf("%d bytes and %d partitions", len(got), len(partitions))
	}
	c = &scene{canonical: []byte("{}"), version: &quotav1.SetVersion{Number: 1}}
	if got, _ := policiesOf(t, onCluster(t, c), c); string(got) != "{}" {
		t.Errorf("a short one: %q", got)
	}
	c = &scene{enforced: []*quotav1.PartitionVersion{{Partition: 5}}}
	if got, partitions := policiesOf(t, onCluster(t, c), c); got != nil || len(partitions) != 1 {
		t.Errorf("before the first: %q, %v", got, partitions)
	}
}

// policiesOf reads the set, and holds its parts to the contract.
func policiesOf(t *testing.T, conn *grpc.ClientConn, c *scene) (got []byte, partitions []*quotav1.PartitionVersion) {
	t.Helper()
	stream, err := quotav1.NewAdminClient(conn).GetPolicies(t.Context(), &quotav1.GetPoliciesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, partitions
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			partitions = m.GetPartitions()
		} else if len(m.GetPartitions()) > 0 {
			t.Error("the partitions come twice")
		}
		p := m.GetPolicies()
		got = append(got, p.GetJson()...)
		if proto.Size(m) > server.MaxMessage || len(p.GetJson()) > server.MaxMessage-64<<10 {
			t.Errorf("message %d has %d bytes, %d of them of the set", n, proto.Size(m), len(p.GetJson()))
		}
		if p != nil && (!proto.Equal(p.GetVersion(), c.version) || p.GetSize() != uint64(len(c.canonical)) || p.GetLast() != (len(got) == len(c.canonical))) {
			t.Errorf("message %d: version %v, size %d, last: %v", n, p.GetVersion(), p.GetSize(), p.GetLast())
		}
	}
}
