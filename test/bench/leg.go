package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func (o *options) check() error {
	switch {
	case o.partitions < 1 || o.partitions >= mostPartitions:
		return fmt.Errorf("-partitions is %d, not within 1..%d", o.partitions, mostPartitions-1)
	case o.perMessage < 1 || o.perMessage > mostChecks:
		return fmt.Errorf("-batch is %d, not within 1..%d", o.perMessage, mostChecks)
	case o.callers < 0 || o.callers > maxInFlight:
		return fmt.Errorf("-callers is %d, not within 0..%d", o.callers, maxInFlight)
	case o.keys < 1 || o.keys > 100_000_000:
		return fmt.Errorf("-keys is %d, not within 1..100000000", o.keys)
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
	return o.single(dir)
}

// session is a running cluster with an engine that asks it.
type session struct {
	*cluster
	engine *engine
	family byte // of the keys that come next, so that each leg has fresh ones
}

func (o *options) openSession(dir string, partitions int, tls bool) (*session, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c, r, err := startCluster(o.programs, dir, partitions, tls, o.profileDir != "")
	if err != nil {
		return nil, err
	}
	s := &session{cluster: c, family: 'a'}
	creds, err := c.credentials()
	if err == nil {
		s.engine, err = newEngine(r, creds, o.streams, o.perMessage)
	}
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return s, nil
}

func (s *session) close() error { return errors.Join(s.engine.close(), s.cluster.stop()) }

// leg is one measured stretch.
type leg struct {
	Name       string  `json:"name"`
	Partitions int     `json:"partitions"`
	Callers    int     `json:"callers,omitempty"` // of a closed loop
	Rate       int     `json:"rate,omitempty"`    // of an open one
	Seconds    float64 `json:"seconds"`
	Allows     uint64  `json:"allows"`
	Denies     uint64  `json:"denies"`
	Errors     uint64  `json:"errors"`
	Why        string  `json:"why,omitempty"` // there were errors
	AllowsPerS float64 `json:"allows_per_s"`
	PerS       float64 `json:"decisions_per_s"`
	Latency    spread  `json:"latency_ms"`
	// Events are admissions that each node's replicas have applied meanwhile, Entries those of the log.
	Events    []uint64 `json:"events"`
	Entries   uint64   `json:"entries"`
	Elections uint64   `json:"elections"`
	// CPU is the nodes' processor time for each decision.
	CPU      float64 `json:"cpu_us_per_decision"`
	Cores    load    `json:"cores"`
	PerEntry float64 `json:"decisions_per_entry"`
	// Asked and Told are how many checks and answers a message held.
	Asked float64 `json:"checks_per_message"`
	Told  float64 `json:"answers_per_message"`
}

// ask is a loop of the engine.
type ask func() (*measured, error)

// measure runs a loop and takes down all that went with it.
func (s *session) measure(name string, loop ask) (*leg, error) {
	before, err := s.progress()
	if err != nil {
		return nil, err
	}
	sent, received := s.engine.sent.Load(), s.engine.received.Load()
	used, err := usageOf(s.pids())
	if err != nil {
		return nil, err
	}
	m, err := loop()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	after, err := usageOf(s.pids())
	if err != nil {
		return nil, err
	}
	l := &leg{Name: name, Partitions: s.partitions, Allows: m.allows, Denies: m.denies, Errors: m.errors, Why: m.why(), Latency: m.hist.spread()}
	l.Seconds = round(m.seconds, 3)
	l.AllowsPerS, l.PerS = round(m.perSecond(m.allows), 0), round(m.perSecond(m.decisions()), 0)
	all := float64(m.decisions() + m.errors)
	l.Cores, l.CPU = after.since(used), round((after.nodes-used.nodes)*1e6/max(1, all), 2)
	l.Asked, l.Told = perMessage(all, s.engine.sent.Load()-sent), perMessage(all, s.engine.received.Load()-received)
	now, err := s.progress()
	if err != nil {
		return nil, err
	}
	l.Events, l.Entries, l.Elections = now.since(before)
	l.PerEntry = perMessage(float64(m.allows), l.Entries)
	return l, nil
}

func perMessage(all float64, messages uint64) float64 { return round(all/float64(max(1, messages)), 1) }

// agree refuses a leg in which callers and replicas saw different things, or in which a check failed.
func (l *leg) agree() error {
	var errs []error
	if l.Errors > 0 {
		errs = append(errs, fmt.Errorf("%s: %d checks failed: %s", l.Name, l.Errors, l.Why))
	}
	for i, events := range l.Events {
		if events != l.Allows {
			errs = append(errs, fmt.Errorf("%s: callers were told of %d allows, and n%d has applied %d admissions", l.Name, l.Allows, i+1, events))
		}
	}
	if len(l.Events) == 0 {
		errs = append(errs, fmt.Errorf("%s: nothing is known of what replicas have applied", l.Name))
	}
	return errors.Join(errs...)
}

// single runs one workload on a cluster of its own.
func (o *options) single(dir string) (err error) {
	s, err := o.openSession(dir, o.partitions, o.tls)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	w := workload{entry: entryOf(o.workload), family: s.family, keys: o.keys, zipf: o.zipf, seed: o.seed}
	if _, err := s.engine.closed(w, max(o.callers, 1), o.warm); err != nil {
		return err
	}
	w.family++
	w.seed++
	loop := func() (*measured, error) { return s.engine.closed(w, o.callers, o.seconds) }
	if o.rate > 0 {
		loop = func() (*measured, error) { return s.engine.open(w, o.rate, o.seconds) }
	}
	wait, err := s.profiles(o.profileDir, o.workload, o.seconds)
	if err != nil {
		return err
	}
	l, err := s.measure(o.workload, loop)
	if err = errors.Join(err, wait()); err != nil {
		return err
	}
	o.show(l)
	return l.agree()
}

func entryOf(workload string) string {
	switch workload {
	case "open", "shut":
		return workload
	}
	return "principal"
}

func (o *options) show(l *leg) {
	fmt.Fprintf(o.out, "%+v\n", *l)
}

func round(v float64, digits int) float64 {
	scale := 1.0
	for range digits {
		scale *= 10
	}
	return float64(int64(v*scale+0.5)) / scale
}
