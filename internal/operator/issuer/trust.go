package issuer

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/access/authority"
)

// What the CA's Secret holds besides tls.crt and tls.key, while one CA takes the place of another.
const (
	nextCert = "next.crt" // of the CA to come, which signs nothing yet
	nextKey  = "next.key"
	oldCert  = "old.crt" // of the CA that was, whose key is gone

	// settledAt says since when every Secret has been as the CA's Secret wants it, between two steps of a rotation.
	settledAt = "quorate.dev/settled-at"

	// longestSpread is how long a step of a rotation waits for what every Secret already says to be in force
	// everywhere. It takes minutes; a week is for the node that was cut off.
	longestSpread = 7 * day
)

// trust is what the CA's Secret holds, checked: who signs, and whom everybody is told to trust.
type trust struct {
	current *authority.CA
	next    *authority.CA     // nil: none is coming
	old     *x509.Certificate // nil: none is going
	settled time.Time         // zero: not yet
}

var errClock = errors.New("look at the clock of the operator's machine")

// readTrust reads the CA's Secret. Its error says what is wrong and what to do.
func readTrust(s *corev1.Secret, now time.Time) (*trust, error) {
	t := &trust{}
	var err error
	if t.current, err = openCA(s, corev1.TLSCertKey, corev1.TLSPrivateKeyKey); err != nil {
		return nil, err
	}
	if len(s.Data[nextCert])+len(s.Data[nextKey]) > 0 {
		if t.next, err = openCA(s, nextCert, nextKey); err != nil {
			return nil, err
		}
	}
	if len(s.Data[oldCert]) > 0 {
		if t.old, err = readOne(s.Data[oldCert]); err != nil {
			return nil, fmt.Errorf("%s: %w", oldCert, err)
		}
	}
	if at, err := time.Parse(time.RFC3339, s.Annotations[settledAt]); err == nil && !at.After(now) {
		t.settled = at
	}
	return t, t.checkDates(now)
}

func openCA(s *corev1.Secret, cert, key string) (*authority.CA, error) {
	ca, err := authority.Open(authority.Pair{Cert: s.Data[cert], Key: s.Data[key]})
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w; restore the Secret from a copy", cert, key, err)
	}
	return ca, nil
}

func readOne(text []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 {
		return nil, errors.New("is not one certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// checkDates refuses a CA that isn't valid now, unless there is another to take its place. None is made in the place of
// one that has ended: if the clock is wrong that would break what works.
func (t *trust) checkDates(now time.Time) error {
	signs := t.current.Cert()
	if t.ended(now) && t.next != nil {
		signs = t.next.Cert()
	}
	switch {
	case now.Before(signs.NotBefore):
		return fmt.Errorf("the CA is not valid before %s, and now it is %s; %w", date(signs.NotBefore), date(now), errClock)
	case !now.Before(signs.NotAfter):
		return fmt.Errorf("the CA has ended at %s, and now it is %s; if that is so (%w), delete the Secret to have another CA made, and then all certificates",
			date(signs.NotAfter), date(now), errClock)
	}
	return nil
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ended says whether the CA that signs has ended.
func (t *trust) ended(now time.Time) bool { return !now.Before(t.current.Cert().NotAfter) }

func validAt(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && now.Before(c.NotAfter)
}

// bundle is what every ca.crt has to say: all CAs that a certificate in force may be of.
func (t *trust) bundle() []byte {
	text := inPEM(t.current.Cert())
	if t.next != nil {
		text = append(text, inPEM(t.next.Cert())...)
	}
	if t.old != nil {
		text = append(text, inPEM(t.old)...)
	}
	return text
}

func inPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// changing says whether one CA is taking the place of another.
func (t *trust) changing() bool { return t.next != nil || t.old != nil }

// moveAt returns when the next step of a CA's life is due, and which that is. A rotation begins after four fifths of
// a CA's life. It settles once every Secret says what it has to: no time is due for that.
func (t *trust) moveAt() (verb, time.Time) {
	signs := t.current.Cert()
	from, life := lifeOf(signs)
	switch spread := min(longestSpread, life/20); {
	case !t.changing():
		return begin, from.Add(life / 5 * 4)
	case t.settled.IsZero():
		return settle, time.Time{}
	case t.next != nil:
		// Whatever comes late, the new CA signs before the old one ends.
		return promote, t.settled.Add(min(spread, signs.NotAfter.Sub(t.settled)/2))
	default:
		return retire, t.settled.Add(spread)
	}
}

// lifeOf returns since when a certificate of ours has been there, and for how long it is valid from then.
func lifeOf(c *x509.Certificate) (from time.Time, life time.Duration) {
	from = c.NotBefore.Add(authority.Tolerance)
	return from, c.NotAfter.Sub(from)
}
