package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// addresses are the pods' own, by name.
func (r *run) addresses(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for name := range r.quorateNodes(t) {
		found[name] = r.kubectl(t, "get", "pod", name, "--namespace", namespace, "-o", "jsonpath={.status.podIP}")
	}
	return found
}

// allPodsAtOnce: every node comes back at another address, and they find each other by name.
func allPodsAtOnce(t *testing.T, r *run) {
	before := r.addresses(t)
	r.load.mark("all pods deleted")
	r.kubectl(t, "delete", "pods", "--namespace", namespace, "--selector", "app.kubernetes.io/component=node")
	r.whole(t)
	for name, address := range r.addresses(t) {
		if address == before[name] {
			t.Errorf("%s has the address %s again, so nothing is shown", name, address)
		}
	}
	r.load.goesOn(t)
}

// drained: all machines are emptied one after the other, and no second one while the first one's node is away. Of node 1
// only what belongs to the release goes: who asks has to stay.
func drained(t *testing.T, r *run) {
	machines := []string{"node1", "node2", "node3"}
	t.Cleanup(func() {
		for _, m := range machines {
			r.kubectl(t, "uncordon", m)
		}
	})
	for _, m := range machines {
		r.load.mark(m + " drained")
		drain := []string{"drain", m, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", patience.String()}
		if m == "node1" {
			drain = append(drain, "--pod-selector", "app.kubernetes.io/name=quorate")
		}
		r.kubectl(t, drain...)
		r.noOtherIsEvicted(t, m)
		r.load.goesOn(t)
		r.kubectl(t, "uncordon", m)
		r.whole(t)
	}
}

// noOtherIsEvicted: the budget keeps a majority.
func (r *run) noOtherIsEvicted(t *testing.T, machine string) {
	t.Helper()
	var others []string
	eventually(t, "the nodes elsewhere to be ready", func() string {
		others = nil
		for name, p := range r.quorateNodes(t) {
			if p.Spec.NodeName != machine && is(p.Status.Conditions, "Ready") {
				others = append(others, name)
			}
		}
		if len(others) != nodes-1 {
			return fmt.Sprintf("with %s drained %v are ready", machine, others)
		}
		return ""
	})
	slices.Sort(others)
	eviction := fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": %q}}`, others[0], namespace)
	out, err := r.call(eviction, r.bin+"/kubectl", "create", "--filename", "-",
		"--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", namespace, others[0]))
	if err == nil || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("the eviction of %s while the node of %s is away: %v, %s", others[0], machine, err, out)
	}
}
