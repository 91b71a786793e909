package client_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// hinting is a scene in which A denies everything, for so long.
func hinting(t *testing.T, wait time.Duration, f func(*scene)) {
	play(t, 1, answering(reply{answer: deny(wait)}), f)
}

// asked reports how many more sends f leads to.
func (s *scene) asked(f func()) int {
	before := len(s.sends())
	f()
	return len(s.sends()) - before
}

// ask asks a question and says what came of it.
func (s *scene) ask(m *quotav1.CheckRequest) string {
	return said(s.client.Check(context.Background(), m))
}

func costing(cost uint64, entries ...string) *quotav1.CheckRequest {
	m := asks(entries...)
	m.Cost = cost
	return m
}

// TestADenialIsRememberedForItsWait, counted from the send, at most 30 s; then it is asked again.
func TestADenialIsRememberedForItsWait(t *testing.T) {
	for wait, until := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 300 * time.Millisecond, 10 * time.Second: 10 * time.Second, time.Hour: 30 * time.Second,
	} {
		hinting(t, wait, func(s *scene) {
			s.want(s.check(), "deny")
			time.Sleep(until - 1)
			if n := s.asked(func() { s.want(s.check(), "deny") }); n != 0 {
				s.Errorf("%v: it is asked again before %v have passed", wait, until)
			}
			time.Sleep(time.Nanosecond)
			if n := s.asked(func() { s.want(s.check(), "deny") }); n != 1 {
				s.Errorf("%v: it is not asked again after %v", wait, until)
			}
		})
	}
}

// TestAHintsAnswerIsTheDenialWithWhatIsLeftOfItsWait.
func TestAHintsAnswerIsTheDenialWithWhatIsLeftOfItsWait(t *testing.T) {
	hinting(t, 10*time.Second, func(s *scene) {
		first, err := s.client.Check(context.Background(), asks("user", "u1"))
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		a, err := s.client.Check(context.Background(), asks("user", "u1"))
		if err != nil || a.GetWaitNs() != int64(4*time.Second) || a.GetRetryAfterS() != 5 || a.GetResetNs() != int64(4*time.Second)+7 ||
			a.GetLimit() != 3 || a.GetPolicy() != "default/users" || a.GetReason() != quotav1.Reason_REASON_LIMIT || a.GetReplayed() ||
			a.GetWholeAmountNs() != int64(3*time.Minute) {
			s.Errorf("%v, %v", a, err)
		}
		if len(a.GetDecisionId()) != 16 || bytes.Equal(a.GetDecisionId(), first.GetDecisionId()) {
			s.Errorf("its id is %x", a.GetDecisionId())
		}
		time.Sleep(4*time.Second - 1)
		if a, _ := s.client.Check(context.Background(), asks("user", "u1")); a.GetWaitNs() != 1 || a.GetRetryAfterS() != 1 {
			s.Errorf("at its end: %v", a)
		}
	})
}

// TestAHintDeniesWhatItsDenialSaysAndNothingElse: that key, that amount or less, that cost or more.
func TestAHintDeniesWhatItsDenialSaysAndNothingElse(t *testing.T) {
	hinting(t, 20*time.Second, func(s *scene) {
		s.want(s.ask(costing(2, "user", "u1")), "deny")
		for name, c := range map[string]struct {
			question *quotav1.CheckRequest
			sends    int
		}{
			"the same":                      {costing(2, "user", "u1"), 0},
			"other entries":                 {costing(2, "user", "u1", "path", "/x"), 0},
			"a larger cost":                 {costing(3, "user", "u1"), 0},
			"a smaller amount":              {costing(2, "user", "u1", "tier", "low"), 0},
			"beside others":                 {&quotav1.CheckRequest{Domain: "api", Cost: 2, Descriptors: []*quotav1.Descriptor{descriptor("host", "h"), descriptor("user", "u1")}}, 0},
			"the same cost in two":          {&quotav1.CheckRequest{Domain: "api", Cost: 1, Descriptors: []*quotav1.Descriptor{descriptor("user", "u1"), descriptor("user", "u1")}}, 0},
			"a smaller cost":                {costing(1, "user", "u1"), 1},
			"a larger amount":               {costing(2, "user", "u1", "tier", "pro"), 1},
			"another key":                   {costing(2, "user", "u2"), 1},
			"another policy":                {costing(2, "host", "u1"), 1},
			"a cost that never fits":        {costing(4, "user", "u1"), 1},
			"another domain":                {&quotav1.CheckRequest{Domain: "other", Cost: 2, Descriptors: []*quotav1.Descriptor{descriptor("user", "u1")}}, 1},
			"an id that may have its allow": {&quotav1.CheckRequest{Domain: "api", Cost: 2, DecisionId: make([]byte, 16), Descriptors: []*quotav1.Descriptor{descriptor("user", "u1")}}, 1},
		} {
			n := s.asked(func() {
				if a, err := s.client.Check(context.Background(), c.question); err != nil || a.GetDecision() != quotav1.Decision_DECISION_DENY {
					s.Errorf("%s: %v, %v", name, a, err)
				}
			})
			if n != c.sends {
				s.Errorf("%s: %d sends, not %d", name, n, c.sends)
			}
			// Whatever was asked has left a hint of its own: begin anew.
			s.client.Close()
			s.client = s.network.client()
			synctest.Wait()
			s.want(s.ask(costing(2, "user", "u1")), "deny")
		}
	})
}

// TestAHintUnderASmallerAmountSpeaksOfThat.
func TestAHintUnderASmallerAmountSpeaksOfThat(t *testing.T) {
	one := deny(20 * time.Second)
	left := uint64(1)
	one.Remaining = &left
	play(t, 1, answering(reply{answer: one}), func(s *scene) {
		s.want(s.ask(costing(2, "user", "u1")), "deny")
		a, err := s.client.Check(context.Background(), costing(2, "user", "u1", "tier", "low"))
		if err != nil || a.GetLimit() != 2 || a.GetRemaining() != 0 || a.WholeAmountNs != nil || len(s.sends()) != 1 {
			s.Errorf("%v, %v", a, err)
		}
	})
}

// TestANewRevisionDropsHints of the older one.
func TestANewRevisionDropsHints(t *testing.T) {
	hinting(t, 20*time.Second, func(s *scene) {
		s.want(s.check(), "deny")
		set := testSet()
		s.a.news <- policiesOf(set, 2)
		synctest.Wait()
		if n := s.asked(func() { s.check() }); n != 0 {
			s.Error("a set in which the policy is the same drops its hint")
		}
		set.Policies[0].Limits[0].Amount = 4
		s.a.news <- policiesOf(set, 3)
		synctest.Wait()
		if n := s.asked(func() { s.check() }); n != 1 {
			s.Error("a hint outlasts its revision")
		}
	})
}

// TestACostThatNeverFitsIsRemembered for 30 s, without a wait.
func TestACostThatNeverFitsIsRemembered(t *testing.T) {
	never := deny(time.Second)
	never.Reason, never.WaitNs, never.RetryAfterS, never.ResetNs = quotav1.Reason_REASON_COST_EXCEEDS_LIMIT, nil, nil, nil
	play(t, 1, answering(reply{answer: never}), func(s *scene) {
		s.want(s.ask(costing(4, "user", "u1")), "deny")
		n := s.asked(func() {
			a, err := s.client.Check(context.Background(), costing(5, "user", "u1"))
			if err != nil || a.GetReason() != quotav1.Reason_REASON_COST_EXCEEDS_LIMIT || a.WaitNs != nil || a.RetryAfterS != nil {
				s.Errorf("%v, %v", a, err)
			}
		})
		if n != 0 {
			s.Error("it is asked again")
		}
		if n := s.asked(func() { s.want(s.ask(costing(3, "user", "u1")), "deny") }); n != 1 {
			s.Error("a cost that may fit is denied by it")
		}
		time.Sleep(30 * time.Second)
		if n := s.asked(func() { s.want(s.ask(costing(4, "user", "u1")), "deny") }); n != 1 {
			s.Error("it is remembered for more than 30 s")
		}
	})
}

// TestWhatIsNotKnownExactlyLeavesNoHint: a denial under a leader's resolution, of one of two keys, or without
// a limit.
func TestWhatIsNotKnownExactlyLeavesNoHint(t *testing.T) {
	bare := &quotav1.Answer{Decision: quotav1.Decision_DECISION_DENY, Reason: quotav1.Reason_REASON_NO_POLICY, Epoch: 1}
	other := deny(time.Minute)
	other.LimitName = "per-hour"
	for name, c := range map[string]struct {
		replies []reply
		more    []*quotav1.Descriptor
	}{
		"a leader's resolution": {[]reply{stalePolicy(&quotav1.Resolution{SetEpoch: 1, SetVersion: 2}), {answer: deny(time.Minute)}}, nil},
		"one of two keys":       {[]reply{{answer: deny(time.Minute)}}, []*quotav1.Descriptor{descriptor("user", "u2")}},
		"no limit":              {[]reply{{answer: bare}}, nil},
		"a limit of tomorrow":   {[]reply{{answer: other}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, answering(c.replies...), func(s *scene) {
				ask := func() {
					m := asks("user", "u1")
					m.Descriptors = append(m.Descriptors, c.more...)
					s.want(said(s.client.Check(context.Background(), m)), "deny")
				}
				ask()
				if n := s.asked(ask); n == 0 {
					s.Error("it is denied from memory")
				}
			})
		})
	}
}

// TestHintsAreBounded, and whatever is forgotten is asked again.
func TestHintsAreBounded(t *testing.T) {
	h := client.NewHints()
	for i := range 3 * client.MaxHints / 2 {
		h.Put([]byte{byte(i), byte(i >> 8), byte(i >> 16)}, int64(i), int64(i)+10)
	}
	if n := h.Len(); n > client.MaxHints || n < client.MaxHints/2 {
		t.Errorf("%d hints", n)
	}
}
