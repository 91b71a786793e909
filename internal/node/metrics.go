package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/fsm"
)

// register adds what is looked up when somebody asks: the state of the replica that
// leads, by its own logical bytes, and what is missing.
func (c *Cluster) register(r *prometheus.Registry) {
	for name, gauge := range map[string]struct {
		help  string
		value func() float64
	}{
		"quorate_memory_bytes":       {"Logical bytes of the leader's state.", c.ofMemory(func(m fsm.Memory) float64 { return float64(m.Bytes) })},
		"quorate_memory_bound_bytes": {"Bound of its logical bytes.", c.ofMemory(func(m fsm.Memory) float64 { return float64(m.Bound) })},
		"quorate_keys":               {"Quota keys with usage.", c.ofMemory(func(m fsm.Memory) float64 { return float64(m.Keys) })},
		"quorate_decision_records":   {"Allows that can be replayed.", c.ofMemory(func(m fsm.Memory) float64 { return float64(m.Records) })},
		"quorate_leading":            {"1 if a replica of this process leads and answers.", c.leads},
		"quorate_replicas_awaiting":  {"Replicas that stay out until they are replaced.", c.awaiting},
	} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: gauge.help}, gauge.value))
	}
}

func (c *Cluster) ofMemory(of func(fsm.Memory) float64) func() float64 {
	return func() float64 {
		g := c.leading()
		if g == nil {
			return 0
		}
		return of(g.Status().Memory)
	}
}

func (c *Cluster) leads() float64 {
	if c.Leading() {
		return 1
	}
	return 0
}

func (c *Cluster) awaiting() (n float64) {
	for _, r := range c.infos {
		if r.Awaiting {
			n++
		}
	}
	return n
}
