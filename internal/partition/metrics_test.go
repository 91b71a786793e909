package partition_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/keyspace"
	"github.com/quorate/quorate/internal/partition"
)

// every lists all results.
func every() (all []partition.Result) {
	for r := partition.Allowed; r <= partition.WouldAllow; r++ {
		all = append(all, r)
	}
	return all
}

func TestEveryResultHasLabelsOfItsOwn(t *testing.T) {
	seen := map[[2]string]partition.Result{}
	for _, r := range every() {
		labels := partition.LabelsOf(r)
		if labels[0] == "" || labels[1] == "" {
			t.Errorf("result %d has labels %v", r, labels)
		}
		if other, there := seen[labels]; there {
			t.Errorf("results %d and %d share the labels %v", r, other, labels)
		}
		seen[labels] = r
		if allows := labels[0] == "allow"; allows != (r <= partition.NoMatchAllowed) {
			t.Errorf("result %d is counted as %s", r, labels[0])
		}
	}
}

// gathered reads the counters of a registry by name and labels.
func gathered(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			values[key] = m.GetCounter().GetValue()
			if h := m.GetHistogram(); h != nil {
				values[key+" count"], values[key+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			}
		}
	}
	return values
}

func TestMetricsCountWhatWasAnswered(t *testing.T) {
	inBubble(t, func(cl *cluster) {
		r := cl.leader()
		before := len(gathered(t, r.registry))
		q := cl.request("three", "u1")
		r.submit(q, q, q) // one event, three answers
		pass(time.Second)
		r.ask(q) // a replay
		r.want("three", "u1", partition.Allowed, partition.Allowed, partition.Denied, partition.Denied)
		noMatch := cl.request("open", "")
		noMatch.Descriptors = []keyspace.Descriptor{descriptor("tenant", "t1")}
		r.ask(noMatch)
		dear := cl.request("three", "u2")
		dear.Cost = 9
		r.ask(dear)
		for i := range 50 { // other keys are no other labels
			r.ask(cl.request("many", time.Duration(i).String()))
		}
		got := gathered(t, r.registry)
		for key, want := range map[string]float64{
			"quorate_decisions_total allow limit":             3 + 1 + 2 + 50,
			"quorate_decisions_total allow no_match":          1,
			"quorate_decisions_total deny limit":              2,
			"quorate_decisions_total deny cost_exceeds_limit": 1,
			"quorate_decisions_total unavailable no_quorum":   0,
			"quorate_replayed_allows_total":                   1,
			"quorate_admissions_applied_total":                1 + 2 + 50,
			"quorate_leader_changes_total":                    1,
			"quorate_clock_gaps_total":                        0,
			"quorate_batch_checks count":                      1 + 2 + 50,
			"quorate_batch_checks sum":                        1 + 2 + 50,
			"quorate_stage_seconds queue count":               1 + 2 + 50,
			"quorate_stage_seconds commit count":              1 + 2 + 50,
			"quorate_stage_seconds apply count":               1 + 2 + 50,
			"quorate_stage_seconds total count":               1 + 2 + 50,
		} {
			if v, there := got[key]; !there || v != want {
				t.Errorf("%s is %v (%v), want %v", key, v, there, want)
			}
		}
		sum := func(stage string) float64 { return got["quorate_stage_seconds "+stage+" sum"] }
		if whole, parts := sum("total"), sum("queue")+sum("commit")+sum("apply"); math.Abs(whole-parts) > 1e-9 {
			t.Errorf("stages of %v s make up %v s", parts, whole)
		}
		if appends := got["quorate_log_append_seconds count"]; appends < 1+2+50 {
			t.Errorf("%v appends to the log for %d batches", appends, 1+2+50)
		}
		if len(got) != before {
			t.Errorf("%d series became %d", before, len(got))
		}
		decisions := 0
		for key := range got {
			if strings.HasPrefix(key, "quorate_decisions_total ") {
				decisions++
			}
		}
		if decisions != len(every()) {
			t.Errorf("%d series of decisions for %d results", decisions, len(every()))
		}
		r.clock.jump(10 * time.Second)
		r.ask(cl.request("three", "u1"))
		if got := gathered(t, r.registry); got["quorate_clock_gaps_total"] != 1 || got["quorate_decisions_total unavailable no_quorum"] != 1 {
			t.Errorf("after a freeze: %v gaps, %v without quorum", got["quorate_clock_gaps_total"], got["quorate_decisions_total unavailable no_quorum"])
		}
	})
}
