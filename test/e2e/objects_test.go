package e2e_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// meta is what all objects have.
type meta struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Generation  int64             `json:"generation"`
	Deleted     string            `json:"deletionTimestamp"`
	Annotations map[string]string `json:"annotations"`
}

// condition is one of a status.
type condition struct {
	Type, Status, Reason, Message string
	ObservedGeneration            int64
}

// pod is what steps want to know of a pod.
type pod struct {
	Metadata meta
	Spec     struct{ NodeName string }
	Status   struct {
		Conditions        []condition
		ContainerStatuses []struct {
			Name         string
			RestartCount int
			ContainerID  string
		}
	}
}

// is says whether the condition of that type is true.
func is(list []condition, kind string) bool {
	return slices.ContainsFunc(list, func(c condition) bool { return c.Type == kind && c.Status == "True" })
}

// container is the one that runs now, or ran last, and how often it was started anew.
func (p *pod) container() (id string, restarts int) {
	for _, c := range p.Status.ContainerStatuses {
		id, restarts = c.ContainerID, restarts+c.RestartCount
	}
	return id, restarts
}

// pods are those of a part of the release.
func (k *kubernetes) pods(component string) (list []pod, err error) {
	var all struct{ Items []pod }
	err = k.read(&all, "pods", "--namespace", namespace, "--selector", "app.kubernetes.io/component="+component)
	slices.SortFunc(all.Items, func(a, b pod) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return all.Items, err
}

// quorateNodes are the nodes of Quorate by name, each a pod.
func (k *kubernetes) quorateNodes(t *testing.T) map[string]pod {
	t.Helper()
	list, err := k.pods("node")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]pod{}
	for _, p := range list {
		byName[p.Metadata.Name] = p
	}
	return byName
}

// whole waits until every pod of the release is ready, nodes and operator, and every partition has a leader.
func (k *kubernetes) whole(t *testing.T) {
	t.Helper()
	eventually(t, "all of the release to be ready", func() string {
		for component, want := range map[string]int{"node": 3, "operator": 1} {
			list, err := k.pods(component)
			if err != nil {
				return err.Error()
			}
			ready := 0
			for _, p := range list {
				if is(p.Status.Conditions, "Ready") && p.Metadata.Deleted == "" {
					ready++
				}
			}
			if ready != want {
				return fmt.Sprintf("%d of %d pods of part %s are ready", ready, want, component)
			}
		}
		if l := k.leaders(); len(l) != partitions {
			return fmt.Sprintf("leaders: %v", l)
		}
		return ""
	})
}

const partitions = 3

var leading = regexp.MustCompile(`(?m)^quorate_leading\{partition="(\d+)"\} 1$`)

// leaders are the nodes that say that they lead, by partition.
func (k *kubernetes) leaders() map[int]string {
	found := map[int]string{}
	for i := range nodes {
		name := fmt.Sprint("quorate-", i)
		text, err := k.ask(name, 8082, "metrics")
		if err != nil {
			continue // it is away, or has just begun
		}
		for _, m := range leading.FindAllStringSubmatch(text, -1) {
			if p, err := strconv.Atoi(m[1]); err == nil {
				found[p] = name
			}
		}
	}
	return found
}

// metric is a metric's value as a pod says it, -1 if it doesn't.
func (k *kubernetes) metric(pod, name string) float64 {
	text, err := k.ask(pod, 8082, "metrics")
	if err != nil {
		return -1
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return -1
	}
	return v
}

// policy is a RateLimitPolicy, as far as steps look at it.
type policy struct {
	Metadata meta
	Status   struct {
		ObservedGeneration int64
		Conditions         []condition
		Enforced           struct {
			Version    string
			Generation int64
			Partitions string
		}
	}
}

func (k *kubernetes) policy(name string) (*policy, error) {
	var p policy
	err := k.read(&p, "ratelimitpolicies.quorate.dev", name, "--namespace", namespace)
	return &p, err
}

// lacks says what keeps the newest generation of an object from having a condition like the one wanted; "" of a
// reason: any.
func (p *policy) lacks(kind, status, reason string) string {
	for _, c := range p.Status.Conditions {
		if c.Type == kind && c.Status == status && (reason == "" || c.Reason == reason) && c.ObservedGeneration == p.Metadata.Generation {
			return ""
		}
	}
	said, err := json.Marshal(p.Status)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s is not %s (%s) at generation %d: %s", kind, status, reason, p.Metadata.Generation, said)
}

// awaitCondition waits until the newest generation of an object has a condition, and returns the object.
func (k *kubernetes) awaitCondition(t *testing.T, name, kind, status, reason string) (p *policy) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s of policy %s to be %s", kind, name, status), func() string {
		var err error
		if p, err = k.policy(name); err != nil {
			return err.Error()
		}
		return p.lacks(kind, status, reason)
	})
	return p
}

// programmed waits until the newest generation of an object is enforced by every partition.
func (k *kubernetes) programmed(t *testing.T, name string) *policy {
	t.Helper()
	p := k.awaitCondition(t, name, "Programmed", "True", "")
	want := fmt.Sprintf("%d/%d", partitions, partitions)
	if p.Status.Enforced.Generation != p.Metadata.Generation || p.Status.Enforced.Partitions != want {
		t.Errorf("policy %s is Programmed at generation %d, but enforced is %+v", name, p.Metadata.Generation, p.Status.Enforced)
	}
	return p
}
