package partition

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/fsm"
)

// Metrics are those of all replicas of one process; labels are bounded.
type Metrics struct {
	decisions     [WouldAllow + 1]prometheus.Counter
	replays       prometheus.Counter
	admissions    prometheus.Counter
	batchSize     prometheus.Histogram
	stages        [stageTotal + 1]prometheus.Observer
	appends       prometheus.Histogram
	leaderChanges prometheus.Counter
	stalls        prometheus.Counter
	clockGaps     prometheus.Counter
}

// stage is a part of the way of a check that takes the log's.
type stage uint8

const (
	stageQueue  stage = iota // from Submit until its batch is sealed
	stageCommit              // from there until a majority has the entry, and this replica begins to apply it
	stageApply               // deciding the batch
	stageTotal               // all three
)

var stageLabels = [stageTotal + 1]string{stageQueue: "queue", stageCommit: "commit", stageApply: "apply", stageTotal: "total"}

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
	Clock:          {"unavailable", "clock"},
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
		admissions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_admissions_applied_total", Help: "Admissions that replicas of this process charged as they applied their logs.",
		}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quorate_batch_checks", Help: "Checks sealed into one entry.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 6),
		}),
		appends: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quorate_log_append_seconds", Help: "Appending entries to a replica's log, until they are on disk (fdatasync).",
			Buckets: latencyBuckets(),
		}),
		leaderChanges: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_leader_changes_total", Help: "Terms that a replica of this process began to lead.",
		}),
		stalls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_stalls_total", Help: "Times that a leader got nothing applied for so long that it handed over.",
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
	stages := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "quorate_stage_seconds", Help: "How long batches took, by stage; of each batch the check that waited longest counts.",
		Buckets: latencyBuckets(),
	}, []string{"stage"})
	for s, label := range stageLabels {
		m.stages[s] = stages.WithLabelValues(label)
	}
	r.MustRegister(decisions, m.replays, m.admissions, m.batchSize, stages, m.appends, m.leaderChanges, m.stalls, m.clockGaps)
	return m
}

// latencyBuckets go from 0.1 ms, which a fast disk takes, to the three seconds after which callers have gone.
func latencyBuckets() []float64 { return prometheus.ExponentialBuckets(0.0001, 2, 16) }

// Appended hears how long an append to a replica's log took; see [StoreOptions].
func (m *Metrics) Appended(took time.Duration) { m.appends.Observe(took.Seconds()) }

// applied observes the stages of a batch, once for all of its checks. Readings are of the monotonic clock: when
// the oldest of them came, when the batch was sealed, and when its apply began and ended.
func (m *Metrics) applied(oldest, sealed, began, ended int64) {
	seconds := func(from, to int64) float64 { return time.Duration(max(0, to-from)).Seconds() }
	m.stages[stageQueue].Observe(seconds(oldest, sealed))
	m.stages[stageCommit].Observe(seconds(sealed, began))
	m.stages[stageApply].Observe(seconds(began, ended))
	m.stages[stageTotal].Observe(seconds(oldest, ended))
}

// timed is a state machine that notes when it began to apply the newest entry, and when it was through. Raft
// applies one after another.
type timed struct {
	*fsm.Replicated
	now          func() int64
	began, ended *atomic.Int64
}

// Apply implements raft.FSM.
func (t timed) Apply(l *raft.Log) any {
	t.began.Store(t.now())
	defer func() { t.ended.Store(t.now()) }()
	return t.Replicated.Apply(l)
}

// admitted counts the admissions of an entry, on whichever replica it is applied: what the state machine charged, not
// what anybody was told.
func (m *Metrics) admitted(answers []fsm.Answer) {
	n := 0
	for i := range answers {
		if answers[i].Verdict == fsm.VerdictAllow && !answers[i].Replayed {
			n++
		}
	}
	m.admissions.Add(float64(n))
}

func (m *Metrics) decided(o Outcome) {
	m.decisions[o.Result].Inc()
	if o.Answer.Replayed {
		m.replays.Inc()
	}
}
