package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// session is a running cluster with an engine that asks it.
type session struct {
	*cluster
	engine *engine
	family byte // of the keys that were asked for last: each leg has fresh ones

	gateway *process // that is asked; nil: nodes are
}

func (o *options) openSession(dir string, partitions int, tls bool) (*session, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c, r, err := startCluster(o.programs, dir, partitions, tls, o.profileDir != "")
	if err != nil {
		return nil, err
	}
	s := &session{cluster: c, family: 'A'}
	creds, err := c.credentials()
	if err == nil {
		s.engine, err = newEngine(r, creds, o.streams, o.perMessage)
	}
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return s, nil
}

// follow asks other nodes from now on if leaders have changed. Within a leg that is an error: its figures would be
// those of an election.
func (s *session) follow() error {
	r, err := s.awaitLeaders()
	if err != nil || slices.Equal(r.leaders, s.engine.routes.leaders) {
		return err
	}
	creds, err := s.credentials()
	if err != nil {
		return err
	}
	e, err := newEngine(r, creds, s.engine.streams, s.engine.perMessage)
	if err != nil {
		return err
	}
	old := s.engine
	s.engine = e
	return old.close()
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
	CPU   float64 `json:"cpu_us_per_decision"`
	Cores load    `json:"cores"`
	// Gateway is the gateway's processor time for each decision, where one was asked.
	Gateway  float64 `json:"gateway_us_per_decision,omitempty"`
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
	front, err := s.gatewayTime()
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
	if passed, err := s.gatewayTime(); err != nil {
		return nil, err
	} else if s.gateway != nil {
		l.Gateway = round((passed-front)*1e6/max(1, all), 2)
	}
	now, err := s.progress()
	if err != nil {
		return nil, err
	}
	l.Events, l.Entries, l.Elections = now.since(before)
	l.PerEntry = perMessage(float64(m.allows), l.Entries)
	return l, nil
}

// gatewayTime is what the gateway has used, 0 if there is none.
func (s *session) gatewayTime() (float64, error) {
	if s.gateway == nil {
		return 0, nil
	}
	return processorTime(strconv.Itoa(s.gateway.pid()))
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

func round(v float64, digits int) float64 {
	scale := 1.0
	for range digits {
		scale *= 10
	}
	return float64(int64(v*scale+0.5)) / scale
}
