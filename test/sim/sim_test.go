package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// How many seeds are run where nothing else is said. `make sim` runs more.
const (
	fewSeeds  = 100
	fewLosses = 60
	fewLeases = 30
)

// TestSeeds runs a partition through trouble of all kinds, a seed after the other. SIM_SEEDS says how many.
func TestSeeds(t *testing.T) {
	c := campaign{count: number("SIM_SEEDS", fewSeeds)}
	c.run(t, "")
	c.covers(t, everywhere())
}

// TestNoAllowIsLostWithThePower has the power fail, again and again, for all replicas at once: what was written since
// the last sync is lost, torn, or there without what was written before it. SIM_LOSSES says how many seeds.
func TestNoAllowIsLostWithThePower(t *testing.T) {
	c := campaign{options: Options{Power: true}, count: number("SIM_LOSSES", fewLosses)}
	c.run(t, " KIND=power")
	c.covers(t, []string{"power losses", "losses amid a write", "torn writes", "answers: replayed", "answers: unknown"})
}

// TestALeaderThatWasReplacedDeniesNothingThatIsAllowed has leaders believe for longest that they lead, while others do.
// SIM_LEASES says how many seeds.
func TestALeaderThatWasReplacedDeniesNothingThatIsAllowed(t *testing.T) {
	c := campaign{options: Options{Leases: true}, count: number("SIM_LEASES", fewLeases)}
	c.run(t, " KIND=leases")
	c.covers(t, []string{"looks at two leaders", "leaders that hear late", "voters that come back", "answers: deny"})
	if n := c.total["denials beside another leader"]; n > 0 {
		t.Errorf("%d denials of leaders that others had replaced", n)
	}
}

// TestASeedRunsTheSameTwice replays seeds and compares all that happened: every message, every call of a store, every
// answer, with its time.
func TestASeedRunsTheSameTwice(t *testing.T) {
	for seed := range uint64(number("SIM_TWICE", 6)) {
		for _, o := range []Options{{Trace: true}, {Trace: true, Power: true}} {
			o.Seed = seed + 1
			var traces [2][]byte
			for i := range traces {
				file := filepath.Join(t.TempDir(), "trace")
				if r := inProcess(t, o, file); len(r.Problems) > 0 {
					t.Errorf("seed %d: %s", o.Seed, r.Problems[0])
				}
				traces[i] = read(t, file)
			}
			if len(traces[0]) < 10_000 {
				t.Errorf("seed %d: a trace of %d bytes shows nothing", o.Seed, len(traces[0]))
			}
			if line, one, other := difference(traces[0], traces[1]); line > 0 {
				t.Errorf("seed %d: line %d is\n%s\nand then\n%s", o.Seed, line, one, other)
			}
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// difference is the first line that differs; 0: none does.
func difference(a, b []byte) (line int, one, other string) {
	x, y := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) || x[i] != y[i] {
			return i + 1, strings.Join(x[min(i, len(x)):min(i+1, len(x))], ""), strings.Join(y[min(i, len(y)):min(i+1, len(y))], "")
		}
	}
	return 0, "", ""
}

// TestReplay runs the seed SIM_SEED of the kind SIM_KIND (empty, power or leases), and says all about it. What happened
// goes to the file SIM_TRACE, if there is one.
func TestReplay(t *testing.T) {
	given := os.Getenv("SIM_SEED")
	if given == "" {
		t.Skip("SIM_SEED says which seed: make sim SEED=n")
	}
	kind := os.Getenv("SIM_KIND")
	o := Options{Seed: uint64(number("SIM_SEED", 0)), Power: kind == "power", Leases: kind == "leases", Trace: true}
	r := inProcess(t, o, os.Getenv("SIM_TRACE"))
	t.Logf("seed %d\n%s", r.Seed, r.Counts)
	for _, p := range r.Problems {
		t.Error(p)
	}
}

// TestASeed runs one seed, as the process that is started for it.
func TestASeed(t *testing.T) {
	given := os.Getenv("SIM_OPTIONS")
	if given == "" {
		t.Skip("the other tests start it")
	}
	var o Options
	if err := json.Unmarshal([]byte(given), &o); err != nil {
		t.Fatal(err)
	}
	report := Run(t, o)
	if file := os.Getenv("SIM_TRACE"); file != "" {
		if err := os.WriteFile(file, report.Trace, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	report.Trace = nil
	line, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s%s\n", reportMark, line)
}

const reportMark = "report: "

// inProcess runs a seed in a process of its own, where goroutines run in an order that follows from the seed.
func inProcess(t testing.TB, o Options, trace string) Report {
	t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestASeed$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), "SIM_OPTIONS="+string(options), "SIM_TRACE="+trace, "GOMAXPROCS=1", "GODEBUG=randseednop=0")
	out, err := cmd.CombinedOutput()
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		line, ok := strings.CutPrefix(lines.Text(), reportMark)
		if !ok {
			continue
		}
		var r Report
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	return Report{Seed: o.Seed, Problems: []string{fmt.Sprintf("the process ended: %v\n%s", err, out)}, Crashed: true}
}

// campaign is many seeds.
type campaign struct {
	options Options
	first   uint64
	count   int

	mu     sync.Mutex
	total  Counts
	failed []uint64
}

// run runs all of them, as many at a time as there are processors.
func (c *campaign) run(t *testing.T, how string) {
	t.Helper()
	c.each(t, func(r Report) (enough bool) {
		c.total.Add(r.Counts)
		if len(r.Problems) > 0 {
			c.failed = append(c.failed, r.Seed)
			t.Errorf("seed %d (replay it with: make sim SEED=%d%s%s)\n%s", r.Seed, r.Seed, how, raced, strings.Join(some(r.Problems), "\n"))
		}
		return false
	})
	t.Logf("%d seeds, from %d; %d of them failed\n%s", c.count, c.first+1, len(c.failed), c.total)
}

// each hears of one after another, until it has heard enough.
func (c *campaign) each(t *testing.T, hear func(Report) (enough bool)) {
	c.total = Counts{}
	seeds, enough := make(chan uint64), false
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for seed := range seeds {
				o := c.options
				o.Seed = seed
				r := inProcess(t, o, "")
				c.mu.Lock()
				enough = hear(r) || enough
				c.mu.Unlock()
			}
		})
	}
	over := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return enough
	}
	for i := uint64(1); i <= uint64(c.count) && !over(); i++ {
		seeds <- c.first + i
	}
	close(seeds)
	workers.Wait()
}

// some are the first few.
func some(problems []string) []string {
	if len(problems) > 5 {
		return append(slices.Clone(problems[:5]), fmt.Sprintf("and %d more", len(problems)-5))
	}
	return problems
}

// covers fails if anything never happened that the simulation is about.
func (c *campaign) covers(t *testing.T, what []string) {
	t.Helper()
	if c.count < fewLeases { // too few to expect everything
		return
	}
	for _, w := range what {
		if c.total[w] == 0 {
			t.Errorf("it never happened: %s", w)
		}
	}
}

// everywhere is what must have happened.
func everywhere() []string {
	all := []string{
		"elections", "transfers done", "policy sets in force", "policy sets of unknown outcome", "states compared",
		"snapshots finished", "snapshots installed", "snapshots broken off", "torn writes", "losses amid a write", "writes that hung",
		"writes refused", "messages lost", "messages late", "messages doubled", "messages cut off",
		"checked: windows in real time", "checked: calls in order", "checked: pairs of times",
		"answers: allow", "answers: deny", "answers: unavailable", "answers: unknown", "answers: replayed",
	}
	for _, call := range []string{
		"StoreLogs", "GetLog", "FirstIndex", "LastIndex", "Set", "Get", "DeleteRange", "snapshot Create", "snapshot Write",
		"snapshot Close", "snapshot Open", "snapshot List",
	} {
		all = append(all, "deaths in "+call)
	}
	for _, m := range new(world).misfortunes() {
		all = append(all, m.name)
	}
	return all
}

func number(name string, otherwise int) int {
	given := os.Getenv(name)
	if given == "" {
		return otherwise
	}
	n, err := strconv.Atoi(given)
	if err != nil {
		panic(name + " is no number: " + given)
	}
	return n
}

// TestWhatBreaksIsFound has worlds in which promises can't be kept. Each is found out within some seeds.
func TestWhatBreaksIsFound(t *testing.T) {
	for _, b := range []struct {
		name    string
		options Options
		within  int
		shows   string // what one of the problems must say
	}{
		{"syncs are ignored", Options{Power: true, Breaks: Breaks{IgnoreSync: true}}, 10, ""},
		{"syncs are ignored, and disks look well", Options{Power: true, Breaks: Breaks{LoseNewest: true}}, 10, " was allowed at "},
		{"clocks run 1% fast", Options{Breaks: Breaks{FastClock: true}}, 10, "breaks rule pace"},
		{"answers of old leases count", Options{Leases: true, Breaks: Breaks{OldLease: true}}, 100, "breaks rule"},
		{"an old snapshot stands in for the newest", Options{Breaks: Breaks{OldSnapshot: true}}, 40, "another had"},
		{"what was repeated counts as new", Options{Breaks: Breaks{FreshFence: true}}, 100, "was allowed at"},
		{"answers are forged", Options{Breaks: Breaks{Forged: true}}, 60, "another had"},
	} {
		t.Run(b.name, func(t *testing.T) {
			c := campaign{options: b.options, count: b.within}
			ran, found := 0, ""
			c.each(t, func(r Report) (enough bool) {
				ran++
				if r.Crashed {
					t.Errorf("seed %d: %s", r.Seed, r.Problems[0])
				}
				for _, p := range r.Problems {
					if found == "" && !r.Crashed && strings.Contains(p, b.shows) {
						found = fmt.Sprintf("seed %d: %s", r.Seed, p)
					}
				}
				return found != ""
			})
			if found == "" {
				t.Fatalf("not found within %d seeds", b.within)
			}
			t.Logf("after %d seeds, %s", ran, found)
		})
	}
}
