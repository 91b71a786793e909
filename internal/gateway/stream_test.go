package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/gateway"
)

// holder is an asker that keeps checks until the test lets go of them. It is used in bubbles, where the test looks
// only while everything else stands still.
type holder struct {
	*asker
	held []held
	most int // checks held at once, ever
}

type held struct {
	question *quotav1.CheckRequest
	left     time.Duration // of its deadline
	answer   chan *quotav1.Answer
}

func newHolder() *holder {
	h := &holder{asker: answering(nil)}
	h.check = func(ctx context.Context, m *quotav1.CheckRequest) (*quotav1.Answer, error) {
		deadline, _ := ctx.Deadline()
		one := held{m, time.Until(deadline), make(chan *quotav1.Answer, 1)}
		h.mu.Lock()
		h.held = append(h.held, one)
		h.most = max(h.most, len(h.held))
		h.mu.Unlock()
		select {
		case a := <-one.answer:
			return a, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return h
}

// release allows n of the checks that are held.
func (h *holder) release(n int) {
	h.mu.Lock()
	now := h.held[:n]
	h.held = slices.Clone(h.held[n:])
	h.mu.Unlock()
	for _, one := range now {
		one.answer <- allowed()
	}
}

type stream = grpc.BidiStreamingClient[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]

// inBubble runs f with a gateway and a stream to it. Afterwards nothing of the gateway may run any more.
func inBubble(t *testing.T, a *asker, f func(t *testing.T, s *stand, to stream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(a, func(c *gateway.Config) { c.MaxInFlight = 1 << 20 })
		c, _, stop := s.start(t)
		defer nothingRuns(t)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		to, err := c.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		f(t, s, to)
	})
}

// nothingRuns looks for goroutines that are in the gateway's code.
func nothingRuns(t *testing.T) {
	t.Helper()
	var all strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		t.Fatal(err)
	}
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, "internal/gateway.(") {
			t.Errorf("still running:\n%s", stack)
		}
	}
}

// message is checks with the tags from..to-1, the tag being the principal and, plus 1, the cost.
func message(from, to uint64) *quotav1.CheckStreamRequest {
	m := &quotav1.CheckStreamRequest{}
	for tag := from; tag < to; tag++ {
		check := checkOf(fmt.Sprint(tag))
		check.Cost = tag + 1
		m.Checks = append(m.Checks, &quotav1.TaggedCheck{Tag: tag, Check: check})
	}
	return m
}

func send(t *testing.T, s stream, m *quotav1.CheckStreamRequest) {
	t.Helper()
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
}

// receive reads answers until there are n, and holds each message to its bounds.
func receive(t *testing.T, s stream, n int) (answers []*quotav1.TaggedAnswer, messages int) {
	t.Helper()
	for len(answers) < n {
		m, err := s.Recv()
		if err != nil {
			t.Fatalf("after %d answers of %d: %v", len(answers), n, err)
		}
		if k := len(m.GetAnswers()); k < 1 || k > gateway.MaxChecks || proto.Size(m) > gateway.MaxMessage {
			t.Fatalf("a message of %d answers and %d bytes", k, proto.Size(m))
		}
		messages++
		answers = append(answers, m.GetAnswers()...)
	}
	if len(answers) > n {
		t.Fatalf("%d answers, want %d", len(answers), n)
	}
	return answers, messages
}

// once holds answers to be allows of the tags from..to-1, each once.
func once(t *testing.T, answers []*quotav1.TaggedAnswer, from, to uint64) {
	t.Helper()
	seen := map[uint64]bool{}
	for _, a := range answers {
		if seen[a.GetTag()] || a.GetTag() < from || a.GetTag() >= to {
			t.Fatalf("tag %d is answered twice, or was never asked", a.GetTag())
		}
		seen[a.GetTag()] = true
		if a.GetAnswer().GetDecision() != quotav1.Decision_DECISION_ALLOW {
			t.Fatalf("tag %d: %v", a.GetTag(), a)
		}
	}
	if uint64(len(seen)) != to-from {
		t.Fatalf("%d answers of %d", len(seen), to-from)
	}
}

// TestAnswersComeInAnyOrder, each with what is its own.
func TestAnswersComeInAnyOrder(t *testing.T) {
	h := newHolder()
	inBubble(t, h.asker, func(t *testing.T, _ *stand, to stream) {
		send(t, to, message(0, gateway.MaxChecks))
		synctest.Wait()
		if len(h.held) != gateway.MaxChecks {
			t.Fatalf("%d checks are asked", len(h.held))
		}
		for _, one := range slices.Backward(h.held) { // the last one first
			a := allowed()
			a.Remaining = proto.Uint64(one.question.GetCost() - 1)
			one.answer <- a
		}
		answers, _ := receive(t, to, gateway.MaxChecks)
		once(t, answers, 0, gateway.MaxChecks)
		for _, a := range answers {
			if a.GetAnswer().GetRemaining() != a.GetTag() {
				t.Fatalf("the answer of tag %d is another's: %v", a.GetTag(), a)
			}
		}
	})
}

// TestNoAnswerWaitsForAnother.
func TestNoAnswerWaitsForAnother(t *testing.T) {
	h := newHolder()
	inBubble(t, h.asker, func(t *testing.T, _ *stand, to stream) {
		for i := range uint64(3) {
			send(t, to, message(i*1000, i*1000+1000))
		}
		synctest.Wait()
		h.release(1)
		first, _ := receive(t, to, 1)
		h.release(2999)
		rest, messages := receive(t, to, 2999)
		once(t, append(first, rest...), 0, 3000)
		t.Logf("%d messages", messages)
	})
}

// TestFailuresOfAStreamStayWithTheirCheck: bad input, what the gateway does itself and unavailability are told in its
// place, and the stream goes on.
func TestFailuresOfAStreamStayWithTheirCheck(t *testing.T) {
	a := answering(func(m *quotav1.CheckRequest) (*quotav1.Answer, error) {
		if values(m.GetDescriptors()[0])["principal"] == "2" {
			return nil, &client.Unavailable{Reason: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM}
		}
		return allowed(), nil
	})
	inBubble(t, a, func(t *testing.T, _ *stand, to stream) {
		for range 2 {
			m := message(0, 7)
			m.Checks[1].Check.Descriptors[0].Entries = []*quotav1.Entry{entry("a", "1"), entry("", "2")}
			m.Checks[3].TimeoutNs = -1
			m.Checks[4].Check = nil
			m.Checks[5].Check.Peek = true
			m.Checks[6].Check.FenceNs = proto.Int64(7)
			send(t, to, m)
			answers, _ := receive(t, to, 7)
			slices.SortFunc(answers, func(a, b *quotav1.TaggedAnswer) int { return int(a.GetTag()) - int(b.GetTag()) })
			const invalid = quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT
			for i, want := range []struct {
				reason  quotav1.FailureReason
				message string
			}{
				{},
				{invalid, "checks[1].check.descriptors[0].entries[1].name: is empty"},
				{quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, "no leader has heard a majority of the replicas lately"},
				{invalid, "checks[3].timeout_ns: is negative"},
				{invalid, "checks[4].check.descriptors: has 0 descriptors, 1 to 16 are allowed"},
				{invalid, "checks[5].check.peek: is not for a gateway's callers: the gateway does this itself; Inspect says what is left"},
				{invalid, "checks[6].check.fence_ns: is not for a gateway's callers: the gateway does this itself"},
			} {
				f := answers[i].GetFailure()
				if f.GetReason() != want.reason || f.GetMessage() != want.message {
					t.Errorf("check %d: %v", i, answers[i])
				}
			}
		}
	})
}

// TestDeadlinesOfAStreamRunFromReceipt, the longest being MaxTimeout; what is not answered by then is unknown.
func TestDeadlinesOfAStreamRunFromReceipt(t *testing.T) {
	h := newHolder()
	inBubble(t, h.asker, func(t *testing.T, _ *stand, to stream) {
		m := message(0, 4)
		want := map[uint64]time.Duration{0: gateway.MaxTimeout, 1: 1, 2: time.Second, 3: gateway.MaxTimeout}
		for i, timeout := range []time.Duration{0, 1, time.Second, time.Hour} {
			m.Checks[i].TimeoutNs = int64(timeout)
		}
		start := time.Now()
		send(t, to, m)
		synctest.Wait()
		for _, one := range h.held {
			if tag := one.question.GetCost() - 1; one.left != want[tag] {
				t.Errorf("check %d: %v left, want %v", tag, one.left, want[tag])
			}
		}
		for len(want) > 0 {
			m, err := to.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range m.GetAnswers() {
				if a.GetFailure().GetReason() != quotav1.FailureReason_FAILURE_REASON_OUTCOME_UNKNOWN || time.Since(start) < want[a.GetTag()] {
					t.Errorf("after %v: %v", time.Since(start), a)
				}
				delete(want, a.GetTag())
			}
		}
	})
}

// TestAnAskerThatIsDoneGetsAllItsAnswers and then the end.
func TestAnAskerThatIsDoneGetsAllItsAnswers(t *testing.T) {
	h := newHolder()
	inBubble(t, h.asker, func(t *testing.T, _ *stand, to stream) {
		send(t, to, message(0, 10))
		if err := to.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.release(10)
		answers, _ := receive(t, to, 10)
		once(t, answers, 0, 10)
		if _, err := to.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ends with %v", err)
		}
	})
}

// TestMessagesBeyondTheContractEndTheStream: empty, too many checks, a tag that is not answered yet. What
// was in flight is answered first, and nothing of the message is asked.
func TestMessagesBeyondTheContractEndTheStream(t *testing.T) {
	twice := message(100, 103)
	twice.Checks[2].Tag = 100
	for name, c := range map[string]struct {
		message *quotav1.CheckStreamRequest
		want    string
	}{
		"empty":                {&quotav1.CheckStreamRequest{}, "checks: has 0 checks, 1 to 1024 are allowed"},
		"too many":             {message(100, 100+gateway.MaxChecks+1), "checks: has 1025 checks, 1 to 1024 are allowed"},
		"a tag twice":          {twice, "checks[2].tag: is that of a check that is not answered yet"},
		"a tag that is in use": {message(9, 11), "checks[0].tag: is that of a check that is not answered yet"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHolder()
			inBubble(t, h.asker, func(t *testing.T, _ *stand, to stream) {
				send(t, to, message(0, 10))
				synctest.Wait()
				send(t, to, c.message)
				synctest.Wait()
				if len(h.asked) != 10 {
					t.Fatalf("asked %d", len(h.asked))
				}
				h.release(10)
				answers, _ := receive(t, to, 10)
				once(t, answers, 0, 10)
				_, err := to.Recv()
				if f := failureIn(t, err); f.GetMessage() != c.want || status.Code(err) != codes.InvalidArgument {
					t.Errorf("the stream ends with %v", err)
				}
			})
		})
	}
}

// TestAMessageAboveAMebibyteEndsTheStream: the transport refuses it.
func TestAMessageAboveAMebibyteEndsTheStream(t *testing.T) {
	inBubble(t, allowing(), func(t *testing.T, s *stand, to stream) {
		m := message(0, 1)
		m.Checks[0].Check.DecisionId = make([]byte, gateway.MaxMessage)
		send(t, to, m)
		if _, err := to.Recv(); status.Code(err) != codes.ResourceExhausted || len(s.asker.asked) != 0 {
			t.Errorf("the stream ends with %v after %d checks", err, len(s.asker.asked))
		}
	})
}

// TestTagsMayBeUsedAgainOnceAnswered.
func TestTagsMayBeUsedAgainOnceAnswered(t *testing.T) {
	inBubble(t, allowing(), func(t *testing.T, _ *stand, to stream) {
		for range 100 {
			send(t, to, message(0, 50))
			answers, _ := receive(t, to, 50)
			once(t, answers, 0, 50)
		}
	})
}

// flood sends messages of as many checks as fit, and tells when all are sent.
func flood(to stream, messages int) <-chan error {
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(messages) {
			if err := to.Send(message(i*gateway.MaxChecks, (i+1)*gateway.MaxChecks)); err != nil {
				sent <- err
				return
			}
		}
		sent <- to.CloseSend()
	}()
	return sent
}

// TestTooManyOpenChecksHoldTheAskerBack: the gateway never takes more than its bound, and goes on as soon as
// answers are on their way.
func TestTooManyOpenChecksHoldTheAskerBack(t *testing.T) {
	const messages = 12
	h := newHolder()
	inBubble(t, h.asker, func(t *testing.T, _ *stand, to stream) {
		sent := flood(to, messages)
		synctest.Wait()
		if len(h.held) != gateway.MaxOpen {
			t.Fatalf("%d checks are held, want %d", len(h.held), gateway.MaxOpen)
		}
		h.release(gateway.MaxChecks - 1)
		all, _ := receive(t, to, gateway.MaxChecks-1)
		synctest.Wait()
		if len(h.asked) != gateway.MaxOpen {
			t.Fatalf("a message was taken for which there is no room: %d checks", len(h.asked))
		}
		for len(all) < messages*gateway.MaxChecks {
			n := len(h.held)
			h.release(n)
			answers, _ := receive(t, to, n)
			all = append(all, answers...)
			synctest.Wait()
		}
		once(t, all, 0, messages*gateway.MaxChecks)
		if h.most > gateway.MaxOpen {
			t.Errorf("%d checks were open", h.most)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// TestASlowReaderHoldsItselfBack: who doesn't read answers is not read either, and nobody else waits.
func TestASlowReaderHoldsItselfBack(t *testing.T) {
	const messages = 64
	inBubble(t, allowing(), func(t *testing.T, s *stand, to stream) {
		sent := flood(to, messages)
		synctest.Wait()
		// What is open, one message of answers on its way, and what fits into gRPC's own buffers.
		if most := gateway.MaxOpen + 6*gateway.MaxChecks; len(s.asker.asked) > most {
			t.Fatalf("%d checks were taken from an asker that reads nothing, at most %d should be", len(s.asker.asked), most)
		}
		if _, err := s.Service().Check(t.Context(), checkOf("somebody else")); err != nil {
			t.Errorf("somebody else: %v", err)
		}
		answers, _ := receive(t, to, messages*gateway.MaxChecks)
		once(t, answers, 0, messages*gateway.MaxChecks)
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// TestAStreamBeyondTheBoundOfAllIsRefusedCheckByCheck, and the stream goes on.
func TestAStreamBeyondTheBoundOfAllIsRefusedCheckByCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder()
		s := newStand(h.asker, func(c *gateway.Config) { c.MaxInFlight = 10 })
		c, _, stop := s.start(t)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		to, err := c.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send(t, to, message(0, 15))
		refused, _ := receive(t, to, 5)
		for _, a := range refused {
			if a.GetFailure().GetReason() != quotav1.FailureReason_FAILURE_REASON_OVERLOADED || a.GetFailure().GetRetryAfterS() != 1 {
				t.Errorf("%v", a)
			}
		}
		h.release(10)
		answers, _ := receive(t, to, 10)
		for _, a := range answers {
			if a.GetAnswer() == nil {
				t.Errorf("%v", a)
			}
		}
		send(t, to, message(0, 10))
		synctest.Wait()
		h.release(10)
		answers, _ = receive(t, to, 10)
		once(t, answers, 0, 10)
	})
}

// TestLargeAnswersAreSplitOverMessages: a message of a node may be long, one to a caller may not.
func TestLargeAnswersAreSplitOverMessages(t *testing.T) {
	a := failing(quotav1.FailureReason_FAILURE_REASON_MEMORY, strings.Repeat("m", 300<<10))
	inBubble(t, a, func(t *testing.T, _ *stand, to stream) {
		send(t, to, message(0, 20))
		if _, messages := receive(t, to, 20); messages < 7 {
			t.Errorf("%d messages", messages)
		}
	})
}
