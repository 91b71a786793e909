package gateway

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/access"
)

// Fronts, as metrics and logs call them.
const (
	frontGRPC = "grpc"
	frontHTTP = "http"
)

// metrics are the gateway's own; what was sent to nodes, and how often, is counted by the Asker. Labels are of
// our own words only, whatever a caller or a node sends.
type metrics struct {
	answers  *prometheus.CounterVec
	requests *prometheus.CounterVec
	panics   *prometheus.CounterVec
	refused  *prometheus.CounterVec
	streams  prometheus.Gauge
}

// Why the gateway refused by itself.
const (
	refusedInFlight = "in_flight"
	refusedCaller   = "certificate"
	refusedDomain   = "domain"
	refusedInput    = "input"
	refusedStopping = "stopping"
)

func newMetrics(r prometheus.Registerer, inFlight func() float64) *metrics {
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_gateway_answers_total", Help: "Checks that were asked, by front and by what was answered.",
		}, []string{"front", "answer"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_gateway_http_requests_total", Help: "Requests to the HTTP front, by route and status.",
		}, []string{"route", "status"}),
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_gateway_panics_total", Help: "Defects that ended a request instead of the process, by front.",
		}, []string{"front"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_gateway_refused_total", Help: "Questions that the gateway refused by itself, without asking, by front and why.",
		}, []string{"front", "why"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quorate_gateway_check_streams", Help: "Check streams that are open.",
		}),
	}
	m.requests.WithLabelValues(checkPath, strconv.Itoa(http.StatusOK))
	for _, front := range []string{frontGRPC, frontHTTP} {
		m.panics.WithLabelValues(front)
		m.answers.WithLabelValues(front, allow)
		for _, why := range []string{refusedInFlight, refusedInput} {
			m.refused.WithLabelValues(front, why)
		}
	}
	for _, why := range []string{refusedCaller, refusedDomain, refusedStopping} {
		m.refused.WithLabelValues(frontGRPC, why)
	}
	r.MustRegister(m.answers, m.requests, m.panics, m.refused, m.streams, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorate_gateway_in_flight", Help: "Questions that are being asked.",
	}, inFlight))
	return m
}

// showCertificate registers what is known of the gateway's certificate: nobody else sees it end.
func showCertificate(r prometheus.Registerer, k *access.Keeper) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorate_gateway_certificate_not_after_seconds", Help: "When the gateway's certificate, or its CA, ends, in Unix time.",
	}, func() float64 { return float64(k.NotAfter().Unix()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorate_gateway_certificate_problem", Help: "1 while the certificate files can't be used as they are.",
	}, func() float64 {
		if k.Problem() != nil {
			return 1
		}
		return 0
	}))
}

func (m *metrics) answered(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}
