package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/test/checker"
	"github.com/quorate/quorate/test/rig"
)

const (
	// enough is how many allows a cell needs that its answer counts.
	enough = 1000
	// loadFor bounds how long a cell goes on asking for them.
	loadFor = 40 * time.Second
)

// cell is one fault in one phase, being done.
type cell struct {
	*testing.T
	*cluster
	plan  planned
	r     *rand.Rand
	crowd *crowd

	mu     sync.Mutex
	counts map[string]int
	hits   []hit
	edits  int    // applied
	behind string // phase installing: who takes in a snapshot
}

// hit is a moment at which harm was done, and the partitions that should notice.
type hit struct {
	at         int64
	partitions []int
}

// count adds to one of the figures that prove that the fault took place.
func (c *cell) count(what string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what] += by
}

// hit notes that harm is done now, and writes it down.
func (c *cell) hit(what string, partitions ...int) {
	c.hits = append(c.hits, hit{now(), partitions})
	for _, p := range append([]int{}, partitions...) {
		_ = c.crowd.history.Write(&checker.Mark{At: now(), Name: what, Partition: p}) // its end says it again
	}
}

// wait lets time pass.
func (c *cell) wait(d time.Duration) { pause(context.Background(), d) }

// awaitAllows waits until that many more were allowed.
func (c *cell) awaitAllows(more int) {
	c.Helper()
	want := c.crowd.figures().Allows + more
	rig.Eventually(c, fmt.Sprintf("%d allows", more), func() bool { return c.crowd.figures().Allows >= want })
}

// anyPartition draws one.
func (c *cell) anyPartition() int { return c.r.IntN(c.on.partitions) }

// someLeader draws a partition, and returns who leads it and all that this one leads.
func (c *cell) someLeader() (name string, leads []int) {
	c.Helper()
	name = c.Leader(c, c.anyPartition())
	return name, c.ledBy(c, name)
}

// all are all partitions.
func (c *cell) all() (list []int) {
	for p := range c.on.partitions {
		list = append(list, p)
	}
	return list
}

// run runs cells, one after another.
func run(t *testing.T, r *report, seed uint64, list []planned) {
	var c *cluster
	defer func() {
		if c != nil {
			c.leave()
		}
	}()
	if len(list) == 0 { // nothing would be shown by it
		var names []string
		for _, p := range named("") {
			names = append(names, p.name())
		}
		t.Fatalf("no cell has that in its name; there are: %s", strings.Join(names, ", "))
	}
	fmt.Printf("seed %d, %d cells\n", seed, len(list))
	for i, p := range list {
		if lack := lacking(t, p.fault); lack != "" {
			r.add(row{Cell: p.name(), Skipped: lack})
			continue
		}
		if c != nil && (c.broken || c.on != p.on) {
			c.leave()
			c = nil
		}
		if c == nil {
			c = foundCluster(t, p.on)
		}
		ok := t.Run(fmt.Sprintf("%s/%d", p.name(), seed), func(sub *testing.T) { do(sub, c, p, seed, i, r) })
		c.broken = !ok || p.fault.lasting
	}
}

// lacking says what the machine lacks for a fault. Where everything has to run, that fails.
func lacking(t *testing.T, f fault) string {
	t.Helper()
	if f.lacks == nil {
		return ""
	}
	lack := f.lacks()
	if lack != "" && os.Getenv("CI") == "true" {
		t.Errorf("%s: %s", f.name, lack)
	}
	return lack
}

// do runs one cell and adds its row.
func do(t *testing.T, c *cluster, p planned, seed uint64, number int, r *report) {
	began, told := time.Now(), len(r.Rows)
	defer func() {
		if len(r.Rows) == told { // it was given up
			r.add(row{Cell: p.name(), Ground: p.on.String(), Seed: seed, Failed: true, About: "given up"})
		}
	}()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	w, err := checker.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	draw := chance(seed, p.name())
	hinted := draw.IntN(3) == 0
	this := &cell{
		T: t, cluster: c, plan: p, r: draw, counts: map[string]int{},
		crowd: newCrowd(c.clients, w, fmt.Sprintf("s%d-%d", seed, number), hinted),
	}
	t.Cleanup(func() { keep(t, path, p.name(), seed) })
	t.Cleanup(this.crowd.end)
	c.whole(t)
	this.usualPolicies()
	before := this.before()
	this.attack()
	result := this.result(before)
	result.Seed, result.Seconds = seed, time.Since(began).Seconds()
	if err := this.close(w); err != nil {
		t.Error(err)
	}
	this.judge(path, &result, hinted)
	r.add(result)
}

// usualPolicies brings the usual amounts into force: the first line of the cell's history.
func (c *cell) usualPolicies() {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	line, err := c.editor.apply(ctx, usual())
	if err == nil && line.Outcome != checker.Applied {
		err = errors.New("the policies never came into force")
	}
	if err = errors.Join(err, c.crowd.history.Write(line)); err != nil {
		c.Fatal(err)
	}
}

// attack has callers ask, and does the fault meanwhile.
func (c *cell) attack() {
	c.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var editing sync.WaitGroup
	defer func() {
		stop()
		editing.Wait()
	}()
	c.crowd.begin(c.r)
	editor := chance(c.r.Uint64(), "editor")
	editing.Go(func() { c.editAll(ctx, editor) })
	c.awaitAllows(100)
	if c.plan.phase == installing {
		c.fallBehind()
	}
	c.plan.fault.does(c)
	if c.web != nil {
		c.web.Mend()
	}
	if !c.plan.fault.lasting {
		c.whole(c)
	}
	if c.plan.phase == installing {
		c.caughtUp()
	}
	for end := time.Now().Add(loadFor); !c.satisfied() && time.Now().Before(end); {
		c.wait(50 * time.Millisecond)
	}
	stop()
	editing.Wait()
	c.crowd.end()
	c.crowd.settle()
}

// satisfied reports whether enough has been seen.
func (c *cell) satisfied() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.crowd.figures().Allows >= enough+enough/10 && c.edits >= c.leastEdits()
}

// leastEdits is how many edits the cell's phase asks for.
func (c *cell) leastEdits() int {
	if c.plan.phase == editing {
		return 5
	}
	return 1
}

// editAll edits policies at the phase's pace.
func (c *cell) editAll(ctx context.Context, r *rand.Rand) {
	every := 1500 * time.Millisecond
	if c.plan.phase == editing {
		every = 100 * time.Millisecond
	}
	err := c.editor.edit(ctx, c.crowd.history, every, r, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.edits++
	})
	if err != nil {
		c.Error(err)
	}
}

// close writes what the cluster says in the end.
func (c *cell) close(w *checker.Writer) error {
	return errors.Join(c.crowd.failed, c.crowd.inspect(), c.compareStates(c, w), w.Close())
}

// judge has the checker read the history, and completes the row.
func (c *cell) judge(path string, row *row, hinted bool) {
	c.Helper()
	verdict, err := checker.CheckFile(path, checker.Options{Live: !hinted})
	if err != nil {
		c.Fatal(err)
	}
	for _, n := range verdict.Violated {
		row.Violations += n
	}
	if row.Violations > 0 || len(verdict.Undecided) > 0 {
		c.Errorf("the checker says\n%s", verdict)
	}
	for _, what := range row.wants(c) {
		c.Error(what)
	}
	row.Failed = c.Failed()
}

// keep keeps a history where that was asked for, or where it shows a failure.
func keep(t *testing.T, path, name string, seed uint64) {
	folder := os.Getenv("HISTORIES")
	if folder == "" && t.Failed() {
		folder = filepath.Join(os.TempDir(), "quorate-histories")
	}
	if folder == "" {
		return
	}
	to := filepath.Join(folder, fmt.Sprintf("%s-%s-%d.jsonl", filepath.Dir(name), filepath.Base(name), seed))
	text, err := os.ReadFile(path)
	if err = errors.Join(err, os.MkdirAll(folder, 0o755), os.WriteFile(to, text, 0o644)); err != nil {
		t.Error(err)
	}
	t.Logf("its history is %s", to)
}
