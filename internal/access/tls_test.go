package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/access"
)

// meeting is how a connection went for its two ends.
type meeting struct {
	server, client           error
	serverState, clientState tls.ConnectionState
}

// meet connects over loopback. A caller that is refused learns of it only when it reads: in TLS 1.3 its own
// handshake is over before the server has seen its certificate. So the server says a byte to whom it accepts.
func meet(t *testing.T, server, client *tls.Config) (m meeting) {
	t.Helper()
	callers, accepting := connect(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn := tls.Server(accepting, server)
		if m.server = conn.Handshake(); m.server == nil {
			m.serverState = conn.ConnectionState()
			_, m.server = conn.Write([]byte{1})
		}
		accepting.Close()
	}()
	conn := tls.Client(callers, client)
	if m.client = conn.Handshake(); m.client == nil {
		m.clientState = conn.ConnectionState()
		_, m.client = io.ReadFull(conn, make([]byte, 1))
	}
	callers.Close()
	<-done
	return m
}

// connect returns both ends of a TCP connection that no test can hang on.
func connect(t *testing.T) (callers, accepting net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if callers, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepting, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{callers, accepting} {
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return callers, accepting
}

func (m meeting) mustSucceed(t *testing.T) {
	t.Helper()
	if m.server != nil || m.client != nil {
		t.Errorf("server: %v; client: %v", m.server, m.client)
	}
}

// mustBeRefused by one end, with these words in its reason; the other end fails too.
func (m meeting) mustBeRefused(t *testing.T, by error, words string) {
	t.Helper()
	if m.server == nil || m.client == nil || !strings.Contains(by.Error(), words) {
		t.Errorf("server: %v; client: %v; want %q", m.server, m.client, words)
	}
}

// bare is a caller that shows whatever certificate it has, and looks at nobody's.
func bare(t *testing.T, h ...holder) *tls.Config {
	t.Helper()
	c := &tls.Config{InsecureSkipVerify: true}
	for _, one := range h {
		pair, err := tls.X509KeyPair([]byte(one.cert), []byte(one.key))
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = append(c.Certificates, pair)
	}
	return c
}

func TestHoldersOfOneCAMeet(t *testing.T) {
	ca := newAuthority(t)
	n1 := ca.keeper(t, "quorate://peer/n1")
	for _, uri := range []string{"quorate://peer/n2", "quorate://gateway/g?domains=a", "quorate://policy-writer/w", "quorate://reader/r"} {
		k := ca.keeper(t, uri)
		for _, expect := range []func(access.Identity) error{nil, access.IsPeer, access.IsNode("n1")} {
			m := meet(t, n1.ServerTLS(), k.ClientTLS(expect))
			m.mustSucceed(t)
			if id, err := n1.Identify(m.serverState); err != nil || id.String() != uri {
				t.Errorf("the server knows %s as %s, %v", uri, id, err)
			}
			if id, err := k.Identify(m.clientState); err != nil || id.String() != "quorate://peer/n1" {
				t.Errorf("the client knows n1 as %s, %v", id, err)
			}
		}
	}
}

func TestAnExpiredCertificateIsRefused(t *testing.T) {
	ca := newAuthority(t)
	old := ca.issue(t, []string{"quorate://peer/n2"}, ends(today.Add(-time.Second)))
	m := meet(t, ca.keeper(t, "quorate://peer/n1").ServerTLS(), bare(t, old))
	m.mustBeRefused(t, m.server, "expired")

	// A server whose own certificate ran out is refused by whoever calls it.
	var clock wallClock
	n1, err := access.Open(store(t, t.TempDir(), ca.pem, ca.issue(t, []string{"quorate://peer/n1"}, ends(today.Add(time.Hour)))), clock.now)
	if err != nil {
		t.Fatal(err)
	}
	n2, err := access.Open(store(t, t.TempDir(), ca.pem, ca.issue(t, []string{"quorate://peer/n2"})), clock.now)
	if err != nil {
		t.Fatal(err)
	}
	meet(t, n1.ServerTLS(), n2.ClientTLS(nil)).mustSucceed(t)
	clock.advance(2 * time.Hour)
	m = meet(t, n1.ServerTLS(), n2.ClientTLS(nil))
	m.mustBeRefused(t, m.client, "expired")
}

func TestAnotherCAIsRefused(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	n1, stranger := ours.keeper(t, "quorate://peer/n1"), theirs.keeper(t, "quorate://peer/n2")
	m := meet(t, n1.ServerTLS(), bare(t, theirs.issue(t, []string{"quorate://peer/n2"})))
	m.mustBeRefused(t, m.server, "unknown authority")
	m = meet(t, stranger.ServerTLS(), n1.ClientTLS(nil))
	m.mustBeRefused(t, m.client, "unknown authority")
}

func TestACallerWithoutACertificateIsRefused(t *testing.T) {
	m := meet(t, newAuthority(t).keeper(t, "quorate://peer/n1").ServerTLS(), bare(t))
	m.mustBeRefused(t, m.server, "didn't provide a certificate")
}

func TestACallerWithoutARoleIsRefused(t *testing.T) {
	ca := newAuthority(t)
	n1 := ca.keeper(t, "quorate://peer/n1").ServerTLS()
	if m := meet(t, n1, bare(t, ca.issue(t, nil))); !errors.Is(m.server, access.ErrNoRole) || m.client == nil {
		t.Errorf("no role: server: %v; client: %v", m.server, m.client)
	}
	if m := meet(t, n1, bare(t, ca.issue(t, []string{"quorate://admin/root"}))); !errors.Is(m.server, access.ErrRefused) || m.client == nil {
		t.Errorf("unknown role: server: %v; client: %v", m.server, m.client)
	}
}

func TestACertificateForAnotherUseIsRefused(t *testing.T) {
	ca := newAuthority(t)
	uris := []string{"quorate://peer/n1"}
	n1 := ca.keeper(t, uris...)
	m := meet(t, n1.ServerTLS(), bare(t, ca.issue(t, uris, usableFor(x509.ExtKeyUsageServerAuth))))
	m.mustBeRefused(t, m.server, "incompatible key usage")
	server := bare(t, ca.issue(t, uris, usableFor(x509.ExtKeyUsageClientAuth)))
	m = meet(t, server, n1.ClientTLS(nil))
	m.mustBeRefused(t, m.client, "incompatible key usage")
}

func TestANodeIsRefusedForAnother(t *testing.T) {
	ca := newAuthority(t)
	n1, n2 := ca.keeper(t, "quorate://peer/n1"), ca.keeper(t, "quorate://peer/n2")
	m := meet(t, n1.ServerTLS(), n2.ClientTLS(access.IsNode("n3")))
	m.mustBeRefused(t, m.client, "not node n3's")
}

// TestAGatewayIsRefusedForANode, by a caller that expects nothing in particular too.
func TestAGatewayIsRefusedForANode(t *testing.T) {
	ca := newAuthority(t)
	gateway, n2 := ca.keeper(t, "quorate://gateway/g?domains=*"), ca.keeper(t, "quorate://peer/n2")
	for _, expect := range []func(access.Identity) error{nil, access.IsPeer} {
		m := meet(t, gateway.ServerTLS(), n2.ClientTLS(expect))
		m.mustBeRefused(t, m.client, "no node's")
	}
}

func TestTLS12IsRefused(t *testing.T) {
	ca := newAuthority(t)
	n1, h := ca.keeper(t, "quorate://peer/n1"), ca.issue(t, []string{"quorate://peer/n2"})
	old := bare(t, h)
	old.MaxVersion = tls.VersionTLS12
	m := meet(t, n1.ServerTLS(), old)
	m.mustBeRefused(t, m.server, "unsupported versions")
	m = meet(t, old, n1.ClientTLS(nil))
	m.mustBeRefused(t, m.server, "unsupported versions")
}

func TestPlainTextIsRefused(t *testing.T) {
	callers, accepting := connect(t)
	defer callers.Close()
	defer accepting.Close()
	if _, err := io.WriteString(callers, "GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	err := tls.Server(accepting, newAuthority(t).keeper(t, "quorate://peer/n1").ServerTLS()).Handshake()
	if header := (tls.RecordHeaderError{}); !errors.As(err, &header) {
		t.Errorf("plain text: %v", err)
	}
}

// TestNoSessionIsResumed, even for a caller that would like to.
func TestNoSessionIsResumed(t *testing.T) {
	ca := newAuthority(t)
	server, client := ca.keeper(t, "quorate://peer/n1").ServerTLS(), bare(t, ca.issue(t, []string{"quorate://peer/n2"}))
	client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	client.ServerName = "localhost" // sessions are kept by it
	client.Time = atToday           // and not for longer than certificates are valid
	for range 3 {
		m := meet(t, server, client)
		m.mustSucceed(t)
		if m.serverState.DidResume || m.clientState.DidResume {
			t.Error("a session was resumed")
		}
	}
}

// TestIdentifyGoesByWhatIsInForceNow: an open connection can be asked again after a certificate has expired
// or its CA was dropped.
func TestIdentifyGoesByWhatIsInForceNow(t *testing.T) {
	ours, next := newAuthority(t), newAuthority(t)
	var clock wallClock
	dir, uris := t.TempDir(), []string{"quorate://peer/n1"}
	n1, err := access.Open(store(t, dir, ours.pem, ours.issue(t, uris, ends(today.Add(5*day)))), clock.now)
	if err != nil {
		t.Fatal(err)
	}
	m := meet(t, n1.ServerTLS(), ours.keeper(t, "quorate://peer/n2").ClientTLS(nil))
	m.mustSucceed(t)
	clock.advance(2 * day)
	if id, err := n1.Identify(m.serverState); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after its end: %s, %v", id, err)
	}
	clock.advance(-2 * day)
	if id, err := n1.Identify(m.serverState); err != nil {
		t.Errorf("within its time: %s, %v", id, err)
	}
	store(t, dir, next.pem, next.issue(t, uris))
	if changed, err := n1.Reload(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if id, err := n1.Identify(m.serverState); err == nil {
		t.Errorf("of a dropped CA: %s", id)
	}
	if id, err := n1.Identify(tls.ConnectionState{}); !errors.Is(err, access.ErrRefused) {
		t.Errorf("without a certificate: %s, %v", id, err)
	}
}
