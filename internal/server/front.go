package server

import (
	"context"
	"net/http"
	"time"

	"github.com/quorate/quorate/internal/partition"
)

const (
	checkPath = "/check"
	otherPath = "other" // the label of every other one, whatever it is

	// frontTimeout is the deadline of a check over HTTP.
	frontTimeout = 2 * time.Second
	// frontAttempts bounds the sends of one check.
	frontAttempts = 3
	// frontPause is how long the front waits before it sends again, doubled each time: leadership changes
	// hands in about an election timeout.
	frontPause = 250 * time.Millisecond
)

// Front is the HTTP front: /check, and JSON for everything.
func (s *Server) Front() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := otherPath
		if r.URL.Path == checkPath {
			route = checkPath
		}
		a := reply{status: http.StatusInternalServerError, word: "internal", message: "a defect of the node ended the request"}
		s.guard(frontHTTP, func() { a = s.route(route, w, r) })
		a.write(w)
		s.metrics.answered(route, a.status)
	})
}

func (s *Server) route(route string, w http.ResponseWriter, r *http.Request) reply {
	if route != checkPath {
		return reply{status: http.StatusNotFound, word: "not_found", message: "there is only " + checkPath}
	}
	var (
		q question
		f *badInput
	)
	switch {
	case r.Method == http.MethodGet && r.ContentLength != 0:
		f = bad(&fault{"body", "is not read with GET; ask with POST"})
	case r.Method == http.MethodGet:
		q, f = parseQuery(r.URL.RawQuery)
	case r.Method == http.MethodPost && r.URL.RawQuery != "":
		f = bad(&fault{"query", "is not read with POST; put it in the body"})
	case r.Method == http.MethodPost:
		q, f = readBody(w, r)
	default:
		w.Header().Set("Allow", "GET, POST")
		return reply{status: http.StatusMethodNotAllowed, word: "method_not_allowed", message: "it takes GET and POST"}
	}
	var request partition.Request
	if f == nil {
		request, f = q.request(s.cfg.Domains)
	}
	if f != nil {
		return reply{status: f.status, word: meaningOf(partition.Invalid).word, message: f.Error()}
	}
	return s.answer(r.Context(), request)
}

// answer asks and translates. The caller's connection ends the wait too: then nobody reads the answer.
func (s *Server) answer(ctx context.Context, request partition.Request) reply {
	request.ID, request.Unfenced = newID(), true
	request.Deadline = s.deadline(frontTimeout)
	ctx, cancel := context.WithTimeout(ctx, frontTimeout)
	defer cancel()
	o := s.askAgain(ctx, request)
	m := meaningOf(o.Result)
	a := reply{
		status: m.status, decision: m.decision, word: m.word, message: m.describe(o.Detail),
		id: &request.ID, retry: retryAfter(&o),
	}
	if m.decided() {
		a.outcome = &o
	}
	if m.status == http.StatusServiceUnavailable {
		a.retry = 1
	}
	return a
}

// askAgain asks, and asks again where leadership may have changed hands: under the same id, and from the
// first unknown outcome on under the fence that the id had then, so that what was charged is found and not
// charged twice. What nobody knows stays unknown, whatever a later send that failed has to say.
func (s *Server) askAgain(ctx context.Context, r partition.Request) partition.Outcome {
	lost := false
	for attempt := 1; ; attempt++ {
		c := s.ask(ctx, r)
		if c == nil {
			return partition.Outcome{Result: partition.Unknown}
		}
		o := c.Outcome
		if o.Result == partition.WouldAllow { // an answer to a question that nobody asked
			o = partition.Outcome{Result: partition.Unknown}
		}
		if o.Result == partition.Unknown && !lost {
			lost, r.Fence, r.Unfenced = true, c.Fence, false
		}
		if lost && !meaningOf(o.Result).decided() {
			o = partition.Outcome{Result: partition.Unknown}
		}
		again := o.Result == partition.Unknown || o.Result == partition.NotLeader
		if !again || attempt == frontAttempts || !pause(ctx, frontPause<<(attempt-1)) {
			return o
		}
	}
}

// pause waits; false when ctx ends first, or would.
func pause(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
