package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
)

func newStatusCommand() *cobra.Command {
	var (
		c      cluster
		output string
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the nodes and partitions of a cluster",
		Long: `Show the nodes and partitions of a cluster, as one of its nodes sees them.

Of a partition, SET is the version of the policies that it enforces; UP is how many of
its replicas run; LAG is by how many entries the slowest of those is behind; USED is
how much of its bound the fullest one holds; TIME is its decision time.

Exit status: 0 if every partition has a leader and every node is up, 1 if not or if
no node answers, 2 wrong usage.`,
		Example: "  quotactl status --server n1.example:8081,n2.example:8081 --ca ca.crt --cert reader.crt --key reader.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != outputText && output != outputJSON {
				return fmt.Errorf("--output %q: not one of text, json", output)
			}
			if err := c.validate(); err != nil {
				return err
			}
			return c.ask(cmd.Context(), func(ctx context.Context, admin *client.Admin) error {
				s, err := admin.Status(ctx)
				if err != nil {
					return c.refusal(err)
				}
				return showStatus(cmd.OutOrStdout(), s, output)
			})
		},
	}
	c.addFlags(cmd, 5*time.Second)
	cmd.Flags().StringVarP(&output, "output", "o", outputText, "text or json")
	return cmd
}

// showStatus shows it and ends with its exit status.
func showStatus(out io.Writer, s *quotav1.StatusResponse, output string) error {
	v := statusOf(s)
	var err error
	if output == outputJSON {
		err = writeJSON(out, v)
	} else {
		err = v.print(out)
	}
	if err == nil && !v.Healthy {
		return &command.Error{Status: command.Failure}
	}
	return err
}

// statusView is a status as it is shown.
type statusView struct {
	Healthy        bool            `json:"healthy"`
	Problems       []string        `json:"problems"`
	Cluster        *string         `json:"cluster_id"`
	Node           string          `json:"node"`
	Nodes          []nodeView      `json:"nodes"`
	Partitions     []partitionView `json:"partitions"`
	Clock          clockView       `json:"clock"`
	SystemReplicas []string        `json:"system_replicas"`
}

type nodeView struct {
	Name     string  `json:"name"`
	ID       *string `json:"id"`
	Zone     *string `json:"zone"`
	State    string  `json:"state"`
	Detail   *string `json:"detail"`
	Address  *string `json:"address"`
	HeardAgo *int64  `json:"heard_ago_ns"`
	Level    uint64  `json:"level"` // 0: not known
}

type partitionView struct {
	Partition    uint32        `json:"partition"`
	Leader       *string       `json:"leader"`
	Address      *string       `json:"address"`
	Term         uint64        `json:"term"`
	Epoch        uint64        `json:"epoch"`
	DecisionTime *int64        `json:"decision_time_ns"`
	Policies     *versionView  `json:"policies"`
	SetHash      *string       `json:"set_hash"`
	Replicas     []replicaView `json:"replicas"`
}

type versionView struct {
	Epoch  uint64 `json:"epoch"`
	Number uint64 `json:"number"`
}

type replicaView struct {
	Node         string  `json:"node"`
	ID           string  `json:"id"`
	State        string  `json:"state"`
	Detail       *string `json:"detail"`
	Term         uint64  `json:"term"`
	Applied      uint64  `json:"applied"`
	Lag          uint64  `json:"lag"`
	DecisionTime int64   `json:"decision_time_ns"`
	Memory       uint64  `json:"memory_bytes"`
	MemoryBound  uint64  `json:"memory_bound_bytes"`
	Keys         uint64  `json:"keys"`
	Records      uint64  `json:"records"`
	Log          uint64  `json:"log_bytes"`
	Level        uint64  `json:"level"` // 0: not known
}

type clockView struct {
	Elapsed int64  `json:"elapsed_ns"`
	Gaps    uint64 `json:"gaps"`
	Drift   int64  `json:"drift_ppm"`
}

func statusOf(s *quotav1.StatusResponse) *statusView {
	clock := s.GetClock()
	v := &statusView{
		Problems: []string{}, Cluster: text(hex.EncodeToString(s.GetClusterId())), Node: s.GetNode(),
		Nodes: []nodeView{}, Partitions: []partitionView{}, SystemReplicas: append([]string{}, s.GetSystemReplicas()...),
		Clock: clockView{clock.GetElapsedNs(), clock.GetGaps(), clock.GetDriftPpm()},
	}
	for _, n := range s.GetNodes() {
		v.Nodes = append(v.Nodes, nodeView{
			Name: n.GetName(), ID: text(n.GetId()), Zone: text(n.GetZone()), State: n.GetState(),
			Detail: text(n.GetDetail()), Address: text(n.GetAddress()), HeardAgo: n.HeardAgoNs,
			Level: n.GetLevel(),
		})
	}
	for _, p := range s.GetPartitions() {
		v.Partitions = append(v.Partitions, partitionOf(p))
	}
	v.judge()
	return v
}

func partitionOf(p *quotav1.PartitionStatus) partitionView {
	r := p.GetRoute()
	v := partitionView{
		Partition: r.GetPartition(), Leader: text(r.GetLeader()), Address: text(r.GetAddress()), Term: r.GetTerm(), Epoch: r.GetEpoch(),
		DecisionTime: r.DecisionTimeNs, Policies: viewOfVersion(r.GetVersion()), SetHash: text(hex.EncodeToString(p.GetSetHash())),
		Replicas: []replicaView{},
	}
	for _, r := range p.GetReplicas() {
		v.Replicas = append(v.Replicas, replicaView{
			Node: r.GetNode(), ID: r.GetId(), State: r.GetState(), Detail: text(r.GetDetail()), Term: r.GetTerm(), Applied: r.GetApplied(),
			Lag: r.GetLag(), DecisionTime: r.GetDecisionTimeNs(), Memory: r.GetMemoryBytes(), MemoryBound: r.GetMemoryBoundBytes(),
			Keys: r.GetKeys(), Records: r.GetRecords(), Log: r.GetLogBytes(), Level: r.GetLevel(),
		})
	}
	return v
}

func viewOfVersion(v *quotav1.SetVersion) *versionView {
	if v == nil {
		return nil
	}
	return &versionView{v.GetEpoch(), v.GetNumber()}
}

// judge finds what keeps the cluster from being whole.
func (v *statusView) judge() {
	problem := func(format string, args ...any) { v.Problems = append(v.Problems, fmt.Sprintf(format, args...)) }
	if len(v.Partitions) == 0 {
		problem("there are no partitions yet: the cluster begins when all its initial nodes are there")
	}
	for _, n := range v.Nodes {
		if n.State != "up" {
			problem("node %s is %s%s", n.Name, n.State, because(n.Detail))
		}
	}
	for _, p := range v.Partitions {
		if p.Leader == nil {
			problem("partition %d has no leader", p.Partition)
		}
	}
	v.Healthy = len(v.Problems) == 0
	for _, p := range v.Partitions { // of which a partition can do without some
		for _, r := range p.Replicas {
			if !r.runs() {
				problem("partition %d: the replica on %s is %s%s", p.Partition, r.Node, r.State, because(r.Detail))
			}
		}
	}
}

func because(detail *string) string {
	if detail == nil {
		return ""
	}
	return ": " + *detail
}

func (r *replicaView) runs() bool {
	return r.State == "leader" || r.State == "follower" || r.State == "candidate"
}

// Widths that keep the tables within 100 columns. JSON has everything in full.
const (
	nameWidth    = 20
	leaderWidth  = 16
	stateWidth   = 20
	zoneWidth    = 12
	addressWidth = 28
	mostProblems = 20
)

func (v *statusView) print(out io.Writer) error {
	id := "none yet"
	if v.Cluster != nil {
		id = *v.Cluster
	}
	fmt.Fprintf(out, "cluster  %s, as %s sees it\nclock    %s counted, gaps %d, drift %+d ppm\n\n", id, printable(v.Node),
		time.Duration(v.Clock.Elapsed).Truncate(time.Second), v.Clock.Gaps, v.Clock.Drift)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tSTATE\tZONE\tADDRESS\tHEARD AGO")
	for _, n := range v.Nodes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", column(n.Name, nameWidth), column(n.State, stateWidth),
			column(orEmpty(n.Zone), zoneWidth), column(orEmpty(n.Address), addressWidth), ago(n.HeardAgo))
	}
	// Flushed here, so that the widths of one table are none of the other's.
	if err := table.Flush(); err != nil {
		return command.Failed(fmt.Errorf("write the table: %w", err))
	}
	if len(v.Partitions) > 0 {
		fmt.Fprintln(out)
		fmt.Fprintln(table, "PART\tLEADER\tTERM\tSET\tUP\tLAG\tUSED\tKEYS\tLOG\tTIME")
		for i := range v.Partitions {
			v.Partitions[i].row(table)
		}
		if err := table.Flush(); err != nil {
			return command.Failed(fmt.Errorf("write the table: %w", err))
		}
	}
	v.printProblems(out)
	return nil
}

func (v *statusView) printProblems(out io.Writer) {
	if len(v.Problems) > 0 {
		fmt.Fprintln(out)
	}
	for i, p := range v.Problems {
		if i == mostProblems {
			fmt.Fprintf(out, "and %d more\n", len(v.Problems)-i)
			return
		}
		fmt.Fprintln(out, printable(p))
	}
}

// row sums a partition up.
func (p *partitionView) row(table io.Writer) {
	running, newest := 0, uint64(0)
	for _, r := range p.Replicas {
		if r.runs() {
			running, newest = running+1, max(newest, r.Applied)
		}
	}
	var lag, keys, log uint64
	var fullest replicaView
	at := int64(0)
	if p.DecisionTime != nil {
		at = *p.DecisionTime
	}
	for _, r := range p.Replicas {
		if r.runs() {
			lag = max(lag, r.Lag, newest-r.Applied)
		}
		keys, log, at = max(keys, r.Keys), max(log, r.Log), max(at, r.DecisionTime)
		if r.fuller(&fullest) {
			fullest = r
		}
	}
	policies := "none"
	if p.Policies != nil {
		policies = fmt.Sprintf("%d.%d", p.Policies.Epoch, p.Policies.Number)
	}
	fmt.Fprintf(table, "%d\t%s\t%d\t%s\t%d/%d\t%d\t%s\t%d\t%s\t%s\n", p.Partition, column(orEmpty(p.Leader), leaderWidth), p.Term, policies,
		running, len(p.Replicas), lag, fullest.used(), keys, roundBytes(log), time.Duration(at).Truncate(time.Second))
}

// fuller says whether r holds more of its bound than o does.
func (r *replicaView) fuller(o *replicaView) bool {
	return r.MemoryBound > 0 && (o.MemoryBound == 0 || float64(r.Memory)/float64(r.MemoryBound) > float64(o.Memory)/float64(o.MemoryBound))
}

func (r *replicaView) used() string {
	if r.MemoryBound == 0 {
		return "-"
	}
	percent := 100 * float64(r.Memory) / float64(r.MemoryBound)
	return fmt.Sprintf("%.0f%% of %s", percent, roundBytes(r.MemoryBound))
}

// roundBytes is a number of bytes for a column, rounded down.
func roundBytes(n uint64) string {
	unit := 0
	const units = "KMGTPE"
	for n >= 1<<10<<(10*unit) && unit < len(units) {
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%dB", n)
	}
	return fmt.Sprintf("%d%ciB", n>>(10*unit), units[unit-1])
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ago is how long ago a node was heard; of the one that answers nothing is to say.
func ago(ns *int64) string {
	if ns == nil {
		return "-"
	}
	d := time.Duration(*ns)
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Truncate(time.Second).String()
}
