package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// report is all that a run came to.
type report struct {
	Seed        uint64   `json:"seed"`
	Machine     machine  `json:"machine"`
	Legs        []*leg   `json:"legs"`
	Fsyncs      *syncs   `json:"fsyncs,omitempty"`
	Etcd        []*peer  `json:"etcd,omitempty"`
	BytesPerKey float64  `json:"bytes_per_key,omitempty"`
	Summary     *summary `json:"summary,omitempty"`
	Bars        []bar    `json:"bars,omitempty"`

	strict, strictDefault, open, denied *leg
}

// machine is where it ran.
type machine struct {
	CPUs       int     `json:"cpus"`
	Kernel     string  `json:"kernel"`
	Go         string  `json:"go"`
	SyncBefore float64 `json:"fdatasync_us_before"`
	SyncAfter  float64 `json:"fdatasync_us_after"`
	Others     float64 `json:"others_cores_before"` // what runs beside, before anything is started
}

// lookAtMachine takes a second, in which nothing of the bench runs.
func lookAtMachine(dir string) (m machine, err error) {
	m = machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, err
	}
	m.Kernel = unix.ByteSliceToString(name.Release[:])
	before, err := usageOf(nil)
	if err != nil {
		return m, err
	}
	time.Sleep(time.Second)
	after, err := usageOf(nil)
	if err != nil {
		return m, err
	}
	m.Others = after.since(before).Others
	took, err := syncTime(dir)
	m.SyncBefore = us(took)
	return m, err
}

func us(d time.Duration) float64 { return round(float64(d)/1e3, 0) }

func (m *machine) begin(out io.Writer, seed uint64) {
	fmt.Fprintf(out, "seed %d; %d processors, of which others use %.2f; kernel %s; %s\n", seed, m.CPUs, m.Others, m.Kernel, m.Go)
}

// syncs are the flushes of one stretch.
type syncs struct {
	Entries  uint64  `json:"entries"` // of the log, each counted once
	Fsyncs   uint64  `json:"fsyncs"`  // of all nodes
	PerEntry float64 `json:"fsyncs_per_entry"`
	Seconds  float64 `json:"seconds"`
}

// enough refuses a run in which entries can't have been on a majority's disks.
func (s *syncs) enough() error {
	if s.Entries == 0 {
		return errors.New("fsyncs: no entry was counted")
	}
	if s.Fsyncs < 2*s.Entries {
		return fmt.Errorf("fsyncs: %d for %d entries, and each has to be on two disks", s.Fsyncs, s.Entries)
	}
	return nil
}

// summary is the last line of a quick run.
type summary struct {
	StrictPerS        float64 `json:"strict_per_s"`
	StrictPerSDefault float64 `json:"strict_per_s_default"`
	P95               float64 `json:"p95_ms_at_25k"`
	KnownDeniedPerS   float64 `json:"known_denied_per_s"`
	VsEtcd            float64 `json:"vs_etcd"`
	CPU               float64 `json:"cpu_us_per_decision"`
	BytesPerKey       float64 `json:"bytes_per_key"`

	Allows  uint64  `json:"allows"`
	Events  uint64  `json:"events"`
	Entries uint64  `json:"entries"`
	Fsyncs  uint64  `json:"fsyncs"`
	Errors  uint64  `json:"errors"`
	Seconds float64 `json:"seconds"`
}

// bar is a figure that a run is held against.
type bar struct {
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Want   float64 `json:"want"`
	AtMost bool    `json:"at_most,omitempty"` // else: at least
	Met    bool    `json:"met"`
}

func newBar(what string, value, want float64, atMost bool) bar {
	met := value >= want
	if atMost {
		met = value <= want && value > 0
	}
	return bar{what, value, want, atMost, met}
}

// String says whether the bar is met.
func (b bar) String() string {
	side, word := "at least", "MISSED"
	if b.AtMost {
		side = "at most"
	}
	if b.Met {
		word = "met"
	}
	return fmt.Sprintf("%-34s %12s   %s %s: %s", b.What, figure(b.Value), side, figure(b.Want), word)
}

// figure writes a number without digits that mean nothing.
func figure(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// conclude makes summary and bars, if all of their legs ran.
func (r *report) conclude() {
	if r.strict == nil || r.strictDefault == nil || r.open == nil || r.denied == nil || r.Fsyncs == nil || len(r.Etcd) == 0 {
		return
	}
	best := 0.0
	for _, p := range r.Etcd {
		best = max(best, p.PerSecond)
	}
	s := &summary{
		StrictPerS: r.strict.AllowsPerS, StrictPerSDefault: r.strictDefault.AllowsPerS, P95: r.open.Latency.P95,
		KnownDeniedPerS: round(float64(r.denied.Denies)/r.denied.Seconds, 0), CPU: r.strict.CPU, BytesPerKey: round(r.BytesPerKey, 1),
		Allows: r.strict.Allows, Events: r.strict.eventsOf(), Entries: r.Fsyncs.Entries, Fsyncs: r.Fsyncs.Fsyncs,
		Errors: r.strict.Errors, Seconds: r.strict.Seconds,
	}
	if best > 0 {
		s.VsEtcd = round(s.StrictPerS/best, 1)
	}
	r.Summary = s
	r.Bars = []bar{
		newBar("allows/s, one partition", s.StrictPerS, 100_000, false),
		newBar("allows/s, three partitions", s.StrictPerSDefault, 60_000, false),
		newBar("p95 ms at 25,000/s", s.P95, 12, true),
		newBar("known denials/s", s.KnownDeniedPerS, 400_000, false),
		newBar("times etcd", s.VsEtcd, 20, false),
	}
}

// eventsOf is what the replicas have applied; where they differ, what differs from the callers' count.
func (l *leg) eventsOf() uint64 {
	for _, n := range l.Events {
		if n != l.Allows {
			return n
		}
	}
	return l.Allows
}

// header stands above the legs.
const header = "workload              part.  asked by       allows/s  decisions/s     p50     p95     p99 ms   µs CPU/decision   cores: nodes client others   /entry  errors"

func (r *report) add(out io.Writer, l *leg) {
	if len(r.Legs) == 0 {
		fmt.Fprintln(out, header)
	}
	r.Legs = append(r.Legs, l)
	fmt.Fprintln(out, l.row())
}

func (l *leg) row() string {
	by := fmt.Sprintf("%d callers", l.Callers)
	if l.Rate > 0 {
		by = fmt.Sprintf("%d/s", l.Rate)
	}
	row := fmt.Sprintf("%-20s %6d  %-12s %10.0f %12.0f %7.2f %7.2f %7.2f %16.2f %16.2f %6.2f %6.2f %9.1f %7d", l.Name, l.Partitions, by,
		l.AllowsPerS, l.PerS, l.Latency.P50, l.Latency.P95, l.Latency.P99, l.CPU, l.Cores.Nodes, l.Cores.Client, l.Cores.Others, l.PerEntry, l.Errors)
	if l.Gateway > 0 {
		row += fmt.Sprintf("   the gateway: %.2f µs CPU/decision, among the others", l.Gateway)
	}
	if l.Elections > 0 {
		row += fmt.Sprintf("   %d elections", l.Elections)
	}
	return row
}

func (p *peer) show(out io.Writer) {
	fmt.Fprintf(out, "etcd, %d callers: %.0f allows/s, p50 %.1f p95 %.1f p99 %.1f ms, %d conflicts, %d errors %s; cores: members %.2f\n",
		p.Callers, p.PerSecond, p.P50, p.P95, p.P99, p.Conflicts, p.Errors, p.Why, p.Cores.Nodes)
}

// tell writes the report to a file, if one is given, and the bars and the summary for people, the summary last.
func (r *report) tell(out io.Writer, file string) error {
	if file != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	var b strings.Builder
	for _, bar := range r.Bars {
		fmt.Fprintln(&b, bar)
	}
	if r.Summary != nil {
		line, err := json.Marshal(r.Summary)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
