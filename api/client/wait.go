package client

import (
	"context"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// Wait asks until the answer is an allow, each time under a new id and after the wait that the denial advised.
// It returns a denial only where waiting is no use: the cost can never fit, nothing permits the check, or the
// context ends first, in which case it doesn't wait for that end. It reserves nothing: whoever else asks may
// be admitted before.
//
// Its error is an [*Unavailable], as that of [Client.Check]: of what surely consumed nothing and is worth
// asking again it asks again, everything else it returns at once. A decision id is refused, since it names one
// question.
func (c *Client) Wait(ctx context.Context, question *quotav1.CheckRequest) (*quotav1.Answer, error) {
	if len(question.GetDecisionId()) > 0 {
		return nil, badInput("decision_id", "names one question, and to wait is to ask several")
	}
	for {
		a, err := c.check(ctx, question)
		var pause time.Duration
		switch {
		case err == nil && (!denied(a) || a.GetRetryAfterS() < 1):
			return a, nil
		case err == nil:
			pause = time.Duration(min(a.GetRetryAfterS(), longestPauseS)) * time.Second
		default:
			c.metrics.failed(err.Reason)
			if pause = err.RetryAfter; pause <= 0 || err.mayBeCharged() {
				return nil, err
			}
		}
		if !c.pass(ctx, pause) {
			return answerOr(a, err)
		}
	}
}

// longestPauseS keeps a wait within what a Duration holds, by far.
const longestPauseS = int64(365 * 24 * 3600)

func answerOr(a *quotav1.Answer, err *Unavailable) (*quotav1.Answer, error) {
	if err != nil {
		return nil, err
	}
	return a, nil
}

// pass lets d pass, false if the context or the client ends before.
func (c *Client) pass(ctx context.Context, d time.Duration) bool {
	if deadline, given := ctx.Deadline(); given && time.Until(deadline) <= d {
		return false
	}
	passed, giveUp := c.cfg.After(d)
	defer giveUp()
	select {
	case <-passed:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	case <-c.closing:
		return false
	}
}
