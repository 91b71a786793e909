package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// samples are a node's metrics, by name with labels as they are written.
type samples map[string]float64

// scrape reads a node's metrics.
func (n *node) scrape() (samples, error) {
	response, err := http.Get("http://" + n.health + "/metrics")
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", n.name, err)
	}
	defer func() { _ = response.Body.Close() }() // it is read to its end
	return readSamples(response.Body)
}

func readSamples(r io.Reader) (samples, error) {
	all := samples{}
	for s := bufio.NewScanner(r); ; {
		if !s.Scan() {
			return all, s.Err()
		}
		line := s.Text()
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: the line %q: %w", line, err)
		}
		all[line[:at]] = v
	}
}

// sum adds up all series of a name.
func (s samples) sum(name string) (total float64) {
	for _, v := range s.of(name) {
		total += v
	}
	return total
}

// of returns the series of a name.
func (s samples) of(name string) samples {
	all := samples{}
	for series, v := range s {
		if series == name || strings.HasPrefix(series, name+"{") {
			all[series] = v
		}
	}
	return all
}

// The counters that the bench goes by.
const (
	admissionsApplied = "quorate_admissions_applied_total"
	appliedIndex      = "quorate_applied_index"
	elections         = "quorate_leader_changes_total"
)

// progress is how far a cluster's replicas have come: what each node's have applied, and elections so far.
type progress struct {
	events  []uint64  // admissions, by node
	entries []uint64  // of all partitions, by node
	applied []samples // the index of each partition, by node
	elected uint64
}

// progress waits until all replicas have applied the same, and says how much that is.
func (c *cluster) progress() (p progress, err error) {
	var settled progress
	err = eventually("the replicas to have applied the same", func() (bool, error) {
		if p, err = c.look(); err != nil {
			return false, err
		}
		alike := p.even() && settled.even() && len(settled.events) > 0 && p.events[0] == settled.events[0]
		settled = p
		if !alike {
			time.Sleep(50 * time.Millisecond)
		}
		return alike, nil
	})
	return p, err
}

func (c *cluster) look() (p progress, err error) {
	for _, n := range c.nodes {
		s, err := n.scrape()
		if err != nil {
			return p, err
		}
		p.events = append(p.events, uint64(s.sum(admissionsApplied)))
		p.entries = append(p.entries, uint64(s.sum(appliedIndex)))
		p.applied = append(p.applied, s.of(appliedIndex))
		p.elected += uint64(s.sum(elections))
	}
	return p, nil
}

// even reports whether the nodes are equally far: each has a replica of every partition. Sums don't tell: where each node
// is one entry ahead in the partition that it leads, they are alike.
func (p progress) even() bool {
	for i := range p.events {
		if p.events[i] != p.events[0] || !maps.Equal(p.applied[i], p.applied[0]) {
			return false
		}
	}
	return true
}

// since is what came between an earlier look and this one.
func (p progress) since(before progress) (events []uint64, entries, elected uint64) {
	for i := range p.events {
		events = append(events, p.events[i]-before.events[i])
	}
	return events, p.entries[0] - before.entries[0], p.elected - before.elected
}
