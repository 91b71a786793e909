package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// TestChecksGatherWhileOthersAreOnTheirWay, within the bounds of a message and of what a node holds open.
func TestChecksGatherWhileOthersAreOnTheirWay(t *testing.T) {
	const callers = 6000
	play(t, 1, func(s *scene) { s.a.hold = make(chan struct{}) }, func(s *scene) {
		var asking sync.WaitGroup
		for i := range callers {
			asking.Go(func() {
				s.want(s.check(func(m *quotav1.CheckRequest) {
					m.Descriptors[0] = descriptor("user", fmt.Sprint(i), "about", strings.Repeat("x", 600))
				}), "allow")
			})
		}
		synctest.Wait() // the way is full, the rest is gathered
		close(s.a.hold)
		asking.Wait()
		if n := len(s.a.messages); n > callers/10 {
			s.Errorf("%d messages for %d checks", n, callers)
		}
		for _, m := range s.a.messages {
			if len(m.GetChecks()) > 1024 || proto.Size(m) > 1<<20 {
				s.Errorf("a message of %d checks and %d bytes", len(m.GetChecks()), proto.Size(m))
			}
		}
		if n := len(s.a.sends()); n != callers {
			s.Errorf("%d checks were sent", n)
		}
	})
}

// TestALoneCheckIsNotDelayed by a timer.
func TestALoneCheckIsNotDelayed(t *testing.T) {
	play(t, 1, answering(allowed), func(s *scene) {
		begin := time.Now()
		s.want(s.check(), "allow")
		if took := time.Since(begin); took != 0 {
			s.Errorf("it took %v of virtual time", took)
		}
	})
}

// TestWhoeverLeavesTheQueueIsNeverSent, and is told that nothing was consumed.
func TestWhoeverLeavesTheQueueIsNeverSent(t *testing.T) {
	play(t, 1, func(s *scene) {
		s.a.answer = always(reply{silent: true})
	}, func(s *scene) {
		var asking sync.WaitGroup
		for i := range 4096 { // as many as a stream holds open
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				s.want(said(s.client.Check(ctx, asks("user", fmt.Sprint(i)))), "OUTCOME_UNKNOWN")
			})
		}
		synctest.Wait()
		for range 3000 { // more than are looked at one by one
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer cancel()
				s.want(said(s.client.Check(ctx, asks("user", "late"))), "DEADLINE")
			})
		}
		asking.Wait()
		if n := len(s.a.sends()); n != 4096 {
			s.Errorf("%d checks were sent", n)
		}
	})
}

// TestTheDeadlineTravelsAsTheTimeThatIsLeft when the check is sent.
func TestTheDeadlineTravelsAsTheTimeThatIsLeft(t *testing.T) {
	play(t, 1, answering(fails(quotav1.FailureReason_FAILURE_REASON_NO_QUORUM), allowed), func(s *scene) {
		s.timeout = time.Second
		s.want(s.check(), "allow")
		all := s.sends()
		if first, second := all[0].GetTimeoutNs(), all[1].GetTimeoutNs(); first != int64(time.Second) || second >= first || second < int64(900*time.Millisecond) {
			s.Errorf("timeouts %d and %d", first, second)
		}
		if _, err := s.client.Check(context.Background(), asks("user", "u2")); err != nil || s.sends()[2].GetTimeoutNs() != int64(client.DefaultTimeout) {
			s.Errorf("without a deadline: %v, %d", err, s.sends()[2].GetTimeoutNs())
		}
	})
}

// TestAnAnswerUnderAWrongTagIsNobodys: the stream ends, and nothing of the message counts.
func TestAnAnswerUnderAWrongTagIsNobodys(t *testing.T) {
	for name, tags := range map[string][]uint64{"another": {1}, "twice": {0, 0}, "one more": {0, 5}} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, answering(reply{answer: allow(), tags: tags}, reply{answer: deny(time.Second)}), func(s *scene) {
				s.want(s.check(), "deny")
				if n := len(s.sends()); n != 2 {
					s.Errorf("%d sends", n)
				}
			})
		})
	}
}

// TestAQuestionIsItsCallersAgain as soon as Check returns, though it may be sent once more, or be on its way.
func TestAQuestionIsItsCallersAgain(t *testing.T) {
	play(t, 1, answering(reply{silent: true}), func(s *scene) {
		m := asks("user", "u1")
		m.DecisionId = []byte("0123456789abcdef")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.want(said(s.client.Check(ctx, m)), "OUTCOME_UNKNOWN")
		m.DecisionId[0], m.Descriptors[0].Entries[0].Value[0] = 'x', 'x' // the race detector looks on
		m.Descriptors[0].Entries[0].Name = "other"
	})
}

// TestWithoutCertificatesOnlyThisMachineIsAsked, whoever names another one.
func TestWithoutCertificatesOnlyThisMachineIsAsked(t *testing.T) {
	if _, err := client.New(client.Config{Addresses: []string{"192.0.2.1:8081"}}); err == nil {
		t.Error("a node elsewhere is dialled in clear")
	}
	if _, err := client.New(client.Config{}); err == nil {
		t.Error("a client without an address")
	}
	play(t, 1, answering(sentOn("192.0.2.1:8081")), func(s *scene) { s.want(s.check(), "NO_QUORUM") })
}

// TestBadInputIsNotSent, neither what exceeds a bound nor what the client itself sees to.
func TestBadInputIsNotSent(t *testing.T) {
	time, part := int64(1), uint32(0)
	many := make([]string, 0, 34)
	for i := range 17 {
		many = append(many, fmt.Sprintf("n%d", i), "v")
	}
	play(t, 1, answering(allowed), func(s *scene) {
		for field, change := range map[string]func(*quotav1.CheckRequest){
			"fence_ns":                        func(m *quotav1.CheckRequest) { m.FenceNs = &time },
			"resolution":                      func(m *quotav1.CheckRequest) { m.Resolution = &quotav1.Resolution{} },
			"partition":                       func(m *quotav1.CheckRequest) { m.Partition = &part },
			"peek":                            func(m *quotav1.CheckRequest) { m.Peek = true },
			"decision_id":                     func(m *quotav1.CheckRequest) { m.DecisionId = make([]byte, 15) },
			"domain":                          func(m *quotav1.CheckRequest) { m.Domain = strings.Repeat("d", 254) },
			"cost":                            func(m *quotav1.CheckRequest) { m.Cost = 1 << 63 },
			"descriptors":                     func(m *quotav1.CheckRequest) { m.Descriptors = make([]*quotav1.Descriptor, 17) },
			"descriptors[0].entries":          func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor(many...) },
			"descriptors[0].entries[0].name":  func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("", "v") },
			"descriptors[0].entries[1].name":  func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("a", "v", "a", "w") },
			"descriptors[0].entries[0].value": func(m *quotav1.CheckRequest) { m.Descriptors[0] = descriptor("a", strings.Repeat("v", 1025)) },
		} {
			m := asks("user", "u1")
			change(m)
			_, err := s.client.Check(context.Background(), m)
			if reasonOf(err) != "INVALID_ARGUMENT" || !strings.HasPrefix(err.Error(), field+": ") {
				s.Errorf("%s: %v", field, err)
			}
		}
		if _, err := s.client.Check(context.Background(), nil); reasonOf(err) != "INVALID_ARGUMENT" {
			s.Errorf("no question: %v", err)
		}
		if n := len(s.sends()); n != 0 {
			s.Errorf("%d sends", n)
		}
		s.want(s.check(func(m *quotav1.CheckRequest) { m.Domain = "" }), "allow")
		if d := s.sends()[0].GetCheck().GetDomain(); d != "api" {
			s.Errorf("the only domain is %q", d)
		}
	})
}
