package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/partition"
)

// register adds what is looked up when somebody asks.
func (n *Node) register(r prometheus.Registerer) { r.MustRegister(&collector{n}) }

// collector tells how a node's replicas, links and clock are. Its labels are partitions and nodes, of which
// there are few.
type collector struct{ node *Node }

// descOf names a metric.
func descOf(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("quorate_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector: it is an unchecked one, since what there is changes.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	n := c.node
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	reading := n.clock.Read()
	gauge(descOf("clock_drift_ppm", "How far CLOCK_MONOTONIC ran ahead of CLOCK_MONOTONIC_RAW since the start, in parts per million."), float64(n.clock.Drift()))
	counter(descOf("clock_advances_not_counted_total", "Advances of the clocks that were not counted as time: freezes, suspended machines."), float64(reading.Gaps))
	ph := n.phase.Load()
	for _, state := range []string{founding, starting, up, awaiting} {
		gauge(descOf("node_state", "1 for the state that the node is in.", "state"), oneIf(ph.state == state), state)
	}
	if n.cfg.Keeper != nil {
		gauge(descOf("certificate_not_after_seconds", "When the node's certificate, or its CA, ends, in Unix time."), float64(n.cfg.Keeper.NotAfter().Unix()))
		gauge(descOf("certificate_problem", "1 while the certificate files can't be used as they are."), oneIf(n.cfg.Keeper.Problem() != nil))
	}
	h := n.hosting.Load()
	if h == nil {
		return
	}
	for _, r := range h.replicas {
		c.replica(gauge, r)
	}
	c.links(gauge, counter, h)
}

type sample func(d *prometheus.Desc, v float64, labels ...string)

func (c *collector) replica(gauge sample, r *replica) {
	p := strconv.Itoa(r.partition)
	gauge(descOf("replica_awaiting_replacement", "1 while the replica stays out.", "partition"), oneIf(r.keptOut() != nil), p)
	var s partition.Status
	if g := r.running(); g != nil {
		s = g.Status()
	}
	for _, m := range []struct {
		name, help string
		value      float64
	}{
		{"leading", "1 if this node leads the partition and answers.", oneIf(s.Ready)},
		{"clock_doubted", "1 while the node's clock runs faster than those of all other replicas that are heard.", oneIf(r.doubted.Load())},
		{"leader_known", "1 if the replica knows a leader.", oneIf(s.Leader != "")},
		{"raft_term", "Raft term of the replica.", float64(s.Term)},
		{"applied_index", "Index of the last entry that the replica has applied.", float64(s.Applied)},
		{"replica_lag_entries", "Entries that are committed, as far as the replica knows, and not applied.", float64(s.Lag)},
		{"decision_time_seconds", "Decision time of the last entry applied.", float64(s.Now) / 1e9},
		{"policy_set_version", "Number of the policy set that the replica enforces; 0: none.", float64(s.Version.Number)},
		{"memory_bytes", "Logical bytes of the replica's state.", float64(s.Memory.Bytes)},
		{"memory_bound_bytes", "Bound of its logical bytes.", float64(s.Memory.Bound)},
		{"keys", "Quota keys with usage.", float64(s.Memory.Keys)},
		{"decision_records", "Allows that can be replayed.", float64(s.Memory.Records)},
		{"log_bytes", "Bytes of the replica's log.", float64(s.LogBytes)},
	} {
		gauge(descOf(m.name, m.help, "partition"), m.value, p)
	}
}

func (c *collector) links(gauge, counter sample, h *hosting) {
	for _, p := range h.links.Peers() {
		gauge(descOf("link_up", "1 if the link to the node's replicas is up.", "peer"), oneIf(p.Connected), p.Node)
		counter(descOf("link_connects_total", "How often the link to the node came up.", "peer"), float64(p.Connects), p.Node)
		counter(descOf("link_sent_bytes_total", "Bytes sent to the node, snapshots included.", "peer"), float64(p.Sent), p.Node)
		counter(descOf("link_received_bytes_total", "Bytes received from the node.", "peer"), float64(p.Received), p.Node)
		gauge(descOf("link_queued_bytes", "Bytes of requests that wait to be sent to the node.", "peer"), float64(p.Queued), p.Node)
		counter(descOf("link_busy_total", "Requests refused because too many waited.", "peer"), float64(p.Busy), p.Node)
	}
	counter(descOf("links_refused_total", "Connections that were not accepted: strangers, other clusters, wrong names."), float64(h.links.Refused()))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
