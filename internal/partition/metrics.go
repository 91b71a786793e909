package partition

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of all replicas of one process; labels are bounded.
type Metrics struct {
	decisions     [WouldAllow + 1]prometheus.Counter
	replays       prometheus.Counter
	batchSize     prometheus.Histogram
	commitSeconds prometheus.Histogram
	leaderChanges prometheus.Counter
	clockGaps     prometheus.Counter
}

// resultLabels gives each result its labels: what was decided, and why.
var resultLabels = [WouldAllow + 1][2]string{
	Allowed:        {"allow", "limit"},
	NoMatchAllowed: {"allow", "no_match"},
	Denied:         {"deny", "limit"},
	Exceeded:       {"deny", "cost_exceeds_limit"},
	NoPolicy:       {"deny", "no_policy"},
	UnknownDomain:  {"deny", "unknown_domain"},
	Invalid:        {"refused", "invalid"},
	Conflict:       {"refused", "decision_id_conflict"},
	StaleTime:      {"refused", "stale_time"},
	StalePolicy:    {"unavailable", "stale_policy"},
	NotLeader:      {"unavailable", "not_leader"},
	NoQuorum:       {"unavailable", "no_quorum"},
	Pending:        {"unavailable", "policy_pending"},
	Overloaded:     {"unavailable", "overloaded"},
	Late:           {"unavailable", "deadline"},
	Memory:         {"unavailable", "memory"},
	Unknown:        {"unavailable", "outcome_unknown"},
	Stopping:       {"unavailable", "stopping"},
	NotSupported:   {"refused", "not_supported"},
	WouldAllow:     {"peek", "limit"},
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		replays: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_replayed_allows_total", Help: "Allows given again to a repeated decision id.",
		}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quorate_batch_checks", Help: "Checks sealed into one entry.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 6),
		}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quorate_commit_seconds", Help: "From sealing an entry to applying it.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		leaderChanges: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_leader_changes_total", Help: "Terms that a replica of this process began to lead.",
		}),
		clockGaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_clock_gaps_total", Help: "Advances of the clocks that a leader didn't count as time.",
		}),
	}
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quorate_decisions_total", Help: "Checks answered, by outcome and reason.",
	}, []string{"outcome", "reason"})
	for result, labels := range resultLabels {
		if labels[0] != "" {
			m.decisions[result] = decisions.WithLabelValues(labels[0], labels[1])
		}
	}
	r.MustRegister(decisions, m.replays, m.batchSize, m.commitSeconds, m.leaderChanges, m.clockGaps)
	return m
}

func (m *Metrics) decided(o Outcome) {
	m.decisions[o.Result].Inc()
	if o.Answer.Replayed {
		m.replays.Inc()
	}
}
