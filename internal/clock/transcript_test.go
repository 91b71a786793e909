package clock_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/clock"
)

// The transcripts below are read top to bottom. Replicas a, b and c of one partition live on true
// time; each has its own two clocks. An entry that a replica leads is stored by all that aren't
// frozen, cut off or stopped.
//
//	start N...      the process starts: its accumulator begins, it reads back the log on its disk
//	run D           true time passes; every live process reads its clocks each 100 ms
//	freeze N, thaw N  no reads in between (SIGSTOP, a paused machine)
//	kill N          the process is gone; its disk stays
//	cut N, join N   the replica gets no entries from others
//	step N CLOCK D  one clock (monotonic, raw) of N jumps by D
//	slew N PPM      CLOCK_MONOTONIC of N runs that much faster than true time
//	lead N = T      N becomes leader: the decision time of its first entry, stored everywhere it reaches
//	stamp N = T     the decision time of the entry that N logs now, stored likewise
//	gaps N = K      gaps that N's accumulator has seen
//
// A second that runs gives 0.9995 s: 500 ppm come off.
var transcripts = []struct{ name, script string }{
	{"a leader's stamps follow its elapsed time", `
		start a b c
		lead a = 0s
		run 100s
		stamp a = 1m39.95s
		run 100s
		stamp a = 3m19.9s`},

	{"a freeze of 10 s counts as nothing and is a gap", `
		start a b c
		lead a = 0s
		run 100s
		freeze a
		run 10s
		thaw a
		stamp a = 1m39.95s
		gaps a = 1
		run 100s
		stamp a = 3m19.9s`},

	{"a machine that was restored from a checkpoint: both clocks jump", `
		start a b c
		lead a = 0s
		step a monotonic 1h
		step a raw 1h
		stamp a = 0s
		gaps a = 1`},

	{"a machine that was suspended: only one clock goes on meanwhile, and one is enough to see it", `
		start a b c
		lead a = 0s
		step a monotonic 1h
		stamp a = 0s
		gaps a = 1`},

	{"a stall under a second is time that passed", `
		start a b c
		lead a = 0s
		freeze a
		run 1s
		thaw a
		stamp a = 999.5ms
		gaps a = 0`},

	{"CLK-03 a clock that steps back to the beginning", `
		start a b c
		lead a = 0s
		run 1000s
		stamp a = 16m39.5s
		step a monotonic -1000s
		stamp a = 16m39.5s
		gaps a = 1
		run 20s
		stamp a = 16m59.49s`},

	{"NTP slews CLOCK_MONOTONIC ahead: CLOCK_MONOTONIC_RAW counts", `
		start a b c
		slew a 500000
		lead a = 0s
		run 100s
		stamp a = 1m39.95s
		gaps a = 0`},

	{"NTP holds CLOCK_MONOTONIC back: it counts", `
		start a b c
		slew a -500000
		lead a = 0s
		run 100s
		stamp a = 49.975s
		gaps a = 0`},

	{"one clock jumps for good: nothing is gained, then it goes on", `
		start a b c
		lead a = 0s
		step a monotonic 10h
		run 100s
		stamp a = 1m39.85005s
		gaps a = 1`},

	{"a failover goes on from the newest entry that the new leader holds", `
		start a b c
		lead a = 0s
		run 100s
		stamp a = 1m39.95s
		run 10s
		kill a
		run 10s
		lead b = 1m59.94s
		run 100s
		stamp b = 3m39.89s`},

	{"after a restart only what elapsed since the log was read back counts", `
		start a b c
		lead a = 0s
		run 100s
		stamp a = 1m39.95s
		kill a
		kill b
		kill c
		run 1h
		start a b c
		run 10s
		lead c = 1m49.945s`},

	{"a leader that comes back uses nothing of its old process", `
		start a b c
		lead a = 0s
		run 100s
		kill a
		start a
		lead a = 0s
		run 1s
		stamp a = 999.5ms`},

	{"a frozen leader that resumes is not ahead of the one that replaced it", `
		start a b c
		lead a = 0s
		run 100s
		stamp a = 1m39.95s
		freeze a
		run 50s
		lead b = 2m29.925s
		thaw a
		run 10s
		stamp b = 2m39.92s
		lead a = 2m39.92s`},

	{"a leader that lost and regained its term starts from the log, not from its old running clock", `
		start a b c
		lead a = 0s
		run 100s
		stamp a = 1m39.95s
		cut a
		kill b
		kill c
		run 1h
		start b c
		lead b = 1m39.95s
		run 10s
		join a
		stamp b = 1m49.945s
		run 10s
		lead a = 1m59.94s`},

	{"an older entry would count an outage that the newest one did not", `
		start a b c
		lead a = 0s
		cut c
		run 1h
		kill a
		kill b
		start a b
		lead a = 0s
		join c
		stamp a = 0s
		lead c = 0s`},
}

func TestTranscripts(t *testing.T) {
	for _, tc := range transcripts {
		t.Run(tc.name, func(t *testing.T) { play(t, tc.script) })
	}
}

// replica is one replica in a transcript. disk is the decision time of the newest entry on its disk.
type replica struct {
	source      clock.Manual
	ppm         int64
	accumulator *clock.Accumulator
	held        clock.Held
	term        clock.TermClock
	disk        int64
	alive       bool
	frozen, cut bool
}

type world map[string]*replica

func play(t *testing.T, script string) {
	t.Helper()
	w := world{"a": {}, "b": {}, "c": {}}
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		command, want, asks := strings.Cut(line, " = ")
		got, err := w.do(strings.Fields(command))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if asks && got != want {
			t.Errorf("%s: got %s", line, got)
		}
	}
}

func (w world) do(f []string) (string, error) {
	var r *replica
	if f[0] != "run" {
		r = w[f[1]]
	}
	switch f[0] {
	case "start":
		for _, name := range f[1:] {
			r := w[name]
			r.accumulator, r.alive = clock.New(&r.source), true
			r.held = clock.Held{Time: r.disk, At: r.accumulator.Elapsed()}
		}
	case "run":
		d, err := time.ParseDuration(f[1])
		w.run(d)
		return "", err
	case "kill":
		r.alive = false
	case "freeze", "thaw":
		r.frozen = f[0] == "freeze"
	case "cut", "join":
		r.cut = f[0] == "cut"
	case "slew":
		ppm, err := strconv.ParseInt(f[2], 10, 64)
		r.ppm = ppm
		return "", err
	case "step":
		return "", step(r, f[2], f[3])
	case "lead":
		elapsed := r.accumulator.Elapsed()
		r.term = clock.TermClock{Time: r.held.FirstEntry(elapsed), At: elapsed}
		w.replicate(r, r.term.Time)
		return time.Duration(r.term.Time).String(), nil
	case "stamp":
		at := r.term.Stamp(r.accumulator.Elapsed())
		w.replicate(r, at)
		return time.Duration(at).String(), nil
	case "gaps":
		return strconv.FormatUint(r.accumulator.Read().Gaps, 10), nil
	default:
		return "", fmt.Errorf("no such command")
	}
	return "", nil
}

func step(r *replica, which, by string) error {
	d, err := time.ParseDuration(by)
	switch which {
	case "monotonic":
		r.source.AdvanceMonotonic(d)
	case "raw":
		r.source.AdvanceRaw(d)
	default:
		return fmt.Errorf("no such clock")
	}
	return err
}

func (w world) run(d time.Duration) {
	for passed := time.Duration(0); passed < d; passed += 100 * time.Millisecond {
		for _, name := range slices.Sorted(maps.Keys(w)) {
			r := w[name]
			r.source.AdvanceRaw(100 * time.Millisecond)
			r.source.AdvanceMonotonic(100*time.Millisecond + time.Duration(r.ppm*100*int64(time.Millisecond)/1e6))
			if r.alive && !r.frozen {
				r.accumulator.Read()
			}
		}
	}
}

// replicate stores an entry of leader on every replica that it reaches.
func (w world) replicate(leader *replica, at int64) {
	for _, r := range w {
		if r.alive && !r.frozen && (r == leader || !r.cut && !leader.cut) {
			r.disk = at
			r.held = clock.Held{Time: at, At: r.accumulator.Elapsed()}
		}
	}
}
