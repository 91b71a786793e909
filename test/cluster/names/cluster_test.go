package names_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/api/client"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/server"
	"github.com/quorate/quorate/test/rig"
)

// service is the domain of the pods' names.
const service = ".quorate-nodes.limits.svc.cluster.local"

// pods are nodes that know one another by name alone. Each start gives a pod another IP address and the same ports.
type pods struct {
	t       *testing.T
	dir     string
	running map[string]*pod
	ports   map[string][2]int // of links and gRPC
	starts  byte
}

type pod struct {
	*node.Node
	server *server.Server
	at     net.IP
}

func newPods(t *testing.T) *pods {
	t.Helper()
	p := &pods{t: t, dir: t.TempDir(), running: map[string]*pod{}, ports: map[string][2]int{}}
	programs.Issue(t, p.certs())
	for _, name := range rig.Names() {
		p.ports[name] = [2]int{port(t), port(t)}
	}
	t.Cleanup(func() {
		for name := range p.running {
			p.stop(name)
		}
	})
	return p
}

func (p *pods) certs() string { return filepath.Join(p.dir, "certs") }

func port(t *testing.T) int {
	t.Helper()
	_, digits, err := net.SplitHostPort(rig.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// address is where others look for a pod: 0, its links; 1, its gRPC services.
func (p *pods) address(name string, which int) string {
	return net.JoinHostPort(name+service, strconv.Itoa(p.ports[name][which]))
}

func (p *pods) addresses() (list []string) {
	for _, name := range rig.Names() {
		list = append(list, p.address(name, 1))
	}
	return list
}

// start starts a pod at an IP address of its own, which nobody's name stands for yet.
func (p *pods) start(name string) {
	p.t.Helper()
	p.starts++
	at := net.IPv4(127, 77, p.starts, byte(len(name)))
	listen := func(which int) net.Listener {
		l, err := net.Listen("tcp", net.JoinHostPort(at.String(), strconv.Itoa(p.ports[name][which])))
		if err != nil {
			p.t.Fatal(err)
		}
		return l
	}
	keeper, err := access.Open(rig.FilesIn(p.certs(), name), time.Now, access.IsNode(name))
	if err != nil {
		p.t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	cfg := node.Config{
		Name: name, Dir: filepath.Join(p.dir, name), Keeper: keeper, Links: listen(0), Registry: registry,
		Log: slog.New(slog.DiscardHandler), Timing: node.Timing{Election: 400 * time.Millisecond},
	}
	for _, other := range rig.Names() {
		cfg.Nodes = append(cfg.Nodes, node.Address{Name: other, Links: p.address(other, 0), GRPC: p.address(other, 1)})
	}
	n, err := node.Open(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	s := server.New(server.Config{
		Decider: n, Cluster: n, Member: n, Access: keeper, Domains: n.Domains, Monotonic: n.Monotonic, Ready: n.Ready, Alive: n.Alive,
		Log: cfg.Log, Registry: registry,
	})
	s.Start(server.Listeners{GRPC: listen(1)})
	p.running[name] = &pod{Node: n, server: s, at: at}
}

// stop ends a pod and its name.
func (p *pods) stop(name string) {
	p.t.Helper()
	dns.set(name+service, nil)
	pod := p.running[name]
	delete(p.running, name)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	pod.HandOver()
	if err := pod.server.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		p.t.Errorf("stop %s: %v", name, err)
	}
	if err := pod.Close(); err != nil {
		p.t.Errorf("stop %s: %v", name, err)
	}
}

// publish has a pod's name stand for where it is.
func (p *pods) publish(names ...string) {
	for _, name := range names {
		dns.set(name+service, p.running[name].at)
	}
}

// allUp waits until every pod is up and ready, and none has ended.
func (p *pods) allUp() {
	p.t.Helper()
	rig.Eventually(p.t, "all pods up", func() bool {
		for name, pod := range p.running {
			p.lives(name)
			ok, _ := pod.Ready()
			if state, _ := pod.State(); state != "up" || !ok || !pod.Leading() {
				return false
			}
		}
		return true
	})
}

// lives says that a pod has not ended: nothing has to start it anew.
func (p *pods) lives(name string) {
	p.t.Helper()
	select {
	case err := <-p.running[name].Failed():
		p.t.Fatalf("%s ends: %v", name, err)
	default:
	}
}

// asker is a client of the cluster, and admin a tool, both by the pods' names.
func (p *pods) asker() *client.Client {
	p.t.Helper()
	return rig.Dialed(p.t, client.Config{Addresses: p.addresses(), TLS: rig.Dialing(p.t, rig.FilesIn(p.certs(), "gateway"))})
}

func (p *pods) admin() *client.Admin {
	p.t.Helper()
	a, err := client.NewAdmin(p.addresses(), rig.Dialing(p.t, rig.FilesIn(p.certs(), "policy-writer")))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = a.Close() }) // nothing is in flight
	return a
}

// decides waits until a user's check is decided, and holds it to what it should be. Each has an id of its own, and is
// asked again under it where it isn't decided.
func (p *pods) decides(c *client.Client, user string, want quotav1.Decision) {
	p.t.Helper()
	q := &quotav1.CheckRequest{Descriptors: []*quotav1.Descriptor{{Entries: []*quotav1.Entry{{Name: "principal", Value: []byte(user)}}}}}
	id := make([]byte, 16)
	copy(id, fmt.Sprintf("%s-%d", user, time.Now().UnixNano()))
	q.DecisionId = id
	rig.Eventually(p.t, "a decision for "+user, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		a, err := c.Check(ctx, q)
		if err == nil && a.GetDecision() != want {
			p.t.Fatalf("%s: %v, want %v", user, a.GetDecision(), want)
		}
		return err == nil
	})
}

const threePerHour = `policies:
- name: conversions
  domain: video-api
  key: [principal]
  limits:
  - {name: hourly, rollingWindow: {limit: 3, window: 1h}}
`

// apply puts the policies in force.
func (p *pods) apply(a *client.Admin) {
	p.t.Helper()
	rig.Eventually(p.t, "the policies in force", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r, err := a.Apply(ctx, []byte(threePerHour), nil)
		return err == nil && len(r.GetProblems()) == 0
	})
}

// complete waits until all partitions are confirmed.
func (p *pods) complete(a *client.Admin) {
	p.t.Helper()
	rig.Eventually(p.t, "all partitions confirmed", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		e, err := a.Enforced(ctx)
		return err == nil && e.Complete()
	})
}

const (
	allow = quotav1.Decision_DECISION_ALLOW
	deny  = quotav1.Decision_DECISION_DENY
)

// K8S-02: names that don't resolve, then some of them, then all. Nobody ends meanwhile, or begins alone. Once they are
// connected they do without a name server.
func TestK8S02NodesWaitForTheirNames(t *testing.T) {
	p := newPods(t)
	for _, name := range rig.Names() {
		p.start(name)
	}
	c, a := p.asker(), p.admin()
	waiting := func(unknown ...string) {
		t.Helper()
		for _, name := range unknown {
			_, before := dns.asked(name + service)
			rig.Eventually(t, "the nodes to look for "+name+" again", func() bool {
				_, now := dns.asked(name + service)
				return now > before+4
			})
		}
		for name, pod := range p.running {
			p.lives(name)
			if state, detail := pod.State(); state != "founding" {
				t.Fatalf("%s is %s: %s", name, state, detail)
			}
			if ok, why := pod.Ready(); !ok { // or the others would never be started
				t.Errorf("%s isn't ready: %s", name, why)
			}
		}
	}
	waiting("n1", "n2", "n3")
	p.publish("n1")
	waiting("n2", "n3")
	p.publish("n2", "n3")
	p.allUp()
	p.apply(a)
	for _, want := range []quotav1.Decision{allow, allow, allow, deny} {
		p.decides(c, "u1", want)
	}
	p.complete(a)
	for _, name := range rig.Names() {
		dns.set(name+service, nil)
	}
	p.complete(a)
	p.decides(c, "u2", allow)
}

// K8S-01: one pod comes back at another IP address, then all of them. Nodes, a client and a tool that were there all the
// time find them by their names, and nothing is forgotten.
func TestK8S01PodsComeBackAtOtherAddresses(t *testing.T) {
	p := newPods(t)
	for _, name := range rig.Names() {
		p.start(name)
		p.publish(name)
	}
	c, a := p.asker(), p.admin()
	p.allUp()
	p.apply(a)
	for _, want := range []quotav1.Decision{allow, allow, allow, deny} {
		p.decides(c, "u1", want)
	}
	for _, name := range rig.Names() {
		was := p.running[name].at
		p.stop(name)
		p.start(name)
		if p.running[name].at.Equal(was) {
			t.Fatalf("%s is at %v again", name, was)
		}
		p.publish(name)
		p.allUp()
		p.complete(a)
		p.decides(c, "u1", deny)
	}
	for _, name := range rig.Names() {
		p.stop(name)
	}
	for _, name := range rig.Names() {
		p.start(name)
	}
	p.publish(rig.Names()...)
	p.allUp()
	p.complete(a)
	p.decides(c, "u1", deny)
	p.decides(c, "u2", allow)
}
