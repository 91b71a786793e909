package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// inspected answers inspections in turn, the rest as the last; a nil error is an answer of that epoch.
func inspected(epoch uint64, errs ...error) func() (*quotav1.InspectResponse, error) {
	n := 0
	return func() (*quotav1.InspectResponse, error) {
		n++
		return &quotav1.InspectResponse{Epoch: epoch}, errs[min(n, len(errs))-1]
	}
}

func (r reply) status() error {
	s, err := status.New(codes.Code(r.failure.GetCode()), "").WithDetails(r.failure)
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// TestInspectAsksTheLeader, whoever that turns out to be.
func TestInspectAsksTheLeader(t *testing.T) {
	noQuorum := fails(quotav1.FailureReason_FAILURE_REASON_NO_QUORUM).status()
	for name, c := range map[string]struct {
		a    func() (*quotav1.InspectResponse, error)
		want string
	}{
		"it leads":         {inspected(1, nil), "nothing"},
		"another one does": {inspected(1, sentOn(nodeB).status()), "nothing"},
		"later":            {inspected(1, noQuorum, status.Error(codes.Unavailable, "broken"), nil), "nothing"},
		"never":            {inspected(1, noQuorum), "NO_QUORUM"},
		"broken":           {inspected(1, status.Error(codes.Internal, "a defect")), "NO_QUORUM"},
		"left epoch":       {inspected(0, nil), "NO_QUORUM"},
		"bad input":        {inspected(1, fails(quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT).status()), "INVALID_ARGUMENT"},
		"no right":         {inspected(1, status.Error(codes.PermissionDenied, "no right")), "PERMISSION_DENIED"},
		"unimplemented":    {inspected(1, status.Error(codes.Unimplemented, "what?")), "NOT_SUPPORTED"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(s *scene) { s.a.inspect, s.b.inspect = c.a, inspected(1, nil) }, func(s *scene) {
				r, err := s.client.Inspect(context.Background(), &quotav1.InspectRequest{Domain: "api", Descriptor_: descriptor("user", "u1")})
				got := "nothing"
				if err != nil {
					got = reasonOf(err)
				} else if r == nil {
					got = "nil"
				}
				s.want(got, c.want)
			})
		})
	}
	play(t, 1, func(*scene) {}, func(s *scene) {
		_, err := s.client.Inspect(context.Background(), &quotav1.InspectRequest{Domain: "api", Descriptor_: descriptor("", "u1")})
		s.want(reasonOf(err), "INVALID_ARGUMENT")
		s.client.Close()
		_, err = s.client.Inspect(context.Background(), &quotav1.InspectRequest{Domain: "api", Descriptor_: descriptor("user", "u1")})
		s.want(reasonOf(err), "SHUTTING_DOWN")
	})
}

// TestMetricsCountWhatBecameOfChecks, with labels of our own words.
func TestMetricsCountWhatBecameOfChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := led(t, 1)
		defer n.stop()
		a := n.nodes[nodeA]
		a.answer = each(allowed, reply{answer: deny(time.Minute)}, fails(quotav1.FailureReason_FAILURE_REASON_OVERLOADED), reply{broken: true}, allowed)
		registry := prometheus.NewPedanticRegistry()
		c := n.client(func(cfg *client.Config) { cfg.Registry = registry })
		defer c.Close()
		for _, user := range []string{"a", "b", "b", "c", "d"} {
			_, _ = c.Check(context.Background(), asks("user", user)) // counted, whatever it is
		}
		if _, err := client.New(client.Config{Addresses: []string{nodeA}, Registry: registry}); err == nil {
			t.Error("two clients share one registry's names")
		}
		got := gathered(t, registry)
		for name, want := range map[string]float64{
			"quorate_client_checks_total allow node":   2,
			"quorate_client_checks_total deny node":    1,
			"quorate_client_checks_total deny hint":    1,
			"quorate_client_failures_total overloaded": 1,
			"quorate_client_sends_total first":         4,
			"quorate_client_sends_total repeat":        1,
			"quorate_client_streams_ended_total":       1,
			"quorate_client_deny_hints":                1,
			"quorate_client_checks_in_flight":          0,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, not %v", name, got[name], want)
			}
		}
	})
}

// gathered is all values, by name and label values.
func gathered(t *testing.T, r *prometheus.Registry) map[string]float64 {
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}
