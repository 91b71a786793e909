package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	quotav1 "github.com/quorate/quorate/api/quota/v1"

	quorate "github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/internal/policy"
)

// cluster plays nodes: policies are judged as nodes judge them, and partitions follow unless they are cut off.
type cluster struct {
	mu         sync.Mutex
	set        policy.Set
	version    quorate.Version
	gone       []policy.Tombstone
	enforce    map[uint32]quorate.Version
	cut, stuck map[uint32]bool // nobody confirms these; these follow no more
	away       bool            // no node answers
	id         string          // of the cluster
	meanwhile  func()          // runs before the next set is taken
	applies    int
	atLeast    quorate.Version // as last asked for
}

const partitions = 3

func newCluster() *cluster {
	return &cluster{enforce: map[uint32]quorate.Version{}, cut: map[uint32]bool{}, stuck: map[uint32]bool{}}
}

var errAway = status.Error(codes.Unavailable, "no node answers")

// Enforced is part of [Nodes].
func (c *cluster) Enforced(context.Context) (*quorate.Enforced, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, errAway
	}
	e := &quorate.Enforced{Cluster: []byte(c.id), Partitions: partitions, Versions: map[uint32]*quotav1.SetVersion{}}
	for p := range uint32(partitions) {
		if !c.cut[p] {
			e.Versions[p] = c.enforce[p].Message()
		}
	}
	return e, nil
}

// Policies is part of [Nodes].
func (c *cluster) Policies(_ context.Context, atLeast *quotav1.SetVersion) ([]byte, *quotav1.SetVersion, []*quotav1.PartitionVersion, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, nil, nil, errAway
	}
	c.atLeast = quorate.VersionOf(atLeast)
	if c.version == (quorate.Version{}) {
		return nil, nil, nil, nil
	}
	return c.set.Canonical(), c.version.Message(), nil, nil
}

// Apply is part of [Nodes].
func (c *cluster) Apply(_ context.Context, text []byte, o *quotav1.ApplyOptions) (*quotav1.ApplyPoliciesResponse, error) {
	if hook := c.meanwhile; hook != nil {
		c.meanwhile = nil
		hook()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applies++
	switch {
	case c.away:
		return nil, errAway
	case o.GetExpected() != nil && quorate.VersionOf(o.GetExpected()) != c.version:
		return nil, status.Error(codes.Aborted, "another version of the policy set is in force")
	}
	set, err := policy.ParseCanonical(text)
	if err != nil {
		return nil, err
	}
	if problems := append(set.Validate(), c.set.ChangeTo(set, c.gone)...); len(problems) > 0 {
		return &quotav1.ApplyPoliciesResponse{Problems: wireProblems(set, problems), Version: c.version.Message()}, nil
	}
	c.take(set)
	return &quotav1.ApplyPoliciesResponse{Version: c.version.Message(), Changed: true}, nil
}

func (c *cluster) take(set policy.Set) {
	for i := range c.set.Policies {
		p := &c.set.Policies[i]
		if newForce(set, quorate.Version{}).at(newForce(set, quorate.Version{}).byQuota, quotaOf(p)) == nil {
			c.gone = append(c.gone, policy.Tombstone{Frame: p.Frame()})
		}
	}
	c.set, c.version = set, quorate.Version{Epoch: 1, Number: c.version.Number + 1}
	for p := range uint32(partitions) {
		if !c.stuck[p] {
			c.enforce[p] = c.version
		}
	}
}

func wireProblems(set policy.Set, problems policy.Problems) (list []*quotav1.PolicyProblem) {
	for _, p := range problems {
		one := &quotav1.PolicyProblem{Field: p.Path, Reason: p.Message}
		if rest, found := strings.CutPrefix(p.Path, "policies["); found {
			number, field, _ := strings.Cut(rest, "]")
			i, _ := strconv.Atoi(number)
			one.Policy, one.Field = nameOf(&set.Policies[i]).String(), strings.TrimPrefix(field, ".")
		}
		list = append(list, one)
	}
	return list
}

// limits is what is in force, as in "a/p=3 a/q=5".
func (c *cluster) limits() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for i := range c.set.Policies {
		p := &c.set.Policies[i]
		list = append(list, fmt.Sprintf("%s=%d", nameOf(p), p.Limits[0].Amount))
	}
	return strings.Join(list, " ")
}

// rig is an operator between an API server and nodes, both played.
type rig struct {
	t      *testing.T
	kube   client.WithWatch
	nodes  *cluster
	r      *Reconciler
	events *events.FakeRecorder

	writes  int  // of statuses
	away    bool // the API server is
	serial  int
	metrics *prometheus.Registry
}

const own = "quorate-system"

func newRig(t *testing.T) *rig {
	t.Helper()
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, nodes: newCluster()}
	var mu sync.Mutex
	g.kube = fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(&declared{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				mu.Lock()
				g.writes++
				mu.Unlock()
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if g.away {
					return apierrors.NewServiceUnavailable("the API server is away")
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
	g.begin()
	return g
}

// of is the way to nodes that are there.
func of(n Nodes) func(context.Context) (Nodes, error) {
	return func(context.Context) (Nodes, error) { return n, nil }
}

// begin starts an operator, anew if there was one: it knows nothing of what the other one knew.
func (g *rig) begin() {
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	g.events, g.metrics = &events.FakeRecorder{Events: make(chan string, 10_000)}, prometheus.NewRegistry()
	g.r = New(Config{
		Nodes: of(g.nodes), Namespace: own, Log: log, Metrics: NewMetrics(g.metrics), Allowed: map[string][]string{"a": {"shared"}},
		Domains: []policy.Domain{{Name: "shared", OnNoMatchAllow: true}},
	}, g.kube, g.events)
}

// apply creates objects, or changes their specs: "namespace/name limit", where a limit of -1 is one that no policy may have.
func (g *rig) apply(lines ...string) {
	g.t.Helper()
	for _, line := range lines {
		at, amount, _ := strings.Cut(line, " ")
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil {
			g.t.Fatal(err)
		}
		g.edit(at, func(s *v1alpha1.RateLimitPolicySpec) { s.Limits = limits(n) })
	}
}

// limits are a rolling window of so much a minute.
func limits(n int64) []v1alpha1.Limit {
	return []v1alpha1.Limit{{Name: "l", RollingWindow: &v1alpha1.RollingWindow{Limit: n, Window: "1m"}}}
}

// edit changes an object's spec, as the API server does: with another generation. One that isn't there is created.
func (g *rig) edit(at string, change func(*v1alpha1.RateLimitPolicySpec)) {
	g.t.Helper()
	g.write(at, func(was json.RawMessage) any {
		spec := v1alpha1.RateLimitPolicySpec{}
		if was == nil {
			spec.Key = []v1alpha1.EntryName{"user"}
		} else if err := json.Unmarshal(was, &spec); err != nil {
			g.t.Fatal(err)
		}
		change(&spec)
		return spec
	})
}

// write gives an object another spec.
func (g *rig) write(at string, specOf func(was json.RawMessage) any) {
	g.t.Helper()
	namespace, name, _ := strings.Cut(at, "/")
	o := &declared{}
	err := g.kube.Get(g.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if err == nil {
		o.Spec = asJSON(specOf(o.Spec))
		o.Generation++
		err = g.kube.Update(g.t.Context(), o)
	} else if apierrors.IsNotFound(err) {
		g.serial++
		o = &declared{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Generation: 1, UID: types.UID(strconv.Itoa(g.serial)),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1_000+g.serial), 0)),
		}, Spec: asJSON(specOf(nil))}
		err = g.kube.Create(g.t.Context(), o)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// asJSON is what the API server makes of a spec.
func asJSON(spec any) json.RawMessage {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return text
}

func (g *rig) remove(list ...string) {
	g.t.Helper()
	for _, at := range list {
		if err := g.kube.Delete(g.t.Context(), g.object(at)); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *rig) object(at string) *declared {
	g.t.Helper()
	namespace, name, _ := strings.Cut(at, "/")
	o := &declared{}
	if err := g.kube.Get(g.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		g.t.Fatal(err)
	}
	return o
}

// once is one reconcile.
func (g *rig) once() (reconcile.Result, error) {
	g.t.Helper()
	return g.r.Reconcile(g.t.Context(), reconcile.Request{})
}

// rest reconciles until the operator has nothing to do before its next resync.
func (g *rig) rest() {
	g.t.Helper()
	for range 20 {
		result, err := g.once()
		if err != nil {
			g.t.Fatal(err)
		}
		if result.RequeueAfter >= defaultResync {
			return
		}
		<-time.After(result.RequeueAfter)
	}
}

// says is what an object's status says: "Accepted Programmed 1@1.1 3/3".
func (g *rig) says(at string) string {
	g.t.Helper()
	o := g.object(at)
	var words []string
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionProgrammed} {
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		if c == nil {
			return "nothing"
		}
		if c.ObservedGeneration != o.Generation || o.Status.ObservedGeneration != o.Generation {
			words = append(words, "(old)")
		}
		if isTrue := c.Reason == kind; isTrue != (c.Status == "True") {
			g.t.Errorf("%s: %s is %s by reason %s", at, kind, c.Status, c.Reason)
		}
		words = append(words, c.Reason)
	}
	if e := o.Status.Enforced; e != nil {
		words = append(words, fmt.Sprintf("%d@%s %s", e.Generation, e.Version, e.Partitions))
	}
	return strings.Join(words, " ")
}

func (g *rig) want(at, says string) {
	g.t.Helper()
	if got := g.says(at); got != says {
		g.t.Errorf("%s: %s, want %s", at, got, says)
	}
}

func (g *rig) inForce(want string) {
	g.t.Helper()
	if got := g.nodes.limits(); got != want {
		g.t.Errorf("in force is %q, want %q", got, want)
	}
}

func (g *rig) message(at, kind string) string {
	return meta.FindStatusCondition(g.object(at).Status.Conditions, kind).Message
}

// held is the ConfigMap of held removals, nil if there is none.
func (g *rig) held() *corev1.ConfigMap {
	g.t.Helper()
	m, err := g.r.held(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

// told are the events since the last call.
func (g *rig) told() (list []string) {
	for {
		select {
		case e := <-g.events.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

// metric is a gauge's value, of the series with these labels' values.
func (g *rig) metric(name string, labels ...string) float64 {
	g.t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(values, labels) {
				return m.GetGauge().GetValue()
			}
		}
	}
	g.t.Fatalf("no metric %s %v", name, labels)
	return 0
}

// series counts all series.
func (g *rig) series() (n int) {
	g.t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}
