package issuer

import (
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reach has an issuer reach a cluster in memory.
func (i *Issuer) Reach(secrets client.Reader, c client.Client, e events.EventRecorder) {
	i.api = cluster{secrets, c, e}
}

const (
	SettledAt = settledAt
	NextCert  = nextCert
	OldCert   = oldCert
)
