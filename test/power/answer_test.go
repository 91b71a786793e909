package power_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/power/trace"
	"github.com/quorate/quorate/test/rig"
)

const domain = "video-api"

// policyText is a policy file under which an allowance outlives any test.
func policyText(limit int) string {
	return fmt.Sprintf(`policies:
- name: conversions
  domain: %s
  key: [principal]
  limits:
  - {name: hourly, rollingWindow: {limit: %d, window: 1h}}
`, domain, limit)
}

func descriptor(account string) *quotav1.Descriptor {
	return &quotav1.Descriptor{Entries: []*quotav1.Entry{{Name: "principal", Value: []byte(account)}}}
}

func newID() string {
	var id [16]byte
	for i := range id {
		id[i] = byte(rand.N(256))
	}
	return string(id[:])
}

// follow attaches strace to all nodes, calls what happens meanwhile, and returns the calls.
func follow(t *testing.T, n *rig.Nodes, meanwhile func()) []*trace.Call {
	t.Helper()
	var pids []int
	for _, name := range rig.Names() {
		pids = append(pids, n.Process[name].PID())
	}
	output := filepath.Join(t.ArtifactDir(), "nodes.trace")
	s := rig.Start(t, trace.Attach(output, "trace=read,write,writev,sendto,sendmsg,pwrite64,fdatasync,fsync", pids...)...)
	rig.Eventually(t, "strace to follow all nodes", func() bool {
		if !s.Running() {
			t.Fatalf("strace has ended: ptrace not permitted? %s", s.Stderr.String())
		}
		return !slices.ContainsFunc(pids, func(pid int) bool { return !trace.Followed(pid) })
	})
	meanwhile()
	s.Terminate(t, os.Interrupt)
	return readTrace(t, output)
}

// checks is how many lone checks are followed.
const checks = 20

// TestAnAllowIsOnTwoDisksBeforeItIsAnswered: strace follows three real nodes. For each of twenty lone checks it has seen,
// in this order: a node read it; in two processes the write of its entry, the return of fdatasync, the write of the
// page that makes it part of the log, and the return of fdatasync; and then that node's write of the answer.
func TestAnAllowIsOnTwoDisksBeforeItIsAnswered(t *testing.T) {
	needStrace(t)
	n := programs.Found(t, rig.Shape{Plain: true, Partitions: 1, Election: time.Second, Policies: policyText(100)})
	c := n.Client(t)
	allow(t, c, newID(), "warm") // has routes and connections from here on
	var ids []string
	calls := follow(t, n, func() {
		for range checks {
			id := newID()
			allow(t, c, id, "lone")
			ids = append(ids, id)
		}
	})
	var proofs []proof
	for i, id := range ids {
		p, err := prove(calls, n.Addresses(), id)
		if err != nil {
			t.Fatalf("check %d of %d, %x: %v", i+1, checks, id, err)
		}
		proofs = append(proofs, p)
	}
	t.Logf("%d calls; %s", len(calls), report(proofs))
	t.Run("a trace of another order proves nothing", func(t *testing.T) { doctored(t, calls, n.Addresses(), ids) })
}

// allow insists on an allow.
func allow(t *testing.T, c *client.Client, id, account string) {
	t.Helper()
	rig.Eventually(t, "an allow", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
		defer cancel()
		a, err := c.Check(ctx, &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{descriptor(account)}, DecisionId: []byte(id)})
		if err == nil && a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
			t.Fatalf("answered %v", a)
		}
		return err == nil
	})
}

func report(proofs []proof) string {
	var took []time.Duration
	disks := 0
	for _, p := range proofs {
		took = append(took, p.took())
		disks += len(p.durable)
	}
	slices.Sort(took)
	return fmt.Sprintf("%d of %d lone checks were on two disks at least before they were answered (%.2f on average); from question to answer under strace: %v to %v, median %v",
		len(proofs), checks, float64(disks)/float64(len(proofs)), took[0], took[len(took)-1], took[len(took)/2])
}

// doctored changes what the trace says of each check in turn, one way after the other, and insists that the proof fails.
func doctored(t *testing.T, calls []*trace.Call, nodes []string, ids []string) {
	for name, change := range map[string]func(p proof, c *trace.Call){
		"the answer before the second disk's sync has returned": func(p proof, c *trace.Call) {
			if c.Began == p.answered.Began {
				c.Began = second(p).Ended - 1
			}
		},
		"all syncs but one disk's are missing": func(p proof, c *trace.Call) {
			if c.Name == "fdatasync" && c.FirstFile() != p.durable[0].FirstFile() {
				c.Name = "read"
			}
		},
		"they fail": func(p proof, c *trace.Call) {
			if c.Name == "fdatasync" && c.FirstFile() != p.durable[0].FirstFile() {
				c.Failed = "EIO"
			}
		},
		"they never return": func(p proof, c *trace.Call) {
			if c.Name == "fdatasync" && c.FirstFile() != p.durable[0].FirstFile() {
				c.Ended = 0
			}
		},
		"the syncs of the meta page are missing": func(p proof, c *trace.Call) {
			for _, d := range p.durable {
				if c.FirstFile() == d.FirstFile() && c.Began >= d.Began {
					c.Failed = "EIO"
				}
			}
		},
		"another entry is written": func(_ proof, c *trace.Call) {
			if c.Name == "pwrite64" {
				c.Args = slices.Clone(c.Args)
				c.Args[1].Bytes = strings.Repeat("x", len(c.Args[1].Bytes))
			}
		},
		"no meta page is written": func(_ proof, c *trace.Call) {
			if onMetaPage(c) {
				c.Args = slices.Clone(c.Args)
				c.Args[3].Text = "8192"
			}
		},
		"it is asked later": func(p proof, c *trace.Call) {
			if c.Began == p.asked.Began {
				c.Ended = second(p).Began
			}
		},
		"it is never answered": func(p proof, c *trace.Call) {
			if c.Began == p.answered.Began {
				c.Name = "read"
			}
		},
	} {
		for i, id := range ids {
			p, err := prove(calls, nodes, id)
			if err != nil {
				t.Fatal(err)
			}
			other := make([]*trace.Call, len(calls))
			for j, c := range calls {
				changed := *c
				change(p, &changed)
				other[j] = &changed
			}
			if _, err := prove(other, nodes, id); err == nil {
				t.Errorf("check %d: with a trace in which %s, it counts as proven", i+1, name)
			}
		}
	}
}

// second is the sync with which a majority has the entry.
func second(p proof) *trace.Call {
	ends := slices.Clone(p.durable)
	slices.SortFunc(ends, func(a, b *trace.Call) int { return a.Ended - b.Ended })
	return ends[majority-1]
}
