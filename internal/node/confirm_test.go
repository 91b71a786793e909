package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/partition"
	"github.com/quorate/quorate/internal/policy"
)

// threeAndMore is another set, with the same policy.
func threeAndMore() policy.Set {
	set := threePerMinute()
	set.Domains = append(set.Domains, policy.Domain{Name: "more"})
	return set
}

// confirms returns the versions that a node confirms within d, by partition.
func (m *member) confirms(d time.Duration) map[int]*quotav1.PartitionVersion {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	found := map[int]*quotav1.PartitionVersion{}
	for _, v := range m.Confirmed(ctx).GetPartitions() {
		found[int(v.GetPartition())] = v
	}
	return found
}

// TestEachNodeConfirmsWhatItLeads: together all partitions, each once, and nothing before there is a cluster.
func TestEachNodeConfirmsWhatItLeads(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start("n1")
	if m := tr.node("n1").Confirmed(t.Context()); len(m.GetClusterId()) > 0 || len(m.GetPartitions()) > 0 {
		t.Errorf("before there is a cluster: %v", m)
	}
	tr.start("n2", "n3")
	tr.ready().apply(threePerMinute())
	tr.until("all partitions confirmed", func() bool {
		all := map[int]*quotav1.PartitionVersion{}
		for _, m := range tr.running() {
			answer := m.Confirmed(t.Context())
			if len(answer.GetClusterId()) != 16 || answer.GetClusterPartitions() != 3 || answer.GetPolicies() != nil {
				t.Fatal(answer)
			}
			for _, v := range answer.GetPartitions() {
				if v.GetTerm() == 0 || v.GetVersion().GetNumber() != 1 {
					t.Fatalf("%s confirms %v", m.ID(), v)
				}
				all[int(v.GetPartition())] = v
			}
		}
		return len(all) == 3
	})
}

// TestACutOffPartitionIsNotConfirmed: a node that leads and is cut off confirms nothing from then on, whoever still
// takes it for the leader; who leads in its place confirms what has been ordered since.
func TestACutOffPartitionIsNotConfirmed(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	was := tr.node(tr.leader())
	before := was.confirms(patience)[0]
	if before.GetVersion().GetNumber() != 1 {
		t.Fatalf("the leader confirms %v", before)
	}
	tr.isolate(was.Status().GetNode())
	if v := was.confirms(2 * tr.timing.Election)[0]; v != nil {
		t.Errorf("cut off it confirms %v", v)
	}
	tr.apply(threeAndMore())
	tr.until("the new version confirmed", func() bool {
		found := 0
		for _, m := range tr.running() {
			v := m.confirms(100 * time.Millisecond)[0]
			if v == nil {
				continue
			}
			found++
			if m == was || v.GetTerm() <= before.GetTerm() || v.GetVersion().GetNumber() != 2 {
				t.Fatalf("%s confirms %v", m.ID(), v)
			}
		}
		return found == 1
	})
	tr.heal()
	tr.until("the old one follows", func() bool { return len(was.confirms(time.Second)) == 0 && was.leaders()[0] != was.Status().GetNode() })
}

// TestApplyAtANodeThatStaysOutIsRefusedAtOnce: it will never hear who leads.
func TestApplyAtANodeThatStaysOutIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	tr.stop("n1")
	if err := os.RemoveAll(filepath.Join(tr.dir, "n1")); err != nil {
		t.Fatal(err)
	}
	tr.start("n1")
	tr.until("n1 stays out", func() bool { state, _ := tr.node("n1").State(); return state == "awaiting replacement" })
	_, err := tr.node("n1").Apply(context.Background(), threeAndMore(), nil, false) // without an end of its own
	if elsewhere := new(partition.NotLeaderError); !errors.As(err, &elsewhere) || elsewhere.Leader != "" || !strings.Contains(elsewhere.Why, "stays out") {
		t.Errorf("%v", err)
	}
	admin, err := client.NewAdmin([]string{tr.grpc["n1"], tr.grpc["n2"], tr.grpc["n3"]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	text := threeAndMore().Canonical()
	if r, err := admin.Apply(ctx, text, nil); err != nil || r.GetVersion().GetNumber() != 2 {
		t.Errorf("by way of n1: %v, %v", r, err)
	}
	e, err := admin.Enforced(ctx)
	if err != nil || !e.Complete() || e.Versions[0].GetNumber() != 2 {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestApplyAtANodeThatHearsNobodyIsRefused, after a moment: it led, and may have a successor of which others know.
func TestApplyAtANodeThatHearsNobodyIsRefused(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	alone := tr.node("n1").leaders()[0]
	var others []string
	for _, name := range tr.names {
		if name != alone {
			others = append(others, name)
			tr.stop(name)
		}
	}
	tr.until("it to lead no longer", func() bool { return tr.node(alone).leaders()[0] != alone })
	_, err := tr.node(alone).Apply(context.Background(), threeAndMore(), nil, false) // without an end of its own
	if elsewhere := new(partition.NotLeaderError); !errors.As(err, &elsewhere) || elsewhere.Leader != "" || !strings.Contains(elsewhere.Why, "hears too few others") {
		t.Error(err)
	}
	tr.start(others[0])
	tr.apply(threeAndMore())
}

// TestANodeThatStopsIsNotReady from the first moment on: it hands over first, and still answers.
func TestANodeThatStopsIsNotReady(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	was := tr.node(tr.leader())
	if ok, why := was.Ready(); !ok {
		t.Fatal(why)
	}
	was.HandOver()
	if ok, why := was.Ready(); ok || why != "it stops" {
		t.Errorf("%v, %q", ok, why)
	}
	if was.Leading() && was.leaders()[0] == was.Status().GetNode() {
		tr.until("another leader", func() bool { return was.leaders()[0] != was.Status().GetNode() })
	}
	tr.want("u1", fourth...)
}

// TestANodeThatHasJustStartedIsNotReadyBeforeItKnowsItsLeader: without a snapshot it has applied nothing yet, like one that
// never had a leader. Nobody may take it for caught up, and the next machine away.
func TestANodeThatHasJustStartedIsNotReadyBeforeItKnowsItsLeader(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, only(1))
	tr.start()
	tr.ready().apply(threePerMinute())
	const name = "n3"
	tr.stop(name)
	tr.isolate(name) // the others hear of its start, and it hears from no leader
	tr.start(name)
	m := tr.node(name)
	tr.until("its start to be noted", func() bool { state, _ := m.State(); return state == "up" })
	for range 50 {
		<-time.After(5 * time.Millisecond) // the others say how they are meanwhile
		if ok, why := m.Ready(); ok || why != "partition 0 has no leader that this node knows" {
			t.Fatalf("%v, %q", ok, why)
		}
	}
	tr.heal()
	tr.until("it to catch up", func() bool { ok, _ := m.Ready(); return ok })
}
