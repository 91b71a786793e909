// Command historycheck judges a history of what clients of a cluster saw, and prints what it found.
//
// Exit status: 0 all promises that the history can show were kept, 1 one was not, 2 the history can't be read.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/quorate/quorate/test/checker"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("historycheck", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(errs, "usage: historycheck [flags] FILE (- reads standard input)")
		flags.PrintDefaults()
	}
	var opt checker.Options
	flags.DurationVar(&opt.RetryHorizon, "retry-horizon", 20*time.Second, "for how long ids are remembered")
	flags.Int64Var(&opt.Fast, "fast", 0, "by how many millionths some clock may have been faster than real time")
	flags.BoolVar(&opt.Fenced, "fenced", false, "every call carried the decision time that was known when its id was first sent")
	flags.BoolVar(&opt.Live, "live", false, "no denial was remembered by a client")
	flags.DurationVar(&opt.Patience, "patience", 20*time.Second, "longest search for an order of a piece of a key's calls")
	flags.BoolVar(&opt.AllowUndecided, "allow-undecided", false, "a search that took longer is no failure")
	allows := flags.Int("allows", 1, "a history with fewer allows proves nothing and fails")
	if flags.Parse(args) != nil || flags.NArg() != 1 {
		flags.Usage()
		return 2
	}
	report, err := read(flags.Arg(0), opt)
	if err != nil {
		_, _ = fmt.Fprintln(errs, "historycheck:", err)
		return 2
	}
	_, _ = fmt.Fprint(out, report)
	if n := report.Counts[checker.CountAllows]; n < *allows {
		_, _ = fmt.Fprintf(out, "only %d allows, and %d are needed: this history proves nothing\n", n, *allows)
		return 1
	}
	if !report.OK() {
		return 1
	}
	return 0
}

func read(path string, opt checker.Options) (*checker.Report, error) {
	if path == "-" {
		return checker.CheckReader(os.Stdin, opt)
	}
	return checker.CheckFile(path, opt)
}
