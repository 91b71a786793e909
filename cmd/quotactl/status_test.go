package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/cmd/internal/command"
)

func replica(node, state string, applied, memory uint64) *quotav1.ReplicaStatus {
	return &quotav1.ReplicaStatus{
		Node: node, Id: node + "-0011223344556677", State: state, Term: 7, Applied: applied, DecisionTimeNs: 3600 * second,
		MemoryBytes: memory, MemoryBoundBytes: 341 << 20, Keys: 10_000, Records: 20, LogBytes: 3 << 20, Level: 1,
	}
}

// whole is the status of a cluster of which nothing is missing.
func whole() *quotav1.StatusResponse {
	s := &quotav1.StatusResponse{
		ClusterId: []byte("0123456789abcdef"), Node: "n1",
		Clock: &quotav1.ClockStatus{ElapsedNs: 11_045*second + 1, Gaps: 2, DriftPpm: -3},
	}
	for i, name := range []string{"n1", "n2", "n3"} {
		n := &quotav1.NodeStatus{Name: name, Id: name + "-0011223344556677", Zone: "a", State: "up", Address: "127.0.0.1:808" + name[1:], Level: 2}
		if i > 0 {
			n.HeardAgoNs = proto.Int64(int64(i) * second / 4)
		}
		s.Nodes = append(s.Nodes, n)
		s.Partitions = append(s.Partitions, &quotav1.PartitionStatus{
			Route: &quotav1.PartitionRoute{
				Partition: uint32(i), Leader: name, Address: n.Address, Term: 7, Epoch: 1, DecisionTimeNs: proto.Int64(3605 * second),
				Version: &quotav1.SetVersion{Epoch: 1, Number: 4},
			},
			Replicas: []*quotav1.ReplicaStatus{
				replica("n1", "leader", 1000, 40<<20), replica("n2", "follower", 998, 41<<20), replica("n3", "follower", 1000, 40<<20),
			},
			SetHash: []byte("0123456789abcdef0123456789abcdef"),
		})
	}
	return s
}

// TestStatusOfAWholeCluster is a table, and ends with 0.
func TestStatusOfAWholeCluster(t *testing.T) {
	want := `cluster  30313233343536373839616263646566, as n1 sees it
clock    3h4m5s counted, gaps 2, drift -3 ppm

NODE  STATE  ZONE  ADDRESS         HEARD AGO
n1    up     a     127.0.0.1:8081  -
n2    up     a     127.0.0.1:8082  0.2s
n3    up     a     127.0.0.1:8083  0.5s

PART  LEADER  TERM  SET  UP   LAG  USED           KEYS   LOG   TIME
0     n1      7     1.4  3/3  2    12% of 341MiB  10000  3MiB  1h0m5s
1     n2      7     1.4  3/3  2    12% of 341MiB  10000  3MiB  1h0m5s
2     n3      7     1.4  3/3  2    12% of 341MiB  10000  3MiB  1h0m5s
`
	code, out, errs := quotactl(t, "status", "--server", serveAdmin(t, &admin{status: whole()}, nil))
	if code != command.OK || out != want || errs != "" {
		t.Errorf("status %d, %q, got\n%s\nwant\n%s", code, errs, out, want)
	}
}

// TestStatusEndsWith1UnlessAllNodesAreUpAndAllPartitionsLed, and says what is missing.
func TestStatusEndsWith1UnlessAllNodesAreUpAndAllPartitionsLed(t *testing.T) {
	a := &admin{}
	at := serveAdmin(t, a, nil)
	for want, change := range map[string]func(*quotav1.StatusResponse){
		"node n3 is unreachable: connection refused\n": func(s *quotav1.StatusResponse) {
			s.Nodes[2].State, s.Nodes[2].Detail = "unreachable", "connection refused"
		},
		"partition 1 has no leader\n": func(s *quotav1.StatusResponse) { s.Partitions[1].Route.Leader = "" },
		"there are no partitions yet: the cluster begins when all its initial nodes are there\n": func(s *quotav1.StatusResponse) {
			s.ClusterId, s.Partitions = nil, nil
		},
	} {
		a.status = whole()
		change(a.status)
		code, out, errs := quotactl(t, "status", "--server", at)
		if code != command.Failure || !strings.HasSuffix(out, "\n\n"+want) || errs != "" {
			t.Errorf("status %d, %q, got\n%s\nwant at its end %q", code, errs, out, want)
		}
	}
	a.status = whole()
	a.status.Partitions[0].Replicas[1] = &quotav1.ReplicaStatus{Node: "n2", State: "down", Detail: "stuck disk"}
	a.status.Partitions[0].Route.Version = nil
	code, out, _ := quotactl(t, "status", "--server", at)
	if code != command.OK || !strings.HasSuffix(out, "\n\npartition 0: the replica on n2 is down: stuck disk\n") || !strings.Contains(out, "0     n1      7     none  2/3  0") {
		t.Errorf("a replica can be missing: status %d\n%s", code, out)
	}
}

// TestStatusFitsAHundredColumns, whatever names and numbers are, and a terminal obeys nothing of it.
func TestStatusFitsAHundredColumns(t *testing.T) {
	s := whole()
	long := strings.Repeat("n", 63)
	for _, n := range s.Nodes {
		n.Name, n.Zone, n.Address, n.State, n.HeardAgoNs = long, long, long+":65535", "awaiting replacement", proto.Int64(86_399*second)
	}
	for i, p := range s.Partitions {
		p.Route.Partition, p.Route.Leader, p.Route.Term, p.Route.DecisionTimeNs = uint32(4093+i), long, 999_999, proto.Int64(364*86_400*second)
		p.Route.Version = &quotav1.SetVersion{Epoch: 10, Number: 999}
		for _, r := range p.Replicas {
			r.MemoryBytes, r.MemoryBoundBytes, r.Keys, r.LogBytes, r.Lag = 1023<<20, 1023<<20, 99_999_999, 1023<<20, 999_999
		}
	}
	_, out, _ := quotactl(t, "status", "--server", serveAdmin(t, &admin{status: s}, nil))
	tables, _, _ := strings.Cut(out, "\n\nnode ")
	for line := range strings.Lines(tables) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	s = whole()
	s.Node, s.Nodes[0].Name, s.Nodes[1].State, s.Nodes[1].Detail = "\x1b[2J", "\x1b[31m", "\n", "\x1b]0;\a\u009b"
	_, out, _ = quotactl(t, "status", "--server", serveAdmin(t, &admin{status: s}, nil))
	if strings.ContainsAny(out, "\x1b\a\u009b") || !strings.Contains(out, "as ?[2J sees it") || !strings.Contains(out, "node n2 is ?: ?]0;??\n") {
		t.Errorf("%q", out)
	}
}

// TestManyProblemsAreCounted.
func TestManyProblemsAreCounted(t *testing.T) {
	s := whole()
	for range 40 {
		s.Partitions = append(s.Partitions, &quotav1.PartitionStatus{Route: &quotav1.PartitionRoute{Partition: 9}})
	}
	code, out, _ := quotactl(t, "status", "--server", serveAdmin(t, &admin{status: s}, nil))
	if code != command.Failure || strings.Count(out, "has no leader") != 20 || !strings.HasSuffix(out, "and 20 more\n") {
		t.Errorf("status %d\n%s", code, out)
	}
}

// TestStatusInJSONHasAllOfIt, null where nothing is known.
func TestStatusInJSONHasAllOfIt(t *testing.T) {
	s := whole()
	s.Nodes, s.Partitions = s.Nodes[:2], s.Partitions[:1]
	s.Partitions[0].Replicas = s.Partitions[0].Replicas[:1]
	a := &admin{status: s}
	at := serveAdmin(t, a, nil)
	want := `{"healthy":true,"problems":[],"cluster_id":"30313233343536373839616263646566","node":"n1","nodes":[` +
		`{"name":"n1","id":"n1-0011223344556677","zone":"a","state":"up","detail":null,"address":"127.0.0.1:8081","heard_ago_ns":null,"level":2},` +
		`{"name":"n2","id":"n2-0011223344556677","zone":"a","state":"up","detail":null,"address":"127.0.0.1:8082","heard_ago_ns":250000000,"level":2}],` +
		`"partitions":[{"partition":0,"leader":"n1","address":"127.0.0.1:8081","term":7,"epoch":1,"decision_time_ns":3605000000000,` +
		`"policies":{"epoch":1,"number":4},"set_hash":"3031323334353637383961626364656630313233343536373839616263646566","replicas":[` +
		`{"node":"n1","id":"n1-0011223344556677","state":"leader","detail":null,"term":7,"applied":1000,"lag":0,"decision_time_ns":3600000000000,` +
		`"memory_bytes":41943040,"memory_bound_bytes":357564416,"keys":10000,"records":20,"log_bytes":3145728,"level":1}]}],` +
		`"clock":{"elapsed_ns":11045000000001,"gaps":2,"drift_ppm":-3},"system_replicas":[]}`
	var compact bytes.Buffer
	code, out, errs := quotactl(t, "status", "--server", at, "-o", "json")
	if err := json.Compact(&compact, []byte(out)); err != nil || compact.String() != want || code != command.OK {
		t.Errorf("status %d, %s, got\n%s\nwant\n%s", code, errs, compact.String(), want)
	}
	a.status = &quotav1.StatusResponse{Node: "n1"}
	compact.Reset()
	code, out, errs = quotactl(t, "status", "--server", at, "-o", "json")
	if err := json.Compact(&compact, []byte(out)); err != nil || code != command.Failure || !strings.Contains(compact.String(), `"cluster_id":null`) ||
		!strings.Contains(compact.String(), `"nodes":[],"partitions":[]`) {
		t.Errorf("before genesis: status %d, %s, %s", code, errs, compact.String())
	}
}

// TestBytesAreRounded to what a column has room for.
func TestBytesAreRounded(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1KiB", 1<<30 - 1: "1023MiB", 5 << 30: "5GiB", 1<<64 - 1: "15EiB"} {
		if got := roundBytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
