package server

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Ops serves what operators look at: /metrics, /livez and /readyz. It shows no key and no policy.
func (s *Server) Ops() http.Handler {
	metrics := promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			say(w, http.StatusMethodNotAllowed, "it takes GET and HEAD")
			return
		}
		switch r.URL.Path {
		case "/metrics":
			metrics.ServeHTTP(w, r)
		case "/livez":
			s.sayAlive(w)
		case "/readyz":
			s.sayReady(w)
		default:
			say(w, http.StatusNotFound, "there are /metrics, /livez and /readyz")
		}
	})
}

// sayReady tells whoever sends checks whether they have a chance here, and if not, why.
func (s *Server) sayReady(w http.ResponseWriter) {
	if ok, why := s.cfg.Ready(); !ok {
		say(w, http.StatusServiceUnavailable, why)
		return
	}
	say(w, http.StatusOK, "ok")
}

// sayAlive tells whoever may start the process anew whether that would help.
func (s *Server) sayAlive(w http.ResponseWriter) {
	if s.cfg.Alive != nil {
		if err := s.cfg.Alive(); err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
	}
	say(w, http.StatusOK, "ok")
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}
