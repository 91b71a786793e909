package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
)

const gatewayRole = "quorate://gateway/edge?domains=*"

// secured is a gateway with certificates of ca.
func secured(t *testing.T, ca *authority) *stand {
	t.Helper()
	return newStand(allowing(), with(ca.keeper(t, gatewayRole)))
}

// questions are one check and one inspection in a domain.
func questions(domain string) (*quotav1.CheckRequest, *quotav1.InspectRequest) {
	check := checkOf("u42")
	check.Domain = domain
	return check, &quotav1.InspectRequest{Domain: domain, Descriptor_: check.GetDescriptors()[0]}
}

// TestACertificateMayAskWhatItsRoleSays: checks in its domains, with ids of its own, and nothing that isn't stated. One
// row for each refusal.
func TestACertificateMayAskWhatItsRoleSays(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		role, domain    string
		check, inspects codes.Code
	}{
		{"quorate://gateway/g?domains=a,b", "a", codes.OK, codes.OK},
		{"quorate://gateway/g?domains=*", "anything", codes.OK, codes.OK},
		{"quorate://gateway/g?domains=a,b", "c", codes.PermissionDenied, codes.PermissionDenied},
		{"quorate://gateway/g?domains=a", "a ", codes.PermissionDenied, codes.PermissionDenied},
		{"quorate://peer/n1", "a", codes.PermissionDenied, codes.PermissionDenied},
		{"quorate://policy-writer/w", "a", codes.PermissionDenied, codes.PermissionDenied},
		{"quorate://reader/r", "a", codes.PermissionDenied, codes.OK},
		// The only domain may be left out, and the role has to name it all the same.
		{"quorate://gateway/g?domains=video-api", "", codes.OK, codes.OK},
		{"quorate://gateway/g?domains=a", "", codes.PermissionDenied, codes.PermissionDenied},
	} {
		s := secured(t, ca)
		to, conn, stop := s.start(t, as(ca.keeper(t, c.role)))
		check, inspection := questions(c.domain)
		check.DecisionId = []byte("0123456789abcdef")
		_, err := to.Check(t.Context(), check)
		if status.Code(err) != c.check {
			t.Errorf("%s checks in %q: %v", c.role, c.domain, err)
		}
		if c.check == codes.OK && string(s.asker.asked[0].GetDecisionId()) != "0123456789abcdef" {
			t.Errorf("%s: its id is lost", c.role)
		}
		if c.check != codes.OK {
			if f := failureIn(t, err); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED || len(s.asker.asked) != 0 {
				t.Errorf("%s checks in %q: %v", c.role, c.domain, f)
			}
		}
		if _, err := to.Inspect(t.Context(), inspection); status.Code(err) != c.inspects {
			t.Errorf("%s inspects in %q: %v", c.role, c.domain, err)
		}
		if c.inspects != codes.OK && len(s.asker.inspected) != 0 {
			t.Errorf("%s inspects in %q: it was asked", c.role, c.domain)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("%s asks for the health: %v", c.role, err)
		}
		stop()
	}
}

// TestEachCheckOfAStreamNeedsItsRight, and is refused by itself.
func TestEachCheckOfAStreamNeedsItsRight(t *testing.T) {
	ca := newAuthority(t)
	s := secured(t, ca)
	c, _, stop := s.start(t, as(ca.keeper(t, "quorate://gateway/g?domains=a")))
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	to, err := c.CheckStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m := message(0, 4)
	for i, domain := range []string{"a", "b", "a", ""} { // the last is video-api
		m.Checks[i].Check.Domain = domain
	}
	send(t, to, m)
	answers, _ := receive(t, to, 4)
	for _, a := range answers {
		denied := a.GetFailure().GetReason() == quotav1.FailureReason_FAILURE_REASON_PERMISSION_DENIED && codes.Code(a.GetFailure().GetCode()) == codes.PermissionDenied
		if want := a.GetTag()%2 == 1; denied != want || want == (a.GetAnswer() != nil) {
			t.Errorf("%v", a)
		}
	}
	for _, asked := range s.asker.asked {
		if asked.GetDomain() != "a" {
			t.Errorf("asked in %q", asked.GetDomain())
		}
	}
}

// TestWhoShowsNoGoodCertificateGetsNoAnswer: none at all, in clear, another CA's, and one that has expired.
func TestWhoShowsNoGoodCertificateGetsNoAnswer(t *testing.T) {
	ca := newAuthority(t)
	expired := open(t, ca.issue(t, t.TempDir(), gatewayRole, time.Hour)).ClientTLS(anybody)
	pair, err := expired.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newStand(allowing(), with(ca.laterKeeper(t, gatewayRole, 2*time.Hour)))
	l := bufconn.Listen(1 << 20)
	s.Start(gateway.Listeners{GRPC: l})
	for name, options := range map[string][]grpc.DialOption{
		"in clear":       nil,
		"no certificate": {over(&tls.Config{InsecureSkipVerify: true})},
		"another CA's":   {over(&tls.Config{InsecureSkipVerify: true, GetClientCertificate: newAuthority(t).keeper(t, gatewayRole).ClientTLS(anybody).GetClientCertificate})},
		"expired":        {over(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*pair}})},
	} {
		conn := dial(t, l, options...)
		check, inspection := questions("a")
		if _, err := quotav1.NewQuotaClient(conn).Check(t.Context(), check); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: a check ends with %v", name, err)
		}
		if _, err := quotav1.NewQuotaClient(conn).Inspect(t.Context(), inspection); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: an inspection ends with %v", name, err)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil {
			t.Errorf("%s: hears of the health", name)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(s.asker.asked)+len(s.asker.inspected) != 0 {
		t.Error("something was asked")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWithoutCertificatesThisMachineMayAskEverything, under ids of its own too.
func TestWithoutCertificatesThisMachineMayAskEverything(t *testing.T) {
	s := newStand(allowing())
	to, _, stop := s.start(t)
	defer stop()
	check, inspection := questions("anything")
	check.DecisionId = []byte("0123456789abcdef")
	if _, err := to.Check(t.Context(), check); err != nil || string(s.asker.asked[0].GetDecisionId()) != "0123456789abcdef" {
		t.Error(err)
	}
	if _, err := to.Inspect(t.Context(), inspection); err != nil {
		t.Error(err)
	}
}

// TestACertificateThatHasExpiredIsOutWithinAMinute, though its connection is open: calls, and streams at their next
// message, end as UNAUTHENTICATED, and what was in flight is answered.
func TestACertificateThatHasExpiredIsOutWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		h := newHolder()
		s := newStand(h.asker, with(ca.keeper(t, gatewayRole)))
		short := open(t, ca.issue(t, t.TempDir(), "quorate://gateway/g?domains=*", time.Hour))
		c, conn, stop := s.start(t, as(short))
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		to, err := c.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour - time.Second) // it is good for a second more
		send(t, to, message(0, 1))
		synctest.Wait()
		h.release(1)
		answers, _ := receive(t, to, 1)
		once(t, answers, 0, 1)

		<-time.After(time.Second + gateway.IdentifyEvery)
		if _, err := c.Check(t.Context(), checkOf("u42")); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a check ends with %v", err)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("asking for the health ends with %v", err)
		}
		send(t, to, message(0, 1))
		if _, err := to.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the stream ends with %v", err)
		}
		if len(h.asked) != 1 || !strings.Contains(s.ops(t, "/metrics").body, `quorate_gateway_refused_total{front="grpc",why="certificate"} 3`) {
			t.Errorf("asked %d", len(h.asked))
		}
	})
}

// TestConnectionsOutliveTheGatewaysOldCertificate, and new ones get the new one.
func TestConnectionsOutliveTheGatewaysOldCertificate(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	k := open(t, ca.issue(t, dir, "quorate://gateway/old?domains=*", day))
	s := newStand(allowing(), with(k))
	l := bufconn.Listen(1 << 20)
	s.Start(gateway.Listeners{GRPC: l})
	caller := ca.keeper(t, gatewayRole)
	var met []string
	connect := func() *grpc.ClientConn {
		config := caller.ClientTLS(nil)
		config.VerifyConnection = func(state tls.ConnectionState) error {
			met = append(met, state.PeerCertificates[0].URIs[0].Path)
			return nil
		}
		return dial(t, l, over(config))
	}
	check := func(conn *grpc.ClientConn) error {
		_, err := quotav1.NewQuotaClient(conn).Check(t.Context(), checkOf("u42"))
		return err
	}
	before := connect()
	first := check(before)
	ca.issue(t, dir, "quorate://gateway/new?domains=*", day)
	if changed, err := k.Reload(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	after := connect()
	if err := errors.Join(first, check(before), check(after)); err != nil {
		t.Error(err)
	}
	if !slices.Equal(met, []string{"/old", "/new"}) {
		t.Errorf("met %q", met)
	}
	if err := errors.Join(before.Close(), after.Close(), s.Stop(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestRefusedCallersAreCounted by why, and nothing of who they are becomes a label.
func TestRefusedCallersAreCounted(t *testing.T) {
	ca := newAuthority(t)
	s := secured(t, ca)
	to, _, stop := s.start(t, as(ca.keeper(t, "quorate://gateway/g?domains=mine")))
	defer stop()
	before := s.series(t)
	for i := range 10 {
		check, _ := questions(fmt.Sprint("domain", i))
		if _, err := to.Check(t.Context(), check); status.Code(err) != codes.PermissionDenied {
			t.Error(err)
		}
	}
	metrics := s.ops(t, "/metrics").body
	if !strings.Contains(metrics, `quorate_gateway_refused_total{front="grpc",why="domain"} 10`) || s.series(t) != before {
		t.Error("not counted, or by more than why")
	}
}
