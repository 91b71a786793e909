package issuer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quorate/quorate/internal/access/authority"
)

const caName = "Quorate CA"

// gather reads what there is. The CA comes last: whoever has issued a certificate that was read had made its CA
// before, so that a CA that isn't there then is gone, and not to come. What couldn't be read is in the error, and in
// the world as unread.
func (i *Issuer) gather(ctx context.Context) (*world, error) {
	w := &world{secrets: map[types.NamespacedName]*corev1.Secret{}, unread: map[types.NamespacedName]bool{}, marked: map[string]bool{}}
	var errs []error
	for _, want := range i.cfg.every() {
		switch {
		case want.at == own:
			if s := i.own.secret(); s != nil {
				w.secrets[own] = s
			}
		case want.at.Namespace != i.cfg.Namespace:
			errs = append(errs, i.readMarked(ctx, w, want.at))
		default:
			errs = append(errs, i.read(ctx, w, want.at))
		}
	}
	errs = append(errs, i.read(ctx, w, i.cfg.ca()))
	w.now = i.cfg.Now()
	return w, errors.Join(errs...)
}

// readMarked reads a gateway namespace and its Secret. One that is going can't be given any, and takes its own with it;
// the right to read there may be gone already.
func (i *Issuer) readMarked(ctx context.Context, w *world, at types.NamespacedName) error {
	var ns corev1.Namespace
	switch err := i.api.client.Get(ctx, types.NamespacedName{Name: at.Namespace}, &ns); {
	case apierrors.IsNotFound(err) || !ns.DeletionTimestamp.IsZero():
		return nil
	case err != nil:
		w.unread[at] = true
		return fmt.Errorf("read namespace %s: %w", at.Namespace, err)
	}
	w.marked[at.Namespace] = ns.Labels[gatewayMark] == "true"
	return i.read(ctx, w, at)
}

func (i *Issuer) read(ctx context.Context, w *world, at types.NamespacedName) error {
	var s corev1.Secret
	switch err := i.api.secrets.Get(ctx, at, &s); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		w.unread[at] = true
		return fmt.Errorf("read Secret %s: %w", at, err)
	}
	w.secrets[at] = &s
	return nil
}

// lostRace says that a Secret was another one than the plan had seen, so that nothing was written.
func lostRace(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err)
}

// take takes one step, on the condition that the Secret still is what the plan saw.
func (i *Issuer) take(ctx context.Context, s step, t *trust, now time.Time) error {
	if s.verb == remove {
		condition := client.Preconditions{UID: &s.was.UID, ResourceVersion: &s.was.ResourceVersion}
		return client.IgnoreNotFound(i.api.client.Delete(ctx, secretAt(s.at), condition))
	}
	made, err := i.make(s, t, now)
	switch {
	case err != nil:
		return err
	case s.at == own:
		return i.own.take(made)
	case s.was == nil:
		err = i.api.client.Create(ctx, made)
	default:
		err = i.api.client.Update(ctx, made)
	}
	if s.was != nil && apierrors.IsNotFound(err) { // deleted meanwhile
		return apierrors.NewConflict(corev1.Resource("secrets"), s.at.Name, err)
	}
	return err
}

// make makes what a step writes.
func (i *Issuer) make(s step, t *trust, now time.Time) (*corev1.Secret, error) {
	secret := secretAt(s.at)
	if s.was != nil {
		secret = s.was.DeepCopy()
	} else {
		secret.Type = corev1.SecretTypeTLS
		secret.Labels = map[string]string{managedBy: operator}
		secret.Annotations = map[string]string{issuedBy: i.cfg.issuer()}
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for key, text := range s.set {
		if secret.Data[key] = text; text == nil {
			delete(secret.Data, key)
		}
	}
	switch s.verb {
	case create:
		return secret, i.makeCA(secret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, now)
	case begin:
		return secret, i.makeCA(secret, nextCert, nextKey, now)
	case settle:
		secret.Annotations[settledAt] = date(now)
	case promote, retire:
		delete(secret.Annotations, settledAt)
	case issue:
		pair, err := t.current.Issue(s.role, now, i.cfg.Lifetime)
		secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = pair.Cert, pair.Key
		return secret, err
	}
	return secret, nil
}

func (i *Issuer) makeCA(s *corev1.Secret, cert, key string, now time.Time) error {
	_, pair, err := authority.Create(caName, now, i.cfg.CALifetime)
	s.Data[cert], s.Data[key] = pair.Cert, pair.Key
	delete(s.Annotations, settledAt)
	return err
}

func secretAt(at types.NamespacedName) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
}
