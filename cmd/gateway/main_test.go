package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
)

// cluster is an asker that allows everything, once it is ready.
type cluster struct {
	cfg    client.Config
	ready  bool
	closed bool
}

func (c *cluster) Check(_ context.Context, m *quotav1.CheckRequest) (*quotav1.Answer, error) {
	return &quotav1.Answer{
		Decision: quotav1.Decision_DECISION_ALLOW, Policy: "media/conversions", LimitName: "per-minute",
		Limit: proto.Uint64(3), Remaining: proto.Uint64(2), WindowNs: 60e9, DecisionId: []byte("0123456789abcdef"),
	}, nil
}

func (c *cluster) Inspect(context.Context, *quotav1.InspectRequest) (*quotav1.InspectResponse, error) {
	return &quotav1.InspectResponse{}, nil
}

func (c *cluster) Domains() []string { return []string{"video-api"} }
func (c *cluster) Ready() bool       { return c.ready }
func (c *cluster) Close()            { c.closed = true }

// connect takes the cluster for what the client would be.
func (c *cluster) connect(cfg client.Config) (asker, error) {
	c.cfg = cfg
	return c, nil
}

// once runs the gateway with a context that has ended already, so that whatever starts stops at once.
func once(t *testing.T, c *cluster, args ...string) (status int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	p := program{out: &stdout, errs: &stderr, connect: c.connect}
	status = p.run(ctx, args)
	return status, stdout.String(), stderr.String()
}

// anywhere are flags for addresses that are free.
var anywhere = []string{"--http-address", ":0", "--grpc-address", ":0", "--health-address", ":0"}

// TestWrongUsageIsToldAndEndsWith2: all of it at once, before anybody is asked.
func TestWrongUsageIsToldAndEndsWith2(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":      {nil, "gateway: --nodes: is required: whom to ask, as in --nodes 127.0.0.1:8081\n"},
		"an argument":  {[]string{"x"}, "gateway: unknown command \"x\" for \"gateway\"\n"},
		"unknown flag": {[]string{"--node", "127.0.0.1:1"}, "gateway: unknown flag: --node\n"},
		"no such file": {[]string{"--config", "/nonexistent/g.yaml"}, "gateway: --config: open /nonexistent/g.yaml: no such file or directory\n"},
		"several": {[]string{"--nodes", "n1,127.0.0.1:0,:8081,127.0.0.1:8081,127.0.0.1:8081", "--http-address", "8080", "--cert", "g.crt", "--key", "", "--log-level", "loud"},
			`gateway: --nodes: "n1" is not HOST:PORT, as in 127.0.0.1:8081; "127.0.0.1:0" has no port from 1 to 65535; ":8081" has no host; "127.0.0.1:8081" is given twice
--http-address: "8080" is not HOST:PORT, as in 127.0.0.1:8081
--key: is empty; it is the name of a file
--log-level: "loud" is not one of debug, info, warn, error
--ca: is missing: --ca, --cert and --key go together; give all three, here or in the file, or none
`},
	} {
		var to cluster
		status, out, errs := once(t, &to, c.args...)
		if status != command.Usage || out != "" || errs != c.want+"See gateway --help.\n" || to.cfg.Addresses != nil {
			t.Errorf("%s: status %d, %q, %q", name, status, out, errs)
		}
	}
}

// TestAddressesThatCannotBeServedEndWith1, all of them told at once, each with its flag and what to do.
func TestAddressesThatCannotBeServedEndWith1(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var c cluster
	status, out, errs := once(t, &c, "--nodes", "127.0.0.1:1", "--http-address", "0.0.0.0:0", "--grpc-address", "0.0.0.0:0", "--health-address", taken.Addr().String())
	if status != command.Failure || out != "" || c.cfg.Addresses != nil {
		t.Errorf("status %d, %q, asked %v", status, out, c.cfg.Addresses)
	}
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	want := [][]string{
		{`gateway: --http-address "0.0.0.0:0": reachable from other machines; `, "asks for no certificate in this version", "use 127.0.0.1:0"},
		{`--grpc-address "0.0.0.0:0": reachable from other machines, which needs certificates: `, "--ca, --cert and --key"},
		{`--health-address "`, "address already in use; choose another port"},
	}
	if len(lines) != len(want) {
		t.Fatalf("errors:\n%s", errs)
	}
	for i, parts := range want {
		for j, part := range parts {
			if !strings.Contains(lines[i], part) || j == 0 && !strings.HasPrefix(lines[i], part) {
				t.Errorf("no %q in %q", part, lines[i])
			}
		}
	}
}

// TestAClientThatCannotBeMadeEndsWith1, and leaves no address behind.
func TestAClientThatCannotBeMadeEndsWith1(t *testing.T) {
	var stderr bytes.Buffer
	p := program{out: io.Discard, errs: &stderr, connect: func(client.Config) (asker, error) { return nil, client.ErrNotLocal }}
	if status := p.run(t.Context(), append([]string{"--nodes", "192.0.2.1:8081"}, anywhere...)); status != command.Failure {
		t.Errorf("status %d", status)
	}
	if want := "gateway: --nodes: " + client.ErrNotLocal.Error() + "\n"; stderr.String() != want {
		t.Errorf("%q, want %q", stderr.String(), want)
	}
}

// TestHelpTellsFlagsAndExitStatuses.
func TestHelpTellsFlagsAndExitStatuses(t *testing.T) {
	status, out, _ := once(t, &cluster{}, "--help")
	for _, want := range []string{
		"Exit status: 0", "--config", "--nodes", "--http-address", "127.0.0.1:8080", "--grpc-address", "127.0.0.1:8081",
		"--health-address", "127.0.0.1:8082", "--ca", "--cert", "--key", "--log-level", "warn",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the help", want)
		}
	}
	if status != command.OK {
		t.Errorf("status %d", status)
	}
}

// TestASignalAtStartStopsInOrder: what starts while it is already told to stop, stops, with status 0.
func TestASignalAtStartStopsInOrder(t *testing.T) {
	var c cluster
	status, out, errs := once(t, &c, append([]string{"--nodes", "127.0.0.1:1,127.0.0.1:2"}, anywhere...)...)
	if status != command.OK || errs != "" {
		t.Fatalf("status %d, %q", status, errs)
	}
	lines := strings.Split(out, "\n")
	for i, prefix := range []string{"http 127.0.0.1:", "grpc 127.0.0.1:", "health 127.0.0.1:"} {
		if !strings.HasPrefix(lines[i], prefix) {
			t.Errorf("line %d is %q, want %q...", i, lines[i], prefix)
		}
	}
	if !c.closed || strings.Join(c.cfg.Addresses, " ") != "127.0.0.1:1 127.0.0.1:2" || c.cfg.TLS != nil || c.cfg.Registry == nil || c.cfg.Log == nil {
		t.Errorf("closed is %v; asked with %+v", c.closed, c.cfg)
	}
}

// pipe gives what the program prints, line by line.
type pipe struct {
	mu    sync.Mutex
	text  strings.Builder
	lines chan string
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.Write(b)
	for line := range strings.Lines(string(b)) {
		p.lines <- strings.TrimSpace(line)
	}
	return len(b), nil
}

// next is the next line, which begins with that word, without it.
func (p *pipe) next(t *testing.T, word string) string {
	t.Helper()
	select {
	case line := <-p.lines:
		rest, ok := strings.CutPrefix(line, word)
		if !ok {
			t.Fatalf("line %q, want %q...", line, word)
		}
		return strings.TrimSpace(rest)
	case <-time.After(10 * time.Second):
		t.Fatalf("no line %q", word)
		return ""
	}
}

// TestItAnswersUntilItIsToldToStop: checks, metrics and readiness, at the addresses that it prints.
func TestItAnswersUntilItIsToldToStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &pipe{lines: make(chan string, 10)}
	c := &cluster{ready: true}
	p := program{out: out, errs: io.Discard, connect: c.connect}
	ended := make(chan int, 1)
	go func() { ended <- p.run(ctx, append([]string{"--nodes", "127.0.0.1:1"}, anywhere...)) }()
	front, rpc, health := out.next(t, "http"), out.next(t, "grpc"), out.next(t, "health")
	out.next(t, "ready")

	for url, want := range map[string]string{
		"http://" + front + "/check?principal=u42": `"decision":"allow"`,
		"http://" + health + "/readyz":             "ok",
		"http://" + health + "/metrics":            "quorate_gateway_in_flight 0",
	} {
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %q, %v", url, response.StatusCode, body, err)
		}
	}
	conn, err := client.Dial(rpc, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a, err := conn.Check(t.Context(), &quotav1.CheckRequest{Descriptors: []*quotav1.Descriptor{{}}})
	if err != nil || a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
		t.Errorf("over gRPC: %v, %v", a, err)
	}
	cancel()
	if status := <-ended; status != command.OK || !c.closed {
		t.Errorf("status %d, closed is %v", status, c.closed)
	}
}

// write writes a file into a folder of its own and returns its name.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
