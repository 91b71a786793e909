package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/access"
)

// runConfig is what `quotanode run` runs with. One that [loadRunConfig] returns is complete and checked.
type runConfig struct {
	Name    string
	Zone    string // empty: none is said
	DataDir string
	// At genesis only. Partitions 0: not said, which means as many as nodes.
	Partitions  int
	Replication int
	Nodes       []nodeConfig // the initial nodes, this one included, in the file's order
	Listen      listenConfig
	TLS         access.Files // all empty: no certificates, and so nothing but loopback addresses
	Memory      uint64       // bound of this node's state in logical bytes, at genesis only
	LogBytes    uint64       // of each partition's log, before it is compacted
	Election    time.Duration
	LogLevel    slog.Level
}

// nodeConfig is one node as others find it.
type nodeConfig struct{ Name, Links, GRPC, Zone string }

// listenConfig is where this node listens.
type listenConfig struct{ Links, GRPC, Health string }

// node returns the entry of that name, nil if there is none.
func (c *runConfig) node(name string) *nodeConfig {
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i]
		}
	}
	return nil
}

// partitions is how many there will be at genesis.
func (c *runConfig) partitions() int {
	if c.Partitions == 0 {
		return len(c.Nodes)
	}
	return c.Partitions
}

// maxConfigBytes is far above any configuration; what is larger is some other file.
const maxConfigBytes = 1 << 20

// loadRunConfig reads the file and lays the flags that were given, by name, over it. Its error is a
// [*configError] with everything that is wrong, unless the file can't be read.
func loadRunConfig(file string, flags map[string]string) (*runConfig, error) {
	if file == "" {
		return nil, fmt.Errorf("--%s: is required: the file that names the nodes of the cluster", configFlag)
	}
	text, err := readConfigFile(file)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", configFlag, err)
	}
	r := newConfigReader(file)
	r.read(text)
	r.override(flags)
	r.complete()
	r.check()
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b configProblem) int { return a.place.compare(b.place) })
		return nil, &configError{file: file, problems: r.problems}
	}
	return &r.config, nil
}

func readConfigFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err == nil && len(text) > maxConfigBytes {
		err = fmt.Errorf("%s: larger than any configuration (%d bytes)", path, maxConfigBytes)
	}
	return text, err
}

// place is where a value comes from: a line of the file, or a flag.
type place struct {
	line int
	flag string
}

// compare puts the file's lines before the flags.
func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.flag, o.flag), cmp.Compare(p.line, o.line))
}

// configProblem is one thing that is wrong with a configuration.
type configProblem struct {
	place
	path    string // as in nodes[1].links; empty for the file as a whole
	message string
}

// configError is everything that is wrong with a configuration, the file's lines first.
type configError struct {
	file     string
	problems []configProblem
}

// Error has a line for each problem.
func (e *configError) Error() string {
	lines := make([]string, len(e.problems))
	for i, p := range e.problems {
		switch {
		case p.flag != "":
			lines[i] = fmt.Sprintf("--%s: %s", p.flag, p.message)
		case p.path == "":
			lines[i] = fmt.Sprintf("%s:%d: %s", e.file, p.line, p.message)
		default:
			lines[i] = fmt.Sprintf("%s:%d: %s: %s", e.file, p.line, p.path, p.message)
		}
	}
	return strings.Join(lines, "\n")
}

// configReader makes a configuration, and collects what is wrong with it.
type configReader struct {
	config   runConfig
	folder   string           // that the file's relative paths start from
	places   map[string]place // where each path is
	broken   map[string]bool  // paths that were reported, so that what follows from it is an echo
	problems []configProblem
}

func newConfigReader(file string) *configReader {
	return &configReader{
		folder: filepath.Dir(file), places: map[string]place{"": {line: 1}}, broken: map[string]bool{},
	}
}

// add reports what is wrong with the value at path.
func (r *configReader) add(path, format string, args ...any) {
	r.broken[path] = true
	r.addAt(r.place(path), path, format, args...)
}

func (r *configReader) addAt(at place, path, format string, args ...any) {
	r.problems = append(r.problems, configProblem{at, path, fmt.Sprintf(format, args...)})
}

// place is where path is, or the nearest that holds it.
func (r *configReader) place(path string) place {
	for {
		if at, found := r.places[path]; found {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// isBroken reports whether path or anything that holds it was reported.
func (r *configReader) isBroken(path string) bool {
	for path != "" && !r.broken[path] {
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return r.broken[path]
}

// given reports whether somebody gave the value at path, be it a wrong one.
func (r *configReader) given(path string) bool {
	_, found := r.places[path]
	return found || r.isBroken(path)
}
