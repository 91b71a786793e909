package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flusher says that this process is the one that TestFlushesOfAProcess watches.
const flusher = "QUORATE_BENCH_TEST_FLUSHES"

func TestMain(m *testing.M) {
	if file := os.Getenv(flusher); file != "" {
		if err := flushOnDemand(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	status := m.Run()
	_ = os.RemoveAll(built) // a temporary folder, or none
	os.Exit(status)
}

// built is the folder of the programs, once they are built.
var built string

// programs builds what is measured, once.
var programs = sync.OnceValues(func() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "quorate-bench-test-")
	if err != nil {
		return "", err
	}
	built = dir
	return dir, buildPrograms(root, dir, true)
})

const flushes = 7

// flushOnDemand waits for the file to be there, flushes it a few times, and waits until it is gone.
func flushOnDemand(path string) error {
	fmt.Println("here")
	if err := eventually("the file", func() (bool, error) { return exists(path), nil }); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for range flushes {
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
	}
	_ = unix.Fdatasync(-1) // fails, and doesn't count
	fmt.Println("flushed")
	return eventually("the end", func() (bool, error) { return !exists(path), nil })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestFlushesOfAProcess: what strace is asked to count is what the kernel did.
func TestFlushesOfAProcess(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	p, err := launch("flusher", os.Args[0], []string{flusher + "=" + file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(os.Kill) })
	if _, err := p.line("here"); err != nil {
		t.Fatal(err)
	}
	c := &cluster{dir: dir, nodes: []*node{{process: p}}}
	tr, err := c.traceSyncs()
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = p.line("flushed")
	to := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.detach(); err != nil {
		t.Fatal(err)
	}
	if n, err := tr.count(from, to); err != nil || n != flushes {
		t.Errorf("counted %d flushes of %d, %v", n, flushes, err)
	}
	if n, err := tr.count(from.Add(-time.Hour), from.Add(-time.Minute)); err != nil || n != 0 {
		t.Errorf("counted %d flushes of an hour ago, %v", n, err)
	}
}

// opened is a session with a cluster of real processes.
func opened(t *testing.T, partitions int, tls bool) (*suite, *session) {
	t.Helper()
	o, err := parse([]string{"-keys", "2000", "-callers", "200"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.programs, err = programs(); err != nil {
		t.Fatal(err)
	}
	o.out = io.Discard
	o.profileDir = filepath.Join(t.TempDir(), "profiles")
	s := &suite{options: o, dir: t.TempDir(), report: &report{}, lengths: lengths{denied: 300 * time.Millisecond, other: 500 * time.Millisecond}}
	c, err := o.openSession(filepath.Join(s.dir, "cluster"), partitions, tls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return s, c
}

// TestBenchAgreesWithTheClusterOrFails runs legs against real nodes: an honest one, whose counts agree, and one
// beside which somebody else asks, so that replicas have applied what no caller of the leg was told of.
func TestBenchAgreesWithTheClusterOrFails(t *testing.T) {
	s, c := opened(t, nodeCount, true)
	length := 500 * time.Millisecond
	s.seconds = time.Second
	honest, err := s.closed(c, "honest", s.fresh(c, strictEntry, s.keys, 0), 200, length)
	if err != nil {
		t.Fatal(err)
	}
	if err := honest.agree(); err != nil || honest.Allows == 0 || honest.Entries == 0 || honest.CPU <= 0 || len(s.wrong) != 0 {
		t.Errorf("%+v: %v, %v", honest, err, s.wrong)
	}
	for _, who := range []string{"client", "n1", "n2", "n3"} {
		if info, err := os.Stat(filepath.Join(s.profileDir, "honest-3-"+who+".prof")); err != nil || info.Size() == 0 {
			t.Errorf("no profile of %s: %v", who, err)
		}
	}
	s.profileDir = ""
	w, beside := s.fresh(c, strictEntry, s.keys, 0), s.fresh(c, strictEntry, s.keys, 0)
	l, err := s.take(c, "crossed", leg{Callers: 200}, func() (*measured, error) {
		if m := calls(c.unary(beside, 2), beside, length/5); m.allows == 0 {
			return nil, fmt.Errorf("nothing was asked beside: %s", m.why())
		}
		return c.engine.closed(w, 200, length)
	})
	if err != nil {
		t.Fatal(err)
	}
	if l.Errors != 0 || l.agree() == nil || len(s.wrong) != 1 || !strings.Contains(s.wrong[0].Error(), "admissions") {
		t.Errorf("replicas applied %v, callers heard %d allows, and it is accepted: %v", l.Events, l.Allows, s.wrong)
	}
}

// TestOtherWaysToAsk: unary calls, the client of applications, the gateway's HTTP come to the same admissions.
func TestOtherWaysToAsk(t *testing.T) {
	s, c := opened(t, 1, false)
	s.profileDir, s.warm = "", 100*time.Millisecond
	if err := s.fronts(c); err != nil {
		t.Fatal(err)
	}
	if len(s.wrong) != 0 || len(s.report.Legs) != 3 {
		t.Errorf("%d legs: %v", len(s.report.Legs), s.wrong)
	}
	for _, l := range s.report.Legs {
		if l.Allows == 0 || (l.Gateway > 0) != strings.Contains(l.Name, "gateway") {
			t.Errorf("%s: %d allows, the gateway used %v", l.Name, l.Allows, l.Gateway)
		}
	}
	if l, err := s.knownDenied(c); err != nil || l.Denies == 0 || len(s.wrong) != 0 {
		t.Errorf("%+v: %v, %v", l, err, s.wrong)
	}
}
