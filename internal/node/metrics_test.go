package node_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/partition"
)

// TestMET01KeysGrowNoMetrics: a label that held a key would be a series per caller.
func TestMET01KeysGrowNoMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := openClusterWith(t, t.TempDir(), threePerMinute(), registry)
	ready(t, c)
	want(t, c, "u0", partition.Allowed, partition.Allowed, partition.Allowed, partition.Denied)
	before := series(t, registry)
	for i := range 2000 {
		want(t, c, fmt.Sprintf("u%d", i+1), partition.Allowed)
	}
	if after := series(t, registry); after != before {
		t.Errorf("%d series after 2,000 more keys, %d before", after, before)
	}
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
