package transport_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/access"
	"github.com/quorate/quorate/internal/transport"
)

// kept are two nodes whose certificates are files that can be replaced.
type kept struct {
	*linked
	dirs    [2]string
	keepers [2]*access.Keeper
}

var nodeRoles = [2]string{"quorate://peer/n1", "quorate://peer/n2"}

// keepers runs a test of two nodes with certificates of an authority, which count for an hour.
func keepers(t *testing.T, test func(t *testing.T, a *authority, p *kept), with ...func(*transport.LinkOptions)) {
	t.Helper()
	dirs := [2]string{t.TempDir(), t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		a, p := newAuthority(t), &kept{linked: &linked{net: newMemNet()}, dirs: dirs}
		for i, role := range nodeRoles {
			p.keepers[i] = a.keep(t, dirs[i], role)
		}
		p.l1 = p.net.node(t, "n1", append(with, by(p.keepers[0]))...)
		p.l2 = p.net.node(t, "n2", append(with, by(p.keepers[1]))...)
		p.r1, p.r2 = replica(t, p.l1, "n1", 1), replica(t, p.l2, "n2", 1)
		answer(t, p.r1, follow)
		answer(t, p.r2, follow)
		p.want(t, true)
		test(t, a, p)
	})
}

// give gives a node a certificate of an authority; it trusts that one and others.
func (p *kept) give(t *testing.T, node int, a *authority, trusted ...*authority) {
	t.Helper()
	a.keep(t, p.dirs[node], nodeRoles[node], trusted...)
	if changed, err := p.keepers[node].Reload(); !changed || err != nil {
		t.Fatalf("reload: %v, %v", changed, err)
	}
}

// want says whether the nodes reach each other.
func (p *kept) want(t *testing.T, reach bool) {
	t.Helper()
	for from, err := range map[string]error{"n1": heartbeat(p.r1, address("n2"), 1), "n2": heartbeat(p.r2, address("n1"), 1)} {
		if (err == nil) != reach {
			t.Errorf("from %s to the other: %v", from, err)
		}
	}
}

// connected says how often n1 has connected to n2, and n2 to n1.
func (p *kept) connected(t *testing.T) [2]uint64 {
	t.Helper()
	return [2]uint64{state(t, p.l1, "n2").Connects, state(t, p.l2, "n1").Connects}
}

// No link outlives the certificates that were shown on it, however busy it is.
func TestALinkEndsWithTheCertificateThatWasShownOnIt(t *testing.T) {
	keepers(t, func(t *testing.T, _ *authority, p *kept) {
		for range 59 {
			p.want(t, true)
			time.Sleep(time.Minute)
		}
		if n := p.connected(t); n != [2]uint64{1, 1} {
			t.Errorf("connected %v times within the hour", n)
		}
		time.Sleep(time.Minute + 11*time.Second)
		for _, l := range []*transport.Links{p.l1, p.l2} {
			if s := l.Peers()[0]; s.Connected || s.Accepted {
				t.Errorf("an hour and ten seconds later: %+v", s)
			}
		}
		p.want(t, false)
	})
}

// Where certificates were renewed in time, links come back at once with the new ones.
func TestALinkComesBackWithARenewedCertificate(t *testing.T) {
	keepers(t, func(t *testing.T, a *authority, p *kept) {
		for range 30 {
			time.Sleep(time.Minute)
			p.want(t, true)
		}
		next := newAuthority(t)
		for node := range nodeRoles {
			p.give(t, node, next, a)
		}
		for range 35 { // past the end of the first ones
			time.Sleep(time.Minute)
			p.want(t, true)
		}
		if n := p.connected(t); n != [2]uint64{2, 2} {
			t.Errorf("connected %v times: not once anew", n)
		}
	})
}

// A link ends on both sides within seconds when one of them has dropped the other's authority, and doesn't come back
// until it shows a certificate that counts.
func TestALinkEndsWhenItsAuthorityIsDropped(t *testing.T) {
	keepers(t, func(t *testing.T, a *authority, p *kept) {
		next := newAuthority(t)
		p.give(t, 0, next, a)
		p.give(t, 1, a, next)
		time.Sleep(time.Minute)
		p.want(t, true)
		if n := p.connected(t); n != [2]uint64{1, 1} {
			t.Errorf("connected %v times while both authorities are trusted", n)
		}
		p.give(t, 0, next) // n1 drops the authority of n2's certificate
		time.Sleep(11 * time.Second)
		p.want(t, false)
		p.give(t, 1, next)
		time.Sleep(3 * time.Second)
		p.want(t, true)
	})
}

// So does a snapshot that is on its way.
func TestASnapshotEndsWhenItsAuthorityIsDropped(t *testing.T) {
	keepers(t, func(t *testing.T, a *authority, p *kept) {
		next := newAuthority(t)
		stalled, release := io.Pipe()
		defer release.Close()
		sent := make(chan error, 1)
		go func() {
			_, err := install(p.r1, address("n2"), 1<<20, stalled)
			stalled.Close()
			sent <- err
		}()
		if _, err := release.Write(make([]byte, 1<<19)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		select {
		case err := <-sent:
			t.Fatalf("ended before: %v", err)
		default:
		}
		p.give(t, 0, next)
		time.Sleep(11 * time.Second)
		_, _ = release.Write(make([]byte, 1<<19)) // the rest of it, which nobody may want any more
		release.Close()
		if err := <-sent; !errors.Is(err, transport.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
	}, func(o *transport.LinkOptions) { o.SnapshotStall = time.Hour })
}
