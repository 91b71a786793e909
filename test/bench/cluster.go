package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	nodeCount = 3
	// policyFile has a policy for each workload; the entry's name says which.
	policyFile = `policies:
- name: strict
  domain: bench
  key: [principal]
  limits:
  - {name: per-minute, rollingWindow: {limit: 3, window: 60s}}
- name: open
  domain: bench
  key: [open]
  limits:
  - {name: per-minute, rollingWindow: {limit: 1000000000000, window: 60s, precision: 1s}}
- name: shut
  domain: bench
  key: [shut]
  limits:
  - {name: per-hour, rollingWindow: {limit: 1, window: 1h}}
`
)

// cluster is three processes of `quotanode run` on loopback addresses.
type cluster struct {
	programs   string // folder
	dir        string
	partitions int
	tls        bool
	profiled   bool // nodes serve profiles
	nodes      []*node
}

// node is one of them.
type node struct {
	*process
	grpc, health, pprof string
}

// startCluster founds a cluster in an empty folder, and waits until policies are in force and leaders are spread.
func startCluster(programs, dir string, partitions int, tls, profiled bool) (*cluster, *routes, error) {
	c := &cluster{programs: programs, dir: dir, partitions: partitions, tls: tls, profiled: profiled}
	err := c.start()
	if err == nil {
		err = c.applyPolicies()
	}
	var r *routes
	if err == nil {
		r, err = c.awaitLeaders()
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start a cluster of %d partitions: %w", partitions, err), c.stop())
	}
	return c, r, nil
}

func (c *cluster) start() error {
	if c.tls {
		if _, err := run(c.program("quotactl"), "certs", "dev", "--dir", c.path("certs"), "--nodes", "n1,n2,n3", "--domains", domain); err != nil {
			return err
		}
	}
	free, err := freeAddresses(3 * nodeCount)
	if err != nil {
		return err
	}
	for i := range nodeCount {
		if err := c.launch(i, free); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if n.health, err = n.line("health "); err != nil {
			return err
		}
		if _, err = n.line("ready"); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) launch(i int, free []string) error {
	name := fmt.Sprintf("n%d", i+1)
	path := c.path(name + ".yaml")
	if err := os.WriteFile(path, []byte(c.config(name, free)), 0o600); err != nil {
		return err
	}
	program, env := c.program("quotanode"), []string(nil)
	if c.profiled {
		program, env = c.program(profiledNode), []string{profileVariable + "=" + free[2*nodeCount+i]}
	}
	p, err := launch(name, program, env, "run", "--config", path)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, &node{process: p, grpc: free[nodeCount+i], pprof: free[2*nodeCount+i]})
	return nil
}

// config is a node's file, with nothing in it that a user need not write, but for addresses.
func (c *cluster) config(name string, free []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\ndataDir: %s\npartitions: %d\nlisten: {health: \"127.0.0.1:0\"}\n", name, c.path(name), c.partitions)
	if c.tls {
		fmt.Fprintf(&b, "tls: {ca: certs/ca.crt, cert: certs/%s.crt, key: certs/%s.key}\n", name, name)
	}
	b.WriteString("nodes:\n")
	for i := range nodeCount {
		fmt.Fprintf(&b, "- {name: n%d, links: %q, grpc: %q}\n", i+1, free[i], free[nodeCount+i])
	}
	return b.String()
}

func (c *cluster) program(name string) string { return filepath.Join(c.programs, name) }
func (c *cluster) path(name string) string    { return filepath.Join(c.dir, name) }

// addresses are the nodes', for flags.
func (c *cluster) addresses() string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.grpc)
	}
	return strings.Join(all, ",")
}

// as are the flags of somebody with that certificate.
func (c *cluster) as(role string) []string {
	if !c.tls {
		return nil
	}
	return []string{"--ca", c.path("certs/ca.crt"), "--cert", c.path("certs/" + role + ".crt"), "--key", c.path("certs/" + role + ".key")}
}

func (c *cluster) applyPolicies() error {
	path := c.path("policies.yaml")
	if err := os.WriteFile(path, []byte(policyFile), 0o600); err != nil {
		return err
	}
	_, err := run(c.program("quotactl"), append([]string{"policies", "apply", path, "--server", c.addresses()}, c.as("policy-writer")...)...)
	return err
}

// credentials are the gateway's.
func (c *cluster) credentials() (credentials.TransportCredentials, error) {
	if !c.tls {
		return insecure.NewCredentials(), nil
	}
	config, err := c.clientTLS()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(config), nil
}

// pids are those of the nodes.
func (c *cluster) pids() []int {
	var all []int
	for _, n := range c.nodes {
		all = append(all, n.pid())
	}
	return all
}

// log shows what the nodes have said last, for whoever asks why.
func (c *cluster) log(out io.Writer) {
	for _, n := range c.nodes {
		if text := n.stderr.String(); text != "" {
			fmt.Fprintf(out, "--- %s says\n%s\n", n.name, text)
		}
	}
}

// stop ends the nodes, and frees the disk.
func (c *cluster) stop() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.end(syscall.SIGTERM))
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// freeAddresses are loopback addresses that nobody listens on. The host is one of the 127.0.0.0/8 that is drawn
// for this, so that no connection of another program takes the port before the node does.
func freeAddresses(n int) (free []string, err error) {
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // it was never used
		free = append(free, l.Addr().String())
	}
	return free, nil
}
