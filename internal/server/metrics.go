package server

import (
	"github.com/prometheus/client_golang/prometheus"
)

// frontGRPC is what metrics call the services; a gateway has another front beside them.
const frontGRPC = "grpc"

// Why callers were refused, as metrics say it.
const (
	refusedHandshake   = "handshake"   // no connection
	refusedCertificate = "certificate" // it no longer counts
	refusedPermission  = "permission"  // it doesn't give the right
)

// metrics are the server's own; what was decided is counted by package partition. Labels are of our own
// words only, whatever a caller sends.
type metrics struct {
	panics  *prometheus.CounterVec
	refused *prometheus.CounterVec
	streams prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_panics_total", Help: "Defects that ended a request instead of the process, by front.",
		}, []string{"front"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_callers_refused_total", Help: "Connections, calls and checks that certificates do not permit, by why.",
		}, []string{"why"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quorate_check_streams", Help: "Check streams that are open.",
		}),
	}
	for _, why := range []string{refusedHandshake, refusedCertificate, refusedPermission} {
		m.refused.WithLabelValues(why)
	}
	m.panics.WithLabelValues(frontGRPC)
	r.MustRegister(m.panics, m.refused, m.streams)
	return m
}

func (m *metrics) refuse(why string) { m.refused.WithLabelValues(why).Inc() }
