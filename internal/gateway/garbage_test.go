package gateway_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
)

// raw is a codec that leaves bytes as they are.
type raw struct{}

func (raw) Name() string                       { return "proto" }
func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// babble serves a node that answers every call with these bytes, and returns a connection to it.
func babble(t *testing.T, answer []byte) *client.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var question []byte
		if err := stream.RecvMsg(&question); err != nil {
			return err
		}
		return stream.SendMsg(&answer)
	}))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := client.Dial(l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// overConn asks over one connection.
type overConn struct{ *client.Conn }

func (overConn) Domains() []string { return []string{"video-api"} }
func (overConn) Ready() bool       { return true }

// TestFAIL11MalformedAnswersAreNoAllow: garbage, answers cut off at any byte, empty ones, and those of another version are
// unavailable, and counted as such; whole ones are read.
func TestFAIL11MalformedAnswersAreNoAllow(t *testing.T) {
	marshal := func(a *quotav1.Answer) []byte {
		b, err := proto.Marshal(&quotav1.CheckResponse{Answer: a})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	whole := marshal(allowed())
	later := allowed()
	later.Decision = 99
	reason := allowed()
	reason.Reason = 99
	answers := map[string][]byte{
		"empty": {}, "zeros": make([]byte, 40), "text": []byte("HTTP/1.1 200 OK\r\n\r\nallow"), "no decision": marshal(&quotav1.Answer{}),
		"another decision": marshal(later), "another reason": marshal(reason),
	}
	for n := 1; n < len(whole); n += 7 {
		answers["cut off after "+string(rune('A'+n/7))] = whole[:n]
	}
	for name, b := range answers {
		s := newStand(nil, func(c *gateway.Config) { c.Asker = overConn{babble(t, b)} })
		if a := s.get(t, "/check?principal=u42"); a.status != http.StatusServiceUnavailable || text(a.Reason) != "outcome_unknown" {
			t.Errorf("%s: status %d, %s", name, a.status, a.body)
		}
		if !strings.Contains(s.ops(t, "/metrics").body, `quorate_gateway_answers_total{answer="outcome_unknown",front="http"} 1`) {
			t.Errorf("%s: not counted", name)
		}
	}
	s := newStand(nil, func(c *gateway.Config) { c.Asker = overConn{babble(t, whole)} })
	if a := s.get(t, "/check?principal=u42"); a.status != http.StatusOK {
		t.Errorf("whole: status %d, %s", a.status, a.body)
	}
}
