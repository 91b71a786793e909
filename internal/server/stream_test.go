package server_test

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

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/server"
)

// holder is a Decider that keeps calls until the test lets go of them. It is used in bubbles, where the
// test looks only while everything else stands still.
type holder struct {
	held    []*partition.Call
	submits []int // calls of each Submit
	most    int   // calls held at once, ever
}

func (h *holder) script() *script {
	return &script{submit: func(calls []*partition.Call) {
		h.held = append(h.held, calls...)
		h.submits = append(h.submits, len(calls))
		h.most = max(h.most, len(h.held))
	}}
}

// release answers the first n calls, in the order that they came.
func (h *holder) release(n int) {
	now := h.held[:n]
	h.held = slices.Clone(h.held[n:])
	for _, c := range now {
		finish(c, outcomeOf(partition.Allowed))
	}
}

type stream = grpc.BidiStreamingClient[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]

// inBubble runs f with a node and a stream to it. Afterwards nothing of the node may run any more.
func inBubble(t *testing.T, d server.Decider, f func(t *testing.T, n *node, s stream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(d)
		client, _, stop := n.start(t)
		defer nothingRuns(t)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := client.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		f(t, n, s)
	})
}

// nothingRuns looks for goroutines that are in the server's code.
func nothingRuns(t *testing.T) {
	t.Helper()
	var all strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		t.Fatal(err)
	}
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, "internal/server.(") {
			t.Errorf("still running:\n%s", stack)
		}
	}
}

// message is checks with the tags from..to-1, the tag being the principal too.
func message(from, to uint64) *quotav1.CheckStreamRequest {
	m := &quotav1.CheckStreamRequest{}
	for tag := from; tag < to; tag++ {
		m.Checks = append(m.Checks, &quotav1.TaggedCheck{Tag: tag, Check: checkOf(fmt.Sprint(tag))})
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
		if k := len(m.GetAnswers()); k < 1 || k > server.MaxChecks || proto.Size(m) > server.MaxMessage {
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

// TestAMessageOfAThousandChecksIsOneSubmit, and its answers come back as they are done, in any order, each
// with what is its own.
func TestAMessageOfAThousandChecksIsOneSubmit(t *testing.T) {
	var h holder
	inBubble(t, h.script(), func(t *testing.T, _ *node, s stream) {
		send(t, s, message(0, server.MaxChecks))
		synctest.Wait()
		if !slices.Equal(h.submits, []int{server.MaxChecks}) {
			t.Fatalf("submitted as %v", h.submits)
		}
		for i, c := range slices.Backward(h.held) { // the last one first
			o := outcomeOf(partition.Allowed)
			o.Answer.Remaining = uint64(i)
			finish(c, o)
		}
		answers, messages := receive(t, s, server.MaxChecks)
		once(t, answers, 0, server.MaxChecks)
		for _, a := range answers {
			if a.GetAnswer().GetRemaining() != a.GetTag() || len(a.GetAnswer().GetDecisionId()) != 16 {
				t.Fatalf("the answer of tag %d is another's: %v", a.GetTag(), a)
			}
		}
		t.Logf("%d messages", messages)
	})
}

// TestWhatIsDoneTogetherGoesTogether: no answer waits for another, and none goes alone that needn't.
func TestWhatIsDoneTogetherGoesTogether(t *testing.T) {
	var h holder
	inBubble(t, h.script(), func(t *testing.T, _ *node, s stream) {
		for i := range uint64(3) {
			send(t, s, message(i*1000, i*1000+1000))
		}
		synctest.Wait()
		h.release(1)
		if answers, _ := receive(t, s, 1); answers[0].GetTag() != 0 {
			t.Errorf("the first answer is %d's", answers[0].GetTag())
		}
		h.release(2999)
		answers, messages := receive(t, s, 2999)
		once(t, answers, 1, 2999+1)
		if messages > 300 {
			t.Errorf("2,999 answers in %d messages", messages)
		}
	})
}

// TestFailuresOfAStreamStayWithTheirCheck: bad input and unavailability are told in its place, and the
// stream goes on.
func TestFailuresOfAStreamStayWithTheirCheck(t *testing.T) {
	d := answering(func(c *partition.Call) partition.Outcome {
		if v, _ := c.Descriptors[0].Get("principal"); v == "2" {
			return outcomeOf(partition.NoQuorum)
		}
		return outcomeOf(partition.Allowed)
	})
	inBubble(t, d, func(t *testing.T, _ *node, s stream) {
		for range 2 {
			m := message(0, 5)
			m.Checks[1].Check.Descriptors[0].Entries = []*quotav1.Entry{entry("a", "1"), entry("", "2")}
			m.Checks[3].TimeoutNs = -1
			m.Checks[4].Check = nil
			send(t, s, m)
			answers, _ := receive(t, s, 5)
			slices.SortFunc(answers, func(a, b *quotav1.TaggedAnswer) int { return int(a.GetTag()) - int(b.GetTag()) })
			for i, want := range []struct {
				reason  quotav1.FailureReason
				message string
			}{
				{},
				{quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, "checks[1].check.descriptors[0].entries[1].name: is empty"},
				{quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, "no leader has heard a majority of the replicas lately"},
				{quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, "checks[3].timeout_ns: is negative"},
				{quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT, "checks[4].check.descriptors: has 0 descriptors, 1 to 16 are allowed"},
			} {
				f := answers[i].GetFailure()
				if f.GetReason() != want.reason || f.GetMessage() != want.message {
					t.Errorf("check %d: %v", i, answers[i])
				}
			}
		}
	})
}

// TestDeadlinesOfAStreamRunFromReceipt, the longest being MaxTimeout.
func TestDeadlinesOfAStreamRunFromReceipt(t *testing.T) {
	var h holder
	inBubble(t, h.script(), func(t *testing.T, n *node, s stream) {
		m := message(0, 4)
		for i, timeout := range []time.Duration{0, 1, time.Second, time.Hour} {
			m.Checks[i].TimeoutNs = int64(timeout)
		}
		send(t, s, m)
		synctest.Wait()
		for i, want := range []time.Duration{server.MaxTimeout, 1, time.Second, server.MaxTimeout} {
			if got := h.held[i].Deadline; got != n.clock+int64(want) {
				t.Errorf("check %d: a deadline in %v, want %v", i, time.Duration(got-n.clock), want)
			}
		}
		h.release(4)
	})
}

// TestAnAskerThatIsDoneGetsAllItsAnswers and then the end.
func TestAnAskerThatIsDoneGetsAllItsAnswers(t *testing.T) {
	var h holder
	inBubble(t, h.script(), func(t *testing.T, _ *node, s stream) {
		send(t, s, message(0, 10))
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.release(10)
		answers, _ := receive(t, s, 10)
		once(t, answers, 0, 10)
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ends with %v", err)
		}
	})
}

// TestMessagesBeyondTheContractEndTheStream: empty, too many checks, a tag that is not answered yet. What
// was in flight is answered first, and nothing of the message is asked for.
func TestMessagesBeyondTheContractEndTheStream(t *testing.T) {
	twice := message(100, 103)
	twice.Checks[2].Tag = 100
	for name, c := range map[string]struct {
		message *quotav1.CheckStreamRequest
		want    string
	}{
		"empty":                {&quotav1.CheckStreamRequest{}, "checks: has 0 checks, 1 to 1024 are allowed"},
		"too many":             {message(100, 100+server.MaxChecks+1), "checks: has 1025 checks, 1 to 1024 are allowed"},
		"a tag twice":          {twice, "checks[2].tag: is that of a check that is not answered yet"},
		"a tag that is in use": {message(9, 11), "checks[0].tag: is that of a check that is not answered yet"},
	} {
		t.Run(name, func(t *testing.T) {
			var h holder
			inBubble(t, h.script(), func(t *testing.T, _ *node, s stream) {
				send(t, s, message(0, 10))
				synctest.Wait()
				send(t, s, c.message)
				synctest.Wait()
				if !slices.Equal(h.submits, []int{10}) {
					t.Fatalf("submitted %v", h.submits)
				}
				h.release(10)
				answers, _ := receive(t, s, 10)
				once(t, answers, 0, 10)
				_, err := s.Recv()
				if f := failureIn(t, err); f.GetMessage() != c.want || status.Code(err) != codes.InvalidArgument {
					t.Errorf("the stream ends with %v", err)
				}
			})
		})
	}
}

// TestAMessageAboveAMebibyteEndsTheStream: the transport refuses it.
func TestAMessageAboveAMebibyteEndsTheStream(t *testing.T) {
	var h holder
	inBubble(t, h.script(), func(t *testing.T, _ *node, s stream) {
		m := message(0, 1)
		m.Checks[0].Check.DecisionId = make([]byte, server.MaxMessage)
		send(t, s, m)
		if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted || len(h.submits) != 0 {
			t.Errorf("the stream ends with %v after %v", err, h.submits)
		}
	})
}

// TestTagsMayBeUsedAgainOnceAnswered.
func TestTagsMayBeUsedAgainOnceAnswered(t *testing.T) {
	inBubble(t, answering(func(*partition.Call) partition.Outcome { return outcomeOf(partition.Allowed) }), func(t *testing.T, _ *node, s stream) {
		for range 100 {
			send(t, s, message(0, 50))
			answers, _ := receive(t, s, 50)
			once(t, answers, 0, 50)
		}
	})
}

// TestTooManyOpenChecksHoldTheAskerBack: the node never takes more than its bound, and goes on as soon as
// answers are on their way.
func TestTooManyOpenChecksHoldTheAskerBack(t *testing.T) {
	const messages = 12
	var h holder
	inBubble(t, h.script(), func(t *testing.T, _ *node, s stream) {
		sent := make(chan error, 1)
		go func() {
			for i := range uint64(messages) {
				if err := s.Send(message(i*server.MaxChecks, (i+1)*server.MaxChecks)); err != nil {
					sent <- err
					return
				}
			}
			sent <- s.CloseSend()
		}()
		synctest.Wait()
		if len(h.held) != server.MaxOpen {
			t.Fatalf("%d checks are held, want %d", len(h.held), server.MaxOpen)
		}
		h.release(server.MaxChecks - 1)
		all, _ := receive(t, s, server.MaxChecks-1)
		synctest.Wait()
		if len(h.submits) != server.MaxOpen/server.MaxChecks {
			t.Fatalf("a message was taken for which there is no room: %v", h.submits)
		}
		for len(all) < messages*server.MaxChecks {
			n := len(h.held)
			h.release(n)
			answers, _ := receive(t, s, n)
			all = append(all, answers...)
			synctest.Wait()
		}
		once(t, all, 0, messages*server.MaxChecks)
		if h.most > server.MaxOpen {
			t.Errorf("%d checks were open", h.most)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// TestASlowReaderHoldsItselfBack: who doesn't read answers is not read either, and nothing else waits: the
// decider's threads get rid of what is done, and another stream is answered.
func TestASlowReaderHoldsItselfBack(t *testing.T) {
	const messages = 64
	taken := 0
	d := answering(func(*partition.Call) partition.Outcome { taken++; return outcomeOf(partition.Allowed) })
	inBubble(t, d, func(t *testing.T, n *node, s stream) {
		sent := make(chan error, 1)
		go func() {
			for i := range uint64(messages) {
				if err := s.Send(message(i*server.MaxChecks, (i+1)*server.MaxChecks)); err != nil {
					sent <- err
					return
				}
			}
			sent <- s.CloseSend()
		}()
		synctest.Wait()
		// What is open, one message of answers on its way, and what fits into gRPC's own buffers.
		if most := server.MaxOpen + 6*server.MaxChecks; taken > most {
			t.Fatalf("%d checks were taken from an asker that reads nothing, at most %d should be", taken, most)
		}
		if _, err := n.Service().Check(t.Context(), checkOf("somebody else")); err != nil {
			t.Errorf("somebody else: %v", err)
		}
		answers, _ := receive(t, s, messages*server.MaxChecks)
		once(t, answers, 0, messages*server.MaxChecks)
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// TestABrokenStreamLeavesNothingBehind: the node forgets it, and what is done later goes nowhere.
func TestABrokenStreamLeavesNothingBehind(t *testing.T) {
	var h holder
	synctest.Test(t, func(t *testing.T) {
		n := newNode(h.script())
		client, _, stop := n.start(t)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := client.CheckStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send(t, s, message(0, server.MaxChecks))
		synctest.Wait()
		h.release(10)
		synctest.Wait()
		if !strings.Contains(n.ops(t, "/metrics").body, "quorate_check_streams 1") {
			t.Error("the stream is not counted")
		}
		cancel()
		synctest.Wait()
		nothingRuns := func() bool { return strings.Contains(n.ops(t, "/metrics").body, "quorate_check_streams 0") }
		if !nothingRuns() {
			t.Error("the stream is still counted")
		}
		h.release(server.MaxChecks - 10) // into the void
		stop()
	})
	nothingRuns(t)
}

// TestAStreamThatBreaksWhileItWaitsForRoomEndsToo.
func TestAStreamThatBreaksWhileItWaitsForRoomEndsToo(t *testing.T) {
	var h holder
	inBubble(t, h.script(), func(t *testing.T, _ *node, s stream) {
		for i := range uint64(5) {
			send(t, s, message(i*server.MaxChecks, (i+1)*server.MaxChecks))
			synctest.Wait()
		}
		if len(h.held) != server.MaxOpen {
			t.Fatalf("%d checks are held", len(h.held))
		}
	})
}

// TestStopAnswersWhatIsInFlight, refuses what comes after, and ends the stream.
func TestStopAnswersWhatIsInFlight(t *testing.T) {
	var h holder
	synctest.Test(t, func(t *testing.T) {
		n := newNode(h.script())
		client, conn, _ := n.start(t)
		s, err := client.CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send(t, s, message(0, 10))
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			stopped <- n.Stop(ctx)
		}()
		synctest.Wait()
		send(t, s, message(10, 12))
		answers, _ := receive(t, s, 2)
		for _, a := range answers {
			if f := a.GetFailure(); f.GetReason() != quotav1.FailureReason_FAILURE_REASON_SHUTTING_DOWN || a.GetTag() < 10 {
				t.Errorf("a check that came later: %v", a)
			}
		}
		h.release(10)
		answers, _ = receive(t, s, 10)
		once(t, answers, 0, 10)
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ends with %v", err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("stop: %v", err)
		}
		if len(h.submits) != 1 {
			t.Errorf("submitted %v", h.submits)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	nothingRuns(t)
}

// TestStopBreaksWhatTakesTooLong when its context ends.
func TestStopBreaksWhatTakesTooLong(t *testing.T) {
	var h holder
	synctest.Test(t, func(t *testing.T) {
		n := newNode(h.script())
		client, conn, _ := n.start(t)
		s, err := client.CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send(t, s, message(0, 10))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := n.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		if _, err := s.Recv(); err == nil {
			t.Error("the stream goes on")
		}
		h.release(10)
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	nothingRuns(t)
}

// TestLargeFailuresAreSplitOverMessages: a resolution may be large, a message may not.
func TestLargeFailuresAreSplitOverMessages(t *testing.T) {
	d := answering(func(*partition.Call) partition.Outcome {
		o := outcomeOf(partition.StalePolicy)
		o.Resolution = &partition.Resolution{}
		for range 16 {
			o.Resolution.Policies = append(o.Resolution.Policies, partition.Resolved{Namespace: "a", Name: "b", Key: make([]byte, 18<<10)})
		}
		return o
	})
	inBubble(t, d, func(t *testing.T, _ *node, s stream) {
		send(t, s, message(0, 20))
		answers, messages := receive(t, s, 20)
		if messages < 7 || answers[19].GetFailure().GetStalePolicy() == nil {
			t.Errorf("%d messages", messages)
		}
	})
}

// TestADefectEndsItsStream and no other, and is counted.
func TestADefectEndsItsStream(t *testing.T) {
	d := answering(func(*partition.Call) partition.Outcome { panic("a defect") })
	inBubble(t, d, func(t *testing.T, n *node, s stream) {
		send(t, s, message(0, 1))
		if _, err := s.Recv(); status.Code(err) != codes.Internal {
			t.Errorf("the stream ends with %v", err)
		}
		if !strings.Contains(n.ops(t, "/metrics").body, `quorate_panics_total{front="grpc"} 1`) {
			t.Error("not counted")
		}
	})
}
