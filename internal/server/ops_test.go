package server_test

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

	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/server"
)

type page struct {
	status int
	body   string
}

func (n *node) ops(t *testing.T, path string) page {
	t.Helper()
	w := httptest.NewRecorder()
	n.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return page{w.Code, w.Body.String()}
}

// TestHealthTellsWhetherTheNodeIsReady: over HTTP, with why it isn't, and over gRPC; alive is alive all the same.
func TestHealthTellsWhetherTheNodeIsReady(t *testing.T) {
	n := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Allowed) }))
	_, conn, stop := n.start(t)
	defer stop()
	for _, n.unready = range []string{"", "partition 3 has no leader", ""} {
		want, serving := page{http.StatusOK, "ok\n"}, healthpb.HealthCheckResponse_SERVING
		if n.unready != "" {
			want, serving = page{http.StatusServiceUnavailable, n.unready + "\n"}, healthpb.HealthCheckResponse_NOT_SERVING
		}
		if got := n.ops(t, "/readyz"); got != want {
			t.Errorf("unready is %q: /readyz says %v", n.unready, got)
		}
		if got := n.ops(t, "/livez"); got.status != http.StatusOK {
			t.Errorf("unready is %q: /livez says %d", n.unready, got.status)
		}
		for _, service := range []string{"", "quorate.quota.v1.Quota"} {
			got, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || got.GetStatus() != serving {
				t.Errorf("unready is %q: %q is %v (%v)", n.unready, service, got.GetStatus(), err)
			}
		}
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"}); err == nil {
		t.Error("an unknown service has a health")
	}
}

// TestLivezSaysWhyTheProcessShouldBeStartedAnew, and is no matter of readiness.
func TestLivezSaysWhyTheProcessShouldBeStartedAnew(t *testing.T) {
	var why error
	n := newNodeWith(&script{}, func(cfg *server.Config) { cfg.Alive = func() error { return why } })
	n.unready = "no leader"
	if got := n.ops(t, "/livez"); got.status != http.StatusOK {
		t.Errorf("alive: %v", got)
	}
	why = errors.New("the clock stands still")
	if got := n.ops(t, "/livez"); got.status != http.StatusServiceUnavailable || got.body != "the clock stands still\n" {
		t.Errorf("not alive: %v", got)
	}
}

// TestOpsShowNothingElse: no directory, no profile, no other method.
func TestOpsShowNothingElse(t *testing.T) {
	n := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Allowed) }))
	for _, path := range []string{"/", "/check", "/debug/pprof/", "/metrics/", "/livez/x"} {
		if got := n.ops(t, path); got.status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, got.status)
		}
	}
	w := httptest.NewRecorder()
	n.Ops().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d", w.Code)
	}
	if got := n.ops(t, "/metrics"); got.status != http.StatusOK || !strings.Contains(got.body, "quorate_check_streams") {
		t.Errorf("/metrics: status %d", got.status)
	}
}

// TestReflectionNamesTheService, so that tools without the contract's file can ask.
func TestReflectionNamesTheService(t *testing.T) {
	n := newNode(answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Allowed) }))
	_, conn, stop := n.start(t)
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

// TestListenStaysOnThisMachine: loopback by any name; anything else is refused, with the flag, the address
// and what to do, unless there are certificates or it is for metrics and health.
func TestListenStaysOnThisMachine(t *testing.T) {
	for _, address := range []string{":0", "127.0.0.1:0", "localhost:0", "127.0.0.2:0"} {
		l, err := server.Listen("grpc-address", address, false)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if at := l.Addr().(*net.TCPAddr); !at.IP.IsLoopback() || at.Port == 0 {
			t.Errorf("%s listens on %v", address, at)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	for address, want := range map[string]string{
		"0.0.0.0:8080":   "use 127.0.0.1:8080",
		"[::]:8080":      "use 127.0.0.1:8080",
		"192.0.2.1:8080": "use 127.0.0.1:8080",
		"8080":           "HOST:PORT",
		"127.0.0.1":      "HOST:PORT",
		"127.0.0.1:x":    "lookup tcp/x",
		"":               "HOST:PORT",
	} {
		l, err := server.Listen("grpc-address", address, false)
		if err == nil {
			t.Errorf("%q: listens on %v", address, l.Addr())
			continue
		}
		if !strings.HasPrefix(err.Error(), `--grpc-address "`+address+`": `) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, open := range []func() (net.Listener, error){
		func() (net.Listener, error) { return server.Listen("grpc-address", "0.0.0.0:0", true) },
		func() (net.Listener, error) { return server.ListenHealth("health-address", "0.0.0.0:0") },
	} {
		l, err := open()
		if err != nil || l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("with certificates, or read-only: %v", err)
			continue
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	taken, err := server.Listen("grpc-address", ":0", false)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := server.Listen("grpc-address", taken.Addr().String(), false); err == nil || !strings.HasPrefix(err.Error(), "--grpc-address") ||
		!strings.Contains(err.Error(), "address already in use; choose another port") {
		t.Errorf("a taken address: %v", err)
	}
}
