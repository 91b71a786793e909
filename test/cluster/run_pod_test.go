package cluster_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/test/rig"
)

// probe is what a node's health service answers; status 0: it isn't there.
func probe(address, path string) (status int, text string) {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, strings.TrimSpace(string(body))
}

// TestK8S06WithoutAQuorumANodeLivesOn: alone it is alive, isn't ready and says why, allows nothing, and is still the same
// process when the others are back.
func TestK8S06WithoutAQuorumANodeLivesOn(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(3)})
	front := n.Gateway(t).Line(t, "http ")
	alone := names[1]
	health := n.Process[alone].Line(t, "health ")
	rig.Eventually(t, "a whole cluster", func() bool { status, _ := probe(health, "/readyz"); return status == http.StatusOK })
	n.Kill(t, rig.Others(alone)...)
	rig.Eventually(t, "it not to be ready", func() bool {
		status, why := probe(health, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(why, "has no leader that this node knows")
	})
	l := newLedger(3)
	var asking sync.WaitGroup
	for i := range 20 { // accounts of all partitions
		asking.Go(func() { l.get(t, front, fmt.Sprintf("account-%d", i)) })
	}
	asking.Wait()
	if status, text := probe(health, "/livez"); status != http.StatusOK {
		t.Errorf("it passes for dead: %d %s", status, text)
	}
	if told := l.told() + l.denials; told != 0 {
		t.Errorf("%d decisions without a majority", told)
	}
	if !n.Running(alone) {
		t.Fatal("it has ended")
	}
	n.Begin(t, rig.Others(alone)...)
	rig.Eventually(t, "it to be ready again", func() bool { status, _ := probe(health, "/readyz"); return status == http.StatusOK })
}

// TestWhoIsToldToStopSaysSoFirst: a node isn't ready from the signal on, hands over what it leads, and answers until it
// has. A connection that says nothing keeps it from ending meanwhile, so that there is time to look.
func TestWhoIsToldToStopSaysSoFirst(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(3), Partitions: 1})
	leader := n.Leader(t, 0)
	p := n.Process[leader]
	health := p.Line(t, "health ")
	rig.Eventually(t, "it to be ready", func() bool { status, _ := probe(health, "/readyz"); return status == http.StatusOK })
	silent, err := net.Dial("tcp", n.GRPC[leader])
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p.Signal(t, syscall.SIGTERM)
	rig.Eventually(t, "it to say that it stops", func() bool {
		status, why := probe(health, "/readyz")
		if status == 0 {
			t.Fatalf("it is gone, and hasn't said so: %s", why)
		}
		return status == http.StatusServiceUnavailable && why == "it stops"
	})
	if status, text := probe(health, "/livez"); status != http.StatusOK {
		t.Errorf("while it stops it passes for dead: %d %s", status, text)
	}
	rig.Eventually(t, "another one to lead", func() bool {
		for _, by := range rig.Others(leader) {
			if list := n.Status(t, by).GetPartitions(); len(list) == 0 || slices.Contains([]string{"", leader}, list[0].GetRoute().GetLeader()) {
				return false
			}
		}
		return true
	})
	silent.Close()
	if status := p.Wait(t); status != 0 {
		t.Errorf("it ends with status %d\n%s", status, p.Stderr.String())
	}
}

// TestAGatewayThatNobodyAsksEndsWhenTold, with callers' connections open: what it would wait for in vain makes its status
// another one.
func TestAGatewayThatNobodyAsksEndsWhenTold(t *testing.T) {
	t.Parallel()
	n := found(t, rig.Shape{Policies: hourlyText(3), Plain: true})
	g := n.Gateway(t)
	for _, at := range []string{g.Line(t, "http ") + "/check?principal=u1&api_class=" + apiClass, g.Line(t, "health ") + "/readyz"} {
		if status, text := probe(at, ""); status != http.StatusOK { // which leaves a connection, for the next one
			t.Fatalf("%s: %d %s", at, status, text)
		}
	}
	c, err := client.Dial(g.Line(t, "grpc "), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // the other end has gone
	q := &quotav1.CheckRequest{Domain: domain, Descriptors: []*quotav1.Descriptor{descriptorOf("u1")}}
	if a, err := c.Check(t.Context(), q); err != nil || a.GetDecision() != quotav1.Decision_DECISION_ALLOW {
		t.Fatalf("%v, %v", a, err)
	}
	if status := g.Terminate(t, syscall.SIGTERM); status != 0 {
		t.Errorf("it ends with status %d\n%s", status, g.Stderr.String())
	}
}

// mounted is a folder of certificates as Kubernetes mounts Secrets: files are links into ..data, which is a link to the
// folder of the present ones.
type mounted struct {
	folder string
	serial int
}

// put has the files of a folder take the places of those before, all at once.
func (m *mounted) put(t *testing.T, files map[string]string) {
	t.Helper()
	m.serial++
	now := fmt.Sprintf("..2027_01_0%d", m.serial)
	if err := os.MkdirAll(filepath.Join(m.folder, now), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		rig.Write(t, filepath.Join(m.folder, now, name), text)
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(m.folder, name)); err != nil && m.serial == 1 {
			t.Fatal(err)
		}
	}
	next, data := filepath.Join(m.folder, "..data_tmp"), filepath.Join(m.folder, "..data")
	was, _ := os.Readlink(data) // none, the first time
	if err := os.Symlink(now, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, data); err != nil {
		t.Fatal(err)
	}
	if was != "" {
		if err := os.RemoveAll(filepath.Join(m.folder, was)); err != nil {
			t.Fatal(err)
		}
	}
}

// secrets reads what a pod is given: the CAs, and the certificates of all nodes.
func secrets(t *testing.T, folder string, cas ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, ca := range append(cas, folder) {
		files["ca.crt"] += text(t, filepath.Join(ca, "ca.crt"))
	}
	for _, name := range names {
		for _, file := range []string{name + ".crt", name + ".key"} {
			files[file] = text(t, filepath.Join(folder, file))
		}
	}
	return files
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestNodesInPods: one file for all, what differs by flags, no zone, and certificates that are replaced as Kubernetes
// replaces them. Processes that were there all the time show the new ones.
func TestNodesInPods(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	programs.Issue(t, first)
	programs.Issue(t, second)
	mount := mounted{folder: filepath.Join(dir, "tls")}
	mount.put(t, secrets(t, first, second)) // which believe the second CA already

	grpc := map[string]string{}
	config := "nodes:\n"
	for _, name := range names {
		grpc[name] = rig.FreeAddress(t)
		config += fmt.Sprintf("- {name: %s, links: '%s', grpc: '%s'}\n", name, rig.FreeAddress(t), grpc[name])
	}
	config += "listen: {health: '127.0.0.1:0'}\nelection: 400ms\nlogLevel: info\ntls: {ca: " + filepath.Join(mount.folder, "ca.crt") + "}\n"
	file := filepath.Join(dir, "node.yaml")
	rig.Write(t, file, config)
	pods := map[string]*rig.Process{}
	for _, name := range names {
		pods[name] = programs.Launch(t, "quotanode", "run", "--config="+file, "--name="+name, "--zone=", "--data-dir="+filepath.Join(dir, "disk-"+name),
			"--cert="+filepath.Join(mount.folder, name+".crt"), "--key="+filepath.Join(mount.folder, name+".key"))
	}
	whole := func(certs string) bool {
		status, _ := programs.Quotactl(t, slices.Concat([]string{"status", "--server", strings.Join([]string{grpc["n1"], grpc["n2"], grpc["n3"]}, ",")},
			rig.FlagsOf(rig.FilesIn(certs, "reader")))...)
		return status == 0
	}
	for _, name := range names {
		pods[name].Ready(t)
	}
	rig.Eventually(t, "a whole cluster", func() bool { return whole(first) })
	if whole(second) {
		t.Fatal("whoever believes the second CA alone believes the first one's certificates")
	}
	mount.put(t, secrets(t, second, first))
	rig.Eventually(t, "all to take the other certificates", func() bool {
		for _, name := range names {
			if !strings.Contains(pods[name].Stderr.String(), "other certificates are in force") {
				return false
			}
		}
		return true
	})
	rig.Eventually(t, "a whole cluster, of the second CA", func() bool { return whole(second) })
}
