package client

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
)

// metrics are one client's. Labels are of our own words only.
type metrics struct {
	allows, denials, hinted prometheus.Counter
	failures                *prometheus.CounterVec
	first, repeat, peek     prometheus.Counter // sends
	broken, spent           prometheus.Counter
	inFlight                prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, hints *hints) (*metrics, error) {
	checks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quorate_client_checks_total", Help: "Checks with a decision, by decision and whether a node was asked.",
	}, []string{"decision", "source"})
	sends := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quorate_client_sends_total", Help: "Checks sent to nodes, by kind.",
	}, []string{"kind"})
	m := &metrics{
		first: sends.WithLabelValues("first"), repeat: sends.WithLabelValues("repeat"), peek: sends.WithLabelValues("peek"),
		allows:  checks.WithLabelValues("allow", "node"),
		denials: checks.WithLabelValues("deny", "node"),
		hinted:  checks.WithLabelValues("deny", "hint"),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_client_failures_total", Help: "Checks without a decision, by reason.",
		}, []string{"reason"}),
		broken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_client_streams_ended_total", Help: "Check streams to nodes that have ended.",
		}),
		spent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_client_budget_spent_total", Help: "Repetitions that the retry budget did not allow.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quorate_client_checks_in_flight", Help: "Checks that wait for their decision.",
		}),
	}
	if r == nil {
		return m, nil
	}
	known := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorate_client_deny_hints", Help: "Denials that are remembered.",
	}, func() float64 { return float64(hints.count.Load()) })
	var errs []error
	for _, c := range []prometheus.Collector{checks, m.failures, sends, m.broken, m.spent, m.inFlight, known} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) sent(k *ask) {
	switch {
	case k.peek:
		m.peek.Inc()
	case k.sends == 1:
		m.first.Inc()
	default:
		m.repeat.Inc()
	}
}

func (m *metrics) decided(a *quotav1.Answer) {
	if denied(a) {
		m.denials.Inc()
	} else {
		m.allows.Inc()
	}
}

func (m *metrics) failed(reason quotav1.FailureReason) {
	if _, known := quotav1.FailureReason_name[int32(reason)]; !known {
		reason = outcomeUnknown
	}
	m.failures.WithLabelValues(strings.ToLower(strings.TrimPrefix(reason.String(), "FAILURE_REASON_"))).Inc()
}
