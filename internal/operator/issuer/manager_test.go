package issuer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/operator/issuer"
)

// front is the HTTP of an API server, as much of it as an issuer may ask for; anything else fails the test.
type front struct {
	*kubernetes
	watching chan struct{} // closed once namespaces are watched

	news   *sync.Cond
	writes int
	posted []eventsv1.Event
}

func newFront(k *kubernetes) *front {
	return &front{kubernetes: k, watching: make(chan struct{}), news: sync.NewCond(&sync.Mutex{})}
}

// until waits for writes until something is so.
func (f *front) until(so func() bool) {
	f.news.L.Lock()
	defer f.news.L.Unlock()
	for !so() {
		f.news.Wait()
	}
}

func (f *front) wrote(e ...eventsv1.Event) {
	f.news.L.Lock()
	defer f.news.L.Unlock()
	f.posted = append(f.posted, e...)
	f.writes++
	f.news.Broadcast()
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	switch {
	case r.URL.Path == "/api/v1/namespaces" && query.Get("sendInitialEvents") == "true":
		f.answer(w, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)) // an older server
	case r.URL.Path == "/api/v1/namespaces" && query.Get("watch") == "true":
		f.watch(w, r)
	case r.URL.Path == "/api/v1/namespaces" && r.Method == http.MethodGet:
		list := &corev1.NamespaceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
		f.answer(w, list, f.List(r.Context(), list))
	case len(path) == 6 && path[4] == "secrets" && r.URL.RawQuery == "":
		f.secretNamed(w, r, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: path[3], Name: path[5]}})
	case len(path) == 5 && path[4] == "secrets" && r.Method == http.MethodPost:
		s, err := body[corev1.Secret](r)
		f.answer(w, s, errors.Join(err, f.Create(r.Context(), s)))
		f.wrote()
	case strings.HasPrefix(r.URL.Path, "/apis/events.k8s.io/v1/namespaces/") && r.Method == http.MethodPost:
		e, err := body[eventsv1.Event](r)
		f.answer(w, e, err)
		f.wrote(*e)
	default:
		f.t.Errorf("asked for %s %s", r.Method, r.URL)
		f.answer(w, nil, apierrors.NewForbidden(corev1.Resource("anything"), "", errNotAllowed))
	}
}

func (f *front) secretNamed(w http.ResponseWriter, r *http.Request, s *corev1.Secret) {
	switch r.Method {
	case http.MethodGet:
		f.answer(w, s, f.Get(r.Context(), client.ObjectKeyFromObject(s), s))
	case http.MethodPut:
		s, err := body[corev1.Secret](r)
		f.answer(w, s, errors.Join(err, f.Update(r.Context(), s)))
		f.wrote()
	case http.MethodDelete:
		o, err := body[metav1.DeleteOptions](r)
		f.answer(w, &metav1.Status{Status: metav1.StatusSuccess}, errors.Join(err, f.Delete(r.Context(), s, &client.DeleteOptions{Preconditions: o.Preconditions})))
		f.wrote()
	default:
		f.t.Errorf("asked for %s %s", r.Method, r.URL)
	}
}

func body[T any](r *http.Request) (*T, error) {
	o := new(T)
	text, err := io.ReadAll(r.Body)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, o)
	}
	return o, err
}

func (f *front) answer(w http.ResponseWriter, o any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Code: http.StatusInternalServerError}
		if known := apierrors.APIStatus(nil); errors.As(err, &known) {
			status = known.Status()
		}
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(status.Code))
		o = status
	}
	_ = json.NewEncoder(w).Encode(o) // whoever has gone needs no answer
}

func (f *front) watch(w http.ResponseWriter, r *http.Request) {
	watch, err := f.Watch(r.Context(), &corev1.NamespaceList{})
	if err != nil {
		f.answer(w, nil, err)
		return
	}
	defer watch.Stop()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	close(f.watching)
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-watch.ResultChan():
			e.Object.(*corev1.Namespace).TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": e.Type, "object": e.Object})
			w.(http.Flusher).Flush()
		}
	}
}

// manager returns one before an API server that answers no more than this front.
func (f *front) manager(address string) manager.Manager {
	scheme := runtime.NewScheme()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	again := true
	mgr, err := manager.New(&rest.Config{Host: address, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.FromSlogHandler(slog.DiscardHandler),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Controller:     config.Controller{SkipNameValidation: &again},
	})
	if err != nil || corev1.AddToScheme(scheme) != nil {
		f.t.Fatal(err)
	}
	return mgr
}

// TestUnderAManager it begins by itself, hears of a label at once, tells people of problems where they look, and asks for
// nothing that its role doesn't have.
func TestUnderAManager(t *testing.T) {
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "media", Name: "quorate-gateway"}}
	f := newFront(newKubernetes(t, theirs))
	server := httptest.NewServer(f)
	defer server.Close()
	mgr := f.manager(server.URL)
	i, err := issuer.New(issuer.Config{
		Namespace: "rate", Prefix: "quorate", Nodes: []string{"n0", "n1"}, GatewayNamespaces: []string{"media", "mail"},
		Resync: time.Hour, // so that what is seen sooner was not by chance
		Now:    f.clock.now,
	})
	if err == nil {
		err = i.SetupWithManager(mgr)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()

	if _, err := connectWith(t, f.own(i), f, "rate/quorate-node-n1"); err != nil {
		t.Error(err)
	}
	<-f.watching
	mail := namespace("mail", "")
	f.change(mail, func() { mail.Labels = map[string]string{"quorate.dev/gateway": "true"} })
	f.until(func() bool { return f.find("mail/quorate-gateway") != nil })
	f.change(mail, func() { mail.Labels = nil })
	f.until(func() bool { return f.find("mail/quorate-gateway") == nil })

	var events []eventsv1.Event
	f.until(func() bool { events = f.posted; return len(events) >= 2 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	told := map[string]string{}
	for _, e := range events {
		told[e.Regarding.Kind+" "+e.Namespace+"/"+e.Regarding.Name] = fmt.Sprintf("%s %s %.29s", e.Type, e.Reason, e.Note)
	}
	if told["Secret media/quorate-gateway"] != "Warning SecretIsAnothers the Secret is left alone, and" || told["Secret rate/quorate-ca"] != "Normal CAChanged create: there is no CA" {
		t.Errorf("told %q", told)
	}
}

// connectWith waits until a process can mount its Secret, and has the operator call it.
func connectWith(t *testing.T, operator *access.Keeper, f *front, at string) (wire, error) {
	t.Helper()
	f.until(func() bool { return f.find(at) != nil })
	return connect(t, f.mounted(at).ServerTLS(), operator.ClientTLS(access.IsPeer))
}
