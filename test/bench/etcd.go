package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// peer is what etcd came to with that many callers.
type peer struct {
	Callers   int     `json:"callers"`
	Seconds   float64 `json:"seconds"`
	Allows    uint64  `json:"allows"`
	Denies    uint64  `json:"denies"`
	Errors    uint64  `json:"errors"`
	Why       string  `json:"why,omitempty"`
	Conflicts uint64  `json:"conflicts"`
	PerSecond float64 `json:"allows_per_s"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
	Cores     load    `json:"cores"` // with etcd's client among the others
}

// etcdCallers are the numbers of callers that are tried; the best counts.
var etcdCallers = []int{64, 256}

// measureEtcd runs three members of etcd, flushing as they do by default, and the client that does with them what
// people do: see the folder etcd.
func (o *options) measureEtcd(dir string, length time.Duration) (peers []*peer, err error) {
	free, err := freeAddresses(2 * nodeCount)
	if err != nil {
		return nil, err
	}
	var members []*process
	defer func() {
		for _, m := range members {
			err = errors.Join(err, m.end(syscall.SIGTERM))
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	var cluster []string
	for i := range nodeCount {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i+1, free[nodeCount+i]))
	}
	for i := range nodeCount {
		m, err := launch(fmt.Sprintf("etcd m%d", i+1), filepath.Join(o.programs, "etcd"), nil, memberArgs(i, dir, free, strings.Join(cluster, ","))...)
		if err != nil {
			return nil, fmt.Errorf("%w; make bench-tools builds it", err)
		}
		members = append(members, m)
	}
	for _, callers := range etcdCallers {
		p, err := o.askEtcd(members, free[:nodeCount], callers, length)
		if err != nil {
			return nil, fmt.Errorf("etcd with %d callers: %w", callers, err)
		}
		peers = append(peers, p)
	}
	return peers, nil
}

func memberArgs(i int, dir string, free []string, cluster string) []string {
	client, links := "http://"+free[i], "http://"+free[nodeCount+i]
	name := fmt.Sprintf("m%d", i+1)
	return []string{
		"--name", name, "--data-dir", filepath.Join(dir, name), "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", links, "--initial-advertise-peer-urls", links, "--initial-cluster", cluster,
		"--quota-backend-bytes", "4294967296", "--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1m",
	}
}

func (o *options) askEtcd(members []*process, endpoints []string, callers int, length time.Duration) (*peer, error) {
	var pids []int
	for _, m := range members {
		pids = append(pids, m.pid())
	}
	before, err := usageOf(pids)
	if err != nil {
		return nil, err
	}
	out, err := run(filepath.Join(o.programs, "etcdload"), "-endpoints", strings.Join(endpoints, ","), "-keys", fmt.Sprint(o.keys),
		"-callers", fmt.Sprint(callers), "-seed", fmt.Sprint(o.seed+uint64(callers)), "-warm", "1500ms", "-seconds", length.String())
	if err != nil {
		return nil, err
	}
	after, err := usageOf(pids)
	if err != nil {
		return nil, err
	}
	p := &peer{}
	if err := json.Unmarshal([]byte(out), p); err != nil {
		return nil, fmt.Errorf("read %q: %w", out, err)
	}
	p.PerSecond, p.Cores = round(p.PerSecond, 0), after.since(before)
	return p, nil
}
