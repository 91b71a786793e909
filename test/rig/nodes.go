package rig

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
)

// Names are those of the nodes of every cluster here.
func Names() []string { return []string{"n1", "n2", "n3"} }

// Others are all nodes but those.
func Others(but ...string) []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return slices.Contains(but, name) })
}

// Shape says how a cluster is to be; zero values leave it to the defaults.
type Shape struct {
	Plain      bool // without certificates
	Partitions int
	Election   time.Duration // 400 ms
	LogBytes   string
	LogLevel   string
	Policies   string // the text of a policy file; empty: none are applied

	// Web carries what nodes say to each other; nil: nothing stands between them.
	Web *Web
	// Program is what runs a node: a command line to which --config and its file are added. Nil: `quotanode run`.
	Program func(name string) []string
	// Host is the IP address of a node; nil: loopback, and a port that is free there.
	Host func(name string) string
	// More is added to a node's configuration.
	More func(name string) string
}

// Nodes is a cluster: three processes.
type Nodes struct {
	Dir     string            // of everything
	Certs   string            // folder of the certificates; empty: there are none
	GRPC    map[string]string // addresses as nodes listen, by node
	Links   map[string]string
	Process map[string]*Process // the newest of each node

	programs Programs
	shape    Shape
}

// Found starts a cluster, and returns once all nodes are ready and the policies are enforced everywhere. It ends
// with the test at the latest.
func (p Programs) Found(t testing.TB, s Shape) *Nodes {
	t.Helper()
	n := p.Prepare(t, s)
	n.Begin(t, Names()...)
	n.Ready(t, Names()...)
	if s.Policies != "" {
		n.Enforce(t, s.Policies)
	}
	return n
}

// Prepare makes certificates and configurations for a cluster, and starts nothing.
func (p Programs) Prepare(t testing.TB, s Shape) *Nodes {
	t.Helper()
	n := &Nodes{Dir: t.TempDir(), GRPC: map[string]string{}, Links: map[string]string{}, Process: map[string]*Process{}, programs: p, shape: s}
	if !s.Plain {
		n.Certs = filepath.Join(n.Dir, "certs")
		p.Issue(t, n.Certs)
	}
	for _, name := range Names() {
		n.GRPC[name], n.Links[name] = n.address(t, name, "8081"), n.address(t, name, "7001")
	}
	if s.Web != nil {
		s.Web.weave(t, n)
	}
	for _, name := range Names() {
		Write(t, n.Config(name), n.configuration(name))
	}
	return n
}

func (n *Nodes) address(t testing.TB, name, port string) string {
	if n.shape.Host == nil {
		return FreeAddress(t)
	}
	return net.JoinHostPort(n.shape.Host(name), port)
}

// configuration is the text of a node's configuration. With a web it finds the others there.
func (n *Nodes) configuration(name string) string {
	s := n.shape
	if s.Election == 0 {
		s.Election = 400 * time.Millisecond
	}
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\ndataDir: %s\nlisten: {health: '127.0.0.1:0'}\nelection: %v\nnodes:\n", name, n.Data(name), s.Election)
	for _, other := range Names() {
		links, grpc := n.Links[other], n.GRPC[other]
		if s.Web != nil && other != name {
			links, grpc = s.Web.address(name, links), s.Web.address(name, grpc)
		}
		fmt.Fprintf(&b, "- {name: %s, links: '%s', grpc: '%s'}\n", other, links, grpc)
	}
	if n.Certs != "" {
		fmt.Fprintf(&b, "tls: {ca: certs/ca.crt, cert: certs/%s.crt, key: certs/%s.key}\n", name, name)
	}
	if s.Partitions > 0 {
		fmt.Fprintf(&b, "partitions: %d\n", s.Partitions)
	}
	if s.LogBytes != "" {
		fmt.Fprintf(&b, "logBytes: %s\n", s.LogBytes)
	}
	if s.LogLevel != "" {
		fmt.Fprintf(&b, "logLevel: %s\n", s.LogLevel)
	}
	if s.More != nil {
		b.WriteString(s.More(name))
	}
	return b.String()
}

// Config is a node's configuration file.
func (n *Nodes) Config(name string) string { return filepath.Join(n.Dir, name+".yaml") }

// Disk is the folder that a node's data lies in, alone: where a file system of its own can be mounted.
func (n *Nodes) Disk(name string) string { return filepath.Join(n.Dir, "disk-"+name) }

// Data is a node's data folder.
func (n *Nodes) Data(name string) string { return filepath.Join(n.Disk(name), "data") }

// Begin starts the processes of nodes, anew if they ran before.
func (n *Nodes) Begin(t testing.TB, which ...string) {
	t.Helper()
	for _, name := range which {
		command := []string{n.programs.path("quotanode"), "run"}
		if n.shape.Program != nil {
			command = n.shape.Program(name)
		}
		n.Process[name] = Start(t, append(command, "--config", n.Config(name))...)
	}
}

// Ready waits until those nodes say that they are.
func (n *Nodes) Ready(t testing.TB, which ...string) {
	t.Helper()
	for _, name := range which {
		n.Process[name].Ready(t)
	}
}

// Kill ends nodes with no warning.
func (n *Nodes) Kill(t testing.TB, which ...string) {
	t.Helper()
	for _, name := range which {
		n.Process[name].Kill(t)
	}
}

// Terminate asks nodes to stop, all at once, and insists that each does so in order.
func (n *Nodes) Terminate(t testing.TB, which ...string) {
	t.Helper()
	for _, name := range which {
		n.Process[name].Signal(t, os.Interrupt)
	}
	for _, name := range which {
		if status := n.Process[name].Wait(t); status != 0 {
			t.Errorf("%s ended with %d", name, status)
		}
	}
}

// Running reports whether a node's process runs.
func (n *Nodes) Running(name string) bool { return n.Process[name].Running() }

// Enforce applies policies, and returns once every partition enforces them.
func (n *Nodes) Enforce(t testing.TB, text string) {
	t.Helper()
	file := n.File(t, text)
	Eventually(t, "the policies to be in force", func() bool {
		status, _ := n.Ctl(t, "policy-writer", "policies", "apply", file)
		return status == 0
	})
}

// File writes a file and returns its name.
func (n *Nodes) File(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	Write(t, path, text)
	return path
}

// Write writes a file.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Ctl runs quotactl with a role's certificate and the addresses of all nodes.
func (n *Nodes) Ctl(t testing.TB, role string, args ...string) (status int, out string) {
	t.Helper()
	return n.programs.Quotactl(t, slices.Concat(args, []string{"--server", strings.Join(n.Addresses(), ",")}, n.Flags(role))...)
}

// Flags are those that show a role's certificate.
func (n *Nodes) Flags(role string) []string {
	if n.Certs == "" {
		return nil
	}
	return FlagsOf(n.Files(role))
}

// FlagsOf are the flags that name those files.
func FlagsOf(f access.Files) []string {
	return []string{"--ca", f.CA, "--cert", f.Cert, "--key", f.Key}
}

// Files are those of a role.
func (n *Nodes) Files(role string) access.Files { return FilesIn(n.Certs, role) }

// FilesIn are those of a role in a folder.
func FilesIn(folder, role string) access.Files {
	at := func(file string) string { return filepath.Join(folder, file) }
	return access.Files{CA: at("ca.crt"), Cert: at(role + ".crt"), Key: at(role + ".key")}
}

// Addresses are where all nodes answer.
func (n *Nodes) Addresses() (list []string) {
	for _, name := range Names() {
		list = append(list, n.GRPC[name])
	}
	return list
}

// ClientConfig is that of a client of the cluster with a gateway's certificate. What stands between nodes doesn't
// stand before it.
func (n *Nodes) ClientConfig(t testing.TB) client.Config {
	t.Helper()
	cfg := client.Config{Addresses: n.Addresses(), TLS: n.TLS(t, "gateway")}
	if n.shape.Web != nil {
		cfg.Dialer = n.shape.Web.dialBehind
	}
	return cfg
}

// Client is a client of the cluster with a gateway's certificate. It ends with the test at the latest.
func (n *Nodes) Client(t testing.TB) *client.Client {
	t.Helper()
	return Dialed(t, n.ClientConfig(t))
}

// Dialed is a client that ends with the test at the latest.
func Dialed(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TLS is how a role dials nodes; nil without certificates.
func (n *Nodes) TLS(t testing.TB, role string) *tls.Config {
	t.Helper()
	if n.Certs == "" {
		return nil
	}
	return Dialing(t, n.Files(role))
}

// Dialing is how whoever has those files dials nodes.
func Dialing(t testing.TB, files access.Files) *tls.Config {
	t.Helper()
	keeper, err := access.Open(files, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return keeper.ClientTLS(access.IsPeer)
}

// Gateway starts a gateway before the cluster and waits until it is ready.
func (n *Nodes) Gateway(t testing.TB, args ...string) *Process {
	t.Helper()
	return n.programs.Launch(t, "gateway", slices.Concat([]string{"--nodes", strings.Join(n.Addresses(), ","), "--http-address", "127.0.0.1:0",
		"--grpc-address", "127.0.0.1:0", "--health-address", "127.0.0.1:0"}, n.Flags("gateway"), args)...).Ready(t)
}

// statusWithin bounds a look at a node, which may be frozen.
const statusWithin = 3 * time.Second

// Status is the cluster as one of its nodes sees it; nil if it doesn't answer.
func (n *Nodes) Status(t testing.TB, by string) *quotav1.StatusResponse {
	t.Helper()
	admin, err := client.NewAdmin([]string{n.GRPC[by]}, n.TLS(t, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }() // nothing is in flight
	ctx, cancel := context.WithTimeout(context.Background(), statusWithin)
	defer cancel()
	s, err := admin.Status(ctx)
	if err != nil {
		return nil
	}
	return s
}

// Leader waits until a running node knows who leads the partition, and that one runs.
func (n *Nodes) Leader(t testing.TB, partition int) (name string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("a leader of partition %d", partition), func() bool {
		for _, by := range Names() {
			if !n.Running(by) {
				continue
			}
			if list := n.Status(t, by).GetPartitions(); partition < len(list) && list[partition].GetRoute().GetLeader() != "" {
				name = list[partition].GetRoute().GetLeader()
				return n.Running(name)
			}
		}
		return false
	})
	return name
}
