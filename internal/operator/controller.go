package operator

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/quorate/quorate/api/policy/v1alpha1"
)

// AddToScheme teaches s the types that the operator reads and writes.
func AddToScheme(s *runtime.Scheme) error {
	addToScheme(s)
	return corev1.AddToScheme(s)
}

// Mapper knows the kinds that are read and written, and asks nobody for them: the operator starts without an API server.
func Mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return m
}

// CacheOptions keep the manager's cache to what the operator may watch: of all ConfigMaps that one.
func CacheOptions(namespace string) cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", heldName)},
		}},
	}}
}

// How long a reconcile that failed waits for its next try: at first, and at most.
const (
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// SetupWithManager has the manager call the reconciler, on the leader only: whenever an object comes, changes or goes, when
// somebody confirms a removal, and once at the start, when there may be no object. Watches only say when.
func SetupWithManager(mgr manager.Manager, cfg Config) error {
	direct, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	everything := reconcile.Request{}
	everything.Name = "everything"
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{everything}
	})
	start := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(everything)
		return nil
	})
	return builder.ControllerManagedBy(mgr).Named("policies").
		Watches(&declared{}, one, builder.OnlyMetadata, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, one, builder.OnlyMetadata, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WatchesRawSource(start).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost),
		}).
		Complete(New(cfg, direct, mgr.GetEventRecorder("quorate-operator")))
}
