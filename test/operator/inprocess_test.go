package operator_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	quorate "github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/node"
	"github.com/quorate/quorate/internal/operator"
	"github.com/quorate/quorate/internal/server"
	"github.com/quorate/quorate/test/rig"
)

// trio is three real nodes in this process.
type trio struct {
	t           *testing.T
	dir         string
	links, grpc map[string]string

	mu      sync.Mutex
	cut     string // a node whose links are cut
	conns   map[string][]net.Conn
	running map[string]*member
}

type member struct {
	*node.Node
	server *server.Server
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	tr := &trio{t: t, dir: t.TempDir(), links: map[string]string{}, grpc: map[string]string{}, conns: map[string][]net.Conn{}, running: map[string]*member{}}
	for _, name := range rig.Names() {
		tr.links[name], tr.grpc[name] = rig.FreeAddress(t), rig.FreeAddress(t)
	}
	for _, name := range rig.Names() {
		tr.start(name)
	}
	t.Cleanup(func() {
		for name := range tr.running {
			tr.stop(name)
		}
	})
	return tr
}

func (tr *trio) listen(address string) net.Listener {
	tr.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		tr.t.Fatal(err)
	}
	return l
}

func (tr *trio) start(name string) {
	tr.t.Helper()
	cfg := node.Config{
		Name: name, Dir: filepath.Join(tr.dir, name), Timing: node.Timing{Election: 500 * time.Millisecond, Balance: time.Hour},
		Links: tr.listen(tr.links[name]), Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		DialLink: func(ctx context.Context, to string) (net.Conn, error) { return tr.dial(ctx, name, to) },
	}
	for _, n := range rig.Names() {
		cfg.Nodes = append(cfg.Nodes, node.Address{Name: n, Links: tr.links[n], GRPC: tr.grpc[n]})
	}
	n, err := node.Open(cfg)
	if err != nil {
		tr.t.Fatal(err)
	}
	s := server.New(server.Config{
		Decider: n, Cluster: n, Member: n, Domains: n.Domains, Monotonic: n.Monotonic, Ready: n.Ready, Alive: n.Alive,
		Log: cfg.Log, Registry: cfg.Registry.(*prometheus.Registry),
	})
	s.Start(server.Listeners{GRPC: tr.listen(tr.grpc[name]), Ops: tr.listen("127.0.0.1:0")})
	tr.running[name] = &member{n, s}
}

func (tr *trio) dial(ctx context.Context, from, to string) (net.Conn, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.cut == from || tr.cut == to {
		return nil, errors.New("cut")
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", tr.links[to])
	if err == nil {
		tr.conns[from], tr.conns[to] = append(tr.conns[from], c), append(tr.conns[to], c)
	}
	return c, err
}

// isolate cuts a node off from the others; it still answers whoever asks it.
func (tr *trio) isolate(name string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.cut = name
	for _, c := range tr.conns[name] {
		c.Close()
	}
}

func (tr *trio) stop(name string) {
	tr.t.Helper()
	m := tr.running[name]
	delete(tr.running, name)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	// Watches of other nodes are broken off.
	if err := errors.Join(m.Close(), m.server.Stop(ctx)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		tr.t.Errorf("stop %s: %v", name, err)
	}
}

// play is an operator before real nodes, with an API server that is played.
type play struct {
	t    *testing.T
	kube client.Client
	r    *operator.Reconciler
}

func newPlay(t *testing.T, addresses ...string) *play {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := operator.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(asStored(t, policy("p 0"))).Build()
	nodes := adminOf(t, addresses...)
	return &play{t, kube, operator.New(operator.Config{
		Nodes:     func(context.Context) (operator.Nodes, error) { return nodes, nil },
		Namespace: system, Log: slog.New(slog.DiscardHandler), Metrics: operator.NewMetrics(prometheus.NewRegistry()),
		Settle: time.Millisecond,
	}, kube, &events.FakeRecorder{})}
}

// adminOf asks nodes on this machine.
func adminOf(t *testing.T, addresses ...string) *quorate.Admin {
	t.Helper()
	admin, err := quorate.NewAdmin(addresses, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	})
	return admin
}

// asStored is an object as the API server has it: the operator has no Go type for its spec.
func asStored(t *testing.T, o *v1alpha1.RateLimitPolicy) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	stored := &unstructured.Unstructured{Object: fields}
	stored.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind))
	return stored
}

func (p *play) get(name string) (*v1alpha1.RateLimitPolicy, error) {
	o := policy(name + " 0")
	stored := asStored(p.t, o)
	if err := p.kube.Get(p.t.Context(), client.ObjectKeyFromObject(o), stored); err != nil {
		return nil, err
	}
	return o, runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, o)
}

func (p *play) apply(line string) {
	p.t.Helper()
	o := policy(line)
	was, err := p.get(o.Name)
	if err == nil {
		was.Spec = o.Spec
		was.Generation++
		err = p.kube.Update(p.t.Context(), asStored(p.t, was))
	} else {
		o.UID, o.Generation, o.CreationTimestamp = types.UID(line), 1, metav1.NewTime(time.Unix(1, 0))
		err = p.kube.Create(p.t.Context(), asStored(p.t, o))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// await reconciles until an object's status says so.
func (p *play) await(name, want string) {
	p.t.Helper()
	var last error
	got := ""
	defer func() { p.t.Logf("%s: %s, %v", name, got, last) }()
	eventually(p.t, name+": "+want, func() bool {
		_, last = p.r.Reconcile(p.t.Context(), reconcile.Request{})
		o, err := p.get(name)
		if err != nil {
			p.t.Fatal(err)
		}
		got = says(o)
		return got == want
	})
}

// TestRealNodesConfirmWhatIsInForce: all of it, through a handover, not without a majority, and again once there is one.
func TestRealNodesConfirmWhatIsInForce(t *testing.T) {
	inTurn(t)
	tr := newTrio(t)
	p := newPlay(t, tr.grpc["n1"], tr.grpc["n2"], tr.grpc["n3"])
	p.apply("p 3")
	p.await("p", "Accepted Programmed 1 3/3")
	tr.stop("n1") // the first to be asked
	p.apply("p 4")
	p.await("p", "Accepted Programmed 2 3/3")
	tr.stop("n2")
	p.await("p", "Accepted Unreachable 2 0/3")
	tr.start("n2")
	p.await("p", "Accepted Programmed 2 3/3")
}

// TestANodeThatIsCutOffMisleadsNobody: it answers, with the set of before, and is passed over; a partition that is led by
// nobody else isn't confirmed by it.
func TestANodeThatIsCutOffMisleadsNobody(t *testing.T) {
	inTurn(t)
	tr := newTrio(t)
	p := newPlay(t, tr.grpc["n1"], tr.grpc["n2"], tr.grpc["n3"])
	p.apply("p 3")
	p.await("p", "Accepted Programmed 1 3/3")
	tr.isolate("n1")
	p.apply("p 4")
	p.await("p", "Accepted Programmed 2 3/3")
	p.apply("p 5")
	p.await("p", "Accepted Programmed 3 3/3")
	_, version, _ := tr.running["n1"].Policies()
	if version.GetNumber() != 1 {
		t.Fatalf("the node that is cut off has version %v", version)
	}
}

// TestANodeThatIsBehindIsPassedOver when a newer version is known to be in force.
func TestANodeThatIsBehindIsPassedOver(t *testing.T) {
	inTurn(t)
	tr := newTrio(t)
	p := newPlay(t, tr.grpc["n1"], tr.grpc["n2"], tr.grpc["n3"])
	p.apply("p 3")
	p.await("p", "Accepted Programmed 1 3/3")
	tr.isolate("n1")
	p.apply("p 4")
	p.await("p", "Accepted Programmed 2 3/3")
	all, one := adminOf(t, tr.grpc["n1"], tr.grpc["n2"]), adminOf(t, tr.grpc["n1"])
	want := &quotav1.SetVersion{Epoch: 1, Number: 2}
	eventually(t, "the other node to have it", func() bool {
		_, v, _, err := all.Policies(t.Context(), want)
		return err == nil && v.GetNumber() == 2
	})
	if _, v, _, err := one.Policies(t.Context(), want); err == nil {
		t.Errorf("an older set is taken: %v", v)
	}
}
