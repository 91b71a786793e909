package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quorate/quorate/cmd/internal/command"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/replay/accesslog"
	"github.com/quorate/quorate/internal/replay/report"
)

const replayHelp = `Replay says what limits would have done to the traffic of access logs: the requests of the FILEs (- or
none: standard input; gzip is recognised) are decided one after another by the state machine of the
nodes, each at its own time.

The limits are those of a policy file, or of one policy that flags describe:

  quotactl replay access.log --limit 100 --window 60s --key ip
  quotactl replay access.log --rate 2 --burst 20 --key ip-host
  quotactl replay access.log --policy policies.yaml
  quotactl replay orders.csv --policy new.yaml --against old.yaml

With --policy the columns of the log are the entries of a descriptor, under their own names.

Exit status 0: it ran, whatever was denied; 1: input that can't be read, or not one request in it;
2: wrong usage.`

// replayFlags are the flags as they were given.
type replayFlags struct {
	limits limitFlags

	format, timeColumn, timeUnit, timeZone string
	columns                                []string
	costColumn                             string
	prefix, trusted                        int

	memory    byteSize
	tempDir   string
	top       int
	output    string
	html      string
	decisions string
}

func newReplayCommand() *cobra.Command {
	f := &replayFlags{memory: 300e6}
	c := &cobra.Command{
		Use:   "replay [FILE...]",
		Short: "Say what limits would have done to the traffic of access logs",
		Long:  replayHelp,
		RunE: func(cmd *cobra.Command, paths []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), paths)
		},
	}
	f.limits.register(c)
	flags := c.Flags()
	flags.StringVar(&f.format, "format", "auto", "format of the logs: auto, "+strings.Join(accesslog.Formats(), ", "))
	flags.StringVar(&f.timeColumn, "time-column", "", "column of the time (csv, tsv, json)")
	flags.StringVar(&f.timeUnit, "time-unit", "auto", "unit of the times: s, ms, us, ns, rfc3339 or auto")
	flags.StringVar(&f.timeZone, "time-zone", "", "zone of times that name none, as Europe/Berlin or +02:00; without it such a line is bad")
	flags.StringSliceVar(&f.columns, "columns", nil, "names of the columns of a csv or tsv file without a header")
	flags.StringVar(&f.costColumn, "cost-column", "", "column of what a request costs; without it each costs 1")
	flags.IntVar(&f.prefix, "ipv6-prefix", 64, "bits of an IPv6 address that make one client")
	flags.IntVar(&f.trusted, "trusted-hops", 0, "how many proxies at the end of X-Forwarded-For and the peer are our own")
	flags.Var(&f.memory, "memory", "bound of memory for rows, as 300MB or 1GiB; those beyond it are sorted on disk. The state of keys, some 100 bytes each, comes on top")
	flags.StringVar(&f.tempDir, "temp-dir", "", "folder for what doesn't fit in memory (default: that of the system)")
	flags.IntVar(&f.top, "top", 10, "how many of the most blocked keys to report")
	flags.StringVarP(&f.output, "output", "o", "text", "form of the report: text or json")
	flags.StringVar(&f.html, "html", "", "write the report as a page to this file, too")
	flags.StringVar(&f.decisions, "decisions", "", "write every decision as a line of JSON to this file; -: to standard output, and the report to standard error")
	return c
}

// run replays the files. Errors of usage come before anything is read or written.
func (f *replayFlags) run(ctx context.Context, in io.Reader, out, errs io.Writer, paths []string) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	sources, err := openable(ctx, in, paths)
	if err != nil {
		return err
	}
	sinks, err := f.openSinks(out, errs, names(sources))
	if err != nil {
		return command.Failed(err)
	}
	// Rows are the large part, and bounded: less garbage beside them costs little. A hard limit would not
	// bound the keys' state, and have the collector run all the time once that is larger.
	debug.SetGCPercent(50)
	warnings := &warnings{out: errs, names: names(sources)}
	progress, moved := newProgress(errs, sources)
	cfg.Read, cfg.Sorted = moved, progress.Decide
	cfg.Lacks = func(input int, columns []string) {
		progress.Clear()
		fmt.Fprintf(errs, "warning: %s has no column %s, which the policies look at: it is absent in every row\n",
			warnings.names[input], strings.Join(columns, ", "))
	}
	cfg.Fault = func(input int, fault accesslog.Fault) {
		if warnings.wanted(fault) {
			progress.Clear()
			warnings.tell(input, fault)
		}
	}
	cfg.Decided = sinks.decided()
	summary, failed := replay.Run(ctx, cfg, sources)
	if ctx.Err() != nil { // wherever it was heard first
		summary, failed = nil, ctx.Err()
	}
	progress.Clear()
	warnings.end()
	if summary == nil {
		return f.cannotRun(errors.Join(failed, sinks.abandon()))
	}
	if err := sinks.finish(summary, f); err != nil {
		return command.Failed(err)
	}
	switch {
	case failed != nil:
		return command.Failed(fmt.Errorf("%w; the report covers what was read up to there", failed))
	case summary.Requests == 0:
		return command.Failed(errors.New("not one request could be read"))
	}
	return nil
}

// cannotRun tells a wrong column, which is wrong usage, from input that can't be read.
func (f *replayFlags) cannotRun(err error) error {
	var column *accesslog.ColumnError
	if errors.As(err, &column) {
		return fmt.Errorf("%w. --format says what a log is, --columns what the columns of one without a header are", err)
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return command.Failed(err)
}

// config turns the flags into what to replay.
func (f *replayFlags) config() (replay.Config, error) {
	cfg := replay.Config{
		CostColumn: f.costColumn, Prefix: f.prefix, Trusted: f.trusted, TempDir: f.tempDir, Top: f.top,
		// A third for rows; the rest is for the keys and what the collector hasn't swept yet.
		Memory: int64(f.memory) / 3,
	}
	switch {
	case f.output != "text" && f.output != "json":
		return cfg, fmt.Errorf("--output %q: want text or json", f.output)
	case f.prefix < 1 || f.prefix > 128:
		return cfg, fmt.Errorf("--ipv6-prefix %d: want 1 to 128", f.prefix)
	case f.trusted < 0:
		return cfg, fmt.Errorf("--trusted-hops %d: want 0 or more", f.trusted)
	case f.top < 0 || f.top > 10_000:
		return cfg, fmt.Errorf("--top %d: want 0 to 10000", f.top)
	case f.memory < 16e6:
		return cfg, fmt.Errorf("--memory %s: want at least 16MB", &f.memory)
	}
	if info, err := os.Stat(f.tempDir); f.tempDir != "" && (err != nil || !info.IsDir()) {
		return cfg, fmt.Errorf("--temp-dir %s: want a folder that is there", f.tempDir)
	}
	zone, err := parseZone(f.timeZone)
	if err != nil {
		return cfg, err
	}
	unit, err := accesslog.ParseUnit(f.timeUnit)
	if err != nil {
		return cfg, fmt.Errorf("--time-unit: %w", err)
	}
	if f.format != "auto" && !slices.Contains(accesslog.Formats(), f.format) {
		return cfg, fmt.Errorf("--format %q: want auto, %s", f.format, strings.Join(accesslog.Formats(), ", "))
	}
	cfg.Log = accesslog.Options{Format: f.format, TimeColumn: f.timeColumn, Unit: unit, Zone: zone, Names: f.columns}
	return cfg, f.limits.fill(&cfg)
}

// parseZone reads the name of a zone or an offset; nil for "".
func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return nil, nil
	}
	if t, err := time.Parse("-07:00", name); err == nil {
		_, offset := t.Zone()
		return time.FixedZone(name, offset), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || strings.EqualFold(name, "local") {
		return nil, fmt.Errorf("--time-zone %q: want a name as Europe/Berlin, or an offset as +02:00", name)
	}
	return zone, nil
}

// openable turns paths into sources; none is standard input.
func openable(ctx context.Context, in io.Reader, paths []string) (sources []replay.Source, err error) {
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	for i, path := range paths {
		switch {
		case path == "-" && slices.Contains(paths[:i], "-"):
			return nil, errors.New("standard input (-) is named twice")
		case path == "-":
			sources = append(sources, replay.Source{Name: path, Open: func() (io.ReadCloser, error) { return interruptible(ctx, in), nil }})
			continue
		}
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a folder; name the files in it", path)
		}
		if err != nil {
			return nil, command.Failed(err)
		}
		sources = append(sources, replay.Source{
			Name:  path,
			Open:  func() (io.ReadCloser, error) { return os.Open(path) },
			Again: info.Mode().IsRegular(),
		})
	}
	return sources, nil
}

// interruptible reads in until ctx ends, also while in has nothing to say: a read that waits for a pipe
// can't be called off.
func interruptible(ctx context.Context, in io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) }) // always nil
	go func() {
		_, err := io.Copy(w, in)
		stop()
		_ = w.CloseWithError(err) // always nil; the end of in, if err is
	}()
	return r
}

func names(sources []replay.Source) (all []string) {
	for _, s := range sources {
		all = append(all, s.Name)
	}
	return all
}

// warnings tells of bad lines: a few of each kind, and how many there were.
type warnings struct {
	out   io.Writer
	names []string
	seen  map[string]int
}

const warningsEach = 5

func (w *warnings) wanted(f accesslog.Fault) bool {
	if w.seen == nil {
		w.seen = map[string]int{}
	}
	w.seen[f.Reason]++
	return w.seen[f.Reason] <= warningsEach
}

func (w *warnings) tell(input int, f accesslog.Fault) {
	fmt.Fprintf(w.out, "warning: %s:%d: %s: %s\n", w.names[input], f.Line, f.Reason, f.Detail)
}

// end says how many there were of what was told only in part.
func (w *warnings) end() {
	var reasons []string
	for reason, n := range w.seen {
		if n > warningsEach {
			reasons = append(reasons, reason)
		}
	}
	slices.SortFunc(reasons, func(a, b string) int { return cmp.Or(w.seen[b]-w.seen[a], cmp.Compare(a, b)) })
	for _, reason := range reasons {
		fmt.Fprintf(w.out, "warning: %d more lines were bad: %s\n", w.seen[reason]-warningsEach, reason)
	}
}

// sinks are where the results go.
type sinks struct {
	report    io.Writer
	decisions *report.Decisions
	files     []*outputFile // all that are to be put in place, or abandoned
	page      *outputFile   // nil without one
	policy    string        // that the page shows
}

// openSinks opens all outputs before anything is read. None may be a file that is read, or another output.
func (f *replayFlags) openSinks(out, errs io.Writer, inputs []string) (s *sinks, err error) {
	s = &sinks{report: out}
	taken := inputs
	for _, path := range []string{f.limits.policy, f.limits.against} {
		if path != "" {
			taken = append(taken, path)
		}
	}
	switch f.decisions {
	case "":
	case "-":
		s.report = errs
		s.decisions = report.NewDecisions(out)
	default:
		file, err := createOutput(f.decisions, taken...)
		if err != nil {
			return nil, err
		}
		s.files, taken = append(s.files, file), append(taken, f.decisions)
		s.decisions = report.NewDecisions(file)
	}
	if f.html == "" {
		return s, nil
	}
	if s.policy, err = f.limits.describe(); err == nil {
		s.page, err = createOutput(f.html, taken...)
	}
	if err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	s.files = append(s.files, s.page)
	return s, nil
}

func (s *sinks) decided() func(*replay.Decision) error {
	if s.decisions == nil {
		return nil
	}
	return s.decisions.Write
}

// abandon leaves the files as they were.
func (s *sinks) abandon() (err error) {
	for _, file := range s.files {
		err = errors.Join(err, file.abandon())
	}
	return err
}

func (s *sinks) finish(summary *replay.Summary, f *replayFlags) (err error) {
	if s.decisions != nil {
		err = s.decisions.Flush()
	}
	if err == nil && s.page != nil {
		w := bufio.NewWriter(s.page)
		err = errors.Join(report.HTML(w, summary, report.HTMLOptions{Title: "Quorate replay", Policy: s.policy}), w.Flush())
	}
	if err != nil {
		return errors.Join(err, s.abandon())
	}
	for _, file := range s.files {
		err = errors.Join(err, file.finish())
	}
	if f.output == "json" {
		return errors.Join(err, report.JSON(s.report, summary))
	}
	return errors.Join(err, report.Text(s.report, summary, textOptions(s.report)))
}

func textOptions(out io.Writer) report.TextOptions {
	o := report.TextOptions{Width: 80}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			o.Width = width
		}
		o.Color = os.Getenv("NO_COLOR") == ""
	}
	return o
}
