package gateway_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
)

// TestABrokenStreamLeavesNothingBehind: its checks are not waited for any longer, and nothing of it runs.
func TestABrokenStreamLeavesNothingBehind(t *testing.T) {
	h := newHolder()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(h.asker)
		c, _, stop := s.start(t)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		to, err := c.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send(t, to, message(0, gateway.MaxChecks))
		synctest.Wait()
		h.release(10)
		synctest.Wait()
		if !strings.Contains(s.ops(t, "/metrics").body, "quorate_gateway_check_streams 1") {
			t.Error("the stream is not counted")
		}
		cancel()
		synctest.Wait()
		metrics := s.ops(t, "/metrics").body
		if !strings.Contains(metrics, "quorate_gateway_check_streams 0") || !strings.Contains(metrics, "quorate_gateway_in_flight 0") {
			t.Error("the stream, or a check of it, is still there")
		}
	})
	nothingRuns(t)
}

// TestAStreamThatBreaksWhileItWaitsForRoomEndsToo.
func TestAStreamThatBreaksWhileItWaitsForRoomEndsToo(t *testing.T) {
	h := newHolder()
	inBubble(t, h.asker, func(t *testing.T, _ *stand, to stream) {
		for i := range uint64(5) {
			send(t, to, message(i*gateway.MaxChecks, (i+1)*gateway.MaxChecks))
			synctest.Wait()
		}
		if len(h.held) != gateway.MaxOpen {
			t.Fatalf("%d checks are held", len(h.held))
		}
	})
}

// TestStopAnswersWhatIsInFlight, refuses what comes after, and ends the stream.
func TestStopAnswersWhatIsInFlight(t *testing.T) {
	h := newHolder()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(h.asker)
		c, conn, _ := s.start(t)
		to, err := c.CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send(t, to, message(0, 10))
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			stopped <- s.Stop(ctx)
		}()
		synctest.Wait()
		send(t, to, message(10, 12))
		answers, _ := receive(t, to, 2)
		for _, a := range answers {
			if f := a.GetFailure(); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN || a.GetTag() < 10 {
				t.Errorf("a check that came later: %v", a)
			}
		}
		h.release(10)
		answers, _ = receive(t, to, 10)
		once(t, answers, 0, 10)
		if _, err := to.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ends with %v", err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("stop: %v", err)
		}
		if len(h.asked) != 10 {
			t.Errorf("asked %d", len(h.asked))
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	nothingRuns(t)
}

// TestStopBreaksWhatTakesTooLong when its context ends.
func TestStopBreaksWhatTakesTooLong(t *testing.T) {
	h := newHolder()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(h.asker)
		c, conn, _ := s.start(t)
		to, err := c.CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send(t, to, message(0, 10))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if _, err := to.Recv(); err == nil {
			t.Error("the stream goes on")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	nothingRuns(t)
}

// TestADefectEndsItsStream and no other, and is counted.
func TestADefectEndsItsStream(t *testing.T) {
	a := answering(func(m *quotav1.CheckRequest) (*quotav1.Answer, error) {
		if m.GetCost() == 1 {
			panic("a defect")
		}
		return allowed(), nil
	})
	inBubble(t, a, func(t *testing.T, s *stand, to stream) {
		send(t, to, message(0, 1))
		if _, err := to.Recv(); status.Code(err) != codes.Internal {
			t.Errorf("the stream ends with %v", err)
		}
		if !strings.Contains(s.ops(t, "/metrics").body, `quorate_gateway_panics_total{front="grpc"} 1`) {
			t.Error("not counted")
		}
		m := checkOf("u42")
		m.Cost = 2
		if _, err := s.Service().Check(t.Context(), m); err != nil {
			t.Errorf("somebody else: %v", err)
		}
	})
}
