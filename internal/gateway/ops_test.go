package gateway_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/quorate/quorate/internal/gateway"
)

type page struct {
	status int
	body   string
}

func (s *stand) ops(t *testing.T, path string) page {
	t.Helper()
	w := httptest.NewRecorder()
	s.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return page{w.Code, w.Body.String()}
}

// TestHealthTellsWhetherItKnowsWhomToAsk: over HTTP and over gRPC alike; alive is alive all the same.
func TestHealthTellsWhetherItKnowsWhomToAsk(t *testing.T) {
	s := newStand(allowing())
	_, conn, stop := s.start(t)
	for _, ready := range []bool{true, false, true} {
		s.asker.setReady(ready)
		status, serving := http.StatusOK, healthpb.HealthCheckResponse_SERVING
		if !ready {
			status, serving = http.StatusServiceUnavailable, healthpb.HealthCheckResponse_NOT_SERVING
		}
		if got := s.ops(t, "/readyz"); got.status != status {
			t.Errorf("ready is %v: /readyz says %d", ready, got.status)
		}
		if got := s.ops(t, "/livez"); got.status != http.StatusOK {
			t.Errorf("ready is %v: /livez says %d", ready, got.status)
		}
		for _, service := range []string{"", "quorate.quota.v1.Quota"} {
			got, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || got.GetStatus() != serving {
				t.Errorf("ready is %v: %q is %v (%v)", ready, service, got.GetStatus(), err)
			}
		}
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"}); err == nil {
		t.Error("an unknown service has a health")
	}
	stop()
	if got := s.ops(t, "/readyz"); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "stopping") {
		t.Errorf("after the stop: /readyz says %+v", got)
	}
}

// TestOpsShowNothingElse: no directory, no profile, no other method.
func TestOpsShowNothingElse(t *testing.T) {
	s := newStand(allowing())
	for _, path := range []string{"/", "/check", "/debug/pprof/", "/metrics/", "/livez/x"} {
		if got := s.ops(t, path); got.status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, got.status)
		}
	}
	w := httptest.NewRecorder()
	s.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d", w.Code)
	}
	if got := s.ops(t, "/metrics"); got.status != http.StatusOK || !strings.Contains(got.body, "quorate_gateway_http_requests_total") {
		t.Errorf("/metrics: status %d", got.status)
	}
}

// TestReflectionNamesTheService, so that tools without the contract's file can ask.
func TestReflectionNamesTheService(t *testing.T) {
	s := newStand(allowing())
	_, conn, stop := s.start(t)
	defer stop()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if !strings.Contains(response.String(), "quorate.quota.v1.Quota") {
		t.Errorf("services: %v", response)
	}
}

// listeners are the ways to listen, and what each says to an address that other machines reach; empty: it may be.
var listeners = map[string]struct {
	listen func(address string) (net.Listener, error)
	advice string
}{
	"http":               {func(a string) (net.Listener, error) { return gateway.ListenHTTP("flag", a) }, "the HTTP front shows and asks for no certificate in this version"},
	"grpc":               {func(a string) (net.Listener, error) { return gateway.ListenGRPC("flag", a, false) }, "which needs certificates: give --ca, --cert and --key, or use 127.0.0.1:0"},
	"grpc, certificates": {func(a string) (net.Listener, error) { return gateway.ListenGRPC("flag", a, true) }, ""},
	"health":             {func(a string) (net.Listener, error) { return gateway.ListenHealth("flag", a) }, ""},
}

// TestListenStaysOnThisMachine unless certificates, or the lack of anything to protect, allow more. Errors name the
// flag and the address, and say what to do.
func TestListenStaysOnThisMachine(t *testing.T) {
	for name, l := range listeners {
		for _, address := range []string{":0", "127.0.0.1:0", "localhost:0", "127.0.0.2:0"} {
			got, err := l.listen(address)
			if err != nil {
				t.Errorf("%s %s: %v", name, address, err)
				continue
			}
			if at := got.Addr().(*net.TCPAddr); !at.IP.IsLoopback() || at.Port == 0 {
				t.Errorf("%s %s listens on %v", name, address, at)
			}
			if err := got.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
			got, err := l.listen(address)
			if err == nil {
				got.Close()
			}
			if l.advice == "" && err != nil || l.advice != "" && (!errors.Is(err, gateway.ErrReachable) ||
				!strings.HasPrefix(err.Error(), `--flag "`+address+`": reachable from other machines`) || !strings.Contains(err.Error(), l.advice)) {
				t.Errorf("%s %s: %v", name, address, err)
			}
		}
		for address, want := range map[string]string{"8080": "HOST:PORT", "127.0.0.1": "HOST:PORT", "127.0.0.1:x": "lookup tcp/x", "": "HOST:PORT"} {
			if _, err := l.listen(address); err == nil || !strings.HasPrefix(err.Error(), `--flag "`+address+`": `) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: %v", name, address, err)
			}
		}
	}
	taken, err := gateway.ListenHTTP("http-address", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := gateway.ListenGRPC("grpc-address", taken.Addr().String(), false); err == nil || !strings.HasPrefix(err.Error(), "--grpc-address") ||
		!strings.Contains(err.Error(), "address already in use; choose another port") {
		t.Errorf("a taken address: %v", err)
	}
}

// TestAListenerThatOthersReachIsNotServed in clear, whoever has opened it.
func TestAListenerThatOthersReachIsNotServed(t *testing.T) {
	for _, front := range []string{"grpc", "http"} {
		l, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		s := newStand(allowing())
		if front == "grpc" {
			s.Start(gateway.Listeners{GRPC: l})
		} else {
			s.Start(gateway.Listeners{HTTP: l})
		}
		select {
		case err := <-s.Failed():
			if !errors.Is(err, gateway.ErrReachable) || !strings.HasPrefix(err.Error(), "serve "+front+" on ") {
				t.Error(err)
			}
		default:
			t.Errorf("%s is served", front)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s is still listened to: %v", front, err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestAListenerThatBreaksIsTold.
func TestAListenerThatBreaksIsTold(t *testing.T) {
	l, err := gateway.ListenHTTP("http-address", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s := newStand(allowing())
	s.Start(gateway.Listeners{HTTP: l})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-s.Failed(); err == nil || !strings.HasPrefix(err.Error(), "serve http: ") {
		t.Error(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
