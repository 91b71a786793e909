package power_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/power/medium"
	"github.com/quorate/quorate/test/power/trace"
	"github.com/quorate/quorate/test/rig"
)

// limitOf is how many an account gets in an hour.
const limitOf = 25

// era is the life of a cluster from the first call of its nodes on, as strace saw it, and what was told to those who asked.
type era struct {
	nodes  *rig.Nodes
	events map[string][]trace.Event // by node
	crowd  *crowd
	began  int64 // of the load
	ended  int64
}

// live founds a cluster under strace, has many ask it for a while, and kills it.
func live(t *testing.T, program []string, more string, allows int) *era {
	t.Helper()
	traces := t.ArtifactDir()
	e := &era{events: map[string][]trace.Event{}}
	n := programs.Prepare(t, rig.Shape{
		Plain: true, Partitions: 2, Election: time.Second, More: func(string) string { return more },
		Program: func(name string) []string {
			if e.ended > 0 {
				return program
			}
			return trace.Beside(filepath.Join(traces, name+".trace"), trace.Changes, program...)
		},
	})
	for _, name := range rig.Names() {
		if err := os.Mkdir(n.Disk(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.Begin(t, rig.Names()...)
	n.Ready(t, rig.Names()...)
	n.Enforce(t, policyText(limitOf))
	e.nodes, e.began = n, time.Now().UnixNano()
	c := n.Client(t)
	e.crowd = gather(t, c)
	e.crowd.awaitAllows(t, allows)
	e.ended = time.Now().UnixNano()
	e.kill(t)
	e.crowd.disperse()
	c.Close()
	for _, name := range rig.Names() {
		e.events[name] = trace.Events(readTrace(t, filepath.Join(traces, name+".trace")))
	}
	return e
}

// kill ends the nodes, and returns once strace has written down all that they did.
func (e *era) kill(t *testing.T) {
	t.Helper()
	var tracers []int
	for _, name := range rig.Names() {
		tracer := trace.Tracer(e.nodes.Process[name].PID())
		if tracer == 0 {
			t.Fatalf("nobody follows %s", name)
		}
		tracers = append(tracers, tracer)
	}
	e.nodes.Kill(t, rig.Names()...)
	rig.Eventually(t, "strace to write down the end", func() bool {
		return !slices.ContainsFunc(tracers, func(pid int) bool { return !trace.Ended(pid) })
	})
}

// disk is a node's disk at a moment of the era.
func (e *era) disk(t *testing.T, name string, at int64) *medium.Medium {
	t.Helper()
	m := medium.New(e.nodes.Disk(name))
	for _, ev := range e.events[name] {
		switch {
		case !ev.End && ev.BeganAt > at || ev.End && ev.EndedAt > at:
			return m
		case ev.End:
			m.End(ev.Call)
		default:
			if err := m.Begin(ev.Call); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}

// lose puts in place what all disks hold after power was lost at a moment.
func (e *era) lose(t *testing.T, rng *rand.Rand, at int64) (sum medium.Cut) {
	t.Helper()
	for _, name := range rig.Names() {
		folder := e.nodes.Disk(name)
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		c, err := e.disk(t, name, at).Cut(rng, medium.AnyLoss(rng), folder)
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(c)
	}
	return sum
}

// TestDISK07AllNodesLosePowerAtOnce: three real nodes, from the founding of their cluster on, under load. At some moment
// power is lost for all of them, and each disk keeps any part of what wasn't synced. The nodes that start from those
// disks know every allow that anybody had been told of, and let no account have more than its limit. So do nodes whose
// logs are so short that they take snapshots all the time.
func TestDISK07AllNodesLosePowerAtOnce(t *testing.T) {
	needStrace(t)
	for name, nodes := range map[string]struct {
		program []string
		more    string
	}{
		"quotanode":       {program: []string{program("quotanode"), "run"}},
		"snapshots often": {program: []string{program("faultnode")}, more: "test: {logBytes: 8192}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e := live(t, nodes.program, nodes.more, 500)
			seed := seedOf(t)
			rng := rand.New(rand.NewPCG(seed, 4))
			e.founding(t, seed, rng)
			sum := e.load(t, seed, rng)
			if sum.PagesLost+sum.NamesLost == 0 || nodes.more != "" && e.snapshots() == 0 {
				t.Errorf("nothing was lost, or %d snapshots: hardly tried", e.snapshots())
			}
		})
	}
}

// load has power lost at moments of the load.
func (e *era) load(t *testing.T, seed uint64, rng *rand.Rand) (sum medium.Cut) {
	t.Helper()
	told, seconds := 0, float64(e.ended-e.began)/1e9
	for i := range outages(t) {
		at := e.moment(rng, e.began, e.ended)
		sum.Add(e.lose(t, rng, at))
		told += e.recover(t, fmt.Sprintf("seed %d, outage %d, %.3f s into the load", seed, i+1, float64(at-e.began)/1e9), at)
	}
	t.Logf("seed %d: %d outages of three nodes in %.1f s of load; %d allows had been told of and were there; snapshots: %d; left behind: %s",
		seed, outages(t), seconds, told, e.snapshots(), left(sum))
	if told == 0 {
		t.Error("nothing had been told of: hardly tried")
	}
	return sum
}

// moment is one at which some node did something to its disk, or a little later.
func (e *era) moment(rng *rand.Rand, from, to int64) int64 {
	var all []int64
	for _, name := range rig.Names() {
		for _, ev := range e.events[name] {
			disk := e.nodes.Disk(name)
			about := strings.HasPrefix(ev.FirstFile(), disk) || len(ev.Args) > 1 && strings.HasPrefix(ev.Args[1].Bytes, disk)
			if about && ev.BeganAt >= from && ev.BeganAt < to {
				all = append(all, ev.BeganAt)
			}
		}
	}
	return min(to, all[rng.IntN(len(all))]+rng.Int64N(int64(2*time.Millisecond)))
}

// founding has power lost before anybody could ask: the cluster begins all the same, of the same disks.
func (e *era) founding(t *testing.T, seed uint64, rng *rand.Rand) {
	t.Helper()
	for i := range outages(t) {
		at := e.moment(rng, 0, e.began)
		lost := e.lose(t, rng, at)
		e.nodes.Begin(t, rig.Names()...)
		e.nodes.Ready(t, rig.Names()...)
		e.nodes.Enforce(t, policyText(limitOf))
		c := e.nodes.Client(t)
		allow(t, c, newID(), "founder")
		c.Close()
		e.nodes.Kill(t, rig.Names()...)
		t.Logf("seed %d, outage %d, %.3f s before the load: founded; left behind: %s", seed, i+1, float64(e.began-at)/1e9, left(lost))
	}
}

func program(name string) string { return filepath.Join(string(programs), name) }

// seedOf is what SEED says, or another one each time.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("SEED")
	if text == "" {
		return rand.Uint64N(1e6)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

// outages is how many there are before the load, and in it; more by POWER_OUTAGES.
func outages(t *testing.T) int {
	t.Helper()
	return numberOf(t, "POWER_OUTAGES", 3)
}

// snapshots counts those that nodes have finished.
func (e *era) snapshots() (n int) {
	for _, events := range e.events {
		for _, ev := range events {
			if ev.End && ev.Done() && ev.Name == "renameat" && strings.Contains(ev.Args[3].Bytes, "/snapshots/") {
				n++
			}
		}
	}
	return n
}

// recover starts the nodes from their disks, and returns how many allows were told of before the cut. All of them are
// there.
func (e *era) recover(t *testing.T, where string, cut int64) int {
	t.Helper()
	n := e.nodes
	n.Begin(t, rig.Names()...)
	n.Ready(t, rig.Names()...)
	c := n.Client(t)
	defer c.Close()
	var short atomic.Int64
	later := e.crowd.owed(e.ended)
	each(e.crowd.owed(cut), func(account string, o owed) {
		used := used(t, c, account)
		if used < o.least || used > o.most || used > limitOf {
			t.Errorf("%s: of %s %d units are used up; told were %d, asked %d", where, account, used, o.least, o.most)
		}
		if used < later[account].least {
			short.Add(1)
		}
	})
	told := e.crowd.told(cut)
	if len(e.crowd.told(e.ended)) > len(told)+askers && short.Load() == 0 {
		t.Errorf("%s: what was only told of after it is there, too: this is no disk of then", where)
	}
	replayed := e.replay(t, where, c, told)
	e.fill(t, where, c)
	n.Kill(t, rig.Names()...)
	t.Logf("%s: %d allows were there, of which %d were asked for again", where, len(told), replayed)
	return len(told)
}

// replay asks again for some allows: each is the one that was told of.
func (e *era) replay(t *testing.T, where string, c *client.Client, told []asked) int {
	t.Helper()
	last := told[max(0, len(told)-50):]
	var again atomic.Int64
	some := map[string]asked{}
	for _, q := range last {
		some[q.id] = q
	}
	each(some, func(_ string, q asked) {
		a := insist(t, c, q)
		if a.GetDecision() != quotav1.Decision_DECISION_ALLOW || !a.GetReplayed() || a.GetDecisionTimeNs() != q.at {
			t.Errorf("%s: what was allowed at %d is answered %v", where, q.at, a)
		}
		again.Add(1)
	})
	return int(again.Load())
}

// fill uses up an account: what was told of and what comes now is its limit, or less by what was asked and not answered.
func (e *era) fill(t *testing.T, where string, c *client.Client) {
	t.Helper()
	const account = "hot-0"
	before := used(t, c, account)
	allowed := 0
	for insist(t, c, asked{id: newID(), account: account}).GetDecision() == quotav1.Decision_DECISION_ALLOW {
		allowed++
	}
	if before+allowed != limitOf {
		t.Errorf("%s: %d of %s were used up, then %d allowed, of %d", where, before, account, allowed, limitOf)
	}
}

// insist asks until there is an answer.
func insist(t *testing.T, c *client.Client, q asked) (a *quotav1.Answer) {
	t.Helper()
	rig.Persist(t, "an answer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var err error
		a, err = c.Check(ctx, question(q))
		return err == nil
	})
	return a
}

// used is how many units of an account's only limit are used up.
func used(t *testing.T, c *client.Client, account string) (n int) {
	t.Helper()
	rig.Persist(t, "what is used up", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		u, err := c.Inspect(ctx, &quotav1.InspectRequest{Domain: domain, Descriptor_: descriptor(account)})
		if err != nil || len(u.GetLimits()) != 1 {
			return false
		}
		n = int(u.GetLimits()[0].GetUsed())
		return true
	})
	return n
}

// each calls do for all entries, for several at once.
func each[V any](all map[string]V, do func(string, V)) {
	var doing sync.WaitGroup
	places := make(chan struct{}, 16)
	for key, value := range all {
		places <- struct{}{}
		doing.Go(func() {
			defer func() { <-places }()
			do(key, value)
		})
	}
	doing.Wait()
}
