package cluster_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/rig"
)

// restoring is what is seen of a node while it is being restored.
type restoring struct {
	*nodes
	name   string
	health string

	of            string    // the snapshot that is arriving
	since         time.Time // it is
	looks, behind int       // at it, and of those the ones that say how far behind the node is
	grown         int       // how often more of it was there than at any look before
	most          int64     // bytes of it
}

// look asks for both probes, as Kubernetes does, and reports whether the node is ready.
func (r *restoring) look(t *testing.T) (ready bool) {
	t.Helper()
	before, _ := r.arriving(t)
	alive, text := probe(r.health, "/livez")
	status, why := probe(r.health, "/readyz")
	after, size := r.arriving(t)
	if alive != http.StatusOK {
		t.Fatalf("it passes for dead: %d %s", alive, text)
	}
	if !r.Running(r.name) {
		t.Fatal("it has ended")
	}
	if status == http.StatusOK && len(r.snapshots(t, r.name)) == 0 {
		t.Fatalf("it is ready, and has no snapshot; %+v", r)
	}
	if after != r.of { // the first one, or another, and all begins anew
		r.of, r.since, r.looks, r.behind, r.grown, r.most = after, time.Now(), 0, 0, 0, 0
	}
	if before != "" && before == after {
		r.looks++
		if strings.Contains(why, "entries behind its leader") {
			r.behind++
		}
		if size > r.most {
			r.most = size
			r.grown++
		}
	}
	return status == http.StatusOK
}

// arriving is the snapshot that isn't all there yet, and how much of it is on disk; "": there is none.
func (r *restoring) arriving(t *testing.T) (name string, size int64) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(r.Data(r.name), "p0", "snapshots", "*.tmp", "state.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		if about, err := os.Stat(path); err == nil { // else it has just become whole
			name, size = filepath.Dir(path), about.Size()
		}
	}
	return name, size
}

// snapshotSize is that of a node's newest.
func (n *nodes) snapshotSize(t *testing.T, name string) int64 {
	t.Helper()
	list := n.snapshots(t, name)
	about, err := os.Stat(filepath.Join(n.Data(name), "p0", "snapshots", list[len(list)-1], "state.bin"))
	if err != nil {
		t.Fatal(err)
	}
	return about.Size()
}

// TestK8S05ALongRestoreEndsNobody: a snapshot comes over a slow line. All that time the node is alive, isn't ready and says
// why, and the others decide; then it is ready, in the same process. It takes longer than a loop may stand still.
func TestK8S05ALongRestoreEndsNobody(t *testing.T) {
	t.Parallel()
	const (
		takes   = 36               // seconds that the line would need for all of the snapshot
		looking = 31 * time.Second // a loop that stands still for 30 s counts as dead
		looks   = 100
		growths = 20
	)
	web := rig.NewWeb()
	n := found(t, rig.Shape{Policies: hourlyText(2), Partitions: 1, LogBytes: "8MiB", Web: web})
	c, l := n.Client(t), newLedger(2)
	behind := rig.Others(n.Leader(t, 0))[0]
	n.Terminate(t, behind)
	asked := n.outrun(t, c, l, behind, 0)

	size := n.snapshotSize(t, rig.Others(behind)[0])
	for _, from := range rig.Others(behind) {
		web.Lane(from, behind).Slow(0, size/takes)
	}
	n.Begin(t, behind)
	r := &restoring{nodes: n, name: behind, health: n.Process[behind].Line(t, "health ")}
	rig.Eventually(t, "a snapshot to come", func() bool { r.look(t); return r.behind > 0 })
	was := l.told()
	flood(t, 20, func(i int) {
		id := newID()
		rig.Persist(t, "a decision", func() bool { return l.ask(t, c, id, longAccount(asked+i)) != nil })
	})
	if told := l.told(); told != was+20 {
		t.Errorf("while it is being restored %d of 20 are allowed", told-was)
	}
	rig.Eventually(t, "enough looks at a node that is being restored", func() bool {
		r.look(t)
		return r.behind >= looks && r.grown >= growths && time.Since(r.since) > looking
	})
	if is, _ := r.arriving(t); is != r.of {
		t.Fatal("the snapshot has arrived too soon")
	}
	t.Logf("%d looks while %s arrived, %d of them said how far behind; it grew %d times, to %d of %d bytes",
		r.looks, filepath.Base(r.of), r.behind, r.grown, r.most, size)
	web.Mend()
	rig.Eventually(t, "it to be ready", func() bool { return r.look(t) }) // and look insists that it has the snapshot
}
