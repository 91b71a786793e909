package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// lengths are how long legs are.
type lengths struct{ strict, traced, denied, open, other, etcd, calibrate time.Duration }

// standard are those of every run. With everything around them a quick one stays below three minutes.
func standard() lengths {
	const s = time.Second
	return lengths{strict: 8 * s, traced: 5 * s, denied: 5 * s, open: 20 * s, other: 5 * s, etcd: 4 * s, calibrate: 3 * s / 2}
}

// openRate is what the open loop asks for, in checks a second.
const openRate = 25_000

// quick measures what the summary has.
func (s *suite) quick() error {
	var err error
	if s.report.BytesPerKey, err = s.bytesPerKey(); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "state: %.1f bytes a key (a million keys, three events each, records excluded)\n", s.report.BytesPerKey)
	if err := s.on(1, false, s.strictOne); err != nil {
		return err
	}
	if err := s.on(nodeCount, false, s.strictThree); err != nil {
		return err
	}
	if s.report.Etcd, err = s.measureEtcd(filepath.Join(s.dir, "etcd"), s.lengths.etcd); err != nil {
		return err
	}
	for _, p := range s.report.Etcd {
		p.show(s.out)
	}
	return nil
}

// strictOne is strict admission at one partition, its fsyncs, and what is known to be denied.
func (s *suite) strictOne(c *session) (err error) {
	if err := s.calibrate(c); err != nil {
		return err
	}
	if s.report.strict, err = s.closed(c, "strict", s.fresh(c, strictEntry, s.keys, 0), s.callers, s.lengths.strict); err != nil {
		return err
	}
	if s.report.denied, err = s.knownDenied(c); err != nil {
		return err
	}
	return s.countSyncs(c)
}

// knownDenied asks for one key that is used up, after the allow that uses it up.
func (s *suite) knownDenied(c *session) (*leg, error) {
	w := s.fresh(c, shutEntry, 1, 0)
	first, err := c.engine.closed(w, 1, time.Millisecond)
	if err != nil {
		return nil, err
	}
	if first.allows != 1 {
		return nil, fmt.Errorf("the first check of a key came to %d allows", first.allows)
	}
	l, err := s.closed(c, "hot key, denied", w, maxOpenPerStream, s.lengths.denied)
	if err == nil && l.Allows > 0 {
		s.wrong = append(s.wrong, fmt.Errorf("%s: %d allows", l.Name, l.Allows))
	}
	return l, err
}

// maxOpenPerStream is how many checks a node takes from a stream before it answers one.
const maxOpenPerStream = 4096

// countSyncs runs the strict loop once more while strace counts, which slows it: so its rate is no figure.
func (s *suite) countSyncs(c *session) error {
	if err := c.follow(); err != nil {
		return err
	}
	t, err := c.traceSyncs()
	if err != nil {
		return err
	}
	w := s.fresh(c, strictEntry, s.keys, 0)
	from := time.Now()
	l, err := c.measure("strict, traced", func() (*measured, error) { return c.engine.closed(w, s.callers, s.lengths.traced) })
	to := time.Now()
	if err := errors.Join(err, t.detach()); err != nil {
		return err
	}
	l.Callers = s.callers
	s.report.add(s.out, l)
	n, err := t.count(from, to)
	if err != nil {
		return err
	}
	s.report.Fsyncs = &syncs{Entries: l.Entries, Fsyncs: n, PerEntry: perMessage(float64(n), l.Entries), Seconds: l.Seconds}
	fmt.Fprintf(s.out, "fsyncs: %d for %d entries of the log, on three nodes: %.1f each\n", n, l.Entries, s.report.Fsyncs.PerEntry)
	s.wrong = append(s.wrong, errors.Join(l.agree(), s.report.Fsyncs.enough()))
	return nil
}

// strictThree is the default number of partitions: first a steady load on a cluster that is no older than its state is
// large, then all that it can do.
func (s *suite) strictThree(c *session) (err error) {
	if _, err := c.engine.open(s.fresh(c, strictEntry, s.keys, 0), openRate, 2*time.Second); err != nil {
		return err
	}
	s.report.open, err = s.open(c, "strict, open loop", s.fresh(c, strictEntry, s.keys, 0), openRate, s.lengths.open)
	if err != nil {
		return err
	}
	if err := s.warmUp(c); err != nil {
		return err
	}
	s.report.strictDefault, err = s.closed(c, "strict", s.fresh(c, strictEntry, s.keys, 0), s.callers, s.lengths.strict)
	return err
}

// more measures what a quick run leaves out.
func (s *suite) more() error {
	return errors.Join(
		s.on(1, false, func(c *session) error { return errors.Join(s.warmUp(c), s.shapes(c)) }),
		s.on(nodeCount, false, func(c *session) error { return errors.Join(s.warmUp(c), s.fronts(c)) }),
		s.on(8, false, func(c *session) error { return errors.Join(s.warmUp(c), s.strictly(c, "strict")) }),
		s.on(nodeCount, true, func(c *session) error { return errors.Join(s.warmUp(c), s.strictly(c, "strict, TLS")) }),
	)
}

// shapes are other distributions of keys, at one partition.
func (s *suite) shapes(c *session) error {
	_, zipf := s.closed(c, "Zipf 1.1", s.fresh(c, strictEntry, s.keys, 1.1), s.callers, s.lengths.other)
	_, hot := s.closed(c, "hot key, allowed", s.fresh(c, openEntry, 1, 0), s.callers, s.lengths.other)
	return errors.Join(zipf, hot)
}

func (s *suite) strictly(c *session, name string) error {
	_, err := s.closed(c, name, s.fresh(c, strictEntry, s.keys, 0), s.callers, s.lengths.other)
	return err
}

// How many callers wait for an answer each, where checks are not gathered by the one who asks.
const (
	unaryCallers       = 256
	applicationCallers = 2048
)

// fronts are the other ways to ask: unary calls, the client for applications, a gateway's HTTP.
func (s *suite) fronts(c *session) error {
	return errors.Join(s.unaryLeg(c), s.applicationLeg(c), s.gatewayLeg(c))
}

func (s *suite) unaryLeg(c *session) error {
	w := s.fresh(c, strictEntry, s.keys, 0)
	return s.calls(c, "unary Check", w, c.unary(w, unaryCallers))
}

func (s *suite) applicationLeg(c *session) error {
	w := s.fresh(c, strictEntry, s.keys, 0)
	askers, hangUp, err := c.application(w, applicationCallers)
	if err != nil {
		return err
	}
	defer hangUp()
	return s.calls(c, "api/client", w, askers)
}

func (s *suite) gatewayLeg(c *session) (err error) {
	p, address, err := s.gatewayOf(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end(syscall.SIGTERM)) }()
	w := s.fresh(c, strictEntry, s.keys, 0)
	askers, hangUp, err := overHTTP(address, w, unaryCallers)
	if err != nil {
		return err
	}
	defer hangUp()
	c.gateway = p
	defer func() { c.gateway = nil }()
	return s.calls(c, "gateway, HTTP /check", w, askers)
}

// calls is a leg of callers who wait for one answer each, warmed up.
func (s *suite) calls(c *session, name string, w workload, askers []asker) error {
	calls(askers, s.fresh(c, w.entry, w.keys, 0), s.warm)
	_, err := s.take(c, name, leg{Callers: len(askers)}, func() (*measured, error) { return calls(askers, w, s.lengths.other), nil })
	return err
}

// bytesPerKey runs the benchmark of the state machine that has this figure.
func (s *suite) bytesPerKey() (float64, error) {
	program := filepath.Join(s.programs, "fsm.test")
	if _, err := os.Stat(program); err != nil {
		return 0, fmt.Errorf("%w; make bench-tools builds it", err)
	}
	out, err := exec.Command(program, "-test.run", "^$", "-test.bench", "^BenchmarkState$/^bytes_per_key,_3_events$", "-test.benchtime", "1x").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("bytes per key: %w\n%s", err, out)
	}
	return readBytesPerKey(string(out))
}

var bytesPerKey = regexp.MustCompile(`(?m)^BenchmarkState/bytes_per_key,_3_events\S*\s+1\s+([0-9.]+) bytes/key\s`)

func readBytesPerKey(out string) (float64, error) {
	m := bytesPerKey.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("bytes per key: the benchmark doesn't say\n%s", out)
	}
	return strconv.ParseFloat(m[1], 64)
}
