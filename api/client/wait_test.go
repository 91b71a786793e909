package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// TestWaitAsksAgainUnderANewIDAfterTheWaitThatWasAdvised.
func TestWaitAsksAgainUnderANewIDAfterTheWaitThatWasAdvised(t *testing.T) {
	full, seconds := fails(quotav1.FailureReason_FAILURE_REASON_OVERLOADED), int64(3)
	full.failure.RetryAfterS = &seconds
	play(t, 1, answering(reply{answer: deny(10 * time.Second)}, full, allowed), func(s *scene) {
		begin := time.Now()
		a, err := s.client.Wait(context.Background(), asks("user", "u1"))
		if took := time.Since(begin); err != nil || a.GetDecision() != quotav1.Decision_DECISION_ALLOW || took != 14*time.Second {
			s.Errorf("%v, %v after %v", a, err, took)
		}
		ids := map[string]bool{}
		for _, m := range s.sends() {
			ids[string(m.GetCheck().GetDecisionId())] = true
		}
		if len(ids) != 3 {
			s.Errorf("%d ids", len(ids))
		}
	})
}

// TestWaitReturnsWhereWaitingIsNoUse, at once.
func TestWaitReturnsWhereWaitingIsNoUse(t *testing.T) {
	never := deny(time.Second)
	never.Reason, never.WaitNs, never.RetryAfterS = quotav1.Reason_REASON_COST_EXCEEDS_LIMIT, nil, nil
	for name, c := range map[string]struct {
		reply reply
		want  string
	}{
		"never fits":              {reply{answer: never}, "deny"},
		"the context ends before": {reply{answer: deny(time.Minute)}, "deny"},
		"bad input":               {fails(quotav1.FailureReason_FAILURE_REASON_INVALID_ARGUMENT), "INVALID_ARGUMENT"},
		"no word of when":         {fails(quotav1.FailureReason_FAILURE_REASON_MEMORY), "MEMORY"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, answering(c.reply), func(s *scene) {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				begin := time.Now()
				s.want(said(s.client.Wait(ctx, asks("user", "u1"))), c.want)
				if took := time.Since(begin); took != 0 {
					s.Errorf("it took %v", took)
				}
			})
		})
	}
	play(t, 1, answering(allowed), func(s *scene) {
		m := asks("user", "u1")
		m.DecisionId = make([]byte, 16)
		s.want(said(s.client.Wait(context.Background(), m)), "INVALID_ARGUMENT")
	})
}

// TestWaitDoesNotAskAgainWhatMayBeCharged: under a new id it would be charged twice.
func TestWaitDoesNotAskAgainWhatMayBeCharged(t *testing.T) {
	play(t, 1, answering(reply{silent: true}, allowed), func(s *scene) {
		s.want(said(s.client.Wait(context.Background(), asks("user", "u1"))), "OUTCOME_UNKNOWN")
		if n := len(s.sends()); n != 1 {
			s.Errorf("%d sends", n)
		}
	})
}

// TestWaitEndsWithItsContext, and with the client.
func TestWaitEndsWithItsContext(t *testing.T) {
	for _, closing := range []bool{false, true} {
		play(t, 1, answering(reply{answer: deny(time.Hour)}), func(s *scene) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			got := make(chan string)
			go func() { got <- said(s.client.Wait(ctx, asks("user", "u1"))) }()
			synctest.Wait()
			if closing {
				s.client.Close()
			} else {
				cancel()
			}
			s.want(<-got, "deny")
		})
	}
}
