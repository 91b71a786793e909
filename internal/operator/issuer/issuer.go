package issuer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	controllerName = "certificates"
	// rounds bounds how often one reconcile looks again after it has done something. A rotation of the CA takes
	// three; the others are for races that were lost.
	rounds = 10
	// A certificate of the shortest lifetime has ten seconds left when it is renewed, so errors may not cost more.
	firstRetry, lastRetry = 500 * time.Millisecond, 5 * time.Second
	timeout               = 30 * time.Second
	// retell is how often an event is repeated while nothing changes: API servers forget events after an hour.
	retell = 30 * time.Minute
)

// cluster is how the issuer reaches the API server.
type cluster struct {
	secrets client.Reader // without a cache: one would need the right to list all Secrets
	client  client.Client // writes Secrets, reads namespaces
	events  events.EventRecorder
}

// Issuer keeps certificates in Secrets as they should be, and the operator's own in memory.
type Issuer struct {
	cfg Config
	api cluster
	own *ownCertificate

	mu     sync.Mutex // guards what metrics read
	last   *plan      // nil: none yet
	issued uint64

	told map[types.NamespacedName]told // of problems; by the one reconcile at a time
}

type told struct {
	problem
	when time.Time
}

// New checks the configuration, and returns all that is wrong with it, joined. It reaches for nothing yet.
func New(cfg Config) (*Issuer, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Issuer{cfg: cfg, own: newOwnCertificate(cfg.Now), told: map[types.NamespacedName]told{}}, nil
}

// SetupWithManager adds the issuer to a manager, as a controller of its own that only the leader runs.
func (i *Issuer) SetupWithManager(mgr manager.Manager) error {
	i.api = cluster{mgr.GetAPIReader(), mgr.GetClient(), mgr.GetEventRecorder("quorate-issuer")}
	c, err := controller.New(controllerName, mgr, controller.Options{
		Reconciler:            i,
		ReconciliationTimeout: timeout,
		RateLimiter:           workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	})
	if err != nil {
		return err
	}
	// There is one thing to reconcile, all of it, and no object that stands for it: it begins by itself.
	start := func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(everything())
		return nil
	}
	if err := c.Watch(source.Func(start)); err != nil || len(i.cfg.GatewayNamespaces) == 0 {
		return err
	}
	toEverything := func(context.Context, *corev1.Namespace) []reconcile.Request { return []reconcile.Request{everything()} }
	return c.Watch(source.Kind(mgr.GetCache(), &corev1.Namespace{}, handler.TypedEnqueueRequestsFromMapFunc(toEverything),
		predicate.NewTypedPredicateFuncs(i.hasGateways)))
}

func everything() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: controllerName}}
}

func (i *Issuer) hasGateways(ns *corev1.Namespace) bool {
	return slices.Contains(i.cfg.GatewayNamespaces, ns.Name)
}

// Reconcile does what is due, and comes back when something is. Whatever it is asked about, it looks at everything.
func (i *Issuer) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	p, now, err := i.settle(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	wait := i.cfg.Resync
	if !p.again.IsZero() {
		wait = min(wait, p.again.Sub(now))
	}
	return reconcile.Result{RequeueAfter: max(wait, time.Second)}, nil
}

// settle plans and acts until there is nothing left to do. An error leaves what it is about as it was; everything
// else is done nevertheless.
func (i *Issuer) settle(ctx context.Context) (p *plan, now time.Time, err error) {
	for range rounds {
		w, readErr := i.gather(ctx)
		p, now = i.cfg.plan(w), w.now
		i.note(p)
		i.tell(p.problems, now)
		if len(p.steps) == 0 || ctx.Err() != nil {
			return p, now, errors.Join(readErr, ctx.Err())
		}
		if err := errors.Join(readErr, i.act(ctx, p, now)); err != nil {
			return p, now, err
		}
	}
	return p, now, fmt.Errorf("certificates don't come to rest: after %d rounds there still is %s %s to do: somebody else changes them", rounds, p.steps[0].verb, called(p.steps[0].at))
}

// act takes every step, whatever becomes of the others.
func (i *Issuer) act(ctx context.Context, p *plan, now time.Time) error {
	var errs []error
	for _, s := range p.steps {
		err := i.take(ctx, s, p.trust, now)
		switch {
		case lostRace(err):
			i.cfg.Log.Info("somebody else was faster; looking again", "step", s.verb, "secret", called(s.at))
		case err != nil:
			errs = append(errs, fmt.Errorf("%s %s: %w", s.verb, called(s.at), err))
		default:
			i.done(s)
		}
	}
	return errors.Join(errs...)
}

func (i *Issuer) done(s step) {
	i.cfg.Log.Info("certificates changed", "step", s.verb, "secret", called(s.at), "why", s.why)
	switch s.verb {
	case issue:
		i.mu.Lock()
		i.issued++
		i.mu.Unlock()
	case create, begin, promote, retire: // years apart
		i.api.events.Eventf(secretAt(s.at), nil, corev1.EventTypeNormal, "CAChanged", string(s.verb), "%s: %s", s.verb, s.why)
	}
}

// tell makes an event of each problem that is new, or was told of long ago.
func (i *Issuer) tell(problems []problem, now time.Time) {
	still := map[types.NamespacedName]told{}
	for _, pr := range problems {
		was, known := i.told[pr.at]
		if known && was.problem == pr && now.Sub(was.when) < retell {
			still[pr.at] = was
			continue
		}
		i.cfg.Log.Warn("certificates can't be kept as they should be", "secret", called(pr.at), "reason", pr.reason, "why", pr.text)
		i.api.events.Eventf(secretAt(pr.at), nil, corev1.EventTypeWarning, pr.reason, "issue", "%s", pr.text)
		still[pr.at] = told{pr, now}
	}
	i.told = still
}

func (i *Issuer) note(p *plan) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last = p
}
