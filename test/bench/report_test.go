package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// whole is a report with all legs of a summary.
func whole() *report {
	return &report{
		Seed: 1, BytesPerKey: 79.69, Fsyncs: &syncs{Entries: 100, Fsyncs: 600, Seconds: 5}, Etcd: []*peer{{PerSecond: 1000}, {PerSecond: 4000}},
		strict:        &leg{Name: "strict", Allows: 800_000, Events: []uint64{800_000, 800_000, 800_000}, AllowsPerS: 100_000, CPU: 9.5, Seconds: 8},
		strictDefault: &leg{AllowsPerS: 59_999}, open: &leg{Latency: spread{P95: 12}}, denied: &leg{Denies: 2_000_000, Seconds: 5},
	}
}

// TestSummaryIsTheLastLineAndHasEveryFigure: the names are a contract with whoever reads them.
func TestSummaryIsTheLastLineAndHasEveryFigure(t *testing.T) {
	r := whole()
	r.conclude()
	var out bytes.Buffer
	path := filepath.Join(t.TempDir(), "report.json")
	if err := r.tell(&out, path); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	var got map[string]float64
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("the last line is %q: %v", lines[len(lines)-1], err)
	}
	want := map[string]float64{
		"strict_per_s": 100_000, "strict_per_s_default": 59_999, "p95_ms_at_25k": 12, "known_denied_per_s": 400_000, "vs_etcd": 25,
		"cpu_us_per_decision": 9.5, "bytes_per_key": 79.7, "allows": 800_000, "events": 800_000, "entries": 100, "fsyncs": 600, "errors": 0, "seconds": 8,
	}
	if len(got) != len(want) {
		t.Errorf("the line has %d figures, want %d", len(got), len(want))
	}
	for name, v := range want {
		if g, there := got[name]; !there || g != v {
			t.Errorf("%s is %v (%v), want %v", name, g, there, v)
		}
	}
	missed := 0
	for _, line := range lines[:len(lines)-1] {
		switch {
		case strings.HasSuffix(line, ": MISSED"):
			missed++
			if !strings.HasPrefix(line, "allows/s, three partitions") {
				t.Errorf("missed: %s", line)
			}
		case !strings.HasSuffix(line, ": met"):
			t.Errorf("neither met nor missed: %s", line)
		}
	}
	if missed != 1 {
		t.Errorf("%d bars are missed, want one", missed)
	}
	readBack(t, path)
}

func readBack(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back.Summary == nil || back.Summary.StrictPerS != 100_000 || len(back.Bars) != 5 || len(back.Etcd) != 2 || back.Seed != 1 {
		t.Errorf("the file says %+v", back)
	}
}

// TestSummaryTakesAllLegs: without one of them there is none, rather than one with zeros.
func TestSummaryTakesAllLegs(t *testing.T) {
	for name, without := range map[string]func(*report){
		"strict": func(r *report) { r.strict = nil }, "three": func(r *report) { r.strictDefault = nil }, "open": func(r *report) { r.open = nil },
		"denied": func(r *report) { r.denied = nil }, "fsyncs": func(r *report) { r.Fsyncs = nil }, "etcd": func(r *report) { r.Etcd = nil },
	} {
		r := whole()
		without(r)
		if r.conclude(); r.Summary != nil || r.Bars != nil {
			t.Errorf("without %s: %+v", name, r.Summary)
		}
	}
	for _, b := range []bar{newBar("", 0, 12, true), newBar("", 12.1, 12, true), newBar("", 99, 100, false), newBar("", 0, 100, false)} {
		if b.Met {
			t.Errorf("met: %v", b)
		}
	}
}

// TestRunIsRefusedWhereCountsDiffer: the sum of what callers heard is the sum of what each replica applied, or
// the run counts for nothing.
func TestRunIsRefusedWhereCountsDiffer(t *testing.T) {
	same := []uint64{7, 7, 7}
	if err := (&leg{Allows: 7, Events: same}).agree(); err != nil {
		t.Errorf("refused: %v", err)
	}
	for name, l := range map[string]leg{
		"more admissions than allows": {Allows: 6, Events: same},
		"more allows than admissions": {Allows: 8, Events: same},
		"one replica differs":         {Allows: 7, Events: []uint64{7, 8, 7}},
		"an error":                    {Allows: 7, Events: same, Errors: 1},
		"nothing known":               {Allows: 7},
	} {
		if l.agree() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, s := range []syncs{{Entries: 10, Fsyncs: 19}, {Entries: 0, Fsyncs: 5}, {Entries: 1, Fsyncs: 0}} {
		if s.enough() == nil {
			t.Errorf("accepted: %+v", s)
		}
	}
	if err := (&syncs{Entries: 10, Fsyncs: 20}).enough(); err != nil {
		t.Errorf("refused: %v", err)
	}
	l := leg{Allows: 7, Events: []uint64{7, 8, 7}}
	if l.eventsOf() != 8 {
		t.Errorf("told are %d events, and the one that differs is 8", l.eventsOf())
	}
}

// TestReadersOfWhatOthersWrite have to say so where they can't read it.
func TestReadersOfWhatOthersWrite(t *testing.T) {
	s, err := readSamples(strings.NewReader("# HELP a b\na 1\na_more 5\nb{c=\"d e\"} 2\nb{c=\"f\"} 3e2\n"))
	if err != nil || s.sum("a") != 1 || s.sum("b") != 302 || s.sum("c") != 0 {
		t.Errorf("samples %v, %v", s, err)
	}
	if _, err := readSamples(strings.NewReader("a b\n")); err == nil {
		t.Error("a metric without a number was read")
	}
	used, err := parseProcess("7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0")
	if err != nil || used != 2 {
		t.Errorf("a process that used 150 and 50 ticks used %v s, %v", used, err)
	}
	busy, stolen, err := parseMachine("cpu  100 200 300 9999 9999 10 20\ncpu0 1\n")
	if err == nil {
		t.Errorf("a line without steal was read: %v, %v", busy, stolen)
	}
	busy, stolen, err = parseMachine("cpu  100 200 300 9999 9999 10 20 40 0 0\ncpu0 1\n")
	if err != nil || busy != 6.3 || stolen != 0.4 {
		t.Errorf("busy %v, stolen %v, %v", busy, stolen, err)
	}
	v, err := readBytesPerKey("goos: linux\nBenchmarkState/bytes_per_key,_3_events-2         \t       1\t        79.69 bytes/key\t       109.0 counted-bytes/key\n")
	if err != nil || v != 79.69 {
		t.Errorf("bytes per key %v, %v", v, err)
	}
	if _, err := readBytesPerKey("PASS\n"); err == nil {
		t.Error("bytes per key were read where there are none")
	}
}

// TestFlushesAreCountedOnlyWhenTheySucceed, and only between the two moments.
func TestFlushesAreCountedOnlyWhenTheySucceed(t *testing.T) {
	from, to := time.Unix(100, 0), time.Unix(200, 0)
	for line, want := range map[string]bool{
		"7 150.000001 fdatasync(9)                 = 0":           true,
		"7 150.000001 fsync(9) = 0":                               true,
		"7 150.000001 <... fdatasync resumed>)      = 0":          true,
		"7 150.000001 fdatasync(9 <unfinished ...>":               false,
		"7 150.000001 fdatasync(9) = -1 EIO (Input/output error)": false,
		"7 99.999999 fdatasync(9) = 0":                            false,
		"7 200.000001 fdatasync(9) = 0":                           false,
		"7 150.000001 write(9) = 0":                               false,
		"7 150.000001 --- SIGURG {si_signo=SIGURG} ---":           false,
		"7 150.000001 +++ exited with 0 +++":                      false,
		"":                                                        false,
	} {
		if got := flushed(line, from, to); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// TestOptionsAreChecked: what can't be is refused before anything starts.
func TestOptionsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"-workload", "lax"}, {"-partitions", "0"}, {"-partitions", "128"}, {"-batch", "1025"}, {"-callers", "-1"}, {"-keys", "0"},
		{"-streams", "0"}, {"-seconds", "0"}, {"-seconds", "x"}, {"-rate", "-1"}, {"-zipf", "0.5"}, {"stray"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	o, err := parse([]string{"-seconds", "2.5", "-workload", "quick"}, io.Discard)
	if err != nil || o.seconds != 2500*time.Millisecond {
		t.Errorf("%+v, %v", o, err)
	}
	if err := onDisk("/dev/shm"); err == nil && slices.Contains(mountsOf(t), "/dev/shm") {
		t.Error("memory is taken for a disk")
	}
	if err := onDisk("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that isn't there: %v", err)
	}
}

// mountsOf lists where file systems of memory are.
func mountsOf(t *testing.T) (points []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "tmpfs" {
			points = append(points, f[1])
		}
	}
	return points
}
