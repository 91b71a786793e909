package main

import (
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// script is a node that answers as the test says.
type script struct {
	quotav1.UnimplementedQuotaServer
	answer func(send func(...*quotav1.TaggedAnswer), checks []*quotav1.TaggedCheck)

	mu  sync.Mutex
	ids map[string]int
}

func (s *script) CheckStream(stream grpc.BidiStreamingServer[quotav1.CheckStreamRequest, quotav1.CheckStreamResponse]) error {
	var sending sync.Mutex
	send := func(answers ...*quotav1.TaggedAnswer) {
		sending.Lock()
		defer sending.Unlock()
		for len(answers) > 0 {
			n := min(len(answers), mostChecks)
			_ = stream.Send(&quotav1.CheckStreamResponse{Answers: answers[:n]}) // the asker may have gone
			answers = answers[n:]
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		s.mu.Lock()
		for _, c := range m.GetChecks() {
			s.ids[string(c.GetCheck().GetDecisionId())]++
		}
		s.mu.Unlock()
		s.answer(send, m.GetChecks())
	}
}

func allow(c *quotav1.TaggedCheck) *quotav1.TaggedAnswer {
	return answered(c.GetTag(), &quotav1.Answer{Decision: quotav1.Decision_DECISION_ALLOW})
}

// scripted starts a node and an engine that asks it, of one partition.
func scripted(t *testing.T, answer func(send func(...*quotav1.TaggedAnswer), checks []*quotav1.TaggedCheck)) (*engine, *script) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{answer: answer, ids: map[string]int{}}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 20))
	quotav1.RegisterQuotaServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	e, err := newEngine(&routes{leaders: []string{l.Addr().String()}}, insecure.NewCredentials(), 2, mostChecks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.close() // a broken one says so
		server.Stop()
		serving.Wait()
	})
	return e, s
}

var some = workload{entry: strictEntry, family: 'k', keys: 1000, seed: 1}

// TestClosedLoopCountsWhatItHears: every check has an id of its own and one answer, and each answer counts once.
func TestClosedLoopCountsWhatItHears(t *testing.T) {
	var mu sync.Mutex
	given := map[quotav1.Decision]uint64{}
	refused := uint64(0)
	e, node := scripted(t, func(send func(...*quotav1.TaggedAnswer), checks []*quotav1.TaggedCheck) {
		mu.Lock()
		defer mu.Unlock()
		var out []*quotav1.TaggedAnswer
		for i, c := range checks {
			switch i % 3 {
			case 0:
				given[quotav1.Decision_DECISION_ALLOW]++
				out = append(out, allow(c))
			case 1:
				given[quotav1.Decision_DECISION_DENY]++
				out = append(out, answered(c.GetTag(), &quotav1.Answer{Decision: quotav1.Decision_DECISION_DENY}))
			default:
				refused++
				out = append(out, &quotav1.TaggedAnswer{Tag: c.GetTag(), Result: &quotav1.TaggedAnswer_Failure{
					Failure: &quotav1.Failure{Reason: quotav1.FailureReason_FAILURE_REASON_NO_QUORUM, Message: "alone"}}})
			}
		}
		send(out...)
	})
	m, err := e.closed(some, 100, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if m.allows != given[quotav1.Decision_DECISION_ALLOW] || m.denies != given[quotav1.Decision_DECISION_DENY] || m.errors != refused {
		t.Errorf("heard %d allows, %d denials, %d failures; given were %v and %d", m.allows, m.denies, m.errors, given, refused)
	}
	if all := m.decisions() + m.errors; all < 100 || m.hist.total != all || uint64(len(node.ids)) != all {
		t.Errorf("%d answers, %d latencies, %d ids of 100 callers", all, m.hist.total, len(node.ids))
	}
	if refused == 0 || !strings.Contains(m.why(), "no_quorum") || !strings.Contains(m.why(), "alone") {
		t.Errorf("%d failures are told as %q", refused, m.why())
	}
}

// TestClosedLoopEndsOnAnAnswerToNothing: whoever answers twice, or what wasn't asked, makes every count worthless.
func TestClosedLoopEndsOnAnAnswerToNothing(t *testing.T) {
	for name, extra := range map[string]uint64{"twice": 0, "unasked": 77, "strange": maxInFlight + 1, "enormous": math.MaxUint64 - math.MaxUint32} {
		t.Run(name, func(t *testing.T) {
			e, _ := scripted(t, func(send func(...*quotav1.TaggedAnswer), checks []*quotav1.TaggedCheck) {
				out := []*quotav1.TaggedAnswer{}
				for _, c := range checks {
					out = append(out, allow(c))
				}
				send(append(out, answered(extra, &quotav1.Answer{Decision: quotav1.Decision_DECISION_ALLOW}))...)
			})
			if m, err := e.closed(some, 1, time.Hour); err == nil {
				t.Errorf("it went on: %+v", m.allows)
			}
		})
	}
}

// TestOpenLoopCorrectsForCoordinatedOmission: a node that stalls is charged for every check that was due
// meanwhile, also for those that found no place to be asked from. A loop that waits for answers would count one.
func TestOpenLoopCorrectsForCoordinatedOmission(t *testing.T) {
	const (
		rate   = 200_000
		length = 300 * time.Millisecond
		total  = rate * int(length) / int(time.Second)
	)
	var (
		mu      sync.Mutex
		held    []func()
		stalled = true
		waits   int
	)
	e, _ := scripted(t, func(send func(...*quotav1.TaggedAnswer), checks []*quotav1.TaggedCheck) {
		out := []*quotav1.TaggedAnswer{}
		for _, c := range checks {
			out = append(out, allow(c))
		}
		mu.Lock()
		defer mu.Unlock()
		if !stalled {
			send(out...)
			return
		}
		held = append(held, func() { send(out...) })
		if waits += len(checks); waits == maxInFlight { // no check more can be asked: only now it answers
			time.Sleep(length)
			stalled = false
			for _, answer := range held {
				answer()
			}
		}
	})
	if total <= maxInFlight {
		t.Fatalf("%d checks all find a place", total)
	}
	m, err := e.open(some, rate, length)
	if err != nil {
		t.Fatal(err)
	}
	if m.allows != uint64(total) || m.hist.total != uint64(total) {
		t.Errorf("%d allows and %d latencies of %d checks that were due", m.allows, m.hist.total, total)
	}
	// The stall ends no earlier than its length after the last check that had a place was due. So even the check that
	// was due last of all, and had no place then, has waited for this long.
	least := length - time.Duration(total-maxInFlight)*time.Second/rate
	if shortest := m.hist.quantile(0); shortest < least {
		t.Errorf("a check waited only %v, and all of them were due %v before the stall ended", shortest, least)
	}
	if longest := time.Duration(m.hist.most); longest < length {
		t.Errorf("the longest wait is %v in a stall of %v", longest, length)
	}
}
