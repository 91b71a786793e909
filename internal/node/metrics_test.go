package node_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/partition"
)

// TestMET01KeysGrowNoMetrics: a label that held a key would be a series per caller.
func TestMET01KeysGrowNoMetrics(t *testing.T) {
	dir, registry := t.TempDir(), prometheus.NewRegistry()
	synctest.Test(t, func(t *testing.T) {
		c := openRegistered(t, dir, nil, threePerMinute(), registry)
		defer closed(t, c)
		readyInBubble(t, c)
		want(t, c, "u0", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
		before := series(t, registry)
		for i := range 1000 {
			want(t, c, fmt.Sprintf("u%d", i+1), partition.Allowed)
		}
		if after := series(t, registry); after != before {
			t.Errorf("%d series after 1,000 more keys, %d before", after, before)
		}
	})
}

// TestMetricsShowTheState: memory against its bound, who leads, who is missing.
func TestMetricsShowTheState(t *testing.T) {
	dir, registry := t.TempDir(), prometheus.NewRegistry()
	synctest.Test(t, func(t *testing.T) {
		c := openRegistered(t, dir, nil, threePerMinute(), registry)
		defer closed(t, c)
		readyInBubble(t, c)
		want(t, c, "a", partition.Allowed, partition.Allowed)
		want(t, c, "b", partition.Allowed)
		got := gauges(t, registry)
		for name, value := range map[string]float64{
			"quorate_keys": 2, "quorate_decision_records": 3, "quorate_leading": 1, "quorate_replicas_awaiting": 0,
			"quorate_memory_bound_bytes": 1 << 30,
		} {
			if got[name] != value {
				t.Errorf("%s is %v, want %v", name, got[name], value)
			}
		}
		if got["quorate_memory_bytes"] < 200 {
			t.Errorf("%v bytes", got["quorate_memory_bytes"])
		}
	})
}

func gauges(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return values
}

func series(t *testing.T, r *prometheus.Registry) (n int) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}
