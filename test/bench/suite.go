package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"
)

// suite runs legs and gathers what they come to. Whatever is wrong with one is kept until the end, so that a run
// tells all of it.
type suite struct {
	*options
	dir     string
	report  *report
	wrong   []error
	opened  int
	drawn   uint64 // workloads, so far
	lengths lengths
}

// run does what was asked for, reports it, and says whether it counts.
func (o *options) run(dir string) (err error) {
	s := &suite{options: o, dir: dir, report: &report{Seed: o.seed}, lengths: standard()}
	if s.report.Machine, err = lookAtMachine(dir); err != nil {
		return err
	}
	s.report.Machine.begin(o.out, o.seed)
	if err := s.perform(); err != nil {
		return err
	}
	after, err := syncTime(dir)
	if err != nil {
		return err
	}
	s.report.Machine.SyncAfter = us(after)
	fmt.Fprintf(o.out, "fdatasync of 4 KiB: %.0f µs before, %.0f µs after\n", s.report.Machine.SyncBefore, s.report.Machine.SyncAfter)
	s.report.conclude()
	return errors.Join(append(s.wrong, s.report.tell(o.out, o.reportFile))...)
}

// perform runs the plan of that name, or one workload.
func (s *suite) perform() error {
	switch s.workload {
	case "quick":
		return s.quick()
	case "all":
		return errors.Join(s.quick(), s.more())
	}
	return s.on(s.partitions, s.tls, func(c *session) error {
		if s.callers == 0 {
			if err := s.calibrate(c); err != nil {
				return err
			}
		}
		return s.single(c)
	})
}

// on runs legs on a cluster of their own.
func (s *suite) on(partitions int, tls bool, legs func(*session) error) (err error) {
	s.opened++
	c, err := s.openSession(filepath.Join(s.dir, fmt.Sprint(s.opened)), partitions, tls)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return legs(c)
}

// fresh is a workload on keys that no leg of the cluster has asked for.
func (s *suite) fresh(c *session, entry string, keys int, zipf float64) workload {
	c.family++
	s.drawn++
	return workload{entry: entry, family: c.family, keys: keys, zipf: zipf, seed: s.seed + s.drawn}
}

// The entries that choose a workload's policy: see policyFile.
const (
	strictEntry = "principal"
	openEntry   = "open"
	shutEntry   = "shut"
)

// calibrations are the numbers of callers that are tried: what gathers while two entries are under way makes the
// next one, so it takes many to keep a partition busy. One stream holds 4,096.
var calibrations = []int{1024, 2048, 4096}

// calibrate finds how many callers the strict loops of this run have: those that got the most allows. It warms up
// the cluster, too.
func (s *suite) calibrate(c *session) error {
	best, chosen := 0.0, 0
	for _, callers := range calibrations {
		m, err := c.engine.closed(s.fresh(c, strictEntry, s.keys, 0), callers, s.lengths.calibrate)
		if err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		rate := m.perSecond(m.allows)
		fmt.Fprintf(s.out, "calibration: %d callers, %.0f allows/s, %d errors\n", callers, rate, m.errors)
		if rate > best {
			best, chosen = rate, callers
		}
	}
	if chosen == 0 {
		return errors.New("calibrate: nothing was allowed")
	}
	s.callers = chosen
	return nil
}

func (s *suite) warmUp(c *session) error {
	_, err := c.engine.closed(s.fresh(c, strictEntry, s.keys, 0), s.callers, s.warm)
	return err
}

// take runs a leg of the engine's, shows it, and judges it.
func (s *suite) take(c *session, name string, shape leg, loop ask) (*leg, error) {
	if err := c.follow(); err != nil {
		return nil, err
	}
	wait, err := c.profiles(s.profileDir, fmt.Sprintf("%s-%d", fileName(name), c.partitions), s.seconds)
	if err != nil {
		return nil, err
	}
	l, err := c.measure(name, loop)
	if err = errors.Join(err, wait()); err != nil {
		return nil, err
	}
	l.Callers, l.Rate = shape.Callers, shape.Rate
	s.report.add(s.out, l)
	if err := l.agree(); err != nil {
		s.wrong = append(s.wrong, err)
		c.log(s.out)
	}
	return l, nil
}

// closed is a leg of a closed loop.
func (s *suite) closed(c *session, name string, w workload, callers int, length time.Duration) (*leg, error) {
	return s.take(c, name, leg{Callers: callers}, func() (*measured, error) { return c.engine.closed(w, callers, length) })
}

// open is a leg of an open loop.
func (s *suite) open(c *session, name string, w workload, rate int, length time.Duration) (*leg, error) {
	return s.take(c, name, leg{Rate: rate}, func() (*measured, error) { return c.engine.open(w, rate, length) })
}

// single is the workload of the command line.
func (s *suite) single(c *session) error {
	if err := s.warmUp(c); err != nil {
		return err
	}
	entry, keys := strictEntry, s.keys
	if s.workload != "strict" {
		entry, keys = s.workload, 1
	}
	w := s.fresh(c, entry, keys, s.zipf)
	var err error
	if s.rate > 0 {
		_, err = s.open(c, s.workload, w, s.rate, s.seconds)
	} else {
		_, err = s.closed(c, s.workload, w, s.callers, s.seconds)
	}
	return err
}

// gatewayOf starts a gateway beside the cluster, and returns the address of its HTTP front.
func (s *suite) gatewayOf(c *session) (*process, string, error) {
	args := append([]string{"--nodes", c.addresses(), "--http-address", "127.0.0.1:0", "--health-address", "127.0.0.1:0", "--grpc-address", "127.0.0.1:0"}, c.as("gateway")...)
	p, err := launch("gateway", c.program("gateway"), nil, args...)
	if err != nil {
		return nil, "", err
	}
	address, err := p.line("http ")
	if err == nil {
		_, err = p.line("ready")
	}
	if err != nil {
		return nil, "", errors.Join(err, p.end(syscall.SIGTERM))
	}
	return p, address, nil
}
