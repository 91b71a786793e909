package operator

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// Metrics are the operator's. Their labels are fixed words: objects come and go without a trace.
type Metrics struct {
	policies  *prometheus.GaugeVec
	set       *prometheus.GaugeVec
	confirmed prometheus.Gauge
	total     prometheus.Gauge
	held      prometheus.Gauge
	success   prometheus.Gauge
	applies   *prometheus.CounterVec
}

// NewMetrics registers the operator's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	in := promauto.With(r)
	of := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Name: "quorate_operator_" + name, Help: help}
	}
	gauge := func(name, help string) prometheus.Gauge { return in.NewGauge(prometheus.GaugeOpts(of(name, help))) }
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return in.NewGaugeVec(prometheus.GaugeOpts(of(name, help)), labels)
	}
	m := &Metrics{
		policies:  gauges("policies", "RateLimitPolicies by condition and its reason.", "condition", "reason"),
		set:       gauges("set_version", "Version of the policy set in force, its epoch and its number.", "part"),
		confirmed: gauge("partitions_confirmed", "Partitions whose leaders, confirmed by a majority, enforce the set in force."),
		total:     gauge("partitions", "Partitions of the cluster."),
		held:      gauge("held_removals", "Policies that are enforced, that no object stands for, and whose removal waits for a confirmation."),
		success:   gauge("last_success_timestamp_seconds", "When a reconcile last went through, in seconds since 1970."),
		applies: in.NewCounterVec(prometheus.CounterOpts(of("applies_total",
			"Policy sets sent to the nodes, by what became of them: changed, refused or failed.")), []string{"result"}),
	}
	m.objects(nil)
	m.version(client.Version{})
	for _, result := range []string{"changed", "refused", "failed"} {
		m.applies.WithLabelValues(result)
	}
	return m
}

// reasonsOf has each condition with all its reasons.
var reasonsOf = map[string][]string{
	v1alpha1.ConditionAccepted: {v1alpha1.ReasonAccepted, v1alpha1.ReasonInvalid, v1alpha1.ReasonConflicted,
		v1alpha1.ReasonDomainNotAllowed, v1alpha1.ReasonNotSupported, v1alpha1.ReasonRefused},
	v1alpha1.ConditionProgrammed: {v1alpha1.ReasonProgrammed, v1alpha1.ReasonPending, v1alpha1.ReasonNotAccepted,
		v1alpha1.ReasonRemovalHeld, v1alpha1.ReasonUnreachable},
}

// objects counts objects by what is said of them.
func (m *Metrics) objects(statuses []v1alpha1.RateLimitPolicyStatus) {
	counts := map[[2]string]int{}
	for i := range statuses {
		for _, c := range statuses[i].Conditions {
			counts[[2]string{c.Type, c.Reason}]++
		}
	}
	for condition, reasons := range reasonsOf {
		for _, reason := range reasons {
			m.policies.WithLabelValues(condition, reason).Set(float64(counts[[2]string{condition, reason}]))
		}
	}
}

// nodes shows what the nodes say, and what is held.
func (m *Metrics) nodes(o *observation, r *removals) {
	n, held := 0, 0
	for _, v := range o.confirmed {
		if v == o.force.version {
			n++
		}
	}
	if r.held {
		held = len(r.policies)
	}
	m.confirmed.Set(float64(n))
	m.total.Set(float64(o.partitions))
	m.held.Set(float64(held))
	m.version(o.force.version)
}

func (m *Metrics) version(v client.Version) {
	m.set.WithLabelValues("epoch").Set(float64(v.Epoch))
	m.set.WithLabelValues("number").Set(float64(v.Number))
}
