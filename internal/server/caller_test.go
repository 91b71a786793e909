package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/server"
)

func allowAll() *script {
	return answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Allowed) })
}

// pair is the certificate of those files, shown by a caller that looks at nobody's.
func pair(t *testing.T, f access.Files) *tls.Config {
	t.Helper()
	c, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c}}
}

// TestNobodyGetsInWithoutACertificateOfOurs: no certificate, another CA's, one without a role, no TLS at all.
// The health service, which anybody may call, is closed to them too.
func TestNobodyGetsInWithoutACertificateOfOurs(t *testing.T) {
	s := newSecured(t, allowAll(), nil, t.TempDir())
	defer s.close(t)
	strangers := newAuthority(t).issue(t, t.TempDir(), gatewayHere, time.Hour)
	for name, c := range map[string]credentials.TransportCredentials{
		"no certificate":   credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
		"another CA's":     credentials.NewTLS(pair(t, strangers)),
		"without a role":   credentials.NewTLS(pair(t, s.ca.issue(t, t.TempDir(), "", time.Hour))),
		"an unknown role":  credentials.NewTLS(pair(t, s.ca.issue(t, t.TempDir(), "quorate://root/r", time.Hour))),
		"without any TLS":  insecure.NewCredentials(),
		"an older version": credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}),
	} {
		conn := s.dial(t, c)
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: health: %v", name, err)
		}
		if _, err := quotav1.NewQuotaClient(conn).Check(t.Context(), checkOf("u42")); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: check: %v", name, err)
		}
	}
	if got := s.ops(t, "/metrics").body; strings.Contains(got, `quorate_callers_refused_total{why="handshake"} 0`) {
		t.Error("not counted")
	}
	// A caller that looks, and has what it takes, gets in.
	if _, err := healthpb.NewHealthClient(s.as(t, reader)).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("a reader: %v", err)
	}
}

// TestACallerKnowsTheNode: it is refused by the caller unless it is a node.
func TestACallerKnowsTheNode(t *testing.T) {
	s := newSecured(t, allowAll(), nil, t.TempDir())
	defer s.close(t)
	k := s.ca.keep(t, t.TempDir(), gatewayHere)
	for name, want := range map[string]codes.Code{"n1": codes.OK, "n2": codes.Unavailable} {
		conn := s.dial(t, credentials.NewTLS(k.ClientTLS(access.IsNode(name))))
		if _, err := quotav1.NewQuotaClient(conn).Check(t.Context(), checkOf("u42")); status.Code(err) != want {
			t.Errorf("expecting %s: %v", name, err)
		}
	}
}

// TestRotationLeavesOpenConnectionsAlone: they go on, and new ones show the new certificate.
func TestRotationLeavesOpenConnectionsAlone(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t, allowAll(), nil, dir)
		defer s.close(t)
		gateway := s.ca.keep(t, home, gatewayHere)
		var serials []string
		observed := gateway.ClientTLS(nil)
		verify := observed.VerifyConnection
		observed.VerifyConnection = func(state tls.ConnectionState) error {
			serials = append(serials, state.PeerCertificates[0].SerialNumber.String())
			return verify(state)
		}
		old := s.dial(t, credentials.NewTLS(observed))
		open, err := quotav1.NewQuotaClient(old).CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		talk := func(s stream) {
			t.Helper()
			send(t, s, message(0, 5))
			answers, _ := receive(t, s, 5)
			once(t, answers, 0, 5)
		}
		talk(open)
		s.ca.issue(t, dir, nodeN1, time.Hour)
		if changed, err := s.keeper.Reload(); !changed || err != nil {
			t.Fatalf("reload: %v, %v", changed, err)
		}
		time.Sleep(5 * time.Minute) // past every look at the certificates
		talk(open)
		next, err := quotav1.NewQuotaClient(s.dial(t, credentials.NewTLS(observed))).CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		talk(next)
		talk(open)
		if len(serials) != 2 || serials[0] == serials[1] {
			t.Errorf("connections saw the certificates %q", serials)
		}
	})
}

// idle keeps a stream of the reflection service open: its handler, which isn't ours, waits for messages.
func idle(t *testing.T, conn *grpc.ClientConn) reflectionpb.ServerReflection_ServerReflectionInfoClient {
	t.Helper()
	s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var listServices = &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}

// TestAnExpiredCallerIsCutOffWithinAMinute: its streams end, idle as they are, and its calls are refused, on the
// connection that it had when it was good. Nothing that it sends later is asked for.
func TestAnExpiredCallerIsCutOffWithinAMinute(t *testing.T) {
	home := t.TempDir()
	cutOff(t, func(s *secured) (*grpc.ClientConn, func()) {
		const lasting = 10 * time.Minute
		k, err := access.Open(s.ca.issue(t, home, gatewayHere, lasting), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return s.dial(t, credentials.NewTLS(k.ClientTLS(nil))), func() { time.Sleep(lasting) }
	})
}

// TestACallerWhoseCAIsDroppedIsCutOffWithinAMinute, as one that has expired is.
func TestACallerWhoseCAIsDroppedIsCutOffWithinAMinute(t *testing.T) {
	home := t.TempDir()
	cutOff(t, func(s *secured) (*grpc.ClientConn, func()) {
		conn := s.dial(t, credentials.NewTLS(s.ca.keep(t, home, gatewayHere).ClientTLS(nil)))
		return conn, func() {
			newAuthority(t).issue(t, s.dir, nodeN1, time.Hour)
			if changed, err := s.keeper.Reload(); !changed || err != nil {
				t.Fatalf("reload: %v, %v", changed, err)
			}
		}
	})
}

// cutOff lets a caller's right to be here end, while it has streams open.
func cutOff(t *testing.T, call func(*secured) (conn *grpc.ClientConn, end func())) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var taken int
		d := answering(func(*partition.Call) partition.Outcome { taken++; return outcomeOf(partition.Allowed) })
		s := newSecured(t, d, &scene{news: []*quotav1.WatchResponse{{}}}, dir)
		defer s.close(t)
		conn, end := call(s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		checks, err := quotav1.NewQuotaClient(conn).CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		watch, err := quotav1.NewRoutingClient(conn).Watch(ctx, &quotav1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		reflection := idle(t, conn)
		time.Sleep(5*time.Minute + time.Second)
		send(t, checks, message(0, 5))
		receive(t, checks, 5)
		end()
		ended := time.Now()
		if _, err := checks.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the check stream ends with %v", err)
		}
		if _, err := watch.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the watch ends with %v", err)
		}
		if took := time.Since(ended); took > time.Minute {
			t.Errorf("cut off after %v", took)
		}
		time.Sleep(time.Until(ended.Add(time.Minute)))
		// By now the connection itself is closed: who has a good certificate by then opens another one with it.
		_ = reflection.Send(listServices)
		if _, err := reflection.Recv(); err == nil {
			t.Error("a stream that waits for messages goes on")
		}
		if _, err := quotav1.NewQuotaClient(conn).Check(t.Context(), checkOf("u42")); err == nil {
			t.Error("a check is answered")
		}
		if taken != 5 {
			t.Errorf("%d checks were asked for", taken)
		}
		if !strings.Contains(s.log.String(), "certificate is no longer accepted") {
			t.Error("nobody is told")
		}
	})
	nothingRuns(t)
}

// TestWithoutCertificatesNothingReachableIsServed, whoever opened the listener.
func TestWithoutCertificatesNothingReachableIsServed(t *testing.T) {
	beyond := func() net.Listener {
		return elsewhere{bufconn.Listen(1 << 10), &net.TCPAddr{IP: net.IPv4zero, Port: 8081}}
	}
	loopback := func() net.Listener {
		return elsewhere{bufconn.Listen(1 << 10), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081}}
	}
	for name, c := range map[string]struct {
		grpc         net.Listener
		certificates bool
		want         string
	}{
		"without certificates": {beyond(), false, "serve grpc: reachable from other machines without certificates"},
		"with certificates":    {beyond(), true, ""},
		"on this machine":      {loopback(), false, ""},
	} {
		n := newNodeWith(allowAll(), func(cfg *server.Config) {
			if c.certificates {
				cfg.Access = newAuthority(t).keep(t, t.TempDir(), nodeN1)
			}
		})
		n.Start(server.Listeners{GRPC: c.grpc, Ops: bufconn.Listen(1 << 10)})
		if c.want != "" {
			select {
			case err := <-n.Failed():
				if err.Error() != c.want {
					t.Errorf("%s: %v", name, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s is served", name)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := n.Stop(ctx); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		select {
		case err := <-n.Failed():
			t.Errorf("%s: %v", name, err)
		default:
		}
	}
}

// elsewhere is a listener that seems to be at another address.
type elsewhere struct {
	net.Listener
	at net.Addr
}

func (e elsewhere) Addr() net.Addr { return e.at }
