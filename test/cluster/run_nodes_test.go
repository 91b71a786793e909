package cluster_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/internal/access"
)

// names are those of the nodes of every cluster here.
var names = []string{"n1", "n2", "n3"}

// nodes is a cluster of `quotanode run`: three processes on loopback addresses.
type nodes struct {
	dir     string            // of everything
	certs   string            // folder of the certificates; empty: there are none
	grpc    map[string]string // addresses, by node
	process map[string]*process
}

// shape says how a cluster is to be; zero values leave it to the defaults.
type shape struct {
	plain      bool // without certificates
	partitions int
	logBytes   string
	logLevel   string
	policies   string // the text of a policy file
}

// found starts a cluster, and returns once all nodes are ready and the policies are enforced everywhere. It ends
// with the test at the latest.
func found(t *testing.T, s shape) *nodes {
	t.Helper()
	n := &nodes{dir: t.TempDir(), grpc: map[string]string{}, process: map[string]*process{}}
	if !s.plain {
		n.certs = filepath.Join(n.dir, "certs")
		issue(t, n.certs)
	}
	n.configure(t, s)
	n.begin(t, names...)
	n.ready(t, names...)
	n.enforce(t, s.policies)
	return n
}

// issue makes certificates for all roles, as people do to try a cluster.
func issue(t *testing.T, folder string, args ...string) {
	t.Helper()
	if status, out := quotactl(t, append([]string{"certs", "dev", "--dir", folder}, args...)...); status != 0 {
		t.Fatalf("certs dev: status %d\n%s", status, out)
	}
}

// configure writes a configuration for each node.
func (n *nodes) configure(t *testing.T, s shape) {
	t.Helper()
	var list strings.Builder
	for _, name := range names {
		n.grpc[name] = freeAddress(t)
		fmt.Fprintf(&list, "- {name: %s, links: '%s', grpc: '%s'}\n", name, freeAddress(t), n.grpc[name])
	}
	for _, name := range names {
		text := "name: " + name + "\ndataDir: " + n.data(name) + "\nlisten: {health: '127.0.0.1:0'}\nelection: 400ms\nnodes:\n" + list.String()
		if n.certs != "" {
			text += fmt.Sprintf("tls: {ca: certs/ca.crt, cert: certs/%s.crt, key: certs/%s.key}\n", name, name)
		}
		if s.partitions > 0 {
			text += fmt.Sprintf("partitions: %d\n", s.partitions)
		}
		if s.logBytes != "" {
			text += "logBytes: " + s.logBytes + "\n"
		}
		if s.logLevel != "" {
			text += "logLevel: " + s.logLevel + "\n"
		}
		write(t, n.config(name), text)
	}
}

func (n *nodes) config(name string) string { return filepath.Join(n.dir, name+".yaml") }

func (n *nodes) data(name string) string { return filepath.Join(n.dir, "data-"+name) }

// begin starts the processes of nodes, anew if they ran before.
func (n *nodes) begin(t *testing.T, which ...string) {
	t.Helper()
	for _, name := range which {
		n.process[name] = launch(t, "quotanode", "run", "--config", n.config(name))
	}
}

func (n *nodes) ready(t *testing.T, which ...string) {
	t.Helper()
	for _, name := range which {
		n.process[name].ready(t)
	}
}

// kill ends nodes with no warning.
func (n *nodes) kill(t *testing.T, which ...string) {
	t.Helper()
	for _, name := range which {
		n.process[name].kill(t)
	}
}

// terminate asks nodes to stop, all at once, and insists that each does so in order.
func (n *nodes) terminate(t *testing.T, which ...string) {
	t.Helper()
	for _, name := range which {
		n.signal(t, name, termination[0])
	}
	for _, name := range which {
		if status := n.process[name].wait(t); status != 0 {
			t.Errorf("%s ended with %d", name, status)
		}
	}
}

func (n *nodes) signal(t *testing.T, name string, signal os.Signal) {
	t.Helper()
	if err := n.process[name].cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// enforce applies policies, and returns once every partition enforces them.
func (n *nodes) enforce(t *testing.T, text string) {
	t.Helper()
	file := n.file(t, text)
	eventually(t, "the policies to be in force", func() bool {
		status, _ := n.ctl(t, "policy-writer", "policies", "apply", file)
		return status == 0
	})
}

// file writes a file and returns its name.
func (n *nodes) file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, text)
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ctl runs quotactl with a role's certificate and the addresses of all nodes.
func (n *nodes) ctl(t *testing.T, role string, args ...string) (status int, out string) {
	t.Helper()
	return quotactl(t, slices.Concat(args, []string{"--server", strings.Join(n.addresses(), ",")}, n.flags(role))...)
}

// flags are those that show a role's certificate.
func (n *nodes) flags(role string) []string {
	if n.certs == "" {
		return nil
	}
	return flagsOf(n.files(role))
}

func flagsOf(f access.Files) []string {
	return []string{"--ca", f.CA, "--cert", f.Cert, "--key", f.Key}
}

func (n *nodes) files(role string) access.Files { return filesIn(n.certs, role) }

func filesIn(folder, role string) access.Files {
	at := func(file string) string { return filepath.Join(folder, file) }
	return access.Files{CA: at("ca.crt"), Cert: at(role + ".crt"), Key: at(role + ".key")}
}

func (n *nodes) addresses() (list []string) {
	for _, name := range names {
		list = append(list, n.grpc[name])
	}
	return list
}

// client is a client of the cluster with a gateway's certificate. It ends with the test at the latest.
func (n *nodes) client(t *testing.T) *client.Client {
	t.Helper()
	cfg := client.Config{Addresses: n.addresses()}
	if n.certs != "" {
		cfg.TLS = dialing(t, n.files("gateway"))
	}
	return dialed(t, cfg)
}

// dialed is a client that ends with the test at the latest.
func dialed(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func dialing(t *testing.T, files access.Files) *tls.Config {
	t.Helper()
	keeper, err := access.Open(files, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return keeper.ClientTLS(access.IsPeer)
}

// gateway starts a gateway before the cluster and waits until it is ready.
func (n *nodes) gateway(t *testing.T, args ...string) *process {
	t.Helper()
	return launch(t, "gateway", slices.Concat([]string{"--nodes", strings.Join(n.addresses(), ","), "--http-address", "127.0.0.1:0",
		"--grpc-address", "127.0.0.1:0", "--health-address", "127.0.0.1:0"}, n.flags("gateway"), args)...).ready(t)
}

// view is what the tests read of `quotactl status -o json`.
type view struct {
	Healthy  bool
	Problems []string
	Nodes    []struct {
		Name, State string
		Detail      *string
	}
	Partitions []struct {
		Leader   *string
		Replicas []struct {
			Node, State  string
			Applied, Lag uint64
		}
	}
}

// status is the cluster as one of its nodes sees it.
func (n *nodes) status(t *testing.T, by string) (v view, ok bool) {
	t.Helper()
	_, out := quotactl(t, slices.Concat([]string{"status", "-o", "json", "--server", n.grpc[by]}, n.flags("reader"))...)
	return v, json.Unmarshal([]byte(out), &v) == nil
}

// leader waits until a running node knows who leads the partition.
func (n *nodes) leader(t *testing.T, partition int) (name string) {
	t.Helper()
	eventually(t, fmt.Sprintf("a leader of partition %d", partition), func() bool {
		for _, by := range names {
			if !n.running(by) {
				continue
			}
			v, ok := n.status(t, by)
			if ok && partition < len(v.Partitions) && v.Partitions[partition].Leader != nil {
				name = *v.Partitions[partition].Leader
				return n.running(name)
			}
		}
		return false
	})
	return name
}

func (n *nodes) running(name string) bool {
	select {
	case <-n.process[name].ended:
		return false
	default:
		return true
	}
}

// others are all nodes but those.
func others(but ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(but, name) })
}

// freeAddress returns a loopback address that nobody listens at, and that no other call gets. Its port is below
// those that the kernel gives to whoever dials, so it is still free when a node comes back.
func freeAddress(t *testing.T) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range lastPort - firstPort {
		if ports.next++; ports.next > lastPort || ports.next < firstPort {
			ports.next = firstPort
		}
		address := fmt.Sprintf("127.0.0.1:%d", ports.next)
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

const firstPort, lastPort = 12000, 31999

// ports are given out one after the other; where they begin differs by process.
var ports = struct {
	sync.Mutex
	next int
}{next: firstPort + os.Getpid()*7%(lastPort-firstPort)}
