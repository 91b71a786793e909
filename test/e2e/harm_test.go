package e2e_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/fence"
)

// victim is a node of Quorate that leads something, and what a partition of its own shows before it is hurt.
type victim struct {
	pod       pod
	name      string
	partition int
	witness   string // another node
	term      float64
}

// aLeader finds a leader on a machine that may be hurt. It is one that stays: once every node leads a partition, nobody hands
// one over to even things out, and the loss of this node is what takes an election.
func (r *run) aLeader(t *testing.T) (v victim) {
	t.Helper()
	eventually(t, "every node to lead a partition", func() string {
		all, leaders := r.quorateNodes(t), r.leaders()
		leading := map[string]bool{}
		for p, name := range leaders {
			leading[name] = true
			if machine := all[name].Spec.NodeName; machine != "node1" && machine != "" {
				v = victim{pod: all[name], name: name, partition: p}
			}
		}
		for name := range all {
			if name != v.name {
				v.witness = name
			}
		}
		v.term = r.metric(v.witness, v.termName())
		now := r.leaders()
		if len(leading) != nodes || v.term < 1 || !maps.Equal(leaders, now) || r.metric(v.name, v.termName()) != v.term {
			return fmt.Sprintf("%v, then %v, term %v", leaders, now, v.term)
		}
		return ""
	})
	return v
}

func (v *victim) termName() string {
	return fmt.Sprintf(`quorate_raft_term{partition="%d"}`, v.partition)
}

// machine is the number of the machine that the victim is on.
func (v *victim) machine() string { return strings.TrimPrefix(v.pod.Spec.NodeName, "node") }

// elected waits until the others have elected anew, since the leader was lost.
func (r *run) elected(t *testing.T, v victim) {
	t.Helper()
	eventually(t, "an election without "+v.name, func() string {
		if term := r.metric(v.witness, v.termName()); term <= v.term {
			return fmt.Sprintf("partition %d: term %v, before %v", v.partition, term, v.term)
		}
		return ""
	})
}

// leaderProcessKilled: the kernel ends it, as it does when memory runs out; its container starts again.
func leaderProcessKilled(t *testing.T, r *run) {
	v := r.aLeader(t)
	_, before := v.pod.container()
	r.load.mark("process of " + v.name + " killed")
	r.node(t, "run", v.machine(), "pkill", "-KILL", "-x", "quotanode")
	r.elected(t, v)
	r.whole(t)
	after := r.quorateNodes(t)[v.name]
	if _, restarts := after.container(); after.Metadata.UID != v.pod.Metadata.UID || restarts != before+1 {
		t.Errorf("%s was started %d times before and %d times after, same pod: %t", v.name, before, restarts,
			after.Metadata.UID == v.pod.Metadata.UID)
	}
	r.load.goesOn(t)
}

// leaderPodKilled: another pod takes its place, on the same volume.
func leaderPodKilled(t *testing.T, r *run) {
	v := r.aLeader(t)
	r.load.mark("pod " + v.name + " killed")
	r.kubectl(t, "delete", "pod", v.name, "--namespace", namespace, "--grace-period=0", "--force")
	r.elected(t, v)
	eventually(t, "another pod "+v.name, func() string {
		if r.quorateNodes(t)[v.name].Metadata.UID == v.pod.Metadata.UID {
			return "it is the old one"
		}
		return ""
	})
	r.whole(t)
	r.load.goesOn(t)
}

// machineCutOff: it runs on, and nobody hears of it.
func machineCutOff(t *testing.T, r *run) {
	v := r.aLeader(t)
	r.load.mark("machine of " + v.name + " cut off")
	r.node(t, "cut", v.machine())
	t.Cleanup(func() { r.node(t, "heal", v.machine()) })
	r.lost(t, v)
	r.node(t, "heal", v.machine())
	r.back(t, v)
}

// powerOff: all of a machine's processes are gone at once, and come back with the volumes that they left.
func powerOff(t *testing.T, r *run) {
	v := r.aLeader(t)
	r.load.mark("power of " + v.name + " off")
	r.node(t, "stop", v.machine())
	r.lost(t, v)
	began := time.Now()
	r.node(t, "start", v.machine())
	t.Logf("the machine is back after %.0f s", time.Since(began).Seconds())
	r.back(t, v)
	after := r.quorateNodes(t)[v.name]
	old, _ := v.pod.container()
	if now, _ := after.container(); now == old {
		t.Errorf("%s runs in container %s as before", v.name, now)
	}
}

// lost waits until Kubernetes has given a machine up, while the other nodes decide.
func (r *run) lost(t *testing.T, v victim) {
	t.Helper()
	r.elected(t, v)
	r.load.goesOn(t)
	eventually(t, v.pod.Spec.NodeName+" to be given up", func() string {
		var n struct {
			Status struct{ Conditions []condition }
		}
		if err := r.read(&n, "node", v.pod.Spec.NodeName); err != nil {
			return err.Error()
		}
		if is(n.Status.Conditions, "Ready") {
			return "it is ready"
		}
		return ""
	})
	if _, err := r.ask(v.name, 8082, "livez"); err == nil {
		t.Errorf("%s answers, though its machine is lost", v.name)
	}
	r.load.goesOn(t)
}

// back waits until a machine and all on it are well again, without a hand.
func (r *run) back(t *testing.T, v victim) {
	t.Helper()
	r.kubectl(t, "wait", "--for=condition=Ready", "node/"+v.pod.Spec.NodeName, "--timeout", patience.String())
	r.whole(t)
	if p := r.quorateNodes(t)[v.name]; p.Spec.NodeName != v.pod.Spec.NodeName {
		t.Errorf("%s is on %s, its volume on %s", v.name, p.Spec.NodeName, v.pod.Spec.NodeName)
	}
	r.load.goesOn(t)
}

func (r *run) node(t *testing.T, args ...string) {
	t.Helper()
	if _, err := r.call("", filepath.Join(r.tools, "node.sh"), args...); err != nil {
		t.Fatal(err)
	}
}

// rolled: one node after the other, and never two at once. It begins as the page says, once all are available: Kubernetes
// doesn't look at nodes that it has yet to replace, and one may have come back just now.
func rolled(t *testing.T, r *run) {
	restart := strings.Split(strings.TrimSpace(blockOf(t, kubernetesPage, "Restart", "sh", "rollout restart").Text), "\n")
	last := len(restart) - 1
	person := r.person(t, nil)
	person.follows(t, fence.Block{Text: strings.Join(restart[:last], "\n")})
	before := r.quorateNodes(t)
	r.load.mark("rolled")
	w := &rolling{before: before, came: map[string]bool{}}
	within(t, 2*patience, "all nodes to be replaced", func() string {
		missing, away := w.look(r.quorateNodes(t))
		if len(away) > 1 {
			t.Errorf("%v were away at once", away)
		}
		if len(missing) == 0 {
			return ""
		}
		return fmt.Sprintf("%v are still to be replaced", missing)
	})
	person.follows(t, fence.Block{Text: restart[last]})
	r.whole(t)
	r.load.goesOn(t)
}

// rolling is what is seen of nodes that are replaced.
type rolling struct {
	before map[string]pod
	came   map[string]bool // the new ones that have been ready, by uid
}

// look says which nodes are still to be replaced, and which are away: being stopped, or replaced and not yet ready. A node that
// loses sight of a leader for a moment isn't away.
func (w *rolling) look(now map[string]pod) (missing, away []string) {
	for name, old := range w.before {
		p, there := now[name]
		replaced := there && p.Metadata.UID != old.Metadata.UID
		if replaced && is(p.Status.Conditions, "Ready") {
			w.came[p.Metadata.UID] = true
		}
		came := replaced && w.came[p.Metadata.UID]
		if !came {
			missing = append(missing, name)
		}
		if !there || p.Metadata.Deleted != "" || replaced && !came {
			away = append(away, name)
		}
	}
	return missing, away
}

// TestARollThatStopsTwoAtOnceIsSeen, and only that.
func TestARollThatStopsTwoAtOnceIsSeen(t *testing.T) {
	ready := []condition{{Type: "Ready", Status: "True"}}
	node := func(uid, deleted string, conditions []condition) (p pod) {
		p.Metadata.UID, p.Metadata.Deleted, p.Status.Conditions = uid, deleted, conditions
		return p
	}
	before := map[string]pod{"a": node("a1", "", ready), "b": node("b1", "", ready)}
	w := &rolling{before: before, came: map[string]bool{}}
	for i, c := range []struct {
		a, b          pod
		missing, away int
	}{
		{before["a"], before["b"], 2, 0},
		{before["a"], node("b1", "", nil), 2, 0}, // not ready, but nobody stopped it
		{before["a"], node("b1", "now", ready), 2, 1},
		{before["a"], node("b2", "", nil), 2, 1},
		{node("a1", "now", ready), node("b2", "", nil), 2, 2},
		{node("a2", "", nil), node("b2", "", ready), 1, 1},
		{node("a2", "", nil), node("b2", "", nil), 1, 1}, // it was ready
		{node("a2", "", ready), node("b2", "now", nil), 0, 1},
	} {
		if missing, away := w.look(map[string]pod{"a": c.a, "b": c.b}); len(missing) != c.missing || len(away) != c.away {
			t.Errorf("look %d: %v are missing, %v are away; want %d and %d", i, missing, away, c.missing, c.away)
		}
	}
	if _, away := w.look(nil); len(away) != 2 {
		t.Errorf("of nodes that are gone %v are away", away)
	}
}
