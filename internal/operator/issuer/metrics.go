package issuer

import "github.com/prometheus/client_golang/prometheus"

// Describe makes the issuer a [prometheus.Collector]. None of its metrics has a label, so there are always as many.
func (i *Issuer) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(i, out) }

// Collect tells what the last look has found. Before the first one there is nothing to tell but what was issued: none.
func (i *Issuer) Collect(out chan<- prometheus.Metric) {
	i.mu.Lock()
	last, issued := i.last, i.issued
	i.mu.Unlock()
	send := func(kind prometheus.ValueType, name, help string, value float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("quorate_operator_"+name, help, nil, nil), kind, value)
	}
	if last == nil {
		last = &plan{}
	}
	end := 0.0
	if last.trust != nil {
		end = float64(last.trust.current.Cert().NotAfter.Unix())
	}
	send(prometheus.CounterValue, "certificates_issued_total", "Certificates that were issued since the process started.", float64(issued))
	send(prometheus.GaugeValue, "certificates", "Certificates that are as they should be, the operator's own among them.", float64(last.inForce))
	send(prometheus.GaugeValue, "certificate_problems", "Secrets that somebody has to see to: events say why.", float64(len(last.problems)))
	send(prometheus.GaugeValue, "ca_not_after_seconds", "When the CA that signs ends, in Unix time; 0: there is none that can be used.", end)
}
