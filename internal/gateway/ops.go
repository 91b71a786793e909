package gateway

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
			say(w, http.StatusOK, "ok")
		case "/readyz":
			switch {
			case s.isStopping():
				say(w, http.StatusServiceUnavailable, "the gateway is stopping")
			case !s.cfg.Asker.Ready():
				say(w, http.StatusServiceUnavailable, "no node has told yet whom to ask, and about what")
			default:
				say(w, http.StatusOK, "ok")
			}
		default:
			say(w, http.StatusNotFound, "there are /metrics, /livez and /readyz")
		}
	})
}

// ready says whether whoever asks now has a chance to be answered.
func (s *Server) ready() bool { return !s.isStopping() && s.cfg.Asker.Ready() }

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}
