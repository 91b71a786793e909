package issuer

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/access"
)

// ownCertificate is the operator's own: made like the others, as a Secret that is never written anywhere.
type ownCertificate struct {
	now    func() time.Time
	ready  chan struct{}  // closed once there is a keeper
	keeper *access.Keeper // never changes after that

	mu   sync.Mutex
	held *corev1.Secret // nil: none yet
}

func newOwnCertificate(now func() time.Time) *ownCertificate {
	return &ownCertificate{now: now, ready: make(chan struct{})}
}

func (o *ownCertificate) secret() *corev1.Secret {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

// contents is what the keeper reads.
func (o *ownCertificate) contents() (access.Contents, error) {
	s := o.secret()
	return access.Contents{CA: string(s.Data[trustKey]), Cert: string(s.Data[corev1.TLSCertKey]), Key: string(s.Data[corev1.TLSPrivateKeyKey])}, nil
}

// take has another certificate come into force, or leaves the one that is. Only the reconcile calls it, so there is
// one at a time.
func (o *ownCertificate) take(s *corev1.Secret) error {
	was := o.hold(s)
	err := o.use()
	if err != nil {
		o.hold(was) // so that the next plan sees it as it is
	}
	return err
}

func (o *ownCertificate) hold(s *corev1.Secret) (was *corev1.Secret) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was, o.held = o.held, s
	return was
}

func (o *ownCertificate) use() error {
	if o.keeper != nil {
		_, err := o.keeper.Reload()
		return err
	}
	keeper, err := access.OpenFrom(o.contents, o.now, writesPolicies)
	if err != nil {
		return err
	}
	o.keeper = keeper
	close(o.ready)
	return nil
}

func writesPolicies(id access.Identity) error {
	if id.MayWritePolicies() {
		return nil
	}
	return fmt.Errorf("%w: it is no policy writer's, but of %s", access.ErrRefused, id)
}

// Keeper returns the keeper of the operator's own certificate, whose role is policy writer. It waits for the first
// one to be issued, which only a leader does, or for ctx. Renewals come into force by themselves: what ClientTLS of the
// keeper returned stays good.
func (i *Issuer) Keeper(ctx context.Context) (*access.Keeper, error) {
	select {
	case <-i.own.ready:
		return i.own.keeper, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the operator's own certificate, which its CA in Secret %s issues: %w", i.cfg.ca(), ctx.Err())
	}
}
