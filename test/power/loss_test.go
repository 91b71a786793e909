package power_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/test/power/medium"
	"github.com/quorate/quorate/test/power/trace"
)

const (
	storeSeeds  = 50
	stepsOfSeed = 60
	cutsOfSeed  = 25
)

// recording is what a seed's replica did, as strace saw it.
type recording struct {
	seed   uint64
	folder string
	steps  []*step
	events []trace.Event
}

// recordStores records a seed anew, or reads the trace that TRACE names: pages lie elsewhere in each run.
func recordStores(t *testing.T, seed uint64) *recording {
	t.Helper()
	r := &recording{seed: seed, folder: filepath.Join(scratch(t), "replica"), steps: plan(seed, stepsOfSeed)}
	var calls []*trace.Call
	if kept := os.Getenv("TRACE"); kept != "" {
		calls = readTrace(t, kept)
		for _, c := range calls {
			if c.Name == "mkdirat" && c.Done() {
				r.folder = c.Args[1].Bytes
				break
			}
		}
	} else {
		calls = record(t, fmt.Sprint("seed-", seed), folderVariable+"="+r.folder, fmt.Sprint(seedVariable, "=", seed), fmt.Sprint(lengthVariable, "=", stepsOfSeed))
	}
	r.events = trace.Events(calls)
	return r
}

// lies says which syncs do nothing; nil: the disk is honest.
type lies func(medium.Sync) bool

// loss is what a replica may find after one loss of power.
type loss struct {
	folder string   // of the replica
	may    []*state // that are right
	kind   string   // of the step that was in hand; empty: none
	where  string
	step   int
}

// cuts has power lost at some moments, and has each judged.
func (r *recording) cuts(t *testing.T, n int, ignore lies, tl *tally, judge func(loss)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(r.seed, 2))
	m := medium.New(filepath.Dir(r.folder))
	m.Ignore = ignore
	moments := r.moments(rng, n)
	disk := filepath.Join(scratch(t), "disk")
	doing, done := -1, -1
	for i, e := range r.events {
		if e.End {
			m.End(e.Call)
		} else if err := m.Begin(e.Call); err != nil {
			t.Fatal(err)
		}
		doing, done = heard(e, doing, done)
		if moments[i] && doing >= 0 {
			r.cut(t, m, rng, disk, i, doing, done, tl, judge)
		}
	}
	tl.disk(m.Count)
}

func (r *recording) cut(t *testing.T, m *medium.Medium, rng *rand.Rand, disk string, event, doing, done int, tl *tally, judge func(loss)) {
	t.Helper()
	l := loss{may: r.steps[doing].may, kind: r.steps[doing].kind, step: doing}
	if done == doing {
		l.may, l.kind = l.may[len(l.may)-1:], ""
	}
	much := medium.AnyLoss(rng)
	l.where = fmt.Sprintf("seed %d, event %d, step %d (in hand: %q), lost: %v", r.seed, event, doing, l.kind, much)
	count, err := m.Cut(rng, much, disk)
	if err != nil {
		t.Fatal(err)
	}
	tl.cut(count, l.kind)
	l.folder = filepath.Join(disk, filepath.Base(r.folder))
	judge(l)
	if err := os.RemoveAll(disk); err != nil {
		t.Fatal(err)
	}
}

// moments are the events after which power is lost: some of those that have to do with the disk.
func (r *recording) moments(rng *rand.Rand, n int) map[int]bool {
	var about []int
	for i, e := range r.events {
		if e.Name != "write" || strings.HasPrefix(e.FirstFile(), r.folder) {
			about = append(about, i)
		}
	}
	moments := map[int]bool{}
	for range n {
		moments[about[rng.IntN(len(about))]] = true
	}
	return moments
}

// heard takes in what the program said of where it is.
func heard(e trace.Event, doing, done int) (int, int) {
	if e.End || e.Name != "write" || !strings.HasPrefix(e.Args[0].Text, "1<") {
		return doing, done
	}
	word, number, _ := strings.Cut(strings.TrimSpace(e.Args[1].Bytes), " ")
	i, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return doing, done
	case word == "end":
		return doing, i
	}
	return i, done
}

// tally is what happened in all cuts.
type tally struct {
	sync.Mutex
	lost          medium.Cut
	did           medium.Count
	cuts          int
	kinds         map[string]int // cuts in the middle of a step, by its kind
	undone, whole int            // steps in hand that aren't there after a loss, and that are
}

func newTally() *tally { return &tally{kinds: map[string]int{}} }

func (tl *tally) cut(c medium.Cut, kind string) {
	tl.Lock()
	defer tl.Unlock()
	tl.cuts++
	tl.lost.Add(c)
	if kind != "" {
		tl.kinds[kind]++
	}
}

func (tl *tally) disk(c medium.Count) {
	tl.Lock()
	defer tl.Unlock()
	tl.did.Add(c)
}

// found counts which state was there.
func (tl *tally) found(l loss, s *state) {
	tl.Lock()
	defer tl.Unlock()
	switch {
	case l.kind == "":
	case s == l.may[len(l.may)-1]:
		tl.whole++
	default:
		tl.undone++
	}
}

func (tl *tally) String() string {
	return fmt.Sprintf("%d losses of power, in the middle of %v: what was in hand was there %d times, and wasn't %d times; left behind: %s; of %+v",
		tl.cuts, tl.kinds, tl.whole, tl.undone, left(tl.lost), tl.did)
}

// left says what losses left, with the torn pages counted.
func left(c medium.Cut) string {
	of := c
	of.PagesTorn = nil
	return fmt.Sprintf("%+v, of the kept pages torn: %d, of these bbolt's meta pages: %d", of, len(c.PagesTorn), metaTorn(c))
}

// metaTorn counts the torn pages by which bbolt finds all others.
func metaTorn(c medium.Cut) (n int) {
	for _, p := range c.PagesTorn {
		if strings.HasPrefix(p.File, "raft.db") && p.Number < 2 {
			n++
		}
	}
	return n
}

// TestDISK07StoresSurviveALossOfPower: replicas' stores on real files, of which strace has seen all writes and syncs.
// Power is lost at any moment of it, and the disk keeps any part of what wasn't synced. Everything that was
// acknowledged is there, what was in hand is there wholly or not at all, and the replica goes on.
func TestDISK07StoresSurviveALossOfPower(t *testing.T) {
	needStrace(t)
	tl := newTally()
	all := seeds(t, storeSeeds)
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range all {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				recordStores(t, seed).cuts(t, numberOf(t, cutsVariable, cutsOfSeed), nil, tl, func(l loss) {
					found, err := inspect(l.folder, l.may)
					if err != nil {
						t.Errorf("%s: %v\nthe same once more: SEED=%d go test -run %s -artifacts ./test/power, and TRACE=its trace", l.where, err, seed, "TestDISK07Stores")
					}
					tl.found(l, found)
				})
			})
		}
	})
	t.Logf("seeds 1 to %d: %v", len(all), tl)
	if len(all) == storeSeeds {
		tl.enough(t)
	}
}

// enough insists that all of it happened that there is to survive.
func (tl *tally) enough(t *testing.T) {
	t.Helper()
	for what, n := range map[string]int{
		"cuts": tl.cuts / 1000, "kept pages": tl.lost.PagesKept, "lost pages": tl.lost.PagesLost, "torn pages": len(tl.lost.PagesTorn),
		"torn meta pages": metaTorn(tl.lost), "lost sizes": tl.lost.SizesLost, "kept names": tl.lost.NamesKept,
		"lost names": tl.lost.NamesLost, "half written files": tl.lost.FilesTorn, "half written folders": tl.lost.FoldersTorn,
		"opens": tl.kinds["open"], "votes": tl.kinds["set"], "appends": tl.kinds["store"], "deletions": tl.kinds["delete"],
		"snapshots": tl.kinds["snapshot"], "steps undone": tl.undone, "steps done": tl.whole,
	} {
		if n == 0 {
			t.Errorf("no %s: hardly tried", what)
		}
	}
}

// cutsVariable raises or lowers how often power is lost for each seed.
const cutsVariable = "POWER_CUTS"

// numberOf is what a variable says.
func numberOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// seeds are 1 to n, or the one that SEED says.
func seeds(t *testing.T, n int) (list []uint64) {
	t.Helper()
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	for i := range n {
		list = append(list, uint64(i+1))
	}
	return list
}
