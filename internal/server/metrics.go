package server

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Fronts, as metrics and logs call them.
const (
	frontGRPC = "grpc"
	frontHTTP = "http"
)

// metrics are the server's own; what was decided is counted by package partition. Labels are of our own
// words only, whatever a caller sends.
type metrics struct {
	requests *prometheus.CounterVec
	panics   *prometheus.CounterVec
	streams  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_http_requests_total", Help: "Requests to the HTTP front, by route and status.",
		}, []string{"route", "status"}),
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_panics_total", Help: "Defects that ended a request instead of the process, by front.",
		}, []string{"front"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quorate_check_streams", Help: "Check streams that are open.",
		}),
	}
	m.panics.WithLabelValues(frontGRPC)
	m.panics.WithLabelValues(frontHTTP)
	m.requests.WithLabelValues(checkPath, strconv.Itoa(http.StatusOK))
	r.MustRegister(m.requests, m.panics, m.streams)
	return m
}

func (m *metrics) answered(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}
