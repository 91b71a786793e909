package operator

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Where a removal that is held is shown, and how somebody confirms it.
const (
	heldName          = "quorate-held-removal"
	confirmAnnotation = "quorate.dev/confirm-removal"
	hashKey           = "hash"
	ofKey             = "of"
	policiesKey       = "policies"
	helpKey           = "help"
)

// held reads the ConfigMap that shows a held removal; nil: there is none.
func (r *Reconciler) held(ctx context.Context) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.cfg.Namespace, Name: heldName}, m)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the ConfigMap of held removals: %w", err)
	}
	return m, nil
}

// confirmation is the hash that somebody confirmed; empty: none.
func confirmation(m *corev1.ConfigMap) string {
	if m == nil {
		return ""
	}
	return m.Annotations[confirmAnnotation]
}

// shownOf is how many policies were in force when those that are shown began to be missed; 0: none are shown.
func shownOf(m *corev1.ConfigMap) int {
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m.Data[ofKey])
	if err != nil || n < 1 {
		return 1 // somebody's edit: then every removal is a large one
	}
	return n
}

// show brings the ConfigMap in line with what is held. Where nothing is missed any more it goes, and with it what was
// confirmed; while what was confirmed has yet to go, it stays as it is.
func (r *Reconciler) show(ctx context.Context, m *corev1.ConfigMap, held *removals) error {
	switch {
	case !held.held && (m == nil || len(held.policies) > 0 && !held.gone):
		return nil
	case !held.held:
		if err := client.IgnoreNotFound(r.client.Delete(ctx, m, client.Preconditions{UID: &m.UID})); err != nil {
			return fmt.Errorf("delete the ConfigMap of held removals: %w", err)
		}
		return nil
	}
	m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.cfg.Namespace, Name: heldName}}
	changed, err := controllerutil.CreateOrUpdate(ctx, r.client, m, func() error { m.Data = r.dataOf(held); return nil })
	if err != nil {
		return fmt.Errorf("write the ConfigMap of held removals: %w", err)
	}
	if changed != controllerutil.OperationResultNone {
		r.events.Eventf(m, nil, corev1.EventTypeWarning, "RemovalHeld", "Hold", "%d policies that no object stands for any more stay enforced "+
			"until their removal is confirmed by the annotation %s: %s", len(held.policies), confirmAnnotation, held.hash)
	}
	return nil
}

// dataOf is what the ConfigMap says.
func (r *Reconciler) dataOf(held *removals) map[string]string {
	return map[string]string{
		hashKey:     held.hash,
		ofKey:       strconv.Itoa(held.of),
		policiesKey: held.list(),
		helpKey: "No RateLimitPolicy stands for these policies any more, and they are so many that it may be an accident, so they stay\n" +
			"enforced. To remove just these:\n\n  kubectl annotate --overwrite -n " + r.cfg.Namespace + " configmap " + heldName + " " +
			confirmAnnotation + "=" + held.hash + "\n",
	}
}
