package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	"github.com/quorate/quorate/internal/policy"
)

// list lists all objects, from the cache. Now and then, and always where something is missed, it holds the cache to what
// the API server says: a watch may have died without a word. A cache that was wrong isn't believed until it is right again.
// Not sure: it couldn't be compared, so what is missed may be there.
func (p *pass) list(ctx context.Context) (sure bool, err error) {
	var all declaredList
	if err := p.client.List(ctx, &all); err != nil {
		return false, fmt.Errorf("list the policies: %w", err)
	}
	if now := p.cfg.Now(); len(p.missed) == 0 && !p.doubted && now.Sub(p.compared) < p.cfg.Resync {
		sure = true
	} else if same, err := p.same(ctx, &all); err == nil {
		sure, p.doubted, p.compared = true, !same, now
	} else if p.cfg.Log.Warn("policies not compared with the API server", "error", err); p.doubted {
		return false, fmt.Errorf("list the policies past a cache that was wrong: %w", err)
	}
	if p.doubted {
		all = declaredList{}
		if err := p.direct.List(ctx, &all); err != nil {
			return false, fmt.Errorf("list the policies past a cache that is wrong: %w", err)
		}
	}
	for i := range all.Items {
		p.objects = append(p.objects, &all.Items[i])
	}
	p.readAll()
	return sure, nil
}

// same says whether the API server has the objects of the cache, as they are there.
func (p *pass) same(ctx context.Context, cached *declaredList) (bool, error) {
	var there metav1.PartialObjectMetadataList
	there.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind + "List"))
	if err := p.direct.List(ctx, &there); err != nil {
		return false, err
	}
	generations := map[types.UID]int64{}
	for i := range there.Items {
		generations[there.Items[i].UID] = there.Items[i].Generation
	}
	for i := range cached.Items {
		if g, found := generations[cached.Items[i].UID]; !found || g != cached.Items[i].Generation {
			return false, nil
		}
	}
	return len(generations) == len(cached.Items), nil
}

// readAll reads what objects say, where they say something new.
func (p *pass) readAll() {
	readings, generations := map[types.UID]reading{}, map[types.UID]int64{}
	for _, o := range p.objects {
		r, known := p.readings[o.UID]
		if !known || p.read[o.UID] != o.Generation {
			r = read(o)
		}
		readings[o.UID], generations[o.UID] = r, o.Generation
	}
	p.readings, p.read = readings, generations
}

// blind says of each object that no node tells what is in force.
func (p *pass) blind(ctx context.Context) error {
	f := p.force
	if f == nil {
		f = newForce(policy.Set{}, version{})
	}
	p.world.force = f
	for _, o := range p.objects {
		p.world.objects = append(p.world.objects, &object{
			name: name{o.Namespace, o.Name}, reading: p.readings[o.UID], created: o.CreationTimestamp.Time, begun: true,
		})
	}
	p.plan, p.seen = makePlan(&p.world), nil
	p.cfg.Metrics.nodes(nil)
	return p.write(ctx)
}

// writers is how many statuses are written at once.
const writers = 8

// write writes statuses where they differ, and tells of conditions that turn. One that fails doesn't keep the others.
func (p *pass) write(ctx context.Context) error {
	statuses := make([]v1alpha1.RateLimitPolicyStatus, len(p.objects))
	errs := make([]error, len(p.objects))
	next := make(chan int)
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for i := range next {
				errs[i] = p.writeOne(ctx, i, &statuses[i])
			}
		})
	}
	for i, o := range p.objects {
		statuses[i] = p.statusOf(o)
		next <- i
	}
	close(next)
	writing.Wait()
	p.cfg.Metrics.objects(statuses)
	return errors.Join(errs...)
}

// statusOf is what is to be said of an object now.
func (p *pass) statusOf(o *declared) v1alpha1.RateLimitPolicyStatus {
	v := p.plan.verdicts[name{o.Namespace, o.Name}]
	if p.seen == nil {
		return lost(o, v)
	}
	var has *holding
	if h, there := p.memory.objects[o.UID]; there {
		has = &h
	}
	return statusOf(o, v, p.plan.removals.held, has, p.seen)
}

// writeOne writes one object's status, on the condition that nobody else has written the object.
func (p *pass) writeOne(ctx context.Context, i int, s *v1alpha1.RateLimitPolicyStatus) error {
	o := p.objects[i]
	if equality.Semantic.DeepEqual(&o.Status, s) {
		return nil
	}
	next := o.DeepCopy()
	next.Status = *s
	err := p.client.Status().Patch(ctx, next, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return nil // deleted meanwhile
	case err != nil:
		return fmt.Errorf("write the status of %s/%s: %w", o.Namespace, o.Name, err)
	}
	p.tell(o, s)
	p.objects[i] = next
	return nil
}
