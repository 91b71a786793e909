package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	quorate "github.com/quorate/quorate/api/client"
	"github.com/quorate/quorate/api/policy/v1alpha1"
	quotav1 "github.com/quorate/quorate/api/quota/v1"
	"github.com/quorate/quorate/internal/policy"
)

// Config is what an operator needs. All fields but those with a default are required.
type Config struct {
	Nodes     func(context.Context) (Nodes, error) // the way to them, as soon as there is one
	Domains   []policy.Domain                      // of the policy set, as a policy file has them; may be none
	Allowed   map[string][]string                  // domains that a namespace may use beside that of its own name; may be none
	Namespace string                               // the operator's own
	Resync    time.Duration                        // how often everything is looked at though no event came; default 60 s
	Settle    time.Duration                        // how long a policy has to be without an object until it is removed; default 10 s
	Timeout   time.Duration                        // bound of one reconcile; default 2 min
	Log       *slog.Logger
	Metrics   *Metrics
	Now       func() time.Time // default time.Now
}

// What one reconcile takes at most for its parts.
const (
	defaultResync  = time.Minute
	defaultSettle  = 10 * time.Second
	defaultTimeout = 2 * time.Minute
	applyWithin    = 30 * time.Second // nodes wait that long for the last partition
	atOnce         = time.Millisecond // until the next look, after something was changed
	soon           = 2 * time.Second  // where something is under way
	later          = 10 * time.Second // where it has been for long
	patient        = 15 * time.Second // with a partition that isn't confirmed: an election, and a bit
	maxRounds      = 10               // of refusals
	maxActs        = 5                // changes of the set in a row, until all statuses are looked at
	observeShare   = 3                // of the time for all of it, to hear what is in force
)

// Reconciler brings the nodes' policies in line with the objects. One reconcile runs at a time.
type Reconciler struct {
	cfg    Config
	client client.Client // has no cache
	events events.EventRecorder

	readings map[types.UID]reading
	refused  map[types.UID]int64 // the generations that the nodes refused last time
	memory   memory
	force    *force // as last seen
	missed   map[name]time.Time
	of       int       // as in world
	parted   time.Time // since when a partition hasn't been confirmed; zero: all are
	acts     int       // passes in a row that changed the set
}

// New returns a reconciler. What its client reads has to come from the API server itself.
func New(cfg Config, direct client.Client, recorder events.EventRecorder) *Reconciler {
	for field, value := range map[*time.Duration]time.Duration{&cfg.Resync: defaultResync, &cfg.Settle: defaultSettle, &cfg.Timeout: defaultTimeout} {
		if *field == 0 {
			*field = value
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Reconciler{cfg: cfg, client: direct, events: recorder}
}

// pass is one reconcile.
type pass struct {
	*Reconciler
	nodes   Nodes
	objects []*declared
	world   world
	plan    *plan
	seen    *observation
	shown   *corev1.ConfigMap // of held removals, as it was
	acting  bool              // the set is about to change
}

// Reconcile looks at everything; which event it was makes no difference. Where it has changed something it looks again at
// once: a status says what the nodes were heard to enforce.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	p := &pass{Reconciler: r}
	// The nodes come first: a set goes only in the place of the one that was seen, so whoever made that one can't have known newer
	// objects. The other way round one that stood still in between, and leads no more, would put an old limit in the place of a new one.
	unseen := p.observe(ctx)
	err := p.list(ctx)
	if err != nil {
		return reconcile.Result{}, errors.Join(unseen, err)
	}
	if p.shown, err = r.held(ctx); err != nil {
		return reconcile.Result{}, errors.Join(unseen, err)
	}
	p.world = world{
		domains: r.cfg.Domains, allowed: r.cfg.Allowed, missed: r.missed, now: r.cfg.Now(), settle: r.cfg.Settle, refused: map[name]string{},
		of: cmp.Or(shownOf(p.shown), r.of), confirmed: confirmation(p.shown), holding: p.shown != nil,
	}
	if unseen != nil {
		return reconcile.Result{}, errors.Join(unseen, p.blind(ctx))
	}
	after, err := p.bring(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.cfg.Metrics.success.Set(float64(r.cfg.Now().Unix()))
	return reconcile.Result{RequeueAfter: after}, nil
}

// observe asks the nodes, and leaves time to say of each object that none answers.
func (p *pass) observe(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout/observeShare)
	defer cancel()
	if p.nodes, err = p.cfg.Nodes(ctx); err != nil {
		return fmt.Errorf("reach the nodes: %w", err)
	}
	p.seen, err = observe(ctx, p.nodes, p.force)
	return err
}

// bring puts in force what the plan says, or says of each object what became of it, and when to look again.
func (p *pass) bring(ctx context.Context) (again time.Duration, err error) {
	p.take(p.seen.force)
	p.missed, p.of = p.plan.missed, p.plan.removals.of
	// What is held is written down before the set grows: whoever comes after a crash has to hold it too.
	if p.plan.removals.held {
		if err := p.show(ctx, p.shown, &p.plan.removals); err != nil {
			return 0, err
		}
	}
	if p.plan.changes(p.seen.force) {
		// First each object learns that its revision is accepted: so whoever comes after a crash knows which one may be in force.
		// All others wait, but not for ever, for a pass that changes nothing.
		p.acting = p.acts < maxActs
		if err := p.write(ctx); err != nil {
			p.cfg.Log.Warn("not every object learned what is asked for", "error", err)
		}
		applied, err := p.act(ctx)
		switch {
		case err != nil:
			return 0, err
		case applied:
			p.memory.see(p.objects, p.readings, p.force) // from these objects, which may change before the next look
			p.refused, p.acts = p.refusals(), (p.acts+1)%(maxActs+1)
			return atOnce, nil
		}
		p.acting, p.refused = false, p.refusals()
	}
	p.acts = 0
	p.cfg.Metrics.nodes(p.seen, &p.plan.removals)
	if p.unsettled() {
		return soon, nil
	}
	if err := p.write(ctx); err != nil || p.plan.removals.held {
		return p.next(), err
	}
	return p.next(), p.show(ctx, p.shown, &p.plan.removals)
}

// unsettled says that a partition isn't confirmed, and hasn't been for so short a time that nothing is said of it yet.
func (p *pass) unsettled() bool {
	switch {
	case p.seen.everywhere():
		p.parted = time.Time{}
		return false
	case p.parted.IsZero():
		p.parted = p.world.now
	}
	return p.world.now.Sub(p.parted) < patient
}

// take takes in the set in force, and plans from there.
func (p *pass) take(f *force) {
	if p.force != nil && p.force.cluster != f.cluster {
		p.memory = memory{} // of another one
	}
	p.force = f
	p.memory.see(p.objects, p.readings, f)
	p.world.force = f
	for _, o := range p.objects {
		p.world.objects = append(p.world.objects, &object{
			name: o.at(), reading: p.readings[o.UID], created: o.CreationTimestamp.Time,
			begun: p.memory.objects[o.UID].generation > 0,
		})
	}
	p.plan = makePlan(&p.world)
}

// blind says of each object that no node tells what is in force.
func (p *pass) blind(ctx context.Context) error {
	p.take(cmp.Or(p.force, newForce(policy.Set{}, quorate.Version{})))
	p.cfg.Metrics.confirmed.Set(0)
	return p.write(ctx)
}

// act has the nodes put the plan's set in force, and reports whether they have. What they have against an object's revision
// sends that back into the plan: the object keeps what it had, and the rest goes on.
func (p *pass) act(ctx context.Context) (applied bool, err error) {
	for range maxRounds {
		response, err := p.apply(ctx)
		switch {
		case err != nil:
			return false, err
		case len(response.GetProblems()) == 0:
			p.force = newForce(p.plan.set, quorate.VersionOf(response.GetVersion()))
			p.force.cluster = p.seen.force.cluster
			return true, nil
		}
		if err := p.reconsider(response.GetProblems()); err != nil || !p.plan.changes(p.seen.force) {
			return false, err
		}
	}
	return false, errors.New("the nodes go on refusing sets: left for the next time")
}

// apply sends the plan's set to the nodes.
func (p *pass) apply(ctx context.Context) (*quotav1.ApplyPoliciesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	result := "failed"
	defer func() { p.cfg.Metrics.applies.WithLabelValues(result).Inc() }()
	response, err := p.nodes.Apply(ctx, p.plan.set.Canonical(), &quotav1.ApplyOptions{Expected: p.seen.force.version.Message()})
	switch {
	case err != nil:
		return nil, fmt.Errorf("apply the policies: %w", err)
	case len(response.GetProblems()) > 0:
		result = "refused"
	case response.GetVersion().GetNumber() == 0:
		return nil, errors.New("apply the policies: the node names no version of them")
	default:
		result = "changed"
		p.cfg.Log.Info("policies applied", "version", quorate.VersionOf(response.GetVersion()).String(), "policies", len(p.plan.set.Policies))
	}
	return response, nil
}

// reconsider makes another plan, without what the nodes refuse.
func (p *pass) reconsider(problems []*quotav1.PolicyProblem) error {
	refused, remain := p.plan.withhold(problems)
	switch {
	case len(refused) > 0:
	case p.plan.removals.gone: // as where too many deletions are remembered
		p.world.keepAll = true
	default:
		return fmt.Errorf("the nodes refuse the set of policies: %s", strings.Join(remain, "; "))
	}
	maps.Copy(p.world.refused, refused)
	p.plan = makePlan(&p.world)
	return nil
}

// refusals are the generations that the nodes refuse.
func (p *pass) refusals() map[types.UID]int64 {
	all := map[types.UID]int64{}
	for _, o := range p.objects {
		if _, refused := p.world.refused[o.at()]; refused {
			all[o.UID] = o.Generation
		}
	}
	return all
}

// next is when to look again.
func (p *pass) next() time.Duration {
	after := p.cfg.Resync
	if wait := p.plan.removals.wait; wait > 0 {
		after = min(after, wait)
	}
	if !p.seen.everywhere() {
		after = min(after, later)
	}
	return after
}

// tell tells of the conditions that say something else than before. What is on the way is no news.
func (r *Reconciler) tell(o *declared, after *v1alpha1.RateLimitPolicyStatus) {
	for _, c := range after.Conditions {
		was := meta.FindStatusCondition(o.Status.Conditions, c.Type)
		if c.Reason == v1alpha1.ReasonPending || was != nil && was.Status == c.Status && was.Reason == c.Reason {
			continue
		}
		kind := corev1.EventTypeNormal
		if c.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		r.events.Eventf(o, nil, kind, c.Reason, c.Type, "%s", c.Message)
	}
}
