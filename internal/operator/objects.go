package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// list lists all objects, past any cache: what is put in force is what the API server says now. A watch that died without a
// word misleads nobody, nor one from before the resource definition changed, which goes on without the newer fields. For the
// same reason an object is known by the bytes of its spec: one generation may come with other fields. Where the resource
// definition is gone there are no objects any more, so all that is in force is held.
func (p *pass) list(ctx context.Context) error {
	var all declaredList
	if err := p.client.List(ctx, &all); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list the policies: %w", err)
	}
	readings := map[types.UID]reading{}
	for i := range all.Items {
		o := &all.Items[i]
		r, known := p.readings[o.UID]
		if !known || !bytes.Equal(r.spec, o.Spec) {
			r = read(o)
		}
		p.objects, readings[o.UID] = append(p.objects, o), r
	}
	p.readings = readings
	return nil
}

// writers is how many statuses are written at once.
const writers = 8

// write writes statuses where they differ, and tells of conditions that turn. One that fails doesn't keep the others.
func (p *pass) write(ctx context.Context) error {
	statuses, errs := make([]v1alpha1.RateLimitPolicyStatus, len(p.objects)), make([]error, len(p.objects))
	var writing errgroup.Group
	writing.SetLimit(writers)
	for i, o := range p.objects {
		statuses[i] = p.statusOf(o)
		writing.Go(func() error {
			errs[i] = p.writeOne(ctx, i, &statuses[i])
			return nil
		})
	}
	_ = writing.Wait() // errs has them all
	p.cfg.Metrics.objects(statuses)
	return errors.Join(errs...)
}

// statusOf is what is to be said of an object now.
func (p *pass) statusOf(o *declared) v1alpha1.RateLimitPolicyStatus {
	v := p.plan.verdicts[o.at()]
	switch {
	case p.seen == nil:
		return lost(o, v)
	case p.acting && (!v.fresh || p.refused[o.UID] == o.Generation):
		return o.Status // nothing is new, or what was refused is asked for once more
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
