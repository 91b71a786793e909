package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	workload   string
	partitions int
	seconds    time.Duration
	warm       time.Duration
	callers    int
	rate       int
	keys       int
	zipf       float64
	streams    int
	perMessage int
	tls        bool
	seed       uint64
	profileDir string
	programs   string
	build      bool
	dir        string
	reportFile string
	out        io.Writer // for people
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = o.main()
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parse reads the command line; what is wrong with it is told to errs, too.
func parse(args []string, errs io.Writer) (*options, error) {
	o := &options{out: os.Stdout}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&o.workload, "workload", "strict", "quick, all, or one of: strict; open, shut (one hot key)")
	f.IntVar(&o.partitions, "partitions", 1, "partitions of the cluster, below 128")
	o.seconds, o.warm = 5*time.Second, 2*time.Second
	f.Var((*seconds)(&o.seconds), "seconds", "how long to measure, in `seconds`")
	f.Var((*seconds)(&o.warm), "warm", "how long to ask before that, in `seconds`")
	f.IntVar(&o.callers, "callers", 2048, "callers of the closed loop; 0: the best of a short calibration")
	f.IntVar(&o.rate, "rate", 0, "checks a second of an open loop, in the place of callers")
	f.IntVar(&o.keys, "keys", 1_000_000, "quota keys")
	f.Float64Var(&o.zipf, "zipf", 0, "exponent of the keys' distribution; 0: uniform")
	f.IntVar(&o.streams, "streams", 1, "check streams to each node")
	f.IntVar(&o.perMessage, "batch", mostChecks, "checks a message, at most")
	f.BoolVar(&o.tls, "tls", false, "with certificates")
	f.Uint64Var(&o.seed, "seed", 1, "of what is drawn, but for decision ids")
	f.StringVar(&o.profileDir, "cpuprofile", "", "folder for CPU profiles of the nodes and of the client")
	f.StringVar(&o.programs, "bin", "", "folder of the programs; default: test/bench/bin of the repository")
	f.BoolVar(&o.build, "build", true, "build the programs first")
	f.StringVar(&o.dir, "dir", os.TempDir(), "folder for the nodes' data, on the disk that is measured")
	f.StringVar(&o.reportFile, "report", "", "file for all figures, JSON")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("what is %q? There are flags only", f.Arg(0))
	}
	return o, o.check()
}

func (o *options) check() error {
	switch {
	case !slices.Contains([]string{"quick", "all", "strict", openEntry, shutEntry}, o.workload):
		return fmt.Errorf("-workload is %q, which there isn't", o.workload)
	case o.partitions < 1 || o.partitions >= mostPartitions:
		return fmt.Errorf("-partitions is %d, not within 1..%d", o.partitions, mostPartitions-1)
	case o.perMessage < 1 || o.perMessage > mostChecks:
		return fmt.Errorf("-batch is %d, not within 1..%d", o.perMessage, mostChecks)
	case o.callers < 0 || o.callers > maxInFlight:
		return fmt.Errorf("-callers is %d, not within 0..%d", o.callers, maxInFlight)
	case o.keys < 1 || o.keys > 100_000_000:
		return fmt.Errorf("-keys is %d, not within 1..100000000", o.keys)
	case o.zipf != 0 && o.zipf <= 1:
		return fmt.Errorf("-zipf is %v: 0, or above 1", o.zipf)
	case o.rate < 0 || o.rate > 10_000_000:
		return fmt.Errorf("-rate is %d, not within 0..10000000", o.rate)
	case o.streams < 1:
		return errors.New("-streams is below 1")
	}
	return nil
}

// main prepares and runs what is asked for.
func (o *options) main() (err error) {
	root, err := repository()
	if err != nil {
		return err
	}
	if o.programs == "" {
		o.programs = filepath.Join(root, "test", "bench", "bin")
	}
	if o.build {
		if err := buildPrograms(root, o.programs, o.profileDir != ""); err != nil {
			return err
		}
	}
	if err := onDisk(o.dir); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "quorate-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	defer cleanOnSignal(dir)()
	return o.run(dir)
}

// cleanOnSignal removes the folder should somebody end the bench. The processes that it has started end with it,
// by the kernel's hand; until then they may write once more, so the folder is removed until it stays away.
func cleanOnSignal(dir string) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, told := <-signals; !told {
			return
		}
		for range 20 {
			_ = os.RemoveAll(dir) // tried again, and nobody is left to tell
			time.Sleep(50 * time.Millisecond)
		}
		os.Exit(1)
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// seconds is a duration that is written as a number of seconds.
type seconds time.Duration

// String implements flag.Value.
func (s *seconds) String() string {
	return strconv.FormatFloat(time.Duration(*s).Seconds(), 'f', -1, 64)
}

// Set implements flag.Value.
func (s *seconds) Set(text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v <= 0 || v > 86400 {
		return errors.New("is not a number of seconds, above 0 and up to a day")
	}
	*s = seconds(v * float64(time.Second))
	return nil
}
