package gateway

import (
	"context"
	"net/http"
	"time"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

const (
	checkPath = "/check"
	otherPath = "other" // the label of every other one, whatever it is

	// frontTimeout is the deadline of a check over HTTP.
	frontTimeout = 2 * time.Second
)

// Front is the HTTP front: /check, and JSON for everything.
func (s *Server) Front() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := otherPath
		if r.URL.Path == checkPath {
			route = checkPath
		}
		a := reply{status: http.StatusInternalServerError, word: "internal", message: "a defect of the gateway ended the request"}
		s.guard(frontHTTP, func() { a = s.route(route, w, r) })
		a.write(w)
		s.metrics.answered(route, a.status)
	})
}

func (s *Server) route(route string, w http.ResponseWriter, r *http.Request) reply {
	if route != checkPath {
		return reply{status: http.StatusNotFound, word: "not_found", message: "there is only " + checkPath}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		return reply{status: http.StatusMethodNotAllowed, word: "method_not_allowed", message: "it takes GET and POST"}
	}
	q, f := readQuestion(w, r)
	if f != nil {
		return s.badInput(f)
	}
	domain, refused := s.domainOf(frontHTTP, q.domain, q.named, "")
	if refused != nil {
		return replyTo(refused)
	}
	check, f := q.check(domain)
	if f != nil {
		return s.badInput(f)
	}
	return s.answer(r.Context(), check)
}

// readQuestion reads a query or a body, and refuses whichever the method doesn't read: nothing is ignored.
func readQuestion(w http.ResponseWriter, r *http.Request) (question, *badInput) {
	switch {
	case r.Method == http.MethodGet && r.ContentLength != 0:
		return question{}, bad(&fault{"body", "is not read with GET; ask with POST"})
	case r.Method == http.MethodGet:
		return parseQuery(r.URL.RawQuery)
	case r.URL.RawQuery != "":
		return question{}, bad(&fault{"query", "is not read with POST; put it in the body"})
	default:
		return readBody(w, r)
	}
}

func (s *Server) badInput(f *badInput) reply {
	a := replyTo(s.refuse(frontHTTP, f.fault, ""))
	a.status = f.status
	return a
}

// answer asks and translates. The question has no id: the Asker makes one that nobody outside has chosen. The caller's
// connection ends the wait too: then nobody reads the answer.
func (s *Server) answer(ctx context.Context, check *quotav1.CheckRequest) reply {
	ctx, cancel := context.WithTimeout(ctx, frontTimeout)
	defer cancel()
	o := s.check(ctx, frontHTTP, check)
	return replyTo(&o)
}
